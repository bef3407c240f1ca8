"""An index that does not fit into memory: its engine on the disk, rows in files, and nothing read that need not be."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

from matchlight.core import IMAGE
from matchlight.indexing import Index, candidate_vectors, index_speed, shards, versions
from matchlight.indexing.engines import faiss
from matchlight.runs.folder import Run

ITEMS, DIM, MORE = 600, 16, 6


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few hundred items are treated as millions are."""
    for name in ("FLAT", "GRAPH", "MEMORY"):
        monkeypatch.setattr(faiss, name, 10)
    monkeypatch.setattr(candidate_vectors, "IN_MEMORY", 100)
    monkeypatch.setattr(versions, "LARGE", 100)
    monkeypatch.setattr(shards, "SHARD", 64)


def built(folder: Path) -> Index:
    index_speed.draw_files(folder, ITEMS, DIM)
    data = index_speed.table_of(folder, ITEMS)
    return Index.build(None, data, folder / "index", vectors=index_speed.vectors_of(folder), map=False)


def test_a_large_index_is_built_opened_asked_and_changed(large: None, tmp_path: Path) -> None:
    index_speed.draw_files(tmp_path, ITEMS, DIM)
    spent, disk = index_speed.build_step(tmp_path, ITEMS)
    assert spent["cpu_seconds"] > 0 and disk > 0
    asked = index_speed.ask_step(tmp_path, DIM, 20)
    assert asked["engine"] == "disk"
    assert asked["recall"] >= 0.98
    changed = index_speed.change_step(tmp_path, ITEMS, DIM, MORE)
    assert (changed["added_found"], changed["removed_found"]) == (1.0, 0)
    assert index_speed.ask_step(tmp_path, DIM, 20)["recall"] >= 0.98
    left = sorted(path.name for path in (tmp_path / "index" / "v0003").iterdir())
    assert not [name for name in left if name.startswith("rows") or name == "held.json"]


def test_what_this_machine_wrote_is_not_read_again_when_it_is_opened(
    large: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    real = versions.checksum
    monkeypatch.setattr(versions, "checksum", lambda path, **how: read.append(path.name) or real(path, **how))
    with built(tmp_path) as index:
        read.clear()
        index_speed.draw_files(tmp_path / "more", MORE, DIM, seed=2)
        given = index_speed.vectors_of(tmp_path / "more"), index_speed.table_of(tmp_path / "more", MORE)
        index.add(Run.of_vectors(*given, device="cpu")[1])
        engine = index.folder / "engine" / "image"
        assert len(list(engine.glob("segment-*"))) == 2
        assert "segment-00001.faiss" in read  # the new rows
        assert not {"segment-00000.faiss", "model.safetensors"} & set(read)  # linked: their checksums are known
        assert read.count("0.vectors.npy") == 2  # of the new shard of each side
    read.clear()
    Index.load(tmp_path / "index", device="cpu").close()
    assert read == []


def test_a_damaged_file_is_noticed_though_it_is_linked_into_the_next_version(large: None, tmp_path: Path) -> None:
    with built(tmp_path) as index:
        file = index.folder / "sets" / "image-00000" / "0.vectors.npy"
        blob = bytearray(file.read_bytes())
        blob[-1] ^= 0xFF
        file.write_bytes(blob)
        index.remove([5])
    with pytest.raises(Exception, match=r"0.vectors.npy: damaged \(its checksum does not hold\)"):
        Index.load(tmp_path / "index", device="cpu")


def test_an_index_has_more_files_than_a_process_may_open(large: None, tmp_path: Path) -> None:
    with built(tmp_path) as index:
        assert len(index.info["shards"][IMAGE]) == 10
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    there = max(int(path.name) for path in Path("/proc/self/fd").iterdir()) if Path("/proc/self/fd").exists() else 64
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (there + 12, hard))
        with Index.load(tmp_path / "index", device="cpu") as index:
            assert len(index.searcher.sides[IMAGE].sets.take(np.arange(0, ITEMS, 7))) == 86
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
