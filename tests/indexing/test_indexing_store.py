"""An index on the disk: versions, checksums, shards and packs, whole or refused with one clear line."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from matchlight import files
from matchlight.core import BadInput, Embedding, Parts
from matchlight.data import cache
from matchlight.indexing import verified, versions
from matchlight.indexing.catalogue import Catalogue
from matchlight.indexing.item_filters import passing
from matchlight.indexing.matcher_scores import as_embeddings, as_item_sets
from matchlight.indexing.records import JoinedRecords, Records, write_records
from matchlight.indexing.stored_sets import Sets, write_shard
from tests.tiny import tiny_pairs


def made(root: Path, *, text: str = "one") -> Path:
    """A version with two files."""
    root.mkdir(exist_ok=True)
    folder = versions.draft(root, {"text": text})
    (folder / "deep").mkdir(exist_ok=True)
    (folder / "deep" / "a.bin").write_bytes(b"\0" * 5000)
    (folder / "b.txt").write_text(text)
    return versions.finish(folder, root)


# ---- versions --------------------------------------------------------------------------------------------------------


def test_a_new_version_takes_over_and_the_old_one_goes(tmp_path: Path) -> None:
    assert made(tmp_path).name == "v0001"
    assert made(tmp_path, text="two").name == "v0002"
    folder, manifest = versions.current(tmp_path)
    assert (folder / "b.txt").read_text() == "two"
    assert sorted(manifest["files"]) == ["b.txt", "deep/a.bin"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["CURRENT", "v0002"]


def test_a_build_that_stops_half_way_leaves_the_old_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    made(tmp_path)
    for step in ("checksum", "files.flush_folder", "_point"):  # while hashing, before the rename, before the switch
        with monkeypatch.context() as patch:
            patch.setattr(f"matchlight.indexing.versions.{step}", stopped)
            with pytest.raises(KeyboardInterrupt):
                made(tmp_path, text=step)
        folder, _ = versions.current(tmp_path)
        assert (folder / "b.txt").read_text() == "one"
    made(tmp_path, text="after")
    assert (versions.current(tmp_path)[0] / "b.txt").read_text() == "after"


def test_a_draft_of_the_same_plan_is_gone_on_with_and_another_is_thrown_away(tmp_path: Path) -> None:
    first = versions.draft(tmp_path, {"data": "x"})
    (first / "done").write_text("")
    assert (versions.draft(tmp_path, {"data": "x"}) / "done").exists()
    assert not (versions.draft(tmp_path, {"data": "y"}) / "done").exists()
    assert len(list(tmp_path.iterdir())) == 1


def test_linked_files_stay_when_the_version_they_came_from_goes(tmp_path: Path) -> None:
    old = made(tmp_path)
    folder = versions.draft(tmp_path, {"more": 1})
    versions.link_tree(old / "deep", folder / "deep")
    assert os.path.samefile(old / "deep" / "a.bin", folder / "deep" / "a.bin")
    final = versions.finish(folder, tmp_path)
    assert (final / "deep" / "a.bin").stat().st_size == 5000
    assert not old.exists()


def test_two_that_change_one_index_are_told_apart(tmp_path: Path) -> None:
    with (
        versions.locked(tmp_path),
        pytest.raises(BadInput, match="another process is changing"),
        versions.locked(tmp_path),
    ):
        pass
    with versions.locked(tmp_path):  # let go of afterwards
        pass


def test_a_busy_disk_is_not_taken_for_another_process_that_changes_the_index(tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError), versions.locked(tmp_path):
        raise BlockingIOError(11, "Resource temporarily unavailable")


def test_a_lock_that_a_killed_build_left_behind_does_not_make_a_folder_taken(tmp_path: Path) -> None:
    (tmp_path / files.LOCK).write_text("process 1 on a machine that is gone")
    versions.check_free(tmp_path)
    with versions.locked(tmp_path):
        made(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["CURRENT", "v0001"]


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(BadInput, match="not empty and not an index"):
        versions.check_free(tmp_path)
    versions.check_free(tmp_path / "new")


# ---- hostile ---------------------------------------------------------------------------------------------------------


def spoil_cut(folder: Path) -> None:
    os.truncate(folder / "deep" / "a.bin", 4000)


def spoil_byte(folder: Path) -> None:
    blob = bytearray((folder / "deep" / "a.bin").read_bytes())
    blob[1234] ^= 1
    (folder / "deep" / "a.bin").write_bytes(blob)


def spoil_missing(folder: Path) -> None:
    (folder / "b.txt").unlink()


def spoil_current(folder: Path) -> None:
    (folder.parent / "CURRENT").unlink()


def spoil_current_text(folder: Path) -> None:
    (folder.parent / "CURRENT").write_bytes(b"\xff../../etc 1")


def spoil_current_climbs(folder: Path) -> None:
    (folder.parent / "CURRENT").write_text("../elsewhere 00\n")


def spoil_future(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))


def spoil_manifest(folder: Path) -> None:
    path = folder / "manifest.json"
    known = json.loads(path.read_text())
    known["files"]["b.txt"]["sha256"] = "0" * 64
    path.write_text(json.dumps(known))


def spoil_json(folder: Path) -> None:
    (folder / "manifest.json").write_text("{")


def spoil_no_version(folder: Path) -> None:
    folder.rename(folder.with_name("v0009"))


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (spoil_cut, "4000 bytes instead of 5000"),
        (spoil_byte, "checksum does not hold"),
        (spoil_missing, "missing"),
        (spoil_current, "not an index"),
        (spoil_current_text, "damaged"),
        (spoil_current_climbs, "damaged"),
        (spoil_future, "newer Matchlight"),
        (spoil_manifest, "checksum does not hold"),
        (spoil_json, "damaged"),
        (spoil_no_version, "no such file"),
    ],
)
def test_a_spoilt_index_is_refused_in_one_line_that_names_the_file(tmp_path: Path, spoil, told: str) -> None:
    spoil(made(tmp_path))
    with pytest.raises(BadInput, match=told) as found:
        versions.current(tmp_path)
    assert len(str(found.value).splitlines()) == 1
    assert str(tmp_path) in str(found.value)


def test_a_manifest_cannot_name_files_outside(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="outside"):
        versions._check_sizes(tmp_path, {"../secret": {"bytes": 1}})


def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files whose checksums are computed from now on."""
    names: list[str] = []
    original = versions.checksum

    def counted(path: Path, *, flush: bool = False) -> str:
        names.append(path.name)
        return original(path, flush=flush)

    monkeypatch.setattr(versions, "checksum", counted)
    return names


