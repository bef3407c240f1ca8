"""Exhibits of semantic sharing on tiny data: their files are whole, their numbers those of the runs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import matchlight as ml
from matchlight.core import BadInput
from matchlight.reproduce import exhibits, failures, reproduce, sharing_f1
from matchlight.reproduce import sharing as variants
from matchlight.reproduce.superclasses import SuperClasses, superclasses_of
from tests.reproduce.test_reproduce import SMALL, check_files, four, rows_of, runs_of
from tests.tiny import Arrays, tiny_pairs

SHARING: dict[str, Any] = SMALL | {"depth": 1, "heads": 2, "word_dim": 8, "objects": 8}


@pytest.fixture(scope="module")
def sharing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sharing")
    for name in ("sharing-lambda", "sharing-f1", "sharing-consistency", "sharing-failures"):
        reproduce(name, tiny_pairs(), out, quick=True, settings=SHARING, device="cpu")
    return out


def test_lambda_is_the_weight_of_the_guesses_and_ndcg_the_referees(sharing: Path) -> None:
    check_files(sharing, "sharing-lambda")
    rows = {float(row["lambda"]): row for row in rows_of(sharing, "sharing-lambda")}
    assert list(rows) == [0.0, 0.1, 10.0]
    for run in runs_of(sharing, "semantic_sharing"):
        named = run.info["arguments"]
        if named["variant"] == "sharing" and named["mask_weight"] in (0.0, 10.0):
            report = ml.evaluate(run, tiny_pairs(), protocol="labels")["ndcg"]
            assert float(rows[named["mask_weight"]]["ndcg_i2t"]) == pytest.approx(report["i2t"])


def test_lambda_on_single_vectors_is_refused(tmp_path: Path) -> None:
    tiny = tiny_pairs()
    flat = replace(tiny, features=Arrays(np.ones((24, 4), np.float32)), text_features=np.ones((48, 3), np.float32))
    with pytest.raises(BadInput, match="nothing to hide"):
        reproduce("sharing-lambda", flat, tmp_path, settings=SHARING)


def test_f1_is_the_referees_and_the_printed_figures_stand_beside_it(sharing: Path) -> None:
    told = check_files(sharing, "sharing-f1")
    rows = rows_of(sharing, "sharing-f1")
    assert len(rows) == 8
    (run,) = runs_of(sharing, "dscmr")
    report = ml.evaluate(run, tiny_pairs(), protocol="labels")
    for side in ("image", "text"):
        (row,) = [r for r in rows if r["method"] == "DSCMR" and r["side"] == side]
        assert float(row["f1"]) == pytest.approx(report["micro_f1"][side])
        assert float(row["f1_tuned"]) == pytest.approx(report["micro_f1_tuned"][side])
    printed = next(line for line in told["published"] if line["method"] == "sharing")
    assert (printed["COCO1K, pictures"], printed["COCO1K, texts"]) == (0.692, 0.635) and len(printed) == 9


def test_the_log_tells_f1_of_every_epoch(sharing: Path) -> None:
    check_files(sharing, "sharing-consistency")
    rows = rows_of(sharing, "sharing-consistency")
    assert [(row["method"], row["epoch"]) for row in rows] == [
        (name, epoch) for name in ("consistency-", "consistency+") for epoch in ("1", "2")
    ]
    (run,) = [r for r in runs_of(sharing, "semantic_sharing") if r.info["arguments"]["consistency"] == 0.1]
    assert run.info["arguments"]["variant"] == "independent"  # two networks: the traditional method
    kept = json.loads((run.folder / "metrics.json").read_text())["epoch"]  # the model on the disk is that epoch's
    report = ml.evaluate(run, tiny_pairs(), "val", protocol="labels")
    row = next(r for r in rows if r["method"] == "consistency+" and int(r["epoch"]) == kept + 1)
    assert float(row["f1_image"]) == pytest.approx(report["micro_f1"]["image"])
    assert float(row["f1_text"]) == pytest.approx(report["micro_f1"]["text"])
    assert float(row["ndcg_t2i"]) == pytest.approx(report["ndcg"]["t2i"])


def test_the_worst_failures_come_first_and_once_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "TOP", {"image": 1, "text": 1})
    scores = np.array(
        [  # captions: a a a b c
            [9, 1, 1, 1, 1],  # a, right
            [1, 1, 1, 7, 1],  # a, but b comes first
            [1, 1, 1, 1, 8],  # b, but c comes first, and surer
            [1, 1, 1, 1, 5],  # c, right
        ],
        np.float32,
    )
    first, second = failures.worst(four(), scores, "image")
    assert (first.place, second.place) == (2, 1)
    assert (first.answers[0].place, first.answers[0].right, first.answers[0].score) == (4, False, 8.0)
    assert first.note == "b" and first.answers[0].note == "other class (c)"
    wider = SuperClasses({"b": frozenset({"fruit"}), "c": frozenset({"fruit", "food"})})
    first, second = failures.worst(four(), scores, "image", wider=wider)
    assert (first.answers[0].cause, second.answers[0].cause) == ("super-class: fruit", "other class")
    asked = failures.worst(four(), scores, "text")  # rows 1 and 2 (tied) are right with picture 0; 3 finds 1; 4 finds 2
    assert [(query.place, query.answers[0].place) for query in asked] == [(4, 2), (3, 1)]


def test_failures_are_a_sheet_with_its_numbers(sharing: Path) -> None:
    told = check_files(sharing, "sharing-failures")
    rows = rows_of(sharing, "sharing-failures")
    assert {row["asks"] for row in rows} == {"image", "text"}
    pairs = tiny_pairs()
    assert pairs.labels is not None
    for row in rows:
        place, found = int(row["query"]), int(row["place"])
        image, text = (place, found) if row["asks"] == "image" else (found, place)
        shared = bool((pairs.labels.image[image] & pairs.labels.text[text]).any())
        assert (row["right"] == "True") == shared
    assert [line["queries"] for line in told["table"]] == [6, 12]
    assert {row["cause"] for row in rows if row["right"] == "False"} == {"other class"}  # a, b, c, d: nobody knows more
    assert "no super-classes are known" in (sharing / "sharing-failures.md").read_text()


def test_failures_in_galleries_are_found_among_the_querys_own(sharing: Path, tmp_path: Path) -> None:
    shutil.copytree(sharing, out := tmp_path / "again")
    found = reproduce("sharing-failures", tiny_pairs(), out, quick=True, settings=SHARING, device="cpu", fold=3)
    rows, owner = rows_of(out, "sharing-failures"), tiny_pairs().picture
    for row in rows:
        place, got = int(row["query"]), int(row["place"])
        pictures = (place, owner[got]) if row["asks"] == "image" else (owner[place], got)
        assert pictures[0] // 3 == pictures[1] // 3  # test pictures are 18 to 23
    assert rows and all(line["queries"] > 0 for line in found["table"])


def test_superclasses_are_the_tables_that_know_the_classes_or_a_file(tmp_path: Path) -> None:
    coco = superclasses_of(["banana", "orange", "dog", "sports_ball"])
    assert coco.source == "COCO" and coco.shared(["dog", "banana"], ["orange"]) == "food"
    assert coco.shared(["dog"], ["orange"]) == "" and coco.shared(["sports_ball"], ["kite"]) == "sports"
    assert superclasses_of(["plant_life", "tree", "male"]).shared(["plant_life"], ["tree"]) == "plant life"
    assert superclasses_of(["castle", "helicopter", "tree"]).source == "scenes"
    assert not superclasses_of(["art", "biology", "warfare", "tree"]).groups
    file = tmp_path / "wider.json"
    file.write_text('{"a": "letter", "b": ["letter", "note"]}')
    assert superclasses_of(["a", "b"], file).shared("a", "b") == "letter"
    for wrong in ('["a"]', '{"a": 3}', "{}"):
        file.write_text(wrong)
        with pytest.raises(BadInput, match=r"wider\.json"):
            superclasses_of(["a"], file)


def test_causes_are_counted(sharing: Path, tmp_path: Path) -> None:
    file = tmp_path / "wider.json"
    file.write_text('{"a": "letter", "b": "letter", "c": "letter", "d": "letter"}')
    options: dict[str, Any] = {"quick": True, "settings": SHARING, "device": "cpu", "superclasses": file}
    shutil.copytree(sharing, out := tmp_path / "again")
    told = reproduce("sharing-failures", tiny_pairs(), out, **options)["table"]
    for line in told:
        assert line["of these, super-class"] == line["nothing right among them"] and not line["of these, other class"]


# ---- several data sets -----------------------------------------------------------------------------------------------


def test_data_sets_are_columns_of_one_table_and_share_runs(sharing: Path, tmp_path: Path) -> None:
    other = replace(tiny_pairs(seed=3), root=Path("other"))
    both = [replace(tiny_pairs(), root=Path("tiny")), other]
    options: dict[str, Any] = {"quick": True, "settings": SHARING, "device": "cpu"}
    shutil.copytree(sharing, out := tmp_path / "again")
    before = len(runs_of(out, "semantic_sharing"))
    told = reproduce("sharing-f1", both, out, **options)
    assert {row["data"] for row in rows_of(out, "sharing-f1")} == {"tiny", "other"}
    assert set(told["table"][0]) == {"method"} | {
        f"{name}: {what}, {side}"
        for name in ("tiny", "other")
        for what in ("F1 at 0.5", "F1 tuned")
        for side in ("pictures", "texts")
    }
    assert len(runs_of(out, "semantic_sharing")) == before + 3  # those of the first set were there
    assert "data: other" in (out / "sharing-f1.md").read_text()
    lines = reproduce("sharing-lambda", both, out, **options)["table"]
    assert set(lines[0]) == {"lambda"} | {f"{n}, NDCG {w}" for n in ("tiny", "other") for w in ("t2i", "i2t")}


def test_a_large_test_split_is_measured_in_folds_of_a_thousand_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variants, "FOLD", 3)
    work = exhibits.Work("x", replace(tiny_pairs(), root=Path("coco")), tmp_path)
    assert [(one.name, one.fold) for one in variants.columns(work)] == [("coco 1K", 3), ("coco 0.006K", None)]
    asked = exhibits.Work("x", work.pairs, tmp_path, fold=2)
    assert [(one.name, one.fold) for one in variants.columns(asked)] == [("coco", 2)]


def test_f1_in_folds_is_the_mean_of_the_folds(sharing: Path, tmp_path: Path) -> None:
    (run, *_) = [r for r in runs_of(sharing, "semantic_sharing") if r.info["arguments"]["variant"] == "consistent"]
    pairs, places = tiny_pairs(), tiny_pairs().pictures_of("test")
    work = exhibits.Work("x", pairs, tmp_path)
    found = sharing_f1.f1_of(work.measured(run, protocol="labels", fold=3))
    for side, row in zip(("image", "text"), found, strict=True):
        each = []
        for some in (places[:3], places[3:]):
            rows = np.flatnonzero(np.isin(pairs.picture, some))
            each.append(ml.evaluate(run, pairs.select(some, rows), protocol="labels")["micro_f1"][side])
        assert row["f1"] == pytest.approx(np.mean(each))
