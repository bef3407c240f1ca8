"""Both engines answer alike: one suite, run on FAISS in all its kinds, on a Milvus folder and on a Milvus server."""

from __future__ import annotations

import errno
import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matchlight import files
from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.indexing import Index
from matchlight.indexing.engines import NONE, Engine, Place, engine_class, segments
from matchlight.indexing.engines import faiss as faiss_engine
from matchlight.indexing.engines.faiss import Faiss, kind_for
from matchlight.indexing.engines.milvus import Milvus, _moved_up, connect
from matchlight.indexing.engines.segments import Segments
from matchlight.indexing.searcher import chosen
from tests.indexed import PICTURES, clustered, milvus_server, needs_milvus, pairs, trained
from tests.tiny import tiny_pairs

Make = Callable[[np.ndarray, np.ndarray], Engine]
KINDS = [
    "flat",
    "graph",
    "cells",
    "disk",
    pytest.param("folder", marks=needs_milvus),
    pytest.param("server", marks=needs_milvus),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from milvus_server(tmp_path_factory.mktemp("milvus"))


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """How to make an engine of one kind."""
    if request.param in faiss_engine.KINDS:
        yield lambda ids, vectors: Faiss.of(ids, vectors, kind=request.param)
        return
    address = request.getfixturevalue("address") if request.param == "server" else None
    place = Place(tmp_path / "engine", tmp_path, f"t_{abs(hash(str(tmp_path)))}", address)
    made: list[Engine] = []

    def build(ids: np.ndarray, vectors: np.ndarray) -> Engine:
        made.append(Milvus.build(place, ids, vectors))
        return made[-1]

    yield build
    for engine in made:
        engine.close()


def best_rows(vectors: np.ndarray, ids: np.ndarray, query: np.ndarray, count: int) -> np.ndarray:
    """Ids of the nearest rows by looking at all of them."""
    order = np.argsort(-(vectors.reshape(-1, vectors.shape[-1]) @ query), kind="stable")[:count]
    return np.repeat(ids, vectors.shape[1])[order]


IDS = np.arange(120, dtype=np.int64) * 3 + 5
ROWS = clustered(120, 2, 16)


def test_the_nearest_rows_are_found_with_the_items_they_belong_to(make: Make) -> None:
    engine = make(IDS, ROWS)
    scores, found = engine.search(ROWS[7], 12)
    for k in range(2):
        wanted = best_rows(ROWS, IDS, ROWS[7, k], 12)
        assert len(np.intersect1d(found[k], wanted)) >= 0.9 * len(np.unique(wanted))
        assert found[k, 0] == IDS[7]
        assert scores[k, 0] == pytest.approx(1.0, abs=2e-3)
    assert (np.diff(scores, axis=1) <= 1e-6).all()


def test_a_filter_lets_nothing_else_through_and_nothing_be_missed(make: Make) -> None:
    engine, allowed = make(IDS, ROWS), IDS[10:14]
    _, found = engine.search(ROWS[7], 8, allowed)
    assert (np.sort(found, axis=1) == np.repeat(allowed, 2)).all()  # two rows each, all of them, nothing besides


def test_fewer_rows_than_asked_for_end_in_none(make: Make) -> None:
    _, found = make(IDS, ROWS).search(ROWS[7, :1], 8, IDS[:2])
    assert set(found[0, :4].tolist()) == set(IDS[:2].tolist())
    assert (found[0, 4:] == NONE).all()


def test_removed_items_are_never_found_and_added_ones_are(make: Make) -> None:
    engine = make(IDS[:100], ROWS[:100])
    engine.add(IDS[100:], ROWS[100:])
    assert engine.search(ROWS[110, :1], 1)[1][0, 0] == IDS[110]
    engine.remove(np.array([IDS[110], 1]))  # 1 is nobody's
    _, found = engine.search(ROWS[110], 40)
    assert IDS[110] not in found
    _, found = engine.search(ROWS[110], 8, IDS[108:112])
    assert set(found[found != NONE].tolist()) == set(IDS[[108, 109, 111]].tolist())


def test_a_faiss_engine_is_the_same_after_a_save(tmp_path: Path) -> None:
    engine = Faiss.of(IDS, ROWS)
    engine.remove(IDS[:3])
    engine.save(tmp_path)
    again = Faiss.open(Place(tmp_path, tmp_path, "t"), each=2, dim=16)
    for mine, its in zip(engine.search(ROWS[0], 9), again.search(ROWS[0], 9), strict=True):
        np.testing.assert_array_equal(mine, its)
    assert again.describe() == {"kind": "flat", "effort": 0} and again.count() == 240


def test_the_kind_of_faiss_index_follows_from_the_number_of_rows() -> None:
    edges = (1, 20_000, 20_001, 50_000, 50_001, 500_000, 500_001, 10**9)
    kinds = ["flat", "flat", "graph", "graph", "cells", "cells", "disk", "disk"]
    assert [kind_for(n) for n in edges] == kinds


def opened_on_disk(folder: Path) -> Faiss:
    """An engine on the disk, opened once more."""
    return Faiss.open(Place(folder, folder, "t"), each=2, dim=16)


def test_an_engine_on_the_disk_is_written_in_segments_and_searched_as_one(tmp_path: Path) -> None:
    made = Faiss.of(IDS, ROWS, kind="disk", room=tmp_path)
    whole = [array.tolist() for array in made.search(ROWS[7], 12)]
    assert isinstance(made.index, Segments)
    parts = Segments(made.index.cells, room=tmp_path / "parts", size=100)
    for start in range(0, 240, 50):
        parts.add(ROWS.reshape(-1, 16)[start : start + 50])
    engine = Faiss(parts, IDS, 2, kind="disk", effort=made.effort)
    engine.save(tmp_path / "parts")
    assert [part.ntotal for _, part in parts.stored] == [100, 100, 40]
    again = opened_on_disk(tmp_path / "parts")
    assert [array.tolist() for array in again.search(ROWS[7], 12)] == whole


def test_rows_added_on_the_disk_are_a_segment_and_small_ones_are_merged(tmp_path: Path) -> None:
    Faiss.of(IDS[:100], ROWS[:100], kind="disk").save(tmp_path / "0")
    for version, start in enumerate(range(100, 120, 4)):
        engine = opened_on_disk(tmp_path / str(version))
        engine.add(IDS[start : start + 4], ROWS[start : start + 4])
        engine.save(tmp_path / str(version + 1))
    names = {one: sorted(path.name for path in (tmp_path / one).glob("segment-*")) for one in "012345"}
    assert [len(names[one]) for one in "012345"] == [1, 2, 2, 2, 3, 2]  # rows added: 8; 16; 24; 24 and 8; 40
    first = [(tmp_path / one / "segment-00000.faiss").stat().st_ino for one in "012345"]
    assert len(set(first)) == 1  # linked, never written again
    last = opened_on_disk(tmp_path / "5")
    assert last.count() == 240
    for item in (3, 99, 100, 107, 119):
        assert last.search(ROWS[item, :1], 1)[1][0, 0] == IDS[item]


def test_a_segment_of_other_cells_is_refused(tmp_path: Path) -> None:
    Faiss.of(IDS, ROWS, kind="disk").save(tmp_path)
    Faiss.of(IDS[:20], ROWS[:20], kind="disk").save(tmp_path / "other")
    (tmp_path / "other" / "segment-00000.faiss").replace(tmp_path / "segment-00001.faiss")
    with pytest.raises(ValueError, match="segment-00001.faiss has .* cells"):
        opened_on_disk(tmp_path)


def test_the_effort_grows_until_nearly_all_true_neighbours_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).normal(size=(600, 1, 24)).astype(np.float32)  # no clusters: cells are poor
    low = Faiss.of(np.arange(600), rows, kind="cells")
    monkeypatch.setattr(faiss_engine, "ENOUGH", 0.1)
    assert Faiss.of(np.arange(600), rows, kind="cells").effort < low.effort


