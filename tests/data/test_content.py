"""What pictures show is part of the data: other pictures under the same names are other data."""

from __future__ import annotations

import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import matchlight as ml
from matchlight.auditing.apply import apply
from matchlight.core import BadInput
from matchlight.data import cache, content, formats
from matchlight.data.content import content_mark
from matchlight.data.fingerprints import data_marks, fingerprint, is_same_data
from matchlight.inputs import features
from matchlight.training.mining.candidates import Candidates
from matchlight.training.mining.released import load_for

WORDS = "red green blue grey pink teal gold plum".split()
QUICK = {"quick": False, "folds": 3, "captions": "words", "pictures": "own", "split": "all"}


def paint(folder: Path, *, seed: int, count: int = 24) -> Path:
    """Pictures 0.png to 23.png of colours that a seed draws, and their captions."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for place in range(count):
        colours = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(colours).resize((32, 32), 0).save(folder / "images" / f"{place}.png")
    lines = [
        {"image": f"{i}.png", "captions": [f"{WORDS[i % 8]} beside {WORDS[i // 3]}"], "split": "train"}
        for i in range(count)
    ]
    (folder / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def without_content(path: Path, *keys: str) -> None:
    """The file as it was written before content counted."""
    whole = json.loads(path.read_text())
    part = whole
    for key in keys:
        part = part[key]
    del part["content"]
    path.write_text(json.dumps(whole))


def test_a_bmp_that_is_repainted_in_its_middle_gets_other_pixels_from_the_cache(tmp_path: Path) -> None:
    folder = paint(tmp_path / "set", seed=0, count=3)
    for place in range(3):
        Image.new("RGB", (300, 300)).save(folder / "images" / f"{place}.png", format="BMP")
    before = np.array(features.pixels(formats.read(folder), (8, 8)).array)
    raw = bytearray((folder / "images" / "1.png").read_bytes())
    raw[100_000:170_000] = b"\xff" * 70_000  # 64 KB at each end stay as they are
    (folder / "images" / "1.png").write_bytes(raw)
    after = np.array(features.pixels(formats.read(folder), (8, 8)).array)
    assert (before == 0).all() and after[1].max() > 200 and (after[[0, 2]] == 0).all()


@pytest.mark.parametrize("to", ["jsonl", "webdataset", "parquet"])
def test_other_pictures_under_the_same_names_are_other_data_and_a_copy_is_not(tmp_path: Path, to: str) -> None:
    one, other = (paint(tmp_path / f"drawn{seed}", seed=seed) for seed in (0, 1))
    made = [formats.write(formats.read(folder), tmp_path / f"{folder.name}-{to}", to=to) for folder in (one, other)]
    first, second = map(formats.read, made)
    assert fingerprint(first) == fingerprint(second) and content_mark(first) != content_mark(second)
    copied = shutil.copytree(made[0], tmp_path / "copy", copy_function=shutil.copy)
    assert is_same_data(data_marks(first), formats.read(copied))


def test_features_that_were_changed_are_other_data_and_a_copy_is_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "train_ims.npy", rng.normal(size=(6, 4, 5)).astype(np.float32))
        (tmp_path / name / "train_caps.txt").write_text("".join(f"caption {i}\n" for i in range(30)))
    shutil.copytree(tmp_path / "one", tmp_path / "copy", copy_function=shutil.copy)
    marks = {name: data_marks(formats.read(tmp_path / name)) for name in ("one", "other", "copy")}
    assert marks["one"] == marks["copy"] and marks["one"]["content"] != marks["other"]["content"]


def test_only_files_whose_size_or_times_differ_are_hashed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = paint(tmp_path / "set", seed=0, count=5)
    hashed: list[str] = []
    digest_of = content.digest_of

    def counted(place: content.Extent) -> str:
        hashed.append(Path(place.path).name)
        return digest_of(place)

    monkeypatch.setattr(content, "SETTLED", 0)  # a picture painted just now counts as settled
    monkeypatch.setattr(content, "digest_of", counted)
    marks = [content_mark(formats.read(folder)) for _ in range(2)]
    assert len(hashed) == 5 and marks[0] == marks[1]
    about = os.stat(folder / "images" / "2.png")
    (folder / "images" / "2.png").write_bytes((folder / "images" / "2.png").read_bytes())
    assert content_mark(formats.read(folder)) == marks[0] and hashed[5:] == ["2.png"]
    (folder / "images" / "2.png").write_bytes(bytes(about.st_size))
    os.utime(folder / "images" / "2.png", ns=(about.st_atime_ns, about.st_mtime_ns))  # its old size and date
    assert content_mark(formats.read(folder)) != marks[0]


def test_whoever_asks_while_files_are_hashed_waits_for_their_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = []
    for number in range(6):
        (tmp_path / f"{number}.bin").write_bytes(bytes([number]) * 50)
        os.utime(tmp_path / f"{number}.bin", (1, 1))
        places.append(content.Extent(str(tmp_path / f"{number}.bin")))
    time.sleep(2 * content.SETTLED)
    hashed: list[str] = []
    whole = content.digest_of

    def slowly(place: content.Extent) -> str:
        hashed.append(place.path)
        time.sleep(0.02)
        return whole(place)

    monkeypatch.setattr(content, "digest_of", slowly)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: content.digests(str(tmp_path), places), range(3)))
    assert len(hashed) == 6 and found[0] == found[1] == found[2] == [whole(place) for place in places]


def test_an_audit_of_pictures_that_were_replaced_is_neither_gone_on_with_nor_applied(tmp_path: Path) -> None:
    folder, out = paint(tmp_path / "set", seed=0), tmp_path / "audit"
    ml.audit(None, formats.read(folder), out, **QUICK)
    ml.audit(None, formats.read(folder), out, **QUICK)
    paint(folder, seed=1)
    with pytest.raises(BadInput, match=r"holds another audit \(content differ\)"):
        ml.audit(None, formats.read(folder), out, **QUICK)
    with pytest.raises(BadInput, match="not the data that .* audited"):
        apply(out, tmp_path / "clean")
    without_content(out / "settings.json")
    without_content(out / "summary.json", "data")  # an audit of old keeps its guarantee: names, captions, splits
    assert apply(out, tmp_path / "clean")["kept"] + apply(out, tmp_path / "again")["dropped"] == 24
    ml.audit(None, formats.read(folder), out, **QUICK)


def test_digests_that_a_kill_left_without_their_description_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = paint(tmp_path / "set", seed=0, count=3)
    monkeypatch.setattr(content, "SETTLED", 0)

    def killed(path: Path, value: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cache, "write_json", killed)
        with pytest.raises(KeyboardInterrupt):
            content_mark(formats.read(folder))
    content_mark(formats.read(folder))
    assert cache.entries() and all((entry / cache.META).is_file() for entry in cache.entries())


def test_lists_mined_from_pictures_that_were_replaced_are_refused(tmp_path: Path) -> None:
    pairs = formats.read(paint(tmp_path / "set", seed=0, count=4))
    lists = Candidates(np.arange(4), np.arange(4), np.array([[1], [0], [3], [2]]), np.array([[1], [0], [3], [2]]))
    marks = data_marks(pairs)
    lists.save(tmp_path / "lists", {"data": marks["fingerprint"], "content": marks["content"]})
    assert len(load_for(tmp_path / "lists", pairs, data=fingerprint(pairs)).texts) == 4
    other = formats.read(paint(tmp_path / "set", seed=1, count=4))
    with pytest.raises(BadInput, match="mined from other data"):
        load_for(tmp_path / "lists", other, data=fingerprint(other))


def test_a_run_is_not_resumed_on_pictures_that_were_replaced(tmp_path: Path) -> None:
    folder, out = paint(tmp_path / "set", seed=0), tmp_path / "run"
    small = {"device": "cpu", "epochs": 1, "preset": "small", "dim": 8, "pixels": 32, "resume": True}
    ml.train("vse++", formats.read(folder), out, **small)
    paint(folder, seed=1)
    with pytest.raises(BadInput, match="holds another run .what the pictures show differ"):
        ml.train("vse++", formats.read(folder), out, **small)
    without_content(out / "recipe.json", "data")
    assert ml.train("vse++", formats.read(folder), out, **small).folder == out
