"""Exhibits on tiny data: each writes its files, and its numbers are what a direct computation gives."""

from __future__ import annotations

import csv
import json
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import matchlight as ml
from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.data import formats
from matchlight.data.fingerprints import fingerprint
from matchlight.data.noise import Truth, mismatch
from matchlight.measuring.metrics import auroc
from matchlight.measuring.protocols import evaluate_scores
from matchlight.pairs import Labels, Pairs
from matchlight.reproduce import (
    EXHIBITS,
    exhibits,
    layouts,
    mrl_curves,
    ncr_examples,
    ncr_figures,
    ncr_runs,
    reproduce,
    style,
)
from matchlight.reproduce.mrl_maps import _draw_maps, centres_of
from matchlight.reproduce.numbers import as_csv, as_markdown, plain
from matchlight.runs.evaluation import split_scores
from matchlight.scoring.encode import encode_both
from matchlight.training.division import clean_probability, looks_clean
from matchlight.training.registry import Chosen, methods
from tests.tiny import Arrays, tiny_pairs

SMALL: dict[str, Any] = {"preset": "small", "epochs": 2, "dim": 16, "hidden": 8, "batch": 8, "rate": 2e-3}
WORDS: dict[str, Any] = {name: value for name, value in SMALL.items() if name != "hidden"} | {"word_dim": 8}
PAIRED = WORDS | {"scorer": "vse++", "warm": 1}


def rows_of(out: Path, name: str) -> list[dict[str, str]]:
    with open(out / f"{name}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def check_files(out: Path, name: str) -> dict[str, Any]:
    """All files of an exhibit are there and can be read; gives the JSON."""
    told: dict[str, Any] = json.loads((out / f"{name}.json").read_text())
    assert set(told["files"]) == {f"{name}.{kind}" for kind in ("csv", "json", "png", "svg", "md")}
    with Image.open(out / f"{name}.png") as picture:
        picture.load()
        assert picture.width >= 600
    assert "svg" in ET.parse(out / f"{name}.svg").getroot().tag
    assert all((out / file).is_file() for file in told["files"]) and not list(out.glob(".*.tmp*"))
    return told


def runs_of(out: Path, method: str) -> list[ml.Run]:
    return [ml.Run.load(folder) for folder in sorted((out / "runs").glob(f"{method}-seed*"))]


# ---- the command -----------------------------------------------------------------------------------------------------


def test_without_a_name_it_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in EXHIBITS)
    assert main(["reproduce", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in listed] == list(EXHIBITS) and all(one["paper"] and one["shows"] for one in listed)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["mrl-prr"], "did you mean 'mrl-pr'"),
        (["mrl-pr", "--truth", "x.json"], "takes no option 'truth'"),
        (["mrl-pr", "epchs=2"], "did you mean 'epochs'"),
        (["mrl-clusters", "--seeds", "2"], "shows one run"),
        (["mrl-pr", "preset=inriaa"], "did you mean 'inria'"),
        (["mrl-convergence", "--split", "val"], "shows the training itself"),
        (["mrl-pr", "--fold", "5"], "two folds"),
        (["mrl-clusters", "--fold", "2"], "finds nothing in a gallery"),
        (["aoq-ranks", "--scores", "a", "--scores", "b", "--scores", "c"], "one or two score files, or four"),
        (["aoq-ranks", "--scores", "none.npy"], "none.npy"),
        (["ncr-losses", "--run", "nowhere"], "not a run folder"),
        (["ncr-losses", "--truth", "nothing.json"], "nothing.json"),
    ],
)
def test_a_slip_is_one_clear_line(
    words: list[str], hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = formats.write(tiny_pairs(), tmp_path / "data.npz", to="npz")
    assert main(["reproduce", *words, "--data", str(data), "-o", str(tmp_path / "out")]) == 2
    told = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert len(told) == 1 and hint in told[0]
    assert not (tmp_path / "out").exists()


def test_a_preset_that_a_method_lacks_is_told_before_anything_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = exhibits.Work("x", tiny_pairs(), tmp_path, settings={"preset": "inria"})
    setups = [exhibits.MethodSetup("MRL", "mrl"), exhibits.MethodSetup("sharing", "semantic_sharing")]
    work.check(setups)
    line = "semantic_sharing has no preset inria: it takes its paper's settings"
    assert work.notes == [line] and line in capsys.readouterr().err
    assert [work.arguments(one)["preset"] for one in setups] == ["inria", "paper"]


def test_every_method_of_a_comparison_has_the_presets_of_its_sets() -> None:
    known = {name: set(Chosen.of(method).presets) for name, method in methods().items()}
    for name in ("mrl", "deep_sm", "dscmr", "sdml", "fgcrossnet", "dccae"):
        assert {"wikipedia", "inria", "nuswide", "xmedianet"} <= known[name], name
    for name in ("semantic_sharing", "dscmr"):
        assert {"coco", "flickr25k", "nuswide"} <= known[name], name


def test_data_sets_side_by_side_are_for_exhibits_that_have_room_for_them(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="one data set; 2 were given"):
        reproduce("mrl-pr", [tiny_pairs(), tiny_pairs()], tmp_path / "out")
    twice = exhibits.Work("x", tiny_pairs(), tmp_path, more=(tiny_pairs(),))
    assert list(twice.every) == ["in memory 1", "in memory 2"] and not any(one.more for one in twice.every.values())


def test_data_and_folder_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "mrl-pr", "-o", "x"]) == 2
    assert "--data" in capsys.readouterr().err
    assert main(["reproduce", "mrl-pr", "--data", "x"]) == 2
    assert "-o DIR" in capsys.readouterr().err


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BadInput, match=r"matchlight\[figures\]"):
        reproduce("mrl-pr", tiny_pairs(), tmp_path / "out")
    assert not (tmp_path / "out").exists()  # told before anything is trained


