"""An index on both engines: found, filtered, grown, shrunk, and what is left of a build that was stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import matchlight as ml
from matchlight.core import IMAGE, TEXT, BadInput
from matchlight.indexing import Index, build, run_model, shards, tuning, versions
from matchlight.indexing.item_filters import passing as passing_filter
from tests.indexed import PICTURES, milvus_server, needs_milvus, pairs, trained
from tests.tiny import tiny_pairs
from tests.two_processes import apart, together

ENGINES = ["faiss", pytest.param("milvus", marks=needs_milvus), pytest.param("server", marks=needs_milvus)]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from milvus_server(tmp_path_factory.mktemp("milvus"))


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `Index.build` is told about engines; few questions are measured, for a database is no memory."""
    monkeypatch.setattr(tuning, "MOST", 16)
    if request.param == "server":
        return {"engine": "milvus", "address": request.getfixturevalue("address")}
    return {"engine": request.param}


def test_candidates_hold_the_true_best_ten(engine: dict[str, Any], tmp_path: Path) -> None:
    with Index.build(trained("dive"), pairs(), tmp_path / "i", map=False, **engine) as index:
        kept = []
        for caption in pairs().captions[::5]:
            exact, quick = (index.search(caption, exact=all_of_it) for all_of_it in (True, False))
            kept.append(np.isin([hit.id for hit in exact.hits], [hit.id for hit in quick.hits]).mean())
            assert quick.scored == index.describe()["candidates"]["image"] < PICTURES
        assert np.mean(kept) >= 0.99
        assert index.describe()["recall"]["image"] >= 0.97  # 8 questions with the number of the other 8
        assert index.describe()["vectors"] == {"image": 4 * PICTURES, "text": 8 * PICTURES}


def test_vectors_that_are_no_numbers_are_one_line(tmp_path: Path) -> None:
    with Index.build(trained("dive"), pairs(), tmp_path / "i", map=False):
        pass
    for file in tmp_path.rglob("*.vectors.npy"):
        np.save(file, np.full_like(np.load(file), np.nan))
    with Index.load(tmp_path / "i", verify=False) as index, pytest.raises(BadInput, match="vectors .* are damaged"):
        index.search("a cat")


def test_a_filter_finds_the_best_of_what_passes_and_nothing_else(engine: dict[str, Any], tmp_path: Path) -> None:
    with Index.build(trained("dive"), pairs(), tmp_path / "i", map=False, candidates=3, **engine) as index:
        everything = index.search("a cat near owl", top=PICTURES, exact=True).hits
        for where in (
            {"split": "test"},
            {"label": "b"},
            {"name": "p1"},
            {"split": ["val", "test"], "label": ["a", "b"]},
        ):
            passing = passing_filter(index.catalogue, where)
            assert passing is not None
            wanted = [hit.id for hit in everything if passing[hit.id]]
            found = index.search("a cat near owl", top=3, where=where, candidates=12)
            assert [hit.id for hit in found.hits] == wanted[:3]
            assert found.total == passing.sum()
        assert index.search("owl", where={"name": "q"}).hits == []


# ---- growing and shrinking -------------------------------------------------------------------------------------------


def test_pictures_are_added_found_and_removed(engine: dict[str, Any], tmp_path: Path) -> None:
    more = tiny_pairs(6, 2, seed=9, held=1)
    with Index.build(trained("dive"), pairs(), tmp_path / "i", **engine) as index:
        before = [hit.id for hit in index.search("a cat near owl", exact=True).hits]
        new = index.add(more)
        assert new == list(range(40, 46))
        assert len(index) == 46
        assert (index.map is not None) and index.map.shape == (46, 2)
        mine = index.search(more.captions[4], find="text", top=3).hits[0]
        assert (mine.row, mine.id, mine.image) == (80 + 4, 42, "p2")
        index.remove(new)
        assert len(index) == PICTURES
        assert [hit.id for hit in index.search("a cat near owl", exact=True).hits] == before
        assert index.search(more.captions[4], find="text", top=90, exact=True).total == 80
    with Index.load(tmp_path / "i", device="cpu", address=engine.get("address")) as again:
        assert again.version == "v0003"
        assert len(again.search("a cat near owl", top=46, candidates=46).hits) == PICTURES
        with pytest.raises(BadInput, match="no picture 42"):
            again.item(42)


