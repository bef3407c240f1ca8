"""Features and vectors that many processes made are those of one, shard by shard, each done once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tiny import SETTINGS, tiny_pairs, tiny_pictures

import matchlight as ml
from matchlight.cli import main
from matchlight.cluster import data_parts
from matchlight.cluster.data_parts import Parts
from matchlight.cluster.ray_workers import RayWorkers
from matchlight.cluster.shard_folder import filling
from matchlight.console import BadInput
from matchlight.data import formats
from matchlight.data.formats import webdataset
from matchlight.inputs.features import extract
from matchlight.inputs.features.spread import FeatureSettings, spread_features
from matchlight.pairs import Pairs
from matchlight.runs.embedding_shards import spread_embeddings
from matchlight.runs.embeddings import export

SMALL = {name: SETTINGS[name] for name in ("dim", "hidden", "word_dim", "batch")}
POOLED = FeatureSettings("lite0", "pooled")


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three tars of eight pictures."""
    monkeypatch.setattr(webdataset, "SHARD", 8)
    formats.write(tiny_pictures(), tmp_path / "shards", to="webdataset")
    return tmp_path / "shards"


def times(folder: Path) -> dict[str, int]:
    return {
        path.name: path.stat().st_mtime_ns for path in sorted(folder.glob("[!.]*.parquet"))
    }  # drafts begin with a dot


def test_features_of_two_workers_are_those_of_one_process(workers: RayWorkers, shards: Path, tmp_path: Path) -> None:
    told = spread_features(workers, shards, tmp_path / "out", POOLED)
    assert (told["shards"], told["pictures"], told["unreadable"], told["left_out"]) == (3, 24, 0, [])
    one, many = Pairs.read(shards), Pairs.read(tmp_path / "out")
    assert (list(one.names), list(one.captions)) == (list(many.names), list(many.captions))
    assert (one.picture == many.picture).all() and (one.splits == many.splits).all()
    assert one.labels is not None and many.labels is not None and (one.labels.text == many.labels.text).all()
    store = extract(one, backbone="lite0", kind="pooled", device="cpu")
    every = np.arange(24)
    assert many.features is not None
    np.testing.assert_allclose(many.features.gather(every), store.gather(every), atol=2e-3)  # half precision
    np.testing.assert_array_equal(many.features.take(every[5:9]).gather(every[:2]), many.features.gather(every[5:7]))