def test_an_index_that_did_not_change_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "SETTLED", -1.0)
    made(tmp_path)
    names = hashed(monkeypatch)
    for _ in range(3):
        versions.current(tmp_path)
    assert sorted(names) == ["a.bin", "b.txt"]
    made(tmp_path, text="two")
    names.clear()
    for _ in range(2):
        versions.current(tmp_path)
    assert sorted(names) == ["a.bin", "b.txt"]
    assert [row["what"] for row in cache.cache_listing()] == [f"checksums of {tmp_path}"]


def test_a_file_that_changed_after_it_was_found_whole_is_refused_even_with_its_old_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified, "SETTLED", -1.0)
    folder = made(tmp_path)
    versions.current(tmp_path)
    path = folder / "deep" / "a.bin"
    old = path.stat()
    time.sleep(0.02)  # more than a tick of the file system's clock
    spoil_byte(folder)
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
    names = hashed(monkeypatch)
    for _ in range(2):
        with pytest.raises(BadInput, match="checksum does not hold"):
            versions.current(tmp_path)
    assert names == ["a.bin", "a.bin"]


def test_a_file_of_this_very_moment_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "SETTLED", 1000.0)
    made(tmp_path)
    names = hashed(monkeypatch)
    for _ in range(2):
        versions.current(tmp_path)
    assert len(names) == 4


