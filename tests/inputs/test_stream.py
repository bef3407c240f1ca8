"""Streams: what a batch asks for is decoded from the shards, gives a store's numbers, and is never kept."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

from matchlight.core import IMAGE, TEXT, BadInput
from matchlight.data import cache, formats
from matchlight.data.formats import parquet
from matchlight.inputs import features
from matchlight.inputs.batches import Table, ahead, collate, plan, seeded
from matchlight.inputs.prepare import View, prepare, streams
from matchlight.inputs.preprocessing import Preprocessing
from matchlight.pairs import Pairs
from matchlight.runs.train_run import _blocks_taken, train
from tests.tiny import tiny_pictures

CPU = torch.device("cpu")
SMALL = Preprocessing((16, 24))
PIXELS = View("pixels", size=32, settled=True)


@pytest.fixture(scope="module", params=["webdataset", "parquet"])
def shards(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return formats.write(tiny_pictures(), tmp_path_factory.mktemp("shards") / "data", to=request.param)


def test_a_stream_gives_the_pixels_of_a_store_in_any_order(shards: Path) -> None:
    pairs, index = Pairs.read(shards), np.array([5, 0, 5, 23, 7, 0])
    stream, store = features.pixel_stream(pairs, SMALL), features.pixels(pairs, SMALL)
    assert stream.shape == store.shape and len(stream) == 24
    np.testing.assert_array_equal(stream.gather(index), store.gather(index))
    np.testing.assert_array_equal(stream.take(index).gather(np.array([3, 4])), store.gather(np.array([23, 7])))
    assert stream.gather(index).std() > 0


@pytest.mark.parametrize("kind", ["grid", "pooled"])
def test_a_stream_gives_the_features_of_a_store_alone_or_among_others(shards: Path, kind: str) -> None:
    pairs = Pairs.read(shards)
    table = prepare(pairs, View(kind, size=32), device=CPU, streamed=True).table
    kept = prepare(pairs, View(kind, size=32), device=CPU, streamed=False).table
    assert isinstance(table.images, features.FeatureStream) and isinstance(kept.images, features.FeatureStore)
    together = table.images.gather(np.arange(24))
    np.testing.assert_allclose(together, kept.images.gather(np.arange(24)), atol=2e-3)
    np.testing.assert_array_equal(table.images.gather(np.array([9])), together[9:10])


def test_a_picture_that_cannot_be_read_is_black_is_named_and_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = formats.write(tiny_pictures(), tmp_path / "data", to="webdataset")
    pairs = Pairs.read(folder)
    _, offset, size = pairs.pictures.where[3]  # type: ignore[union-attr]
    with open(folder / "pairs-000000.tar", "r+b") as file:
        file.seek(offset)
        file.write(b"\0" * size)
    stream = features.pixel_stream(pairs, SMALL)
    for _ in range(2):
        found = stream.gather(np.array([2, 3, 4]))
    assert not found[1].any() and found[0].any() and found[2].any() and stream.lost == {3}
    assert capsys.readouterr().err.count("could not be read and counts as black") == 1


def test_a_picture_that_its_shards_lack_is_left_out_of_training(tmp_path: Path) -> None:
    pairs = Pairs.read(formats.write(tiny_pictures(), tmp_path / "data", to="webdataset"))
    pairs.pictures.where[3, 0] = -1  # type: ignore[union-attr]
    table = prepare(pairs, PIXELS, device=CPU, streamed=True).table
    assert table.broken.tolist() == [3] and 3 not in pairs.picture[table.rows("train")]


def test_pixels_beyond_the_caches_limit_are_streamed_and_that_is_said(
    shards: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pairs = Pairs.read(shards)
    monkeypatch.setenv("MATCHLIGHT_CACHE", str(tmp_path / "cache"))
    assert not streams(pairs, PIXELS, CPU) and not capsys.readouterr().err
    monkeypatch.setenv("MATCHLIGHT_CACHE_LIMIT", "50KB")
    assert streams(pairs, PIXELS, CPU) and not streams(pairs, PIXELS, CPU, "never")
    assert (
        "a store would take 0.0739 MB, and the cache may hold 0.05 MB (MATCHLIGHT_CACHE_LIMIT)"
        in capsys.readouterr().err
    )
    table = prepare(pairs, PIXELS, device=CPU).table
    assert isinstance(table.images, features.PixelStream)
    assert not [entry for entry in cache.entries() if (entry / "pixels.npy").exists()]
    features.pixels(pairs, PIXELS.preprocessing)  # a store that is there is used, whatever its size
    assert not streams(pairs, PIXELS, CPU)
    with pytest.raises(BadInput, match="--stream now: auto, always, never"):
        streams(pairs, PIXELS, CPU, "now")  # type: ignore[arg-type]


def test_features_are_streamed_only_where_the_disk_has_no_room(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, view = Pairs.read(shards), View("grid", size=64).with_size(CPU)
    monkeypatch.setenv("MATCHLIGHT_CACHE_LIMIT", "1KB")
    assert not streams(pairs, view, CPU)
    usage = shutil.disk_usage("/")
    monkeypatch.setattr("matchlight.inputs.features.stream.shutil.disk_usage", lambda _: usage._replace(free=1000))
    assert streams(pairs, view, CPU)


class Counting:
    """Pictures that count what was opened, and by which threads."""

    def __init__(self, count: int):
        self.count, self.opened, self.threads = count, 0, set[str]()

    def __len__(self) -> int:
        return self.count

    def open(self, index: int) -> Image.Image:
        self.opened += 1
        self.threads.add(threading.current_thread().name)
        return Image.new("RGB", (8, 8), (index, 0, 0))

    def read(self, index: int) -> bytes:
        raise NotImplementedError

    def stamp(self, index: int) -> str:
        return str(index)

    def take(self, index: np.ndarray) -> Counting:
        return Counting(len(index))


def test_pictures_are_decoded_by_other_threads_and_a_bounded_number_of_batches_ahead() -> None:
    source, size = Counting(200), 4
    stream = features.PixelStream(source, Preprocessing((8, 8)))
    batches = ahead(lambda k: stream.gather(np.arange(k * size, (k + 1) * size)), range(50))
    for taken, batch in enumerate(batches, start=1):
        assert batch[:, 0, 0, 0].tolist() == list(range((taken - 1) * size, taken * size))
        assert source.opened <= size * (taken + 3)  # two wait, one is being made
    assert source.opened == 200 and threading.main_thread().name not in source.threads


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_every_sample_comes_once_an_epoch_over_all_processes(
    shards: Path, world: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table: Table = prepare(Pairs.read(shards), PIXELS, device=CPU, streamed=True).table
    rows = table.rows("train")
    monkeypatch.setattr("matchlight.devices.world", lambda: world)
    read: dict[str, list[int]] = {IMAGE: [], TEXT: []}
    for part in plan(rows, 10, seeded(0, 3, 0), even=table.pixels):
        for rank in range(world):
            monkeypatch.setattr("matchlight.devices.rank", lambda rank=rank: rank)
            for side, items in collate(table, part, repeat=True).sides.items():
                read[side] += items.id.tolist()
    assert sorted(read[TEXT]) == rows.tolist()
    assert sorted(read[IMAGE]) == sorted(table.pairs.picture[rows].tolist())


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Pairs, list[int]]:
    """Parquet with eight pictures a row group, and which groups were read from the file so far."""
    monkeypatch.setattr(parquet, "GROUP", 8)
    monkeypatch.setattr(parquet, "HELD", parquet.HeldGroups())
    read: list[int] = []
    whole = parquet._group

    def counted(path: str, column: str, group: int) -> pa.Array:
        read.append(group)
        return whole(path, column, group)

    monkeypatch.setattr(parquet, "_group", counted)
    return Pairs.read(formats.write(tiny_pictures(80), tmp_path / "data", to="parquet")), read


def test_a_pass_over_parquet_reads_each_row_group_once(
    groups: tuple[Pairs, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, read = groups
    table = prepare(pairs, PIXELS, device=CPU, streamed=True).table
    assert table.blocks is not None and table.blocks.tolist() == np.repeat(np.arange(10), 8).tolist()
    monkeypatch.setattr("matchlight.inputs.batches.WINDOW", 32)
    monkeypatch.setattr(parquet, "MOST_HELD", 5 * 8 * 120)  # about five groups, of pictures of about 120 bytes
    read.clear()
    for part in table.plan(table.rows("train"), 8, seeded(0)):
        collate(table, part, repeat=True)
    assert sorted(read) == sorted(set(read)) == np.unique(table.blocks[pairs.picture[table.rows("train")]]).tolist()


def test_row_groups_are_held_up_to_a_number_of_bytes_and_read_once_by_many_threads(
    groups: tuple[Pairs, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, read = groups
    monkeypatch.setattr(parquet, "MOST_HELD", 1)
    assert pairs.pictures is not None
    read.clear()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(pairs.pictures.read, [0, 1, 2, 3, 4, 5, 6, 7]))
    assert read == [0]
    pairs.pictures.read(8)
    assert len(parquet.HELD.groups) == 1 and read == [0, 1]


def test_a_run_keeps_the_order_of_its_rows_when_it_goes_on_from_a_store(shards: Path, tmp_path: Path) -> None:
    given = {"preset": "small", "epochs": 1, "dim": 8, "hidden": 8, "word_dim": 8, "pixels": 32, "device": "cpu"}
    run = train("vse_infty", Pairs.read(shards), tmp_path / "run", stream="always", **given)
    blocks = "parquet" in Pairs.read(shards).format
    assert run.info.get("in_blocks", False) == blocks
    inputs = prepare(Pairs.read(shards), View("grid", size=32), device=CPU, streamed=False)
    assert inputs.table.blocks is None and _blocks_taken(run.folder, inputs) == blocks
    inputs = prepare(Pairs.read(shards), View("grid", size=32), device=CPU, streamed=True)
    assert _blocks_taken(tmp_path / "another", inputs) == blocks
