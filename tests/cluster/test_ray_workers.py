"""Shards are done once, by workers that may die, and nothing waits for ever."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from matchlight.cluster import ray_workers as engine
from matchlight.cluster.jobs import Job, Lost, Work, tell
from matchlight.cluster.ray_workers import RayWorkers, ray_workers
from matchlight.console import BadInput


def finish(workers: RayWorkers, work: Work[str, str], folder: Path, names: str) -> list[Lost]:
    jobs = [Job(name, folder / f"{name}.txt", name) for name in names.split()]
    return workers.finish(work, "shared", jobs, "testing", total=len(jobs))


def write(shared: str, item: str, draft: Path) -> None:
    with open(draft.parent / "tries", "a") as tries:
        tries.write(f"{item} ")
    draft.write_text(f"{shared} {item}")


def tries(folder: Path) -> list[str]:
    return sorted((folder / "tries").read_text().split())


def test_every_shard_is_written_with_what_all_share(workers: RayWorkers, tmp_path: Path) -> None:
    assert finish(workers, write, tmp_path, "a b c d e") == []
    assert [(tmp_path / f"{name}.txt").read_text() for name in "abcde"] == [f"shared {name}" for name in "abcde"]


def test_a_shard_that_is_there_is_not_done_again(workers: RayWorkers, tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("done before")
    assert finish(workers, write, tmp_path, "a b c") == []
    assert tries(tmp_path) == ["a", "c"] and (tmp_path / "b.txt").read_text() == "done before"


def break_b(shared: str, item: str, draft: Path) -> None:
    if item == "b":
        draft.write_text("half")
        raise BadInput("b.tar: ends in the middle of a file")
    write(shared, item, draft)


def test_a_broken_shard_is_told_and_left_out(
    workers: RayWorkers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = finish(workers, break_b, tmp_path, "a b c")
    assert lost == [Lost("b", "b.tar: ends in the middle of a file")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "c.txt", "tries"]
    tell(lost, 3)
    assert capsys.readouterr().err == "1 of 3 shards left out:\n  b: b.tar: ends in the middle of a file\n"


def die_once(shared: str, item: str, draft: Path) -> None:
    first = not (draft.parent / "tries").exists()
    write(shared, item, draft)
    if first:
        os.kill(os.getpid(), signal.SIGKILL)


def test_the_shard_of_a_worker_that_was_killed_is_done_by_another(workers: RayWorkers, tmp_path: Path) -> None:
    assert finish(workers, die_once, tmp_path, "a") == []
    assert tries(tmp_path) == ["a", "a"] and (tmp_path / "a.txt").read_text() == "shared a"


def die(shared: str, item: str, draft: Path) -> None:
    write(shared, item, draft)
    if item == "a":
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_shard_that_kills_every_worker_is_left_out_after_three_tries(workers: RayWorkers, tmp_path: Path) -> None:
    (lost,) = finish(workers, die, tmp_path, "a b")
    assert lost.name == "a" and lost.reason.startswith("its worker died 3 times")
    assert tries(tmp_path) == ["a", "a", "a", "b"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.txt", "tries"]  # and no draft of the dead


def fill_the_disk(shared: str, item: str, draft: Path) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_ends_the_call(workers: RayWorkers, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="disk is full"):
        finish(workers, fill_the_disk, tmp_path, "a b c")


def sleep(shared: str, item: str, draft: Path) -> None:
    time.sleep(60)


def test_a_shard_that_hangs_is_one_line_and_no_wait(workers: RayWorkers, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(BadInput, match=r"no shard got done in 1 s \(1 under way"):
        finish(replace(workers, patience=1.0), sleep, tmp_path, "a")
    assert time.monotonic() - began < 30


class Taken:
    def ready(self) -> bool:
        return True


def test_a_cluster_whose_cpus_are_all_taken_is_one_line_and_no_wait(
    workers: RayWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setattr(engine, "FIRST", 1.0)
    taker = ray.remote(Taken).options(num_cpus=workers.cpus).remote()
    try:
        assert ray.get(taker.ready.remote(), timeout=60)
        with (
            pytest.raises(BadInput, match=rf"no worker began within 1 s: the .* has {workers.cpus} CPUs, 0 of them"),
            ray_workers(),
        ):
            pass
    finally:
        ray.kill(taker)


def test_more_cpus_than_there_are_is_one_line(workers: RayWorkers) -> None:
    with pytest.raises(BadInput, match=r"--workers 9999: this machine has \d+ CPUs"), ray_workers(cpus=9999):
        pass
    has = rf"--workers 99: the cluster at auto has {workers.cpus} CPUs"
    with pytest.raises(BadInput, match=has), ray_workers("auto", cpus=99):
        pass
    with pytest.raises(BadInput, match="--device cuda: the local cluster has 0 GPUs"), ray_workers(gpu=True):
        pass


def test_without_ray_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BadInput, match=r"pip install 'matchlight\[ray\]'"), ray_workers():
        pass


@pytest.mark.parametrize("address", ["127.0.0.1:9", "nonsense", "ray://127.0.0.1:10001", ":6379", "host:port"])
def test_an_address_where_no_cluster_is_is_one_line(workers: RayWorkers, address: str) -> None:
    with pytest.raises(BadInput, match=f"--address {address}: "):
        engine._connect(workers.loaded, address)


def test_a_local_cluster_listens_on_this_machine_alone_and_sends_no_statistics(workers: RayWorkers) -> None:
    import ray

    assert {node["NodeManagerAddress"] for node in ray.nodes()} == {"127.0.0.1"}
    assert ray.get_runtime_context().gcs_address.startswith("127.0.0.1:")
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
