"""Exhibits of AOQ's supplement and of DivE on tiny data: their files are whole, their numbers those of the runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

import matchlight as ml
from matchlight.core import IMAGE, TEXT, BadInput
from matchlight.measuring.metrics import circular_variance
from matchlight.pairs import Pairs
from matchlight.parts.set_similarities import set_similarity
from matchlight.reproduce import (
    aoq_cost,
    aoq_examples,
    dive_ablation,
    dive_attention,
    dive_cost,
    exhibits,
    ranked_tables,
    reproduce,
)
from matchlight.reproduce.exhibit_page import page
from matchlight.reproduce.sheets import Answer, Query
from matchlight.runs.evaluation import split_scores
from matchlight.runs.folder import Run
from matchlight.scoring.encode import encode_both
from matchlight.training.mining import load
from tests.reproduce.test_reproduce import WORDS, check_files, rows_of, runs_of
from tests.tiny import Arrays, tiny_pairs

DIVE: dict[str, Any] = WORDS | {"hidden": 8, "head_dim": 8}
PLAIN = WORDS | {"base": "vse++", "h": 5}


# ---- the page --------------------------------------------------------------------------------------------------------


def test_a_page_tells_what_was_run_and_what_was_published() -> None:
    told = page("x", ["data: d", "run: r"], [{"m": "a", "v": 1.0}], published=[{"m": "a", "v": 2.0}], source="Table 1")
    assert told == (
        "# x\n\n- data: d\n- run: r\n\n| m | v |\n| --- | ---: |\n| a | 1.000 |\n"
        "\nPublished: Table 1\n\n| m | v |\n| --- | ---: |\n| a | 2.000 |\n"
    )


# ---- AOQ: alpha and beta ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rounds")
    reproduce("aoq-sensitivity", tiny_pairs(), out, settings=PLAIN, device="cpu")
    return out


def test_every_setting_is_a_second_round_of_one_first_round(rounds: Path) -> None:
    told = check_files(rounds, "aoq-sensitivity")
    rows = rows_of(rounds, "aoq-sensitivity")
    assert [row["round"] for row in rows] == ["first"] + ["second"] * 5
    (first,), seconds = runs_of(rounds, "vse++"), runs_of(rounds, "aoq")
    assert float(rows[0]["rsum"]) == pytest.approx(ml.evaluate(first, tiny_pairs())["rsum"])
    for run in seconds:
        given = run.info["arguments"]
        (row,) = [r for r in rows[1:] if (float(r["beta"]), float(r["alpha"])) == (given["beta"], given["alpha"])]
        assert float(row["rsum"]) == pytest.approx(ml.evaluate(run, tiny_pairs())["rsum"])
        assert run.info["notes"]["rounds"] == {"first": 0, "second": 2, "second_starts": "from the first"}
    assert told["table"][2]["rsum beside 1.5, 0.3"] == "0.0"
    final = next(float(row["rsum"]) for row in rows if (row["beta"], row["alpha"]) == ("1.5", "0.3"))
    assert told["table"][0]["rsum beside 1.5, 0.3"] == f"{float(rows[0]['rsum']) - final:.1f}"


def test_the_lists_are_mined_once_and_serve_all(rounds: Path) -> None:
    (folder,) = (rounds / "runs").glob("lists-*")
    found, _ = load(folder)
    assert found.texts.shape[1] == 5
    assert {run.info["arguments"]["candidates"] for run in runs_of(rounds, "aoq")} == {str(folder)}


def test_the_table_has_all_six_recalls_beside_the_published_ones(rounds: Path) -> None:
    told = json.loads((rounds / "aoq-sensitivity.json").read_text())
    names = [f"{way} R@{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)]
    assert list(told["table"][0]) == ["beta", "alpha", *names, "rsum", "rsum beside 1.5, 0.3"]
    assert [told["published"][0][name] for name in names] == ["77.1", "95.3", "98.7", "63.8", "90.6", "95.8"]


# ---- AOQ: batches, draws, examples -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("others")
    for name in ("aoq-draw", "aoq-ranks", "aoq-examples"):
        reproduce(name, tiny_pairs(), out, settings=PLAIN, device="cpu")
    return out


def test_a_second_round_with_the_papers_settings_serves_every_exhibit(others: Path) -> None:
    found = check_files(others, "aoq-draw")
    assert [line["model"] for line in found["table"]] == ["first round", "second, uniform", "second, normal"]
    assert len(runs_of(others, "vse++")) == 1
    assert sorted(run.info["arguments"]["draw"] for run in runs_of(others, "aoq")) == ["normal", "uniform"]


def test_larger_batches_stand_beside_the_second_round(tmp_path: Path) -> None:
    options = {"settings": {name: value for name, value in PLAIN.items() if name != "batch"}, "device": "cpu"}
    found = reproduce("aoq-batch", tiny_pairs(), tmp_path, **options)
    check_files(tmp_path, "aoq-batch")
    names = ["VSE++, batch 128", "VSE++, batch 192", "VSE++ + AOQ, batch 128"]
    assert [line["model"] for line in found["table"]] == names
    assert sorted(run.info["arguments"]["batch"] for run in runs_of(tmp_path, "vse++")) == [128, 192]
    assert [line["rsum"] for line in found["published"]] == ["516.8", "516.3", "521.4"]
    assert "24 training pairs" in (tmp_path / "aoq-batch.md").read_text()
    folded = reproduce("aoq-batch", tiny_pairs(), tmp_path, **options, fold=3)
    small = next(run for run in runs_of(tmp_path, "vse++") if run.info["arguments"]["batch"] == 128)
    report = ml.evaluate(small, tiny_pairs(), protocol="five-fold", fold=3)
    assert folded["table"][0]["t2i R@1"] == f"{report['t2i']['r1']:.1f}"


def test_examples_are_queries_that_one_round_alone_answers(others: Path) -> None:
    found = check_files(others, "aoq-examples")
    rows = rows_of(others, "aoq-examples")
    for query in {(row["asks"], row["query"]) for row in rows if row["model"]}:
        firsts = [row for row in rows if (row["asks"], row["query"]) == query and row["rank"] == "1"]
        assert [row["model"] for row in firsts] == ["VSE++", "VSE++ + AOQ"]
        assert {row["right"] for row in firsts} == {"True", "False"}
    line = found["table"][1]
    assert line["queries"] == 12 and line["won by the second round"] + line["lost by it"] <= 12


def test_more_wins_than_losses_are_shown_and_one_a_picture() -> None:
    def both(row: int, won: bool) -> aoq_examples.Both:
        right, wrong = (Query("text", row, (Answer(0, ok, 1.0),)) for ok in (True, False))
        return aoq_examples.Both(wrong, right) if won else aoq_examples.Both(right, wrong)

    pairs = tiny_pairs()
    differ = [both(row, won=row < 8) for row in range(12)]
    shown = aoq_examples.chosen(pairs, differ)
    assert [one.won for one in shown] == [True, True, False]
    assert len({int(pairs.picture[one.after.place]) for one in shown}) == 3
    assert [one.won for one in aoq_examples.chosen(pairs, differ[:8])] == [True] * 3
    assert [one.won for one in aoq_examples.chosen(pairs, differ[8:])] == [False] * 2  # two pictures in all


def test_the_published_sums_are_those_of_the_published_recalls(rounds: Path) -> None:
    told = json.loads((rounds / "aoq-sensitivity.json").read_text())["published"]
    assert {(line["beta"], line["alpha"]): line["rsum"] for line in told} == {
        ("1.5", "0.2"): "521.3",
        ("1.5", "0.3"): "521.4",
        ("1.5", "0.5"): "520.7",
        ("1", "0.3"): "519.5",
        ("2", "0.3"): "520.8",
    }
    assert "VSRN on COCO 1K" in (rounds / "aoq-sensitivity.md").read_text()


def test_called_again_no_round_is_trained_again(rounds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exhibits, "train", lambda *_, **__: pytest.fail("trained again"))
    rows = rows_of(rounds, "aoq-sensitivity")
    reproduce("aoq-sensitivity", tiny_pairs(), rounds, settings=PLAIN, device="cpu")
    assert rows_of(rounds, "aoq-sensitivity") == rows


# ---- AOQ: time -------------------------------------------------------------------------------------------------------


def test_steps_of_every_kind_are_timed(tmp_path: Path) -> None:
    settings = {**WORDS, "base": "vsrn", "caption_hidden": 8, "caption_word_dim": 8}
    found = reproduce("aoq-cost", tiny_pairs(), tmp_path, quick=True, settings=settings, device="cpu")
    check_files(tmp_path, "aoq-cost")
    rows = rows_of(tmp_path, "aoq-cost")
    assert [row["step"] for row in rows] == ["plain", "offtri", "offquin", "adapoffquin"]
    assert all(float(row["ratio"]) == pytest.approx(float(row["seconds"]) / float(rows[0]["seconds"])) for row in rows)
    assert found["published"][3]["ratio"] == pytest.approx(1.604 / 1.096)


def test_what_is_timed_is_a_step_with_companions_and_one_without(tmp_path: Path) -> None:
    options = {"settings": PLAIN, "where": torch.device("cpu"), "precision": "fp32"}
    run = aoq_cost.second_round("vse++", tiny_pairs(), str(tmp_path), **options)
    plain, triplets, all_of_them = (aoq_cost.batches(run, kind) for kind in ("plain", "offtri", "adapoffquin"))
    assert [set(made[0].links) for made in (plain, triplets)] == [{"positive"}, {"positive", "off_text", "off_image"}]
    assert len(all_of_them[0].links) == 5 and all(len(made) == aoq_cost.BATCHES for made in (plain, triplets))
    assert torch.equal(plain[0].row, all_of_them[0].row)


def test_random_lists_never_name_a_pictures_own() -> None:
    pairs = tiny_pairs(9, 3, held=2)
    rows = pairs.rows("train")
    found = aoq_cost.random_lists(pairs, rows, depth=12)
    assert found.texts.shape == (5, 12) and found.images.shape == (15, 4)
    assert (pairs.picture[found.texts] != found.pictures[:, None]).all() and set(found.texts.ravel()) <= set(rows)
    assert (found.images != pairs.picture[rows][:, None]).all() and set(found.images.ravel()) <= set(found.pictures)


# ---- DivE ------------------------------------------------------------------------------------------------------------


def with_relevance() -> Pairs:
    """Tiny pairs in which a caption also fits the next picture."""
    pairs = tiny_pairs()
    own = np.eye(24, dtype=bool)[pairs.picture]
    return replace(pairs, relevance=csr_matrix(own | np.roll(own, 1, axis=1)))


@pytest.fixture(scope="module")
def dive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dive")
    for name in ("dive-ablation", "dive-tsne", "dive-attention", "dive-eccv", "dive-capacity"):
        reproduce(name, with_relevance(), out, settings=DIVE, device="cpu")
    return out


def default_run(dive: Path) -> ml.Run:
    usual = {"begin": "learned", "update": "sum", "whole": True, "similarity": "smooth_chamfer"}
    (run,) = [run for run in runs_of(dive, "dive") if usual.items() <= run.info["arguments"].items()]
    return run


def test_each_change_is_undone_alone_and_all_at_once(dive: Path) -> None:
    told = check_files(dive, "dive-ablation")
    changes = [{**one.arguments} for one in dive_ablation.VARIANTS]
    one_each = [{"begin": "sampled"}, {"update": "gru"}, {"whole": False}]
    assert changes == [{}, *one_each, {"begin": "sampled", "update": "gru", "whole": False}]
    rows = {row["variant"]: row for row in rows_of(dive, "dive-ablation")}
    report = ml.evaluate(default_run(dive), tiny_pairs())
    assert float(rows[dive_ablation.FULL]["rsum"]) == pytest.approx(report["rsum"])
    assert float(rows[dive_ablation.FULL]["spread image"]) == pytest.approx(report["spread"]["image"])
    apart = [float(row["rsum"]) - report["rsum"] for row in rows.values()]
    assert [line["beside all three"] for line in told["table"]] == [f"{value:.1f}" for value in apart]
    assert [line["rsum"] for line in told["published"]] == ["430.7", "427.2", "423.3", "342.0", "0.7"]


def test_exhibits_of_sets_share_their_runs(dive: Path) -> None:
    assert len(runs_of(dive, "dive")) == 5 + 2  # five variants, and two more similarities


def test_every_element_has_a_point_and_the_spread_is_measured(dive: Path) -> None:
    told = check_files(dive, "dive-tsne")
    rows = rows_of(dive, "dive-tsne")
    panels = {row["panel"] for row in rows}
    assert len(panels) == 3 and len(rows) == 3 * (6 + 6) * 4  # pictures and a caption each, four elements
    assert {(row["side"], row["slot"]) for row in rows} == {(s, str(k)) for s in ("picture", "text") for k in range(4)}
    line = next(line for line in told["table"] if line["similarity"] == "smooth-Chamfer")
    pairs = tiny_pairs()
    run = default_run(dive)
    sides = encode_both(run.matcher, run.inputs(pairs).table, pairs.pictures_of("test"), pairs.rows("test"))
    spreads = [circular_variance(side.vectors).mean() for side in sides]
    assert [line["circular variance, pictures"], line["circular variance, texts"]] == pytest.approx(spreads)


def test_shares_are_shared_out_and_captions_are_the_nearest(dive: Path) -> None:
    check_files(dive, "dive-attention")
    pairs, run = tiny_pairs(), default_run(dive)
    rows = rows_of(dive, "dive-attention")
    places = np.unique([int(row["picture"][1:]) for row in rows])
    assert len(places) == 4
    assert len(rows) == len(places) * 4 * 4 * 5  # rounds, slots, regions
    totals: dict[tuple[str, str, str], float] = {}
    for row in rows:
        key = (row["picture"], row["round"], row["cell"])
        totals[key] = totals.get(key, 0.0) + float(row["share"])
    assert list(totals.values()) == pytest.approx([1.0] * len(totals), abs=1e-5)
    texts = pairs.rows("test")
    found, cosines = dive_attention.nearest_captions(run, pairs, places, texts)
    images, captions = (side.vectors for side in encode_both(run.matcher, run.inputs(pairs).table, places, texts))
    for i, k in np.ndindex(len(places), 4):
        by_hand = [max(float(images[i, k] @ y) for y in caption) for caption in captions]
        assert found[i, k] == texts[int(np.argmax(by_hand))] and cosines[i, k] == pytest.approx(max(by_hand), abs=1e-5)


def test_captions_of_elements_are_looked_for_in_a_pictures_own_gallery(dive: Path) -> None:
    work = exhibits.Work("dive-attention", tiny_pairs(), dive, fold=3)
    counted, nearest, _ = dive_attention.nearest_in_galleries(work, default_run(dive))
    assert counted.tolist() == list(range(18, 24)) and nearest.shape == (6, 4)
    assert (tiny_pairs().picture[nearest] // 3 == counted[:, None] // 3).all()


def test_pictures_of_which_two_elements_share_a_caption_are_drawn_last() -> None:
    nearest = np.array([[1, 2, 3], [4, 4, 5], [6, 7, 8], [9, 9, 9], [1, 1, 2], [3, 4, 5]])
    known = np.array([[0, 0, 1], [0, 0, 0], [1, 1, 0], [1, 1, 1], [0, 0, 1], [0, 0, 0]], dtype=bool)
    assert dive_attention.chosen(nearest, known).tolist() == [2, 0, 3, 4]  # those with most that fits come first
    assert dive_attention.chosen(nearest[[0, 2, 5]], known[[0, 2, 5]]).tolist() == [1, 0, 2]  # no two agree
    assert dive_attention.chosen(nearest[[1, 3, 4, 1]], known[[1, 3, 4, 1]]).tolist() == [1, 2, 0, 3]


# ---- DivE: all that fits ---------------------------------------------------------------------------------------------


def test_all_that_fits_is_measured_by_the_relevance_file_and_cxc_is_left_open(dive: Path) -> None:
    told = check_files(dive, "dive-eccv")
    assert [line["model"] for line in told["table"]] == ["VSRN", "VSE-infinity", "DivE"]
    many = ml.evaluate(default_run(dive), with_relevance())["many"]
    line = told["table"][2]
    for way in ("i2t", "t2i"):
        found = [line[f"{way}, {name}"] for name in ("mAP@R", "R-P", "R@1")]
        assert found == pytest.approx([many[way][key] for key in ("map_at_r", "r_precision", "r1")])
        assert line[f"{way}, CxC R@1"] is None
    page = (dive / "dive-eccv.md").read_text()
    assert "CxC knows COCO's test pictures only" in page
    assert "| DivE | **36.0** | **46.4** | **84.7** | **72.3** | - | <u>51.0</u>" in page


def test_score_files_and_runs_make_the_same_table(dive: Path, tmp_path: Path) -> None:
    pairs, run = with_relevance(), default_run(dive)
    np.save(tmp_path / "mine.npy", split_scores(run, pairs, "test"))
    by_file = reproduce("dive-eccv", pairs, tmp_path, scores=tmp_path / "mine.npy", device="cpu")["table"]
    by_run = reproduce("dive-eccv", pairs, tmp_path, run=run.folder, device="cpu")["table"]
    assert (
        list(by_file[0].values())[1:] == pytest.approx(list(by_run[0].values())[1:]) and by_file[0]["model"] == "mine"
    )
    np.save(tmp_path / "small.npy", np.zeros((3, 4), np.float32))
    with pytest.raises(BadInput, match=r"small\.npy: scores are 3 x 4"):
        reproduce("dive-eccv", pairs, tmp_path, scores=tmp_path / "small.npy", device="cpu")


def test_data_that_know_no_more_than_own_captions_say_so(tmp_path: Path) -> None:
    pairs = tiny_pairs()
    np.save(tmp_path / "mine.npy", np.random.default_rng(0).normal(size=(6, 12)))
    line = reproduce("dive-eccv", pairs, tmp_path, scores=tmp_path / "mine.npy", device="cpu")["table"][0]
    assert line["i2t, own R@1"] is not None and line["i2t, mAP@R"] is None
    assert "what fits besides own captions is unknown" in (tmp_path / "dive-eccv.md").read_text()


def test_the_best_is_bold_the_second_underlined_and_nothing_is_neither() -> None:
    table = [{"m": "a", "x": 1.0, "y": 3.0}, {"m": "b", "x": 2.0, "y": 3.0}, {"m": "c", "x": None, "y": 1.0}]
    marks = [[row["x"], row["y"]] for row in ranked_tables.marked(table)]
    assert marks == [["<u>1.0</u>", "**3.0**"], ["**2.0**", "**3.0**"], ["-", "<u>1.0</u>"]]


# ---- DivE: capacity --------------------------------------------------------------------------------------------------


def test_one_vector_is_widened_to_what_a_set_costs(dive: Path) -> None:
    told = check_files(dive, "dive-capacity")
    dims = sorted(run.info["arguments"]["dim"] for run in runs_of(dive, "vse_infty"))
    assert dims == [16, 16 * 4 * 4]  # the narrow one is that of dive-eccv
    rows = {row["model"]: row for row in rows_of(dive, "dive-capacity")}
    costs = [float(row["flops"]) for row in rows.values()]
    assert costs == [2 * 16, 2 * 16 * 16, 2 * 16 * 16 + 2 * 16]
    assert float(rows["DivE"]["rsum"]) == pytest.approx(ml.evaluate(default_run(dive), tiny_pairs())["rsum"])
    assert [line["FLOPs, ratio"] for line in told["published"]] == [1, 16, 16]


def test_looking_leaves_the_model_as_it_was(dive: Path) -> None:
    run, pairs = default_run(dive), tiny_pairs()
    attention = dive_attention.attention(run, pairs, pairs.pictures_of("test"))
    assert attention.shape == (6, 5, 4, 4, 4)  # pictures, regions, rounds, heads, slots
    assert not run.matcher.encoders[IMAGE].slots.keep_attention
    assert not run.matcher.encoders[TEXT].slots.keep_attention


def test_boxes_become_an_image_and_a_grid_stays_one() -> None:
    cells = [(0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0)]
    assert dive_attention.raster(np.array([0.2, 0.8]), cells).tolist() == [[0.2, 0.8]]
    boxes = [(0.0, 0.0, 1.0, 0.5), (0.0, 0.25, 1.0, 0.75), (0.9, 0.9, 1.0, 1.0)]
    drawn = dive_attention.raster(np.array([0.2, 0.6, 0.9]), boxes)
    rows = drawn[:, 0]
    assert rows[0] == pytest.approx(0.2) and rows[dive_attention.FINE * 3 // 8] == pytest.approx(0.4)  # both cover
    assert (
        rows[dive_attention.FINE * 5 // 8] == pytest.approx(0.6)
        and rows[-1] == 0
        and drawn[-1, -1] == pytest.approx(0.9)
    )


def test_a_run_that_is_named_is_only_looked_at(dive: Path, tmp_path: Path) -> None:
    run = default_run(dive).folder
    for name in ("dive-tsne", "dive-attention"):
        found = reproduce(name, tiny_pairs(), tmp_path, run=run, device="cpu")
        assert found["table"] and not (tmp_path / "runs").exists()
    with pytest.raises(BadInput, match="cannot be set"):
        reproduce("dive-tsne", tiny_pairs(), tmp_path, run=run, settings={"epochs": 3})
    flat = ml.train("vse++", tiny_pairs(), tmp_path / "flat", device="cpu", **WORDS)
    with pytest.raises(BadInput, match="one vector an item"):
        reproduce("dive-attention", tiny_pairs(), tmp_path, run=flat.folder, device="cpu")


def test_a_set_without_slots_has_nothing_to_show(tmp_path: Path) -> None:
    run = ml.train("pvse", tiny_pairs(), tmp_path / "run", device="cpu", **{**WORDS, "epochs": 1})
    with pytest.raises(BadInput, match="no slots"):
        reproduce("dive-attention", tiny_pairs(), tmp_path, run=run.folder, device="cpu")


def test_an_ensemble_of_sets_shows_its_first_member(tmp_path: Path) -> None:
    run = ml.train("ncr", tiny_pairs(), tmp_path / "run", device="cpu", **{**DIVE, "scorer": "dive", "warm": 1})
    assert set(ml.evaluate(run, tiny_pairs())["spread"]) == {"image", "text"}
    for name in ("dive-tsne", "dive-attention"):
        reproduce(name, tiny_pairs(), tmp_path, run=run.folder, device="cpu")


def test_attention_of_the_second_network_is_its_own_and_a_third_is_refused(tmp_path: Path) -> None:
    pairs = tiny_pairs()
    run = ml.train("ncr", pairs, tmp_path / "run", device="cpu", **{**DIVE, "scorer": "dive", "warm": 1})
    shares = []
    for network in (1, 2):
        reproduce("dive-attention", pairs, tmp_path / str(network), run=run.folder, device="cpu", network=network)
        rows = rows_of(tmp_path / str(network), "dive-attention")
        shares.append({tuple(row.values())[:4]: float(row["share"]) for row in rows})
    places = pairs.pictures_of("test")
    second = dive_attention.attention(dive_attention.alone(run, 2), pairs, places).mean(3)
    for (name, turn, slot, cell), share in shares[1].items():
        k = pairs.names.index(name) - places[0]
        assert share == pytest.approx(float(second[k, int(cell), int(turn) - 1, int(slot) - 1]), abs=1e-6)
    assert shares[0] != shares[1]
    with pytest.raises(BadInput, match="network=3: .* has 2"):
        dive_attention.alone(run, 3)


@pytest.mark.parametrize(
    ("view", "count", "first"),
    [
        ({"tokens": "both", "size": [336, 336]}, 65, True),
        ({"tokens": "both", "size": [336, 336]}, 64, False),  # a network without such a token
        ({"tokens": "both", "size": [224, 448]}, 33, True),
        ({"tokens": "cells", "size": [336, 336]}, 65, False),
        ({}, 37, False),  # given regions
    ],
)
def test_a_class_token_is_no_cell(view: dict[str, Any], count: int, first: bool) -> None:
    run = Run(Path("run"), {"view": view}, ml.core.Matcher({}, set_similarity("mil")), None)
    assert dive_attention.class_token_first(run, count) == first


def test_no_cell_is_drawn_for_a_class_token(dive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, pairs = default_run(dive), tiny_pairs()
    places = pairs.pictures_of("test")[:1]
    nothing = np.zeros((1, 4))
    assert dive_attention.looked(run, pairs, places, nothing, nothing)[0].shares.shape == (4, 4, 5)
    monkeypatch.setitem(run.info, "view", {**run.info["view"], "tokens": "both"})
    (look,) = dive_attention.looked(run, pairs, places, nothing, nothing)
    assert look.boxes[0] == (0, 0, 0.5, 0.5)  # four cells of five inputs
    shares = dive_attention.attention(run, pairs, places).mean(3)[0].permute(1, 2, 0)
    assert np.array_equal(look.shares, shares[..., 1:].numpy())


# ---- what a comparison costs -----------------------------------------------------------------------------------------


def test_flops_of_a_pair_by_hand() -> None:
    found = dive_cost.flops(8, 4, 10.0)
    assert found[dive_cost.VSE] == 16  # eight products, eight sums
    assert found[dive_cost.SETS] == 16 * (16 + 2)  # sixteen such dot products, an exponent and a sum each
    assert found[dive_cost.LOOP] == found[dive_cost.OURS] == 4 * 36 * 10 * 8 + 2 * 10 * 8


def test_all_methods_are_timed_beside_one_vector(tmp_path: Path) -> None:
    found = reproduce("dive-cost", tiny_pairs(), tmp_path, quick=True, settings={"dim": "16", "slots": 2}, device="cpu")
    check_files(tmp_path, "dive-cost")
    rows = rows_of(tmp_path, "dive-cost")
    assert [row["method"] for row in rows] == [dive_cost.VSE, dive_cost.SETS, dive_cost.LOOP, dive_cost.OURS]
    assert float(rows[0]["flops_ratio"]) == float(rows[0]["milliseconds_ratio"]) == 1.0
    assert all(float(row["milliseconds"]) > 0 for row in rows) and (found["dim"], found["slots"]) == (16, 2)


def test_what_scoring_costs_is_that_of_one_gallery(tmp_path: Path) -> None:
    reproduce("dive-cost", tiny_pairs(), tmp_path, quick=True, settings={"dim": 8}, device="cpu", fold=3)
    assert "3 pictures of 36 regions x 6 captions (val)" in (tmp_path / "dive-cost.md").read_text()


def test_words_of_the_data_are_counted() -> None:
    found = dive_cost.caption_lengths(exhibits.Work("x", tiny_pairs(), Path("x")), "val")
    assert sorted(set(found.tolist())) == [7, 8]  # "x and y and z", "a x near y near z": start and end counted


@pytest.mark.parametrize("settings", [{"epochs": 3}, {"dim": 0}])
def test_settings_that_mean_nothing_are_told(settings: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="dim and slots"):
        reproduce("dive-cost", tiny_pairs(), tmp_path / "out", settings=settings, device="cpu")
    assert not (tmp_path / "out").exists()


def test_texts_that_are_vectors_have_no_words_to_count(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    flat = Pairs(
        names=list("abcd"),
        captions=[""] * 4,
        picture=np.arange(4),
        splits=np.array(["train", "train", "test", "test"]),
        features=Arrays(rng.normal(size=(4, 3)).astype(np.float32)),
        text_features=rng.normal(size=(4, 2)).astype(np.float32),
    )
    with pytest.raises(BadInput, match="words to count"):
        reproduce("dive-cost", flat, tmp_path, device="cpu")
