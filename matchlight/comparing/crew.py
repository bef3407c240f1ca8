"""A comparison on several devices: this process works on the first, a helper process on each of the others.

They share nothing but the folder, where each cell is claimed by whoever trains it. A helper ends with its parent,
however that ends, and what it leaves half done is gone on with at the next call.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matchlight.comparing.entrants import Entrant, grid
from matchlight.comparing.grid import Settings, check, compare
from matchlight.core import BadInput
from matchlight.pairs import Pairs


def compare_on(
    devices: Sequence[str],
    methods: Sequence[Entrant],
    data: Path,
    out: Path,
    *,
    noise: Sequence[float],
    seeds: int,
    settings: Settings,
    show: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """`compare`, with a helper for each device after the first."""
    pairs = Pairs.read(data)
    for device in devices:  # told here, once, before any helper starts
        check(grid(methods, noise, seeds), pairs, replace(settings, device=device))
    context = multiprocessing.get_context("spawn")  # a GPU cannot be used after a fork
    helpers = []
    for device in devices[1:]:
        mine = replace(settings, device=device)
        asked = (os.getpid(), list(methods), str(data), str(out), list(noise), seeds, mine)
        helpers.append(context.Process(target=_help, args=asked, daemon=True))
    for helper in helpers:
        helper.start()
    first = replace(settings, device=devices[0])
    results = compare(methods, pairs, out, noise=noise, seeds=seeds, settings=first, show=show)
    for helper in helpers:
        helper.join()
    return results


def _help(
    parent: int, methods: list[Entrant], data: str, out: str, noise: list[float], seeds: int, settings: Settings
) -> None:
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    try:
        compare(methods, Pairs.read(data), out, noise=noise, seeds=seeds, settings=settings)
    except (BadInput, KeyboardInterrupt):  # the first process meets the same and tells it
        os._exit(1)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
