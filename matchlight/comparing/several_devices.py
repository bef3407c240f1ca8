"""A comparison on several devices: this process works on the first, a worker process on each of the others.

They share nothing but the folder, where each cell is locked by the process that trains it. A worker ends with its
parent, however that ends, and what it leaves half done is continued at the next call.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from matchlight.comparing.grid import Settings, check, compare
from matchlight.comparing.results_table import Results
from matchlight.comparing.variants import Variant, all_cells
from matchlight.core import BadInput
from matchlight.pairs import Pairs


def compare_on(
    devices: Sequence[str],
    methods: Sequence[Variant],
    data: Path,
    out: Path,
    *,
    noise: Sequence[float],
    seeds: int,
    settings: Settings,
    show: Callable[[Results], None] | None = None,
) -> Results:
    """`compare`, with a worker process for each device after the first."""
    pairs = Pairs.read(data)
    for device in devices:  # refused here, once, before any worker starts
        check(all_cells(methods, noise, seeds), pairs, replace(settings, device=device))
    context = multiprocessing.get_context("spawn")  # a GPU cannot be used after a fork
    workers = []
    for device in devices[1:]:
        mine = replace(settings, device=device)
        asked = (os.getpid(), list(methods), str(data), str(out), list(noise), seeds, mine)
        workers.append(context.Process(target=_work, args=asked, daemon=True))
    for worker in workers:
        worker.start()
    first = replace(settings, device=devices[0])
    results = compare(methods, pairs, out, noise=noise, seeds=seeds, settings=first, show=show)
    for worker in workers:
        worker.join()
    return results


def _work(
    parent: int, methods: list[Variant], data: str, out: str, noise: list[float], seeds: int, settings: Settings
) -> None:
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    try:
        compare(methods, Pairs.read(data), out, noise=noise, seeds=seeds, settings=settings)
    except (BadInput, KeyboardInterrupt):  # the first process meets the same and reports it
        os._exit(1)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