def test_data_without_labels_or_splits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has none"):
        reproduce("mrl-pr", replace(tiny_pairs(), labels=None), tmp_path)
    unsplit = replace(tiny_pairs(), splits=np.array(["train"] * 24))
    with pytest.raises(BadInput, match="needs a test split"):
        reproduce("mrl-pr", unsplit, tmp_path)


# ---- MRL -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mrl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All exhibits of MRL at one share of noise, in one folder."""
    out = tmp_path_factory.mktemp("mrl")
    for name in ("mrl-pr", "mrl-convergence", "mrl-map", "mrl-tsne", "mrl-clusters"):
        reproduce(name, tiny_pairs(48, held=12), out, quick=True, noise=0.5, settings=SMALL, device="cpu")
    return out


def precision_at(order: list[int], right: set[int], recall: float) -> float:
    """Precision where recall first reaches a level, by walking down the list."""
    hits = 0
    for place, item in enumerate(order, 1):
        hits += item in right
        if hits >= recall * len(right) - 1e-9:
            return hits / place
    raise AssertionError


def test_precision_and_recall_are_those_of_a_walk_down_every_list(mrl: Path) -> None:
    told = check_files(mrl, "mrl-pr")
    pairs = tiny_pairs(48, held=12)
    run = next(run for run in runs_of(mrl, "mrl") if run.info["arguments"]["loss"] == "robust")
    scores, part = split_scores(run, pairs, "test"), pairs.subset("test")
    assert part.labels is not None
    fits = part.labels.image.astype(int) @ part.labels.text.T.astype(int) > 0
    rows = [r for r in rows_of(mrl, "mrl-pr") if r["method"] == "MRL"]
    for way, asked, right in (("i2t", scores, fits), ("t2i", scores.T, fits.T)):
        for level in (0.05, 0.5, 1.0):
            walks = [
                precision_at(np.argsort(-line, kind="stable").tolist(), set(np.flatnonzero(ok)), level)
                for line, ok in zip(asked, right, strict=True)
                if ok.any()
            ]
            (found,) = [float(r["precision"]) for r in rows if r["way"] == way and float(r["recall"]) == level]
            assert found == pytest.approx(np.mean(walks))
    report = ml.evaluate(run, pairs, protocol="labels")["map"]
    assert next(one for one in told["map"] if one["method"] == "MRL")["mean"] == pytest.approx(report["mean"])
    assert told["chance"] == pytest.approx(fits.mean()) and told["noise"] == 0.5