@pytest.mark.parametrize("text", ["{", "[]", '{"version": "v0001", "files": 3}', '{"version": "v0001", "files": {}}'])
def test_a_memory_that_says_nothing_useful_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    made(tmp_path)
    versions.current(tmp_path)
    (entry,) = cache.entries()
    (entry / verified.FILE).write_text(text)
    names = hashed(monkeypatch)
    versions.current(tmp_path)
    assert sorted(names) == ["a.bin", "b.txt"]


def test_an_index_is_checked_where_the_cache_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MATCHLIGHT_CACHE", str(tmp_path / "file" / "cache"))
    names = hashed(monkeypatch)
    folder = made(tmp_path / "index")
    names.clear()
    versions.current(tmp_path / "index")
    assert sorted(names) == ["a.bin", "b.txt"]
    spoil_byte(folder)
    with pytest.raises(BadInput, match="checksum does not hold"):
        versions.current(tmp_path / "index")


def test_a_changed_byte_is_not_looked_for_where_checking_is_off(tmp_path: Path) -> None:
    spoil_byte(made(tmp_path))
    assert versions.current(tmp_path, verify=False)[0].name == "v0001"


# ---- sets ------------------------------------------------------------------------------------------------------------


def ragged(seed: int, items: int, wide: int, *, holes: bool) -> Embedding:
    draw = torch.Generator().manual_seed(seed)
    vectors = torch.randn(items, wide, 3, generator=draw).half().float()
    lengths = torch.randint(1, wide + 1, (items,), generator=draw)
    mask = torch.arange(wide)[None] < lengths[:, None]
    if holes:
        mask &= torch.rand(items, wide, generator=draw) < 0.7
        mask[:, 0] = True
    extra = {"id": torch.arange(items), "global": torch.randn(items, 1, 3, generator=draw).half().float()}
    extra["states"] = torch.randn(items, wide, 2, generator=draw).half().float() * mask[..., None]
    return Embedding(vectors * mask[..., None], mask, extra)


def same(found: Embedding, wanted: Embedding) -> None:
    wide = found.vectors.shape[1]
    torch.testing.assert_close(found.vectors, wanted.vectors[:, :wide])
    assert not wanted.vectors[:, wide:].any()
    if wanted.mask is not None:
        assert found.mask is not None
        assert (found.mask == wanted.mask[:, :wide]).all()
    for name, value in wanted.extra.items():
        mine = found.extra[name]
        torch.testing.assert_close(mine, value if mine.shape == value.shape else value[:, : mine.shape[1]])


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 99), st.integers(1, 9), st.integers(1, 6), st.booleans(), st.randoms(use_true_random=False))
def test_sets_come_back_as_they_were_in_any_order_and_across_shards(
    tmp_path_factory: pytest.TempPathFactory, seed: int, items: int, wide: int, holes: bool, shuffled
) -> None:
    folder = tmp_path_factory.mktemp("sets")
    whole = ragged(seed, items, wide, holes=holes)
    cut = shuffled.randint(1, items)
    spans = [slice(0, cut), slice(cut, items)] if cut < items else [slice(0, items)]
    for k, span in enumerate(spans):
        write_shard(folder / str(k), as_item_sets(whole.take(span)))
    sets = Sets([folder / str(k) for k in range(len(spans))])
    assert len(sets) == items
    order = np.array(shuffled.choices(range(items), k=items + 2))
    found = sets.take(order)
    same(as_embeddings(found).members[0], whole.take(torch.from_numpy(order)))
    blocks = [part for _, part in sets.blocks(2)]
    assert sum(map(len, blocks)) == items


def test_sets_without_a_mask_and_ensembles_come_back_too(tmp_path: Path) -> None:
    one, other = Embedding(torch.randn(4, 2, 3).half().float()), ragged(1, 4, 5, holes=False)
    write_shard(tmp_path, as_item_sets(Parts((one, other))))
    found = as_embeddings(Sets([tmp_path]).take(np.array([2, 0])))
    for mine, wanted in zip(found.members, (one, other), strict=True):
        same(mine, wanted.take(torch.tensor([2, 0])))


