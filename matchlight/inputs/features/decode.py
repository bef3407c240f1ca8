"""Decoding: pictures of any size become pixels of one size, by threads, a few batches ahead of whoever uses them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from matchlight.inputs.features.fill import Rows
from matchlight.inputs.preprocessing import UNREADABLE as UNREADABLE
from matchlight.inputs.preprocessing import Preprocessing

if TYPE_CHECKING:
    from matchlight.pairs import PictureSource

Work = Callable[[np.ndarray], np.ndarray]  # pixels of a batch -> what is wanted of them


def decoded(
    source: PictureSource, start: int, preprocessing: Preprocessing, batch: int, *, then: Work | None = None
) -> Iterator[Rows]:
    """Batches of pixels from row `start` on, in order, decoded by threads a few batches ahead.

    `then` is more work for the same threads, each of which uses one core: on a CPU whole batches side by side are far
    faster than one batch shared by cores that wait for each other, above all when the machine has other things to do.
    """
    spans = deque(range(start, len(source), batch))
    ahead: deque[Future[Rows]] = deque()
    with _threads(computing=then is not None) as (pool, workers):
        while spans or ahead:
            while spans and len(ahead) <= workers:
                first = spans.popleft()
                ahead.append(
                    pool.submit(_decode, source, range(first, min(first + batch, len(source))), preprocessing, then)
                )
            yield ahead.popleft().result()


@contextmanager
def _threads(*, computing: bool) -> Iterator[tuple[ThreadPoolExecutor, int]]:
    """Threads and how many; those that compute with torch, too, have one core each."""
    if not computing:
        pool = ThreadPoolExecutor(workers := min(8, os.cpu_count() or 1))
        try:
            yield pool, workers
        finally:
            pool.shutdown(cancel_futures=True)
        return
    import torch

    cores = torch.get_num_threads()
    pool = ThreadPoolExecutor(workers := min(16, cores), "decode", torch.set_num_threads, (1,))
    try:
        yield pool, workers
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(cores)  # threads that begin from now on have all of them again


def _decode(source: PictureSource, places: range, preprocessing: Preprocessing, then: Work | None) -> Rows:
    rows, broken = np.zeros((len(places), 3, *preprocessing.size), np.uint8), []
    for row, place in enumerate(places):
        try:
            rows[row] = preprocessing.pixels(source.open(place))
        except UNREADABLE:
            broken.append(place)
    return (then(rows) if then else rows), broken