def test_runs_of_one_exhibit_serve_the_others(mrl: Path) -> None:
    assert len(runs_of(mrl, "mrl")) == 2  # cross-entropy and MRL, for four exhibits
    assert len(runs_of(mrl, "dscmr")) == 1


def test_called_again_nothing_is_trained_and_the_bytes_are_the_same(
    mrl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {kind: (mrl / f"mrl-pr.{kind}").read_bytes() for kind in ("csv", "json", "svg", "png")}
    monkeypatch.setattr(exhibits, "train", lambda *_, **__: pytest.fail("trained again"))
    monkeypatch.setenv("MATPLOTLIBRC", str(tmp_path))
    reproduce("mrl-pr", tiny_pairs(48, held=12), mrl, quick=True, noise=0.5, settings=SMALL, device="cpu")
    assert before == {kind: (mrl / f"mrl-pr.{kind}").read_bytes() for kind in before}


def test_labels_that_fit_no_more_are_trained_on_and_are_measured_by_the_clean_ones(mrl: Path) -> None:
    prints = {run.info["data"]["fingerprint"] for run in runs_of(mrl, "mrl")}
    assert prints != {fingerprint(tiny_pairs(48, held=12))}


def test_convergence_is_what_the_log_says(mrl: Path) -> None:
    told = check_files(mrl, "mrl-convergence")
    run = next(run for run in runs_of(mrl, "mrl") if run.info["arguments"]["loss"] == "ce")
    log = [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]
    rows = [row for row in rows_of(mrl, "mrl-convergence") if row["method"] == "cross-entropy"]
    assert [int(row["epoch"]) for row in rows] == [1, 2]
    assert [float(row["loss"]) for row in rows] == pytest.approx([line["loss"] for line in log])
    means = [line["val"]["map"]["mean"] for line in log]
    assert [float(row["map_mean"]) for row in rows] == pytest.approx(means)
    assert [float(row["val_loss"]) for row in rows] == pytest.approx([line["val"]["loss"] for line in log])
    first = told["table"][0]
    assert (first["best MAP"], first["last"]) == (pytest.approx(max(means)), pytest.approx(means[-1]))
    assert first["at epoch"] == int(np.argmax(means)) + 1


def test_the_main_table_has_the_map_of_networks_and_of_projections_and_what_was_printed(mrl: Path) -> None:
    told = check_files(mrl, "mrl-map")
    names = ["MRL", "cross-entropy", "DSCMR", "MCCA", "PLS", "GMA", "MvDA"]
    assert [line["method"] for line in told["table"]] == names
    curves = {one["method"]: one for one in json.loads((mrl / "mrl-pr.json").read_text())["map"]}
    for line in told["table"]:
        assert (line["i2t 50%"], line["t2i 50%"]) == (curves[line["method"]]["i2t"], curves[line["method"]]["t2i"])
    assert len(told["published"]) == 60
    wikipedia = next(one for one in told["published"] if (one["data"], one["method"]) == ("Wikipedia", "MRL"))
    assert (wikipedia["i2t 20%"], wikipedia["t2i 80%"]) == (0.514, 0.4)


def test_curves_and_maps_are_means_over_galleries_where_folds_are_asked_for(mrl: Path, tmp_path: Path) -> None:
    pairs = tiny_pairs(48, held=12)
    work = exhibits.Work("x", pairs, tmp_path, fold=6)
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(12, 24))
    points, means = mrl_curves.curves_of(scores, work)
    halves = []
    for k in range(2):
        part = pairs.subset("test").select(np.arange(6 * k, 6 * k + 6), np.arange(12 * k, 12 * k + 12))
        block = scores[6 * k : 6 * k + 6, 12 * k : 12 * k + 12]
        halves.append(evaluate_scores(block, part, protocol="labels")["map"]["i2t"])
    assert means["i2t"] == pytest.approx(np.mean(halves)) and len(points) == 40