def test_what_is_wider_in_one_shard_is_filled_up_in_the_other(tmp_path: Path) -> None:
    parts = [Embedding(torch.ones(2, 1, 3), None, {"states": torch.ones(2, wide, 3)}) for wide in (2, 4)]
    for number, part in enumerate(parts):
        write_shard(tmp_path / str(number), as_item_sets(part))
    found = Sets([tmp_path / "0", tmp_path / "1"]).take(np.array([3, 0])).members[0]["extra.states"]
    assert found.sum((1, 2)).tolist() == [12.0, 6.0]
    assert found.shape == (2, 4, 3)


def test_padding_is_kept_for_models_that_depend_on_it(tmp_path: Path) -> None:
    sets = ragged(3, 5, 6, holes=False)
    write_shard(tmp_path, as_item_sets(sets), keep_padding=True)
    found = Sets([tmp_path]).take(np.array([int(sets.mask.sum(1).argmin())]))  # type: ignore[union-attr]
    assert found.vectors.shape[1] == 6


def test_short_captions_take_little_room(tmp_path: Path) -> None:
    sets = ragged(3, 50, 40, holes=False)
    assert sets.mask is not None
    write_shard(tmp_path, as_item_sets(sets))
    assert np.load(tmp_path / "0.vectors.npy", mmap_mode="r").shape == (int(sets.mask.sum()), 3)
    assert np.load(tmp_path / "0.vectors.npy", mmap_mode="r").dtype == np.float16


# ---- packs and tables ------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=15)
@given(st.lists(st.binary(max_size=20), max_size=8), st.lists(st.binary(max_size=20), max_size=8))
def test_records_come_back_by_place(
    tmp_path_factory: pytest.TempPathFactory, one: list[bytes], two: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("pack")
    write_records(folder / "one", one)
    write_records(folder / "two", two)
    both = JoinedRecords([Records(folder / "one"), Records(folder / "two")])
    assert list(Records(folder / "one")) == one
    assert [both[k] for k in range(len(both))] == one + two
    with pytest.raises(IndexError):
        Records(folder / "one")[len(one)]


def table() -> Catalogue:
    pairs = tiny_pairs(12, 2, held=3)
    return Catalogue.of(pairs, np.arange(12), np.arange(24), np.zeros((12, 2), np.int64), first=(0, 0))


def test_filters_say_what_they_know() -> None:
    known = table()
    assert passing(known, {"split": "val"}).tolist() == [False] * 6 + [True] * 3 + [False] * 3  # type: ignore[union-attr]
    assert passing(known, {"split": ["val", "test"], "name": "p1"}).nonzero()[0].tolist() == [10, 11]  # type: ignore[union-attr]
    assert passing(known, {"id": [3, 99]}).nonzero()[0].tolist() == [3]  # type: ignore[union-attr]
    for where, told in (
        ({"split": "dev"}, "it has test, train, val"),
        ({"label": "zebra"}, "a, b, c, d"),
        ({"x": 1}, "split, label"),
    ):
        with pytest.raises(BadInput, match=told):
            passing(known, where)


def test_a_table_grows_shrinks_and_is_packed_with_every_caption_at_its_picture(tmp_path: Path) -> None:
    pairs, first = tiny_pairs(3, 3, seed=5, held=1), table()
    more = Catalogue.of(pairs, np.arange(3), np.arange(9), np.ones((3, 2), np.int64), first=(12, 24))
    both = first.with_more(more).without(np.array([0, 13]))
    both.save(tmp_path)
    packed, pictures, texts = Catalogue.load(tmp_path).packed()
    assert packed.ids.tolist() == [*range(1, 12), 12, 14] == both.ids[pictures].tolist()
    assert packed.rows.tolist() == [*range(2, 24), 24, 25, 26, 30, 31, 32] == both.rows[texts].tolist()
    last = packed.place(14)
    assert [packed.caption(k) for k in packed.captions_of(last)] == pairs.captions[6:]
    assert packed.labels_of(last) == [pairs.labels.names[k] for k in np.flatnonzero(pairs.labels.image[2])]  # type: ignore[union-attr]
    with pytest.raises(BadInput, match="no picture 13"):
        packed.place(13)