def test_an_index_is_packed_when_much_was_removed_and_ids_stay(engine: dict[str, Any], tmp_path: Path) -> None:
    with Index.build(trained("dive"), pairs(), tmp_path / "i", map=False, **engine) as index:
        before = [hit.id for hit in index.search("a cat near owl", top=PICTURES, exact=True).hits]
        index.remove(range(0, 30, 2))
        assert index.describe()["vectors"] == {"image": 4 * 25, "text": 8 * 25}
        after = [hit.id for hit in index.search("a cat near owl", top=PICTURES, exact=True).hits]
        assert after == [one for one in before if one % 2 or one >= 30]
        assert index.add(tiny_pairs(2, 1, seed=9, held=0)) == [40, 41]
        with pytest.raises(BadInput, match="nothing would be left"):
            index.remove(index.ids)


def test_an_index_that_grew_by_half_is_measured_anew_and_what_was_removed_stays_away(
    engine: dict[str, Any], tmp_path: Path
) -> None:
    small, more = tiny_pairs(8, 2, seed=3, held=1), pairs()
    with Index.build(trained("dive"), small, tmp_path / "i", candidates=12, **engine) as index:
        index.remove([2])
        assert index.info["sides"][IMAGE]["items"] == 8
        index.add(more)
        assert index.info["sides"][IMAGE]["items"] == 47
        assert index.describe()["candidates"] == {IMAGE: 12, TEXT: 12}  # as was asked for
        hits = index.search(more.captions[4], top=20, candidates=47).hits
        exact = index.search(more.captions[4], top=20, exact=True).hits
        assert [hit.id for hit in hits] == [hit.id for hit in exact]
        assert 2 not in [hit.id for hit in index.search("a cat", top=48, exact=True).hits]
        assert index.map is not None and len(index.map) == len(index) == 47


def test_more_results_are_chosen_from_more_candidates(tmp_path: Path) -> None:
    with Index.build(trained("dive"), pairs(), tmp_path / "i", map=False, candidates=11) as index:
        assert [index.search("a cat", top=top).scored for top in (3, 10, 12)] == [11, 11, 19]
        assert index.search("a cat", top=12, candidates=13).scored == 13


def test_a_change_is_made_to_what_another_left(tmp_path: Path) -> None:
    with Index.build(trained("dive"), pairs(), tmp_path / "i", map=False) as one, Index.load(tmp_path / "i") as two:
        two.remove([0])
        assert len(one.search("cat", top=40, exact=True).hits) == 40  # what is open goes on as it was
        one.remove([1])
        assert one.version == "v0003"
        assert one.ids.tolist() == list(range(2, 40))
        assert one.add(tiny_pairs(2, 1, seed=9, held=0)) == [40, 41]
        with pytest.raises(BadInput, match="no picture 1 in"):
            two.remove([1])


CHANGES = 2  # by each of two processes


def change_apart(rank: int, folder: str, address: str | None) -> None:
    """What one of two writers does: it adds two pictures, takes one of them out again, and so on."""
    with Index.load(folder, device="cpu", address=address) as index:
        for number in range(CHANGES):
            new = index.add(tiny_pairs(2, 1, seed=100 * rank + number, held=0))
            index.remove(new[:1])