def test_a_second_call_makes_only_what_is_missing_and_what_changed(
    workers: RayWorkers, shards: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    spread_features(workers, shards, out, POOLED)
    before = times(out)
    (out / "pairs-000001-00000.parquet").unlink()
    os.utime(shards / "pairs-000002.tar", ns=(1, 1))
    spread_features(workers, shards, out, POOLED)
    same = [name for name, at in times(out).items() if before[name] == at]
    assert list(before) == list(times(out)) and same == ["pairs-000000-00000.parquet"]
    with pytest.raises(BadInput, match="kind differ"):
        spread_features(workers, shards, out, FeatureSettings("lite0", "grid"))


def test_a_broken_file_of_the_data_is_told_and_left_out_until_it_is_mended(
    workers: RayWorkers, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, bad = tmp_path / "out", shards / "pairs-000001.tar"
    whole = bad.read_bytes()
    bad.write_bytes(whole[:600])
    told = spread_features(workers, shards, out, POOLED)
    assert told["shards"] == 2 and "1 of 3 shards left out:\n  pairs-000001.tar: " in capsys.readouterr().err
    assert [one["name"] for one in json.loads((out / "feature-shards.json").read_text())["left_out"]] == [bad.name]
    assert len(Pairs.read(out).names) == 16
    bad.write_bytes(whole)
    assert spread_features(workers, shards, out, POOLED)["left_out"] == []
    assert list(Pairs.read(out).captions) == list(Pairs.read(shards).captions)


def test_one_vector_an_item_is_the_one_process_writes(
    workers: RayWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_parts, "PART", 10)
    formats.write(tiny_pairs(), tmp_path / "data", to="npz")
    run = ml.train("vse_infty", tiny_pairs(), tmp_path / "run", epochs=1, **SMALL)
    export(run, tiny_pairs(), tmp_path / "one.npz")
    told = spread_embeddings(workers, run, tmp_path / "data", tmp_path / "many")
    assert (told["pictures"], told["captions"], told["shards"]) == (24, 48, 3)
    with np.load(tmp_path / "one.npz") as one:
        for side, folder, key in (("image", "images", "picture"), ("text", "captions", "row")):
            table = pq.read_table(tmp_path / "many" / folder).sort_by(key)
            np.testing.assert_allclose(np.stack(table["vector"].to_pylist()), one[side][:, 0], atol=1e-6)
        assert table["picture"].to_pylist() == one["picture"].tolist()
        assert table["caption"].to_pylist() == list(tiny_pairs().captions)


def test_sets_of_vectors_are_lists_without_padding(workers: RayWorkers, tmp_path: Path) -> None:
    formats.write(tiny_pairs(), tmp_path / "data", to="npz")
    run = ml.train("scan", tiny_pairs(), tmp_path / "run", epochs=1, dim=16, word_dim=8, batch=8)
    export(run, tiny_pairs(), tmp_path / "one.npz")
    spread_embeddings(workers, run, tmp_path / "data", tmp_path / "many", split="test")
    table = pq.read_table(tmp_path / "many" / "captions")
    with np.load(tmp_path / "one.npz") as one:
        for row, vectors in zip(table["row"].to_pylist(), table["vector"].to_pylist(), strict=True):
            np.testing.assert_allclose(vectors, one["text"][row][one["text_mask"][row]], atol=1e-5)
    assert table.num_rows == 12


def test_parts_are_named_for_their_files_and_hold_every_row_once(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_parts, "PART", 5)
    pairs = Pairs.read(shards)
    cut = list(Parts(pairs))
    assert [part.name for part in cut] == [f"pairs-00000{file}-0000{k}" for file in range(3) for k in range(2)]
    assert [len(part.places) for part in cut] == [5, 3] * 3
    assert np.concatenate([part.rows for part in cut]).tolist() == list(range(48))
    assert [list(part.pairs.captions) for part in cut[1:2]] == [[pairs.captions[row] for row in cut[1].rows]]
    assert len({part.key("one") for part in cut} | {part.key("other") for part in cut}) == 12


def test_a_part_of_loose_pictures_has_another_key_when_one_of_them_is_another_file(tmp_path: Path) -> None:
    formats.write(tiny_pictures(4, held=1), tmp_path / "loose", to="jsonl")
    (before,) = Parts(Pairs.read(tmp_path / "loose"))
    key = before.key("")
    picture = next(path for path in sorted((tmp_path / "loose" / "images").iterdir()))
    picture.write_bytes(picture.read_bytes() + b"\0")
    (after,) = Parts(Pairs.read(tmp_path / "loose"))
    assert after.key("") != key


def test_a_folder_that_is_unfinished_or_of_somebody_else_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), filling(tmp_path / "out", "feature-shards.json", {"kind": "grid"}):
        raise ZeroDivisionError
    with pytest.raises(BadInput, match="unfinished; run the command that began it again"):
        Pairs.read(tmp_path / "out")
    with pytest.raises(BadInput, match="kind differ"), filling(tmp_path / "out", "feature-shards.json", {"kind": 2}):
        pass
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(BadInput, match="already holds files"), filling(tmp_path / "full", "list.json", {}):
        pass


def test_options_that_do_not_go_together_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["data", "features", "x"], ["embed", "run", "--data", "x"]):
        assert main([*command, "-o", "y", "--address", "host:1"]) == 2
        assert capsys.readouterr().err == "matchlight: --address host:1: goes with --engine ray\n"
    assert main(["embed", "run", "--data", "x", "-o", "y", "--engine", "ray", "--to", "faiss"]) == 2
    assert "--engine ray writes Parquet shards" in capsys.readouterr().err


@pytest.mark.full
def test_a_call_that_was_killed_goes_on_with_what_is_missing_and_leaves_no_cluster(
    shards: Path, tmp_path: Path
) -> None:
    out, place = tmp_path / "out", tempfile.mkdtemp(prefix="killed-", dir="/tmp")  # Ray needs a short one
    command = [sys.executable, "-m", "matchlight", "data", "features", str(shards), "-o", str(out)]
    command += ["--kind", "pooled", "--engine", "ray", "--workers", "1"]
    settings = {**os.environ, "TMPDIR": place}
    first = subprocess.Popen(command, stderr=subprocess.PIPE, env=settings)
    while not times(out) and first.poll() is None:
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = times(out)
    assert before
    subprocess.run(command, check=True, timeout=300, env=settings)
    assert len(times(out)) == 3 and {name: times(out)[name] for name in before} == before
    time.sleep(5)
    left = subprocess.run(["pgrep", "-f", place], capture_output=True, text=True, check=False)
    shutil.rmtree(place)
    assert not left.stdout
