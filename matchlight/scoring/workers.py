"""Work in whole pieces, one a thread: on a CPU that wastes less than having all threads share every small operation.

PyTorch splits each operation over its threads and waits for the slowest. For operations of a millisecond the waiting
costs as much as the second core gives. Here each of a few threads takes a piece, computes it alone and takes the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Job = TypeVar("Job")
Result = TypeVar("Result")
MOST = 8  # threads that take pieces; more would wait for Python between operations, so each gets several cores instead


def count() -> int:
    """How many pieces are worked on at the same time."""
    return min(torch.get_num_threads(), MOST)


def spread(work: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
    """`work(job)` for every job, in order; a few at a time where PyTorch has several threads, else one by one."""
    many, all_threads = count(), torch.get_num_threads()
    if many == 1 or (isinstance(jobs, Sized) and len(jobs) == 1):
        yield from map(work, jobs)
        return
    inside = _same_modes(work)
    with ThreadPoolExecutor(many, initializer=torch.set_num_threads, initargs=(all_threads // many,)) as pool:
        try:
            ahead = deque[Future[Result]]()
            for job in jobs:
                ahead.append(pool.submit(inside, job))
                if len(ahead) >= 2 * many:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(all_threads)  # threads yet to come take the number that was set last


def _same_modes(work: Callable[[Job], Result]) -> Callable[[Job], Result]:
    """`work` under the modes that PyTorch keeps a thread, as they are here."""
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    cast, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def inside(job: Job) -> Result:
        with torch.inference_mode(inference), torch.set_grad_enabled(grad), torch.autocast("cpu", dtype, cast):
            return work(job)

    return inside
