"""Ranked lists that travel: TREC and JSON out and in, the same figures as the score matrix gives, and as ranx gives."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.measuring.protocols import evaluate_scores
from matchlight.measuring.rankings import (
    evaluate_both,
    evaluate_rankings,
    read_qrels,
    read_run,
    write_mteb,
    write_rankings,
)
from matchlight.measuring.rankings.ranked_lists import Judgements, RankedLists
from matchlight.pairs import Pairs

ENDINGS = {"trec": "trec", "ranx": "json"}


def some_pairs(rng: np.random.Generator, pictures: int = 40) -> Pairs:
    """Pictures with none to three captions."""
    picture = np.repeat(np.arange(pictures), rng.integers(0, 4, pictures))
    captions = [f"=caption {row}" for row in range(len(picture))]
    return Pairs([f"p{place} x.png" for place in range(pictures)], captions, picture, np.full(pictures, "test"))


def some_scores(rng: np.random.Generator, pairs: Pairs, *, tied: bool) -> np.ndarray:
    scores = rng.normal(size=(len(pairs.names), len(pairs))).astype(np.float32)
    scores[pairs.picture, np.arange(len(pairs))] += 1.5
    return np.round(scores * 2).astype(np.float32) if tied else scores


def both_read(folder: Path, ending: str) -> tuple[tuple[RankedLists, RankedLists], tuple[Judgements, Judgements]]:
    runs = read_run(folder / f"run.i2t.{ending}"), read_run(folder / f"run.t2i.{ending}")
    return runs, (read_qrels(folder / f"qrels.i2t.{ending}"), read_qrels(folder / f"qrels.t2i.{ending}"))


@pytest.mark.parametrize("kind", ENDINGS)
@pytest.mark.parametrize("ties", ["worst", "official"])
@pytest.mark.parametrize("tied", [False, True])
def test_scores_give_the_same_report_after_a_journey_through_files(
    tmp_path: Path, kind: str, ties: str, tied: bool
) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        pairs = some_pairs(rng)
        scores = some_scores(rng, pairs, tied=tied)
        folder = write_rankings(tmp_path / str(seed), scores, pairs, kind=kind)
        report, want = (
            evaluate_both(*both_read(folder, ENDINGS[kind]), ties=ties),
            evaluate_scores(scores, pairs, ties=ties),
        )
        for side in ("i2t", "t2i"):
            wanted = want[side]
            assert {name: report[side][name] for name in wanted} == pytest.approx(wanted)  # type: ignore[literal-required]
        assert report["rsum"] == pytest.approx(want["rsum"])


def test_short_lists_keep_what_ties_with_their_last_item_and_so_the_recalls(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    pairs = some_pairs(rng)
    scores = some_scores(rng, pairs, tied=True)
    folder = write_rankings(tmp_path / "lists", scores, pairs, depth=10)
    runs, qrels = both_read(folder, "trec")
    assert max(len(one.items) for one in runs[0].values()) > 10
    report, want = evaluate_both(runs, qrels), evaluate_scores(scores, pairs)
    assert report["rsum"] == pytest.approx(want["rsum"])


def test_a_split_keeps_the_places_of_the_whole_data(tmp_path: Path) -> None:
    splits = np.array(["train", "test", "train", "test"])
    pairs = Pairs(["a", "b", "c", "d"], ["one", "@two", "three", "four"], np.array([0, 1, 2, 3]), splits)
    folder = write_rankings(tmp_path / "lists", np.eye(2, dtype=np.float32), pairs.subset("test"), name="my run")
    assert (folder / "qrels.i2t.trec").read_text() == "picture-1 0 caption-1 1\npicture-3 0 caption-3 1\n"
    assert (folder / "run.t2i.trec").read_text().splitlines()[:2] == [
        "caption-1 Q0 picture-1 1 1 my-run",
        "caption-1 Q0 picture-3 2 0 my-run",
    ]
    assert "caption-1,'@two\n" in (folder / "ids.csv").read_text()


def test_figures_on_a_hand_worked_case(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("q1 Q0 a 1 3 x\nq1 Q0 b 2 2 x\nq1 Q0 c 3 2 x\nq2 Q0 a 1 1 x\n")
    (tmp_path / "qrels").write_text("q1 0 b 1\nq1 0 d 2\nq2 0 z 1\nq3 0 a 1\nq4 0 a 0\n")
    run, qrels = read_run(tmp_path / "run"), read_qrels(tmp_path / "qrels")
    worst, official = (evaluate_rankings(run, qrels, ties=ties) for ties in ("worst", "official"))
    assert (worst["queries"], worst["unanswered"]) == (3, 1)  # q4 has nothing relevant; q3 has no list
    assert (worst["mrr"], official["mrr"]) == pytest.approx((1 / 3 / 3, 1 / 2 / 3))  # b ties with c
    assert (worst["map"], official["map"]) == pytest.approx((1 / 3 / 2 / 3, 1 / 2 / 2 / 3))  # d was never found
    assert worst["ndcg_at_10"] == pytest.approx((1 / 2) / (2 + 1 / np.log2(3)) / 3)
    assert worst["meanr"] is None and worst["medr"] is None
    assert (worst["r1"], worst["r5"]) == pytest.approx((0, 100 / 3))


def against_ranx(run: dict[str, dict[str, float]], qrels: dict[str, dict[str, int]], folder: Path) -> None:
    import ranx

    (folder / "run.json").write_text(json.dumps(run))
    (folder / "qrels.json").write_text(json.dumps(qrels))
    ours = evaluate_rankings(read_run(folder / "run.json"), read_qrels(folder / "qrels.json"))
    names = {"hit_rate@1": "r1", "hit_rate@5": "r5", "hit_rate@10": "r10", "mrr": "mrr", "map": "map"}
    names |= {"ndcg@10": "ndcg_at_10", "recall@10": "recall_at_10", "precision@10": "precision_at_10"}
    theirs = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), list(names), make_comparable=True)
    for name, mine in names.items():
        scale = 100 if mine in ("r1", "r5", "r10") else 1
        assert ours[mine] == pytest.approx(scale * theirs[name], abs=1e-9), name  # type: ignore[literal-required]


@pytest.mark.full
def test_ours_equals_ranx_on_random_rankings(tmp_path: Path) -> None:
    """Without ties, whose order ranx leaves open; graded judgements, lists of any length, queries without a list."""
    pytest.importorskip("ranx", reason="ranx is not installed")
    for seed in range(20):
        rng = np.random.default_rng(seed)
        items, queries = int(rng.integers(15, 60)), [f"q{number}" for number in range(int(rng.integers(5, 40)))]
        score = rng.permutation(len(queries) * items).reshape(len(queries), items) / 7.0
        gain = (rng.random((len(queries), items)) < 0.1) * rng.integers(1, 4, (len(queries), items))
        gain[:, 0] = 1
        length = rng.integers(1, items + 1, len(queries))
        listed = [rng.permutation(items)[:many] for many in length]
        run = {q: {f"d{i}": float(score[n, i]) for i in listed[n]} for n, q in enumerate(queries) if n % 7}
        qrels = {q: {f"d{i}": int(g) for i, g in enumerate(gain[n]) if g} for n, q in enumerate(queries)}
        against_ranx(run, qrels, tmp_path)


@pytest.mark.full
def test_ranx_reads_our_files_and_finds_the_same(tmp_path: Path) -> None:
    ranx = pytest.importorskip("ranx", reason="ranx is not installed")
    rng = np.random.default_rng(1)
    pairs = some_pairs(rng)
    scores = some_scores(rng, pairs, tied=False)
    for kind, ending in ENDINGS.items():
        folder = write_rankings(tmp_path / kind, scores, pairs, kind=kind)
        runs, qrels = both_read(folder, ending)
        for side, run, judged in zip(("i2t", "t2i"), runs, qrels, strict=True):
            theirs = ranx.evaluate(
                ranx.Qrels.from_file(str(folder / f"qrels.{side}.{ending}"), kind=ending),
                ranx.Run.from_file(str(folder / f"run.{side}.{ending}"), kind=ending),
                ["hit_rate@5", "map"],
                make_comparable=True,
            )
            ours = evaluate_rankings(run, judged)
            assert (ours["r5"] / 100, ours["map"]) == pytest.approx((theirs["hit_rate@5"], theirs["map"]))


@pytest.mark.full
def test_mteb_reads_our_results(tmp_path: Path) -> None:
    mteb = pytest.importorskip("mteb", reason="mteb is not installed")
    rng = np.random.default_rng(1)
    pairs = some_pairs(rng)
    scores = some_scores(rng, pairs, tied=False)
    want = evaluate_scores(scores, pairs)
    for side, path in zip(("i2t", "t2i"), write_mteb(tmp_path / "mteb", scores, pairs, task="my photos"), strict=True):
        result = mteb.TaskResult.from_disk(path)
        figures = result.scores["test"][0]
        assert 100 * figures["hit_rate_at_5"] == pytest.approx(want[side]["r5"])
        assert result.get_score() == figures["ndcg_at_10"]


def test_the_predictions_of_an_mteb_task_are_read(tmp_path: Path) -> None:
    lists = {"q1": {"a": 0.5, "b": 0.7}}
    (tmp_path / "p.json").write_text(json.dumps({"mteb_model_meta": {"model_name": "x"}, "default": {"test": lists}}))
    run = read_run(tmp_path / "p.json")
    assert evaluate_rankings(run, {"q1": {"b": 1}})["r1"] == 100
    (tmp_path / "p.json").write_text(json.dumps({"mteb_model_meta": {}, "default": {"test": lists, "dev": lists}}))
    with pytest.raises(BadInput, match="default/test, default/dev"):
        read_run(tmp_path / "p.json")


@pytest.mark.parametrize(
    ("run", "qrels", "says"),
    [
        ("q1 Q0 a 1 0.5\n", "q1 0 a 1\n", "run line 1: 5 words"),
        ("q1 Q0 a 1 high x\n", "q1 0 a 1\n", "run line 1: score is 'high'"),
        ("q1 Q0 a 1 nan x\n", "q1 0 a 1\n", "score is 'nan'"),
        ("q1 Q0 a 1 2 x\nq1 Q0 a 2 1 x\n", "q1 0 a 1\n", "line 2: a stands there twice for query q1"),
        ("q1 Q0 a 1 2 x\n", "q2 0 a 1\n", "no query in common"),
        ("q1 Q0 a 1 2 x\n", "q1 0 a 0\n", "nothing relevant"),
        ("q1 Q0 a 1 2 x\n", "q1 0 a\n", "qrels line 1: 3 words"),
        ('{"q1": ["a"]}', "q1 0 a 1\n", "query 'q1': not"),
        ('{"q1": {"a": true}}', "q1 0 a 1\n", "item 'a' has True, no number"),
        ("", "q1 0 a 1\n", "no ranked list"),
    ],
)
def test_a_wrong_line_is_one_line_that_says_where(
    tmp_path: Path, run: str, qrels: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").write_text(run)
    (tmp_path / "qrels").write_text(qrels)
    assert main(["evaluate", "--from-run", str(tmp_path / "run"), "--qrels", str(tmp_path / "qrels")]) == 2
    assert says in capsys.readouterr().err


def test_the_command_line_writes_lists_and_reads_them_with_the_same_recalls(
    tmp_path: Path, collection: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    index, data = collection
    lists, results = str(tmp_path / "lists"), str(tmp_path / "mteb")
    ask = ["evaluate", str(index.parent / "run"), "--data", str(data), "--trec", lists, "--mteb", results, "--json"]
    assert main(ask) == 0
    want = json.loads(capsys.readouterr().out)
    files = [
        ["--from-run", f"{lists}/run.{side}.trec", "--qrels", f"{lists}/qrels.{side}.trec"] for side in ("i2t", "t2i")
    ]
    assert main(["evaluate", *files[0], *files[1], "--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert got["rsum"] == want["rsum"] and got["t2i"].items() >= want["t2i"].items()
    assert main(["evaluate", *files[1]]) == 0
    assert "NDCG@10" in capsys.readouterr().out
    assert (
        json.loads((tmp_path / "mteb" / "shapesT2IRetrieval.json").read_text())["scores"]["test"][0]["main_score"] > 0
    )


def test_options_of_score_matrices_are_refused_beside_ranked_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--from-run", "a.trec", "--qrels", "q.trec", "--fold", "5"]) == 2
    assert "takes --ties and --json" in capsys.readouterr().err
    assert main(["evaluate", "--from-run", "a.trec"]) == 2
    assert "--qrels FILE" in capsys.readouterr().err