def test_new_ids_must_be_higher_than_old_ones() -> None:
    with pytest.raises(ValueError, match="higher"):
        Faiss.of(IDS, ROWS).add(IDS[:1], ROWS[:1])


@needs_milvus
def test_a_wide_filter_on_milvus_is_sifted_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("matchlight.indexing.engines.milvus.LISTED", 3)
    engine = Milvus.build(Place(tmp_path, tmp_path, "wide"), IDS, ROWS)
    allowed = IDS[::2]
    _, found = engine.search(ROWS[7], 6, allowed)
    assert (found != NONE).all()
    assert np.isin(found, allowed).all()
    engine.close()


@needs_milvus
def test_a_second_process_on_a_milvus_folder_gets_one_clear_line(tmp_path: Path) -> None:
    code = "import sys, pymilvus; held = pymilvus.MilvusClient(sys.argv[1]); print('open', flush=True); input()"
    command = [sys.executable, "-c", code, str(tmp_path / "rows.db")]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(BadInput, match="another process has this Milvus folder open") as told:
            connect(str(tmp_path / "rows.db"))
        assert len(str(told.value).splitlines()) == 1
    finally:
        holder.communicate("\n", timeout=20)


@needs_milvus
def test_an_address_where_nobody_answers_is_one_clear_line() -> None:
    with pytest.raises(BadInput, match="no Milvus answers there"):
        connect("http://127.0.0.1:9")


def first_version_claims(monkeypatch: pytest.MonkeyPatch, address: str | None) -> None:
    """The first version of an index says that its rows are at some address, as a stranger's file could."""
    read = files.read_json

    def claimed(path: Path, what: str) -> Any:
        said = read(path, what)
        mine = (path.parent.name, path.name) == ("v0001", "index.json")
        return {**said, "engine": {"name": "milvus", "address": address, "uid": "a"}} if mine else said

    monkeypatch.setattr(files, "read_json", claimed)