def test_validation_loss_is_that_of_clean_labels(mrl: Path) -> None:
    """Cross-entropy of val by hand, from the model that was kept."""
    pairs = tiny_pairs(48, held=12)
    run = next(run for run in runs_of(mrl, "mrl") if run.info["arguments"]["loss"] == "ce")
    kept = json.loads((run.folder / "metrics.json").read_text())["val"]
    rows = pairs.rows("val")
    sides = encode_both(run.matcher, run.inputs(pairs).table, pairs.pictures_of("val"), rows)
    assert pairs.labels is not None
    truth = {"image": pairs.labels.image[pairs.picture[rows]], "text": pairs.labels.text[rows]}
    logits = {"image": sides[0].extra["logits"].repeat_interleave(2, 0), "text": sides[1].extra["logits"]}
    by_hand = {s: -logits[s].log_softmax(1).numpy()[truth[s]].mean() for s in truth}
    assert kept["loss"] == pytest.approx(sum(by_hand.values()), rel=0.05)  # batches count pictures once each


def test_every_method_and_both_inputs_have_a_map_of_all_items(mrl: Path) -> None:
    check_files(mrl, "mrl-tsne")
    rows = rows_of(mrl, "mrl-tsne")
    counts = {title: sum(row["panel"] == title for row in rows) for title in {row["panel"] for row in rows}}
    items = {"input: pictures": 12, "input: texts": 24, "MRL": 36, "cross-entropy": 36, "DSCMR": 36}
    assert counts == items
    assert {row["class"] for row in rows} <= set("abcd") and np.isfinite([float(row["x"]) for row in rows]).all()


def test_the_legend_of_maps_names_classes_that_are_seen() -> None:
    points = [{"side": "picture", "class": "b", "x": 0.0, "y": 1.0}, {"side": "text", "class": "d", "x": 1.0, "y": 0.0}]
    figure = _draw_maps([("MRL", points)], ["a", "b", "c", "d"], {"MRL": 0.5})
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["picture", "text", "b", "d"]


def test_clusters_know_the_nearest_centre(mrl: Path) -> None:
    check_files(mrl, "mrl-clusters")
    pairs, names = tiny_pairs(48, held=12), list("abcd")
    run = next(run for run in runs_of(mrl, "mrl") if run.info["arguments"]["loss"] == "robust")
    centres = centres_of(run, names)
    assert np.linalg.norm(centres, axis=1) == pytest.approx(np.ones(4))
    items = layouts.chosen_items(pairs, np.arange(4))
    cosines = layouts.vectors_of(run, pairs, items) @ centres.T
    rows = [row for row in rows_of(mrl, "mrl-clusters") if row["method"] == "MRL"]
    points = [row for row in rows if row["side"] != "centre"]
    assert [row["nearest"] for row in points] == [names[k] for k in cosines.argmax(1)]
    assert sum(row["side"] == "centre" for row in rows) == 4


def test_items_of_several_shown_classes_or_of_none_are_left_out() -> None:
    hot = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 1], [0, 1, 0]], dtype=bool)
    pairs = Pairs(
        names=list("uvwxyz"),
        captions=[""] * 6,
        picture=np.arange(6),
        splits=np.array(["test"] * 6),
        features=Arrays(np.zeros((6, 2), np.float32)),
        text_features=np.zeros((6, 2), np.float32),
        labels=Labels(list("abc"), hot, hot),
    )
    found = layouts.chosen_items(pairs, np.array([0, 1]))  # a and b are shown: v has both, x none
    assert found.place["image"].tolist() == [0, 2, 4, 5] and found.label["text"].tolist() == [0, 1, 0, 1]
    assert layouts.frequent(pairs, most=2).tolist() == [0, 1]
    with pytest.raises(BadInput, match="too few"):
        layouts.chosen_items(pairs.select(np.arange(3), np.arange(3)), np.array([0]))  # u and v have class a


