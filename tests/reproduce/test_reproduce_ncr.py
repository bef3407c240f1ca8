"""NCR's two tables on tiny data: every line is what a direct evaluation gives, beside the published figures."""

from __future__ import annotations

import csv
import json
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
from matchlight.reproduce.ncr_tables import PUBLISHED_5K, PUBLISHED_PMRP
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
    assert [line["method"] for line in told["table"]] == ["SGR*", "SGR-C", "NCR"]
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
    assert sorted(run.method for run in runs) == ["ncr", "sgr", "sgr"]  # the second table trained nothing of its own
    rows = sorted(
        np.load(run.folder / "evidence.npy").shape[1] for run in runs if run.method == "sgr"
    )  # (epochs, rows)
    moved = mismatch(tiny_pairs(), ratio=0.5, seed=0)[1].moved
    assert len(moved) == 12 and rows == [len(tiny_pairs()) - 12, len(tiny_pairs())]


def test_pmrp_by_method_is_that_of_the_runs_and_stands_beside_the_published(made: Path) -> None:
    told = json.loads((made / "ncr-pmrp.json").read_text())
    assert [line["method"] for line in told["table"]] == ["SGR*", "NCR"]
    assert len(told["published"]) == len(PUBLISHED_PMRP)
    run = next(run for run in map(ml.Run.load, (made / "runs").iterdir()) if run.method == "ncr")
    report = ml.evaluate(run, tiny_pairs(), "test", protocol="pmrp")
    line = next(row for row in rows_of(made / "ncr-pmrp.csv") if row["method"] == "NCR")
    assert {side: float(line[side]) for side in ("i2t", "t2i")} == pytest.approx(report)


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


def test_pmrp_without_labels_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="needs labels of the pictures"):
        reproduce("ncr-pmrp", replace(tiny_pairs(), labels=None), tmp_path / "out", quick=True)
    assert not (tmp_path / "out").exists()


def test_published_rsums_are_the_sums_the_field_knows() -> None:
    assert sum(PUBLISHED_5K[0.2, "NCR"]) == pytest.approx(422.0) and sum(PUBLISHED_5K[0.0, "NCR"]) == pytest.approx(
        427.9
    )


def test_the_list_says_what_every_exhibit_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert all(one["needs"] for one in listed) and set(NEEDS) <= set(EXHIBITS)
    assert main(["reproduce"]) == 0
    assert capsys.readouterr().out.count("needs") >= len(EXHIBITS)