@needs_milvus
def test_an_address_that_only_an_indexs_file_names_is_never_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    Index.build(trained("dive"), pairs(), tmp_path / "i", map=False).close()
    monkeypatch.setattr("pymilvus.MilvusClient", lambda address, **_: asked.append(address) or pytest.fail(address))
    monkeypatch.setenv("MATCHLIGHT_MILVUS_TOKEN", "secret")
    for named in ("http://stranger.example:19530", str(tmp_path / "elsewhere.db")):
        first_version_claims(monkeypatch, named)
        with pytest.raises(BadInput, match="not followed unasked"):
            Index.load(tmp_path / "i", device="cpu")
    first_version_claims(monkeypatch, None)
    with pytest.raises(BadInput, match="no Milvus folder"):
        Index.load(tmp_path / "i", device="cpu")
    (tmp_path / "i" / "milvus.db").symlink_to(tmp_path)
    with pytest.raises(BadInput, match="is a link"):
        Index.load(tmp_path / "i", device="cpu")
    assert asked == []


@needs_milvus
def test_replacing_a_strangers_index_does_not_reach_for_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Index.build(trained("dive"), pairs(), tmp_path / "i", map=False).close()
    first_version_claims(monkeypatch, str(tmp_path / "elsewhere.db"))
    Index.build(trained("dive"), pairs(), tmp_path / "i", map=False).close()
    assert not (tmp_path / "elsewhere.db").exists()


def test_unknown_engines_are_told() -> None:
    with pytest.raises(BadInput, match="faiss or milvus"):
        engine_class("lucene")


def sea() -> str:
    """The engine that the documentation shows."""
    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
    return page.split("## A search engine")[1].split('title="my_engine.py"\n')[1].split("```")[0]


def test_an_engine_of_an_installed_package_builds_searches_and_changes_an_index(
    install_plugin: Callable[..., None], tmp_path: Path
) -> None:
    install_plugin("sea", sea(), {"matchlight.engines": {"sea": "sea:Sea"}})
    with Index.build(trained("dive"), pairs(), tmp_path / "i", engine="sea", map=False) as index:
        assert index.describe()["engine"] == "sea"
        assert index.describe()["vectors"] == {"image": 4 * PICTURES, "text": 8 * PICTURES}
        index.add(tiny_pairs(2, 1, seed=9, held=0))
        index.remove([41])
    with Index.load(tmp_path / "i", device="cpu") as again:
        exact, quick = (again.search("a cat near owl", exact=everything).hits for everything in (True, False))
        assert [hit.id for hit in exact] == [hit.id for hit in quick]
        assert again.describe()["engines"]["image"] == {"engine": "sea", "rows": 4 * (PICTURES + 1)}


def test_a_plug_in_that_is_no_engine_is_one_clear_line(install_plugin: Callable[..., None]) -> None:
    install_plugin("pond", "class Pond: pass", {"matchlight.engines": {"pond": "pond:Pond"}})
    with pytest.raises(BadInput, match="pond:Pond of pond is no matchlight.indexing.engines.Engine"):
        engine_class("pond")


def test_an_engine_of_an_installed_package_is_an_option_of_the_command_line(
    install_plugin: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install_plugin("sea", sea(), {"matchlight.engines": {"sea": "sea:Sea"}})
    command = ["index", str(tmp_path / "none"), "--data", str(tmp_path), "-o", str(tmp_path / "i"), "--engine"]
    assert main([*command, "sea"]) != 0
    assert "none" in capsys.readouterr().err  # the run is not there; the engine is
    assert main([*command, "se"]) != 0
    assert "faiss, milvus, sea" in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_lists_of_a_querys_vectors_are_merged_by_hand_worked_numbers() -> None:
    scores = np.array([[0.9, 0.8, 0.2], [0.7, 0.6, 0.5]], np.float32)
    items = np.array([[4, 4, 9], [9, 2, 4]])
    # mean: 4 -> (.9 + .5) / 2 = .7; 9 -> (.2 + .7) / 2 = .45; 2 -> (.2, its list's last, + .6) / 2 = .4
    assert chosen(scores, items, 1, "mean").tolist() == [4]
    assert chosen(scores, items, 2, "mean").tolist() == [4, 9]
    # max: 4 -> .9; 9 -> .7; 2 -> .6
    assert chosen(scores, items, 2, "max").tolist() == [4, 9]
    assert chosen(scores, items, 9, "mean").tolist() == [2, 4, 9]
    assert chosen(scores, np.full((2, 3), NONE), 2, "mean").tolist() == []


def test_what_passes_moves_up_and_the_rest_is_none() -> None:
    scores, ids = np.array([[0.9, 0.8, 0.7]]), np.array([[1, 2, 3]])
    out = _moved_up(scores, ids, np.array([[False, True, True]]), 3)
    assert out[0].tolist() == [[0.8, 0.7, -np.inf]]
    assert out[1].tolist() == [[2, 3, NONE]]


def test_a_disk_that_is_full_when_the_rows_are_written_is_told_and_leaves_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Faiss.of(np.arange(40), clustered(40, 1, 8))

    class Full(io.BytesIO):
        def write(self, *_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(segments, "open", lambda *_: Full(), raising=False)
    with pytest.raises(OSError, match="the disk is full"):  # FAISS's own writer said so on stderr, and went on
        engine.save(tmp_path)
    assert not list(tmp_path.iterdir())