def test_seeds_are_averaged_and_shown(tmp_path: Path) -> None:
    found = reproduce(
        "mrl-convergence", tiny_pairs(), tmp_path, seeds=2, settings=SMALL | {"epochs": 1}, noise=0.0, device="cpu"
    )
    rows = [row for row in rows_of(tmp_path, "mrl-convergence") if row["method"] == "MRL"]
    assert [row["seed"] for row in rows] == ["0", "1"]
    mean = np.mean([float(row["map_mean"]) for row in rows])
    assert found["table"][1]["last"] == pytest.approx(mean)


def four() -> Pairs:
    """Four pictures of classes a, a, b, c with a caption each, the second of them with two."""
    hot = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=bool)
    picture = np.array([0, 1, 1, 2, 3])
    return Pairs(
        names=["p", "q", "r", "s"],
        captions=["one", "two", "three", "=four", "five"],
        picture=picture,
        splits=np.array(["test"] * 4),
        features=Arrays(np.zeros((4, 2), np.float32)),
        labels=Labels(list("abc"), hot, hot[picture]),
    )


# ---- NCR -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ncr(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ncr")
    for name in ("ncr-losses", "ncr-labels", "ncr-examples"):
        reproduce(name, tiny_pairs(), out, settings=PAIRED | {"epochs": 3}, noise=0.5, device="cpu")
    return out


@pytest.mark.parametrize("name", ["ncr-losses", "ncr-labels", "ncr-examples"])
def test_the_page_says_which_scorer_was_trained(ncr: Path, name: str) -> None:
    (run,) = runs_of(ncr, "ncr")
    scorer, warm = (run.info["arguments"][key] for key in ("scorer", "warm"))
    assert f"scorer {scorer}, warm {warm}, epochs 3" in (ncr / f"{name}.md").read_text()


@pytest.mark.parametrize("first", [True, False])
def test_the_mixture_drawn_is_the_one_that_divided(ncr: Path, first: bool) -> None:
    told = check_files(ncr, "ncr-losses")
    (run,) = runs_of(ncr, "ncr")
    arrays = dict(np.load(run.folder / ("division-first.npz" if first else "division.npz")))
    assert arrays["epoch"] == (1 if first else 2)
    train = tiny_pairs().rows("train")
    work = exhibits.Work("x", tiny_pairs(), ncr)
    found = ncr_runs.division(work, run=run.folder, truth=None, noise=0, first=first)
    for name in "AB":
        kept = arrays[f"clean_{name}"][train]
        assert clean_probability(found.losses[name], seed=found.seed) == pytest.approx(kept)
        if first:  # what the exhibit shows
            rows = rows_of(ncr, "ncr-losses")
            assert [int(row["row"]) for row in rows] == train.tolist()
            assert [float(row[f"clean_{name}"]) for row in rows] == pytest.approx(kept.tolist())
            means = [part["mean"] for part in told["mixtures"][name]]
            assert means == sorted(means) and told["when"] == "right after the warm-up"
            assert sum(part["share"] for part in told["mixtures"][name]) == pytest.approx(1)


def test_the_truth_colours_and_measures_the_division(ncr: Path) -> None:
    told = json.loads((ncr / "ncr-losses.json").read_text())
    (run,) = runs_of(ncr, "ncr")
    truth = Truth.load(run.folder / "truth.json")
    train = tiny_pairs().rows("train")
    clean = truth.clean(train)
    assert [row["truth"] for row in rows_of(ncr, "ncr-losses")] == ["clean" if ok else "noisy" for ok in clean]
    assert (~clean).sum() == round(0.5 * len(train))
    sure = np.load(run.folder / "division-first.npz")["clean_A"][train]
    assert told["table"][0]["AUROC"] == pytest.approx(auroc(sure, clean))
    assert told["table"][0]["called clean"] == pytest.approx((sure > 0.5).mean())


