"""Whole pieces of work, one a thread: results in order, every thread alone, and nothing left changed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from matchlight.scoring import workers
from matchlight.scoring.workers import spread


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_come_in_the_order_of_the_jobs() -> None:
    second = threading.Event()

    def work(job: int) -> int:
        second.wait(5) if job == 0 else second.set()  # the first is done after the second
        return job * job

    assert list(spread(work, range(9))) == [job * job for job in range(9)]


def test_two_work_at_the_same_time_with_one_thread_each() -> None:
    both = threading.Barrier(2, timeout=5)

    def work(job: int) -> tuple[int, int]:
        both.wait()  # breaks unless another is here as well
        return threading.get_ident(), torch.get_num_threads()

    found = list(spread(work, range(4)))
    assert threading.get_ident() not in {who for who, _ in found}
    assert {threads for _, threads in found} == {1}
    assert torch.get_num_threads() == 2


def test_a_single_job_or_a_single_thread_needs_no_others() -> None:
    here = threading.get_ident()
    assert list(spread(lambda job: threading.get_ident(), [0])) == [here]
    torch.set_num_threads(1)
    assert list(spread(lambda job: threading.get_ident(), range(3))) == [here] * 3


def test_many_cores_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(4)
    monkeypatch.setattr(workers, "MOST", 2)
    assert workers.count() == 2
    assert set(spread(lambda job: torch.get_num_threads(), range(4))) == {2}


@pytest.mark.parametrize("inference", [True, False])
def test_the_modes_of_the_caller_hold_in_the_threads(inference: bool) -> None:
    def work(job: int) -> tuple[bool, bool, torch.dtype]:
        made = torch.ones(2, 2) @ torch.ones(2, 2)
        return torch.is_inference_mode_enabled(), torch.is_grad_enabled(), made.dtype

    with torch.inference_mode(inference), torch.autocast("cpu", torch.bfloat16):
        assert set(spread(work, range(3))) == {(inference, not inference, torch.bfloat16)}
    with torch.no_grad():
        assert set(spread(work, range(3))) == {(False, False, torch.float32)}


def test_an_error_comes_out_and_the_threads_are_given_back() -> None:
    done = []

    def work(job: int) -> None:
        if job == 1:
            raise ValueError("no such pair")
        done.append(job)

    with pytest.raises(ValueError, match="no such pair"):
        list(spread(work, range(1000)))
    assert len(done) < 20
    assert torch.get_num_threads() == 2
    assert list(spread(lambda job: torch.get_num_threads(), [1, 2])) == [1, 1]


def test_only_a_few_jobs_are_taken_before_their_results_are_wanted() -> None:
    taken = []

    def jobs() -> Iterator[int]:
        for job in range(100):
            taken.append(job)
            yield job

    results = spread(lambda job: job, jobs())
    assert next(results) == 0
    assert len(taken) <= 4
    results.close()  # whoever stops early leaves no thread behind
    assert torch.get_num_threads() == 2


def test_threads_yet_to_come_have_all_cores_again() -> None:
    list(spread(lambda job: job, range(4)))
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert seen == [2]