@pytest.mark.parametrize("where", ["faiss", pytest.param("server", marks=needs_milvus)])
def test_two_processes_that_change_one_index_lose_nothing(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue("address") if where == "server" else None
    engine = "milvus" if where == "server" else where
    how: dict[str, Any] = {"engine": engine, "address": address, "map": False, "candidates": 20}
    Index.build(trained("dive"), pairs(), tmp_path / "i", **how).close()
    apart(change_apart, str(tmp_path / "i"), address)
    with Index.load(tmp_path / "i", device="cpu", address=address) as index:
        assert index.version == f"v{1 + 2 * 2 * CHANGES:04d}"
        kept = index.ids[PICTURES:]  # one of each two that were added, 40 and 41, 42 and 43, by whomever
        assert kept.tolist() == list(range(PICTURES + 1, PICTURES + 4 * CHANGES, 2))
        rows = index.describe()["vectors"]["image"]
        assert rows == 4 * (len(index) if where == "server" else PICTURES + 4 * CHANGES)  # FAISS bars what is removed
        said = {index.item(int(one))["captions"][0]["caption"] for one in kept}
        wanted = [tiny_pairs(2, 1, seed=100 * rank + n, held=0).captions[1] for rank in (0, 1) for n in range(CHANGES)]
        assert said == set(wanted)
        for one in kept.tolist():  # and the engine has the rows of each
            side = index.searcher.sides[IMAGE]
            sets = side.sets.take(side.places(np.array([one])))
            assert side.engine is not None
            found = side.engine.search(index.searcher.proposer.rows(sets, IMAGE)[0], 1)[1]
            assert (found == one).all()


# ---- surviving -------------------------------------------------------------------------------------------------------


def test_a_build_that_was_stopped_goes_on_behind_its_last_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen, most = run_model.encode, [], 4

    def encode(*arguments: Any, **options: Any) -> Any:
        if len(seen) == most:
            raise KeyboardInterrupt
        seen.append(arguments[2])
        return real(*arguments, **options)

    monkeypatch.setattr(shards, "SHARD", 16)  # three shards of pictures, five of captions
    monkeypatch.setattr(run_model, "encode", encode)
    with pytest.raises(KeyboardInterrupt):
        Index.build(trained("dive"), pairs(), tmp_path / "i", map=False)
    assert seen == [IMAGE, IMAGE, IMAGE, TEXT]
    with pytest.raises(BadInput, match="not an index"):
        Index.load(tmp_path / "i")
    seen.clear()
    with Index.build(trained("dive"), pairs(), tmp_path / "i", map=False) as index:
        assert seen == [TEXT] * 4
        assert len(index.search("cat", top=40, exact=True).hits) == PICTURES


def test_a_draft_of_another_model_is_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(build, "complete", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            Index.build(trained("dive"), pairs(), tmp_path / "i", map=False)
    with Index.build(trained("vse++"), pairs(), tmp_path / "i", map=False) as index:
        assert index.searcher.sides[IMAGE].sets.take(np.arange(2)).vectors.shape[1] == 1  # not DivE's four


def test_two_processes_make_the_index_that_one_makes(tmp_path: Path) -> None:
    alone = Index.build(trained("dive"), pairs(), tmp_path / "one", map=False)
    together(build_together, str(tmp_path / "two"), str(trained("dive").folder))
    with Index.load(tmp_path / "two", device="cpu") as index, alone:
        assert index.search("a cat near owl").hits == alone.search("a cat near owl").hits
        assert len(index.info["shards"][TEXT]) == 5


def build_together(rank: int, folder: str, run: str) -> None:
    """What one of two processes does."""
    shards.SHARD = 16
    Index.build(ml.Run.load(run, device="cpu"), pairs(), folder, map=False).close()


def test_a_failed_rebuild_leaves_the_old_index_working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Index.build(trained("dive"), pairs(), tmp_path / "i", map=False).close()
    with monkeypatch.context() as patch:
        patch.setattr(versions, "_point", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            Index.build(trained("scan"), pairs(), tmp_path / "i", map=False)
    with Index.load(tmp_path / "i", device="cpu") as index:
        assert (index.version, index.describe()["method"]) == ("v0001", "dive")
    with Index.build(trained("scan"), pairs(), tmp_path / "i", map=False) as index:
        assert index.describe()["method"] == "scan"


def test_an_engine_file_with_one_changed_byte_is_never_opened(tmp_path: Path) -> None:
    Index.build(trained("dive"), pairs(), tmp_path / "i", map=False).close()
    path = tmp_path / "i" / "v0001" / "engine" / "image" / "rows.faiss"
    blob = bytearray(path.read_bytes())
    blob[40] ^= 0xFF
    path.write_bytes(blob)
    with pytest.raises(BadInput, match=r"rows.faiss: damaged"):
        Index.load(tmp_path / "i")


def test_options_that_cannot_be_are_told_before_anything_is_done(tmp_path: Path) -> None:
    for wrong, told in (
        ({"engine": "lucene"}, "faiss or milvus"),
        ({"target": 1.5}, "up to 1"),
        ({"candidates": 0}, "at least 1"),
        ({"address": "http://x"}, "--engine faiss has no address"),
        ({"split": "dev"}, "no split 'dev'"),
        ({"coarse": "fine"}, "auto, plain"),
    ):
        with pytest.raises(BadInput, match=told):
            Index.build(trained("dive"), pairs(), tmp_path / "i", **wrong)
    assert not versions.is_index(tmp_path / "i")
