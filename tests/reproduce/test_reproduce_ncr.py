"""NCR's two tables on tiny data: every line is what a direct evaluation gives, beside the published figures."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import matchlight as ml
from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.data.noise import mismatch
from matchlight.reproduce import EXHIBITS, reproduce
from matchlight.reproduce.ncr_tables import PUBLISHED_5K, PUBLISHED_PMRP, WITH_NOISE, WITHOUT_NOISE
from matchlight.reproduce.needs import NEEDS
from matchlight.runs.evaluation import split_scores
from tests.tiny import tiny_pairs

TINY: dict[str, Any] = {"dim": 8, "word_dim": 8, "sim_dim": 8, "batch": 8, "epochs": 1, "warm": 0, "scorer": "vse++"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tables")
    for name in ("ncr-5k", "ncr-pmrp"):
        reproduce(name, tiny_pairs(), out, quick=True, noise=0.5, settings=TINY, device="cpu")
    return out


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_recall_by_method_is_that_of_the_runs(made: Path) -> None:
    told = json.loads((made / "ncr-5k.json").read_text())
    assert [line["method"] for line in told["table"]] == ["SCAN", "VSRN", "IMRAM", "SAF", "SGR*", "SGR-C", "NCR"]
    assert [line["noise"] for line in told["table"]] == ["50%"] * 7
    runs = {run.method: run for run in (ml.Run.load(path, device="cpu") for path in sorted((made / "runs").iterdir()))}
    report = ml.evaluate(runs["ncr"], tiny_pairs(), "test")
    line = next(row for row in rows_of(made / "ncr-5k.csv") if row["method"] == "NCR")
    assert float(line["rsum"]) == pytest.approx(report["rsum"]) and float(line["noise"]) == 0.5
    assert float(line["t2i R@5"]) == pytest.approx(report["t2i"]["r5"])
    assert (made / "ncr-5k.png").stat().st_size > 1000 and (made / "ncr-5k.svg").is_file()
    page = (made / "ncr-5k.md").read_text()
    assert "split test" in page and "56.9" in page and "supplement" in page


def test_clean_pairs_alone_are_what_sgr_c_is_trained_on(made: Path) -> None:
    runs = [ml.Run.load(path, device="cpu") for path in sorted((made / "runs").iterdir())]
    named = ["imram", "ncr", "saf", "scan", "sgr", "sgr", "vsrn"]
    assert sorted(run.method for run in runs) == named  # the second table trained nothing of its own
    rows = sorted(
        np.load(run.folder / "evidence.npy").shape[1] for run in runs if run.method == "sgr"
    )  # (epochs, rows)
    moved = mismatch(tiny_pairs(), ratio=0.5, seed=0)[1].moved
    assert len(moved) == 12 and rows == [len(tiny_pairs()) - 12, len(tiny_pairs())]


def test_pmrp_by_method_is_that_of_the_runs_and_stands_beside_the_published(made: Path) -> None:
    told = json.loads((made / "ncr-pmrp.json").read_text())
    assert [line["method"] for line in told["table"]] == ["SGR", "NCR"]
    names = [f"{way} {what}" for way in ("i2t", "t2i") for what in ("R@1", "R@5", "R@10", "PMRP")]
    assert list(told["table"][0]) == ["noise", "method", *names] == list(told["published"][0])
    assert len(told["published"]) == len(PUBLISHED_PMRP) == 4
    run = next(run for run in map(ml.Run.load, (made / "runs").iterdir()) if run.method == "ncr")
    line = next(row for row in rows_of(made / "ncr-pmrp.csv") if row["method"] == "NCR")
    report = ml.evaluate(run, tiny_pairs(), "test", protocol="pmrp")
    assert {side: float(line[f"{side} PMRP"]) for side in ("i2t", "t2i")} == pytest.approx(report)
    assert float(line["t2i R@5"]) == pytest.approx(ml.evaluate(run, tiny_pairs(), "test")["t2i"]["r5"])


def test_folds_are_asked_for_or_of_1000_pictures(made: Path, tmp_path: Path) -> None:
    options = {"quick": True, "noise": 0.5, "settings": TINY, "device": "cpu", "fold": 3}
    shutil.copytree(made, out := tmp_path / "again")
    told = reproduce("ncr-pmrp", tiny_pairs(), out, **options)
    run = next(run for run in map(ml.Run.load, (out / "runs").iterdir()) if run.method == "ncr")
    report = ml.evaluate(run, tiny_pairs(), "test", protocol="five-fold", fold=3)
    assert told["table"][1]["i2t R@1"] == f"{report['i2t']['r1']:.1f}" and told["fold"] == 3
    assert "galleries of 3 pictures" in (out / "ncr-pmrp.md").read_text()
    with pytest.raises(BadInput, match="do not make two folds of 4"):
        reproduce("ncr-5k", tiny_pairs(), out, **{**options, "fold": 4})


def test_another_split_is_measured_where_one_is_asked_for(made: Path, tmp_path: Path) -> None:
    run = next(run for run in map(ml.Run.load, (made / "runs").iterdir()) if run.method == "ncr")
    np.save(tmp_path / "mine.npy", split_scores(run, tiny_pairs(), "val"))
    told = reproduce("ncr-5k", tiny_pairs(), tmp_path / "out", scores=[tmp_path / "mine.npy"], split="val")
    assert told["table"][0]["rsum"] == f"{ml.evaluate(run, tiny_pairs(), 'val')['rsum']:.1f}" and told["split"] == "val"


def test_score_files_make_the_tables_without_training(made: Path, tmp_path: Path) -> None:
    run = next(run for run in map(ml.Run.load, (made / "runs").iterdir()) if run.method == "ncr")
    np.save(tmp_path / "mine.npy", split_scores(run, tiny_pairs(), "test"))
    told = reproduce("ncr-5k", tiny_pairs(), tmp_path / "out", scores=[tmp_path / "mine.npy"])
    report = ml.evaluate(run, tiny_pairs(), "test")
    assert told["table"][0]["method"] == "mine" and told["table"][0]["rsum"] == f"{report['rsum']:.1f}"
    assert not (tmp_path / "out" / "runs").exists()
    for wrong in ({"noise": 0.2}, {"settings": {"epochs": 3}}):
        with pytest.raises(BadInput, match="trains nothing here"):
            reproduce("ncr-5k", tiny_pairs(), tmp_path / "no", scores=[tmp_path / "mine.npy"], **wrong)


def test_without_labels_the_columns_of_pmrp_are_empty_and_the_page_says_why(made: Path, tmp_path: Path) -> None:
    run = next(run for run in map(ml.Run.load, (made / "runs").iterdir()) if run.method == "ncr")
    np.save(tmp_path / "mine.npy", split_scores(run, tiny_pairs(), "test"))
    bare = replace(tiny_pairs(), labels=None)
    told = reproduce("ncr-pmrp", bare, tmp_path / "out", scores=[tmp_path / "mine.npy"])
    assert told["table"][0]["i2t PMRP"] is None and told["table"][0]["i2t R@1"]
    assert "no PMRP: it needs labels" in (tmp_path / "out" / "ncr-pmrp.md").read_text()


def test_the_published_table_is_whole() -> None:
    assert len(PUBLISHED_5K) == 21
    dashes = [place for place, six in PUBLISHED_5K.items() if None in six]
    assert dashes == [(0.0, "SAF"), (0.0, "SGR"), (0.0, "SGRAF")]
    for share, setups in ((0.0, WITHOUT_NOISE), (0.2, WITH_NOISE), (0.5, WITH_NOISE)):
        assert [method for noise, method in PUBLISHED_5K if noise == share] == [one.shown for one in setups]


def test_published_rsums_are_the_sums_the_field_knows() -> None:
    sums = {share: sum(value or 0 for value in PUBLISHED_5K[share, "NCR"]) for share in (0.0, 0.2)}
    assert sums == pytest.approx({0.0: 427.9, 0.2: 422.0})


def test_the_list_says_what_every_exhibit_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert all(one["needs"] for one in listed) and set(NEEDS) <= set(EXHIBITS)
    assert main(["reproduce"]) == 0
    assert capsys.readouterr().out.count("needs") >= len(EXHIBITS)
