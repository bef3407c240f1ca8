"""A new index is taken up without dropping a request; a broken one is not; the old one closes after its last user."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest
from serving import request, running

pytest.importorskip("fastapi")

from matchlight.indexing import Index  # noqa: E402
from matchlight.serve.counters import Counters  # noqa: E402
from matchlight.serve.live_index import LiveIndex  # noqa: E402


@pytest.fixture
def copy(collection, tmp_path) -> Path:
    return Path(shutil.copytree(collection[0], tmp_path / "index"))


def test_an_index_in_use_closes_only_after_its_last_user(copy):
    closed: list[str] = []

    class Told(Index):
        def close(self) -> None:
            closed.append(self.version)
            super().close()

    def load(path: Path) -> Index:
        index = Index.load(path)
        index.__class__ = Told
        return index

    live = LiveIndex(copy, load, Counters())
    with live.use() as old:
        with Index.load(copy) as other:
            other.remove([0])
        assert live.reload() and not live.reload()
        with live.use() as new:
            assert (len(old.index), len(new.index)) == (24, 23) and new.number == 2
        assert old.index.search("a red ball", top=3).hits and not closed
    assert closed == ["v0001"]
    live.close()
    assert closed == ["v0001", "v0002"]


def test_a_version_that_cannot_be_read_leaves_the_old_one_answering(copy):
    counters = Counters()
    live = LiveIndex(copy, Index.load, counters)
    (copy / "CURRENT").write_text("v0009 nothing\n")
    assert not live.reload() and counters.reloads["failed"] == 1 and live.problem
    with live.use() as held:
        assert held.index.search("a red ball", top=3).hits
    live.close()


def test_no_request_is_dropped_while_the_index_is_replaced(copy):
    failures: list[object] = []
    counts: set[bytes] = set()
    done = threading.Event()

    def ask(address: str) -> None:
        while not done.is_set():
            try:
                for path in ("api/search?q=a+red+ball&top=3", "images/5", "api/items/7/neighbours"):
                    status, _ = request(address + path)
                    if status != 200:
                        failures.append((path, status))
                counts.add(request(address + "api/health")[1])
            except OSError as problem:
                failures.append(problem)

    with running(str(copy)) as (_, address):
        clients = [threading.Thread(target=ask, args=(address,)) for _ in range(4)]
        for client in clients:
            client.start()
        with Index.load(copy) as index:
            index.remove([0, 1])
        until = time.monotonic() + 60
        while not any(b'"items":22' in one for one in counts) and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(0.5)
        done.set()
        for client in clients:
            client.join()
    assert not failures and any(b'"items":24' in one for one in counts) and any(b'"items":22' in one for one in counts)