def test_a_run_that_is_named_is_only_looked_at(ncr: Path, tmp_path: Path) -> None:
    (run,) = runs_of(ncr, "ncr")
    options = {"run": [run.folder], "device": "cpu"}
    found = reproduce("ncr-losses", tiny_pairs(), tmp_path, truth=run.folder / "truth.json", **options)
    assert not (tmp_path / "runs").exists()
    assert found["table"] == ncr_table(ncr) and "truth" in rows_of(tmp_path, "ncr-losses")[0]
    blind = reproduce("ncr-labels", tiny_pairs(), tmp_path, **options)
    assert [line["pairs"] for line in blind["table"]] == ["all, called noisy"] * 2
    with pytest.raises(BadInput, match="30 pairs|has 40"):
        reproduce("ncr-losses", tiny_pairs(20, held=4), tmp_path, **options)
    with pytest.raises(BadInput, match="cannot be set"):
        reproduce("ncr-losses", tiny_pairs(), tmp_path, settings={"epochs": 3}, **options)
    with pytest.raises(BadInput, match="looks at one run"):
        reproduce("ncr-losses", tiny_pairs(), tmp_path, run=[run.folder, run.folder])


def test_a_run_of_other_data_is_not_taken_for_one_of_these(ncr: Path, tmp_path: Path) -> None:
    (run,) = runs_of(ncr, "ncr")
    options = {"run": [run.folder], "device": "cpu"}
    for other in (tiny_pairs(seed=1), mismatch(tiny_pairs(), ratio=0.5, seed=1)[0]):  # as many pairs, and not the same
        with pytest.raises(BadInput, match="was trained on other data than"):
            reproduce("ncr-losses", other, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
    broken, truth = mismatch(tiny_pairs(), ratio=0.5, seed=0)
    found = reproduce("ncr-losses", broken, tmp_path / "out", truth=run.folder / "truth.json", **options)
    assert found["table"] == ncr_table(ncr)
    far = replace(truth, moved=[0, 1000], source={0: 1000, 1000: 0})
    far.save(tmp_path / "far.json")
    with pytest.raises(BadInput, match="row 1000"):
        reproduce("ncr-losses", tiny_pairs(), tmp_path, truth=tmp_path / "far.json", **options)


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_division_is_one_clear_line(damage: str, tmp_path: Path) -> None:
    file = tmp_path / "division.npz"
    np.savez_compressed(file, loss_A=np.random.default_rng(0).random(200))
    data = bytearray(file.read_bytes())
    data[60:200] = bytes(140)  # inside the packed values
    file.write_bytes(data[:-30] if damage == "cut" else data)
    with pytest.raises(BadInput, match=r"division\.npz: not a readable \.npz file"):
        ncr_runs.read_division(tmp_path)


def ncr_table(out: Path) -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = json.loads((out / "ncr-losses.json").read_text())["table"]
    return table


def test_labels_shown_are_those_of_pairs_that_the_peer_calls_noisy() -> None:
    found = ncr_runs.Division(
        rows=np.arange(5),
        losses={},
        probability={"A": np.array([0.9, 0.9, 0.1, 0.1, 0.2]), "B": np.array([0.1, 0.9, 0.2, 0.1, 0.3])},
        labels={"A": np.array([1.0, 0.8, np.nan, 0.2, 0.1])},
        clean=np.array([True, False, True, False, False]),
        seed=0,
    )
    told = ncr_figures.called_noisy(found, "A")  # row 1 is called clean, row 2 has no label
    assert {kind: values.tolist() for kind, values in told.items()} == {"clean": [1.0], "noisy": [0.2, 0.1]}
    blind = ncr_figures.called_noisy(replace(found, clean=None), "A")
    assert {kind: values.tolist() for kind, values in blind.items()} == {"all": [1.0, 0.2, 0.1]}
    spans = ncr_figures._spans(told["noisy"])
    assert (spans["at or above 0.2 (%)"], spans["at or below 0.2 (%)"]) == (50.0, 100.0)


def test_rectified_labels_are_those_of_the_run(ncr: Path) -> None:
    told = check_files(ncr, "ncr-labels")
    (run,) = runs_of(ncr, "ncr")
    truth, arrays = Truth.load(run.folder / "truth.json"), np.load(run.folder / "division.npz")
    train = tiny_pairs().rows("train")
    label = arrays["label_A"][train]
    noisy = np.isfinite(label) & ~looks_clean(arrays["clean_B"][train])
    chosen = label[noisy & truth.clean(train)]
    assert told["table"][0]["pairs"] == "clean, called noisy" and told["table"][0]["given a label"] == len(chosen)
    expected = pytest.approx(100 * np.mean(chosen >= 0.2)) if len(chosen) else None
    assert told["table"][0]["at or above 0.2 (%)"] == expected


def test_examples_are_successes_and_failures_with_what_belongs_to_them() -> None:
    scores = np.array([[5, 1, 4, 0, 0], [4, 2, 9, 0, 1], [3, 3, 1, 1, 0], [2, 4, 2, 3, 7]], np.float32)
    work = exhibits.Work("x", four(), Path("x"))
    texts = {query.place: query for query in ncr_examples.answers(work, scores, "text", top=1)}
    assert {row: (one.answers[0].place, one.answers[0].right) for row, one in texts.items()} == {
        0: (0, True),
        1: (3, False),
        2: (1, True),
        3: (3, False),
        4: (3, True),
    }
    shown = ncr_examples.drawn(work, scores, "text")
    assert [one.answers[0].right for one in shown] == [True, True, False, False][: len(shown)]
    owners = [int(four().picture[one.place]) for one in shown]
    assert len(set(owners)) == len(owners)
    from scipy.sparse import csr_matrix

    known = csr_matrix(np.array([[0] * 4, [0, 0, 0, 1], *[[0] * 4] * 3], dtype=bool))
    related = exhibits.Work("x", replace(four(), relevance=known), Path("x"))
    assert ncr_examples.answers(related, scores, "text", top=1)[1].answers[0].right
    folded = exhibits.Work("x", four(), Path("x"), fold=2)
    assert [query.answers[0].place for query in ncr_examples.answers(folded, scores, "text", top=1)] == [0, 1, 1, 3, 3]


def test_examples_are_a_sheet_of_pictures(ncr: Path) -> None:
    told = check_files(ncr, "ncr-examples")
    pairs = tiny_pairs()
    rows = rows_of(ncr, "ncr-examples")
    for row in rows:
        text, picture = (row["query"], row["place"]) if row["asks"] == "text" else (row["place"], row["query"])
        assert (row["right"] == "True") == (pairs.picture[int(text)] == int(picture))
        own = pairs.captions[int(picture) * 2] if row["asks"] == "image" else pairs.names[int(pairs.picture[int(text)])]
        assert row["own"] == own
    assert {row["rank"] for row in rows if row["asks"] == "image"} == {"1", "2", "3"}
    assert [line["queries"] for line in told["table"]] == [12, 6]


def test_data_that_brings_its_truth_is_broken_no_further(tmp_path: Path) -> None:
    broken, truth = mismatch(tiny_pairs(), ratio=0.25, seed=3)
    truth.save(tmp_path / "truth.json")
    reproduce("ncr-losses", broken, tmp_path / "out", truth=tmp_path / "truth.json", settings=PAIRED, device="cpu")
    (run,) = runs_of(tmp_path / "out", "ncr")
    assert run.info["data"]["fingerprint"] == fingerprint(broken)
    noisy = [int(row["row"]) for row in rows_of(tmp_path / "out", "ncr-losses") if row["truth"] == "noisy"]
    assert noisy == truth.moved


# ---- AOQ -------------------------------------------------------------------------------------------------------------


def test_ranks_of_score_files_by_hand(tmp_path: Path) -> None:
    pairs = tiny_pairs()
    owner = pairs.subset("test").picture
    right = (np.arange(6)[:, None] == owner[None]).astype(np.float32)
    np.save(tmp_path / "good.npy", right)
    np.save(tmp_path / "bad.npy", -right)
    found = reproduce("aoq-ranks", pairs, tmp_path, scores=[tmp_path / "bad.npy", tmp_path / "good.npy"])
    rows = rows_of(tmp_path, "aoq-ranks")
    assert [row["base"] for row in rows] == ["bad"] * len(rows)  # one panel
    assert {(row["model"], row["ranks"]): int(row["pairs"]) for row in rows if int(row["pairs"])} == {
        ("before: bad", "11-20"): 12,  # behind all five other pictures, stretched to the ten foreign captions: 11
        ("after: good", "1"): 12,
    }
    assert [line["median"] for line in found["table"]] == [11.0, 1.0]
    check_files(tmp_path, "aoq-ranks")
    np.save(tmp_path / "wide.npy", right.T)
    with pytest.raises(BadInput, match="6 pictures x 12 captions"):
        reproduce("aoq-ranks", pairs, tmp_path, scores=tmp_path / "wide.npy")


def test_four_score_files_are_two_bases_and_folds_rank_within_themselves(tmp_path: Path) -> None:
    pairs = tiny_pairs()
    owner = pairs.subset("test").picture
    right = (np.arange(6)[:, None] == owner[None]).astype(np.float32)
    for name in "abcd":
        np.save(tmp_path / f"{name}.npy", -right)
    found = reproduce("aoq-ranks", pairs, tmp_path, scores=[tmp_path / f"{name}.npy" for name in "abcd"], fold=3)
    assert [(line["base"], line["model"]) for line in found["table"]] == [
        ("a", "before: a"),
        ("a", "after: b"),
        ("c", "before: c"),
        ("c", "after: d"),
    ]
    assert found["table"][0]["median"] == 5.0  # behind two other pictures of three: max(2 * 3 - 1, 4 + 1)


def test_without_runs_two_rounds_are_trained(tmp_path: Path) -> None:
    settings = WORDS | {"base": "vse++", "h": 5}
    found = reproduce("aoq-ranks", tiny_pairs(), tmp_path, settings=settings, device="cpu")
    assert [line["model"] for line in found["table"]] == ["before: VSE++", "after: VSE++ + AOQ"]
    (first,), (second,) = runs_of(tmp_path, "vse++"), runs_of(tmp_path, "aoq")
    report = ml.evaluate(second, tiny_pairs(), protocol="cross-rank")
    assert found["table"][1]["mean"] == pytest.approx(report["mean"])
    again = reproduce("aoq-ranks", tiny_pairs(), tmp_path, run=first.folder)
    assert again["table"] == [{**found["table"][0], "base": "vse++", "model": "vse++"}]


# ---- files and looks -------------------------------------------------------------------------------------------------


def test_numbers_as_files() -> None:
    rows = [{"a": "=1+1", "b": np.float64(0.5)}, {"a": "x,y", "c": -1}]
    assert as_csv(rows) == 'a,b,c\n\'=1+1,0.5,\n"x,y",,-1\n'
    assert as_markdown([{"m": "a|b", "v": 0.12345}, {"m": "c", "v": None}]).splitlines()[2:] == [
        "| a\\|b | 0.123 |",
        "| c | - |",
    ]
    assert plain({"a": np.array([1.0, np.nan]), 2: Path("x")}) == {"a": [1.0, None], "2": "x"}


def test_lines_differ_by_more_than_colour() -> None:
    looks = style.lines_of([str(k) for k in range(21)])
    assert len({(one["color"], str(one["linestyle"])) for one in looks.values()}) == 21
    few = [looks[str(k)] for k in range(7)]
    assert len({one["color"] for one in few}) == len({one["marker"] for one in few}) == 7


def test_texts_of_any_kind_can_be_printed(tmp_path: Path) -> None:
    assert style.wrapped("one two three four", 9, lines=2) == "one two\nthree …"
    assert style.wrapped("bell\x07\x1b[31m", 40) == "bell  [31m"
    with style.look():
        figure, axes = style.panels(1, 1)
        axes[0][0].set_title("costs $5 and 6$ \\frac{")  # no formula
        written = style.save(figure, tmp_path / "new" / "f")
    assert [path.name for path in written] == ["f.png", "f.svg"]
    assert "costs $5 and 6$ \\frac{" in (tmp_path / "new" / "f.svg").read_text()
