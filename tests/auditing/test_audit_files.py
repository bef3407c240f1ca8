"""What an audit leaves behind: pairs.csv, the report, the cleaned copy."""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from audited import made_up, named
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import matchlight
from matchlight.auditing.apply import apply, clean
from matchlight.auditing.chart import histogram
from matchlight.auditing.reasons import (
    Findings,
    agreed,
    conclude,
    repeated,
    vague,
)
from matchlight.auditing.report import safe_json, write_report
from matchlight.auditing.truth_check import against_truth, calibration_error, measured, recall_at
from matchlight.auditing.verdict import combine
from matchlight.core import BadInput
from matchlight.data import formats
from matchlight.data.cells import plain_cell, safe_cell
from matchlight.data.decisions import read_decisions
from matchlight.data.findings import MISMATCHED, UNREADABLE, VAGUE, read_findings, write_findings
from matchlight.data.fingerprints import fingerprint
from matchlight.data.noise import Truth
from matchlight.files import write_json
from matchlight.pairs import Pairs

NASTY = "</script><script>alert(1)</script>"


def folder_of_pictures(path: Path, captions: list[list[str]]) -> Pairs:
    """Pictures of one colour each with these captions, on the disk."""
    (path / "images").mkdir(parents=True)
    lines = []
    for number, texts in enumerate(captions):
        Image.new("RGB", (40, 30), (number * 37 % 256, number * 91 % 256, 80)).save(path / "images" / f"{number}.png")
        lines.append(json.dumps({"image": f"images/{number}.png", "captions": texts, "split": "train"}))
    (path / "captions.jsonl").write_text("\n".join(lines) + "\n")
    return Pairs.read(path)


def findings(rows: int, *, bad: dict[int, int | None] | None = None) -> Findings:
    """All right but for `bad`: row -> a better picture, or None."""
    bad = bad or {}
    out = Findings(
        np.arange(rows),
        np.where(np.isin(np.arange(rows), list(bad)), 0.1, 0.9),
        np.isin(np.arange(rows), list(bad)),
        np.array([MISMATCHED if row in bad else "" for row in range(rows)], dtype=object),
        np.array([-1 if bad.get(row) is None else bad[row] for row in range(rows)]),
        np.full(rows, 0.5),
        np.full(rows, -1),
        np.zeros(rows),
    )
    return out


def summary(pairs: Pairs, found: Findings) -> dict:
    return {
        "pairs": len(found),
        "flagged": int(found.suspect.sum()),
        "estimated_noise": 0.1,
        "estimated_noise_interval": [0.05, 0.15],
        "expected_false_alarms": 0.2,
        "split": "train",
        "reasons": found.counts(),
        "signals": ["loss"],
        "version": "1",
        "data": {"path": str(pairs.root), "fingerprint": fingerprint(pairs)},
    }


def write_table(folder: Path, pairs: Pairs, found: Findings) -> None:
    write_findings(folder / "pairs.csv", found.records(pairs), labels=found.labels is not None)


def small_audit(tmp_path: Path) -> tuple[Path, Pairs]:
    """A data set of four pictures whose rows 1 and 4 are suspect (row 1 fits picture 3), and its audit's folder."""
    pairs = folder_of_pictures(tmp_path / "data", [["one", "two"], ["three"], ["=SUM(A1)", "five"], ["six"]])
    found = findings(6, bad={1: 3, 4: None})
    folder = tmp_path / "audit"
    folder.mkdir()
    write_table(folder, pairs, found)
    write_json(folder / "summary.json", summary(pairs, found))
    return folder, pairs


@pytest.fixture
def audited(tmp_path: Path) -> tuple[Path, Pairs]:
    return small_audit(tmp_path)


# ---- reasons and suggestions -----------------------------------------------------------------------------------------


def test_unreadable_pairs_are_listed_among_the_others_and_are_suspects():
    found, _ = made_up(60, 2, noise=0.2)
    pairs = named(62, 2)
    found["rows"], found["lost"] = np.setdiff1d(np.arange(124), [0, 1, 62, 63]), np.array([0, 1, 62, 63])
    found["group"], found["picture"] = np.arange(62), pairs.picture[found["rows"]]
    out = conclude(pairs, found, combine(found))
    assert len(out) == 124 and out.row.tolist() == list(range(124))
    assert (out.reason[[0, 1, 62, 63]] == UNREADABLE).all() and out.suspect[[0, 1, 62, 63]].all()
    assert (out.score[[0, 1, 62, 63]] == 0).all()


def test_a_caption_moves_only_to_a_picture_that_is_likelier_than_all_others(audited, tmp_path):
    folder, pairs = audited
    unsure = findings(6, bad={1: 3, 4: None})
    unsure.picture_support[:] = 0.4
    write_table(folder, pairs, unsure)
    assert apply(folder, tmp_path / "clean", rematch=True)["rematched"] == 0


def test_better_partners_are_proposed_only_where_models_are_sure():
    found, _ = made_up(300, 2, noise=0.3)
    out = conclude(named(300, 2), found, combine(found))
    assert (out.picture[out.suspect] >= 0).all()  # a share of .6, sixty times the own one
    assert (out.picture[~out.suspect] == -1).all()
    assert (out.caption == -1).all()  # a share of .1 is no support


def test_models_that_agree_on_a_partner_outvote_one_that_is_surer():
    places = np.array([[7, 8, 9, 5, 8, 6]])  # three proposals of each of two models
    shares = np.array([[0.40, 0.35, 0.0, 0.3, 0.35, 0.0]])
    best, share = agreed(places, shares)
    assert best[0] == 8 and share[0] == pytest.approx(0.35)  # (.35 + .35) / 2 against .40 / 2


def test_a_second_picture_of_a_group_and_a_repeated_caption_are_near_duplicates():
    pairs = Pairs(list("abc"), ["x", "y", "X ", "z"], np.array([0, 0, 1, 2]), np.full(3, "train"))
    found = {"rows": np.arange(4), "group": np.array([5, 5, 6])}
    assert repeated(pairs, found).tolist() == [False, False, True, False]


def test_a_caption_is_vague_if_many_pictures_fit_it_though_its_picture_finds_it():
    found = {"rows": np.arange(12), "i2t": np.full(12, 2.0), "t2i": np.full(12, 2.0), "t2i_rank": np.full(12, 0.3)}
    found["t2i"][:2] = 6.0  # both lose their pictures and are found by them
    found["t2i_rank"][1] = 0.01  # but few pictures fit the second better
    assert vague(found).tolist() == [True] + [False] * 11


# ---- pairs.csv -------------------------------------------------------------------------------------------------------


def test_the_table_begins_with_the_promised_columns_and_has_a_line_a_pair(audited):
    folder, pairs = audited
    lines = (folder / "pairs.csv").read_text().splitlines()
    assert lines[0].startswith("row,image,caption,score,suspect,reason,")
    assert len(lines) == 1 + len(pairs)


def test_a_cell_that_a_spreadsheet_would_obey_is_quoted(audited):
    folder, _ = audited
    assert ',"\'=SUM(A1)",' in (folder / "pairs.csv").read_text().splitlines()[4]
    assert read_findings(folder / "pairs.csv")[3].caption == "=SUM(A1)"
    for start in "=+-@\t\r":
        assert safe_cell(start + "x").startswith("'") and plain_cell(safe_cell(start + "x")) == start + "x"
    assert safe_cell("a = b") == "a = b"


@settings(deadline=None, max_examples=30)
@given(st.text(max_size=30).filter(lambda text: "\0" not in text and "\r" not in text))
def test_any_caption_comes_back_from_the_table(text):
    file = io.StringIO(newline="")
    csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n").writerow([1, safe_cell(text)])
    file.seek(0)
    back = next(csv.reader(file))[1]
    assert back in (text, "'" + text)


def test_against_the_truth_on_a_hand_worked_case():
    score = np.array([0.1, 0.2, 0.8, 0.9])
    bad = np.array([True, False, True, False])
    found = against_truth(score, score < 0.5, bad)
    assert found["auroc"] == pytest.approx(0.75)  # of four (bad, good) couples three are in order
    assert found["average_precision"] == pytest.approx((1 / 1 + 2 / 3) / 2)
    assert (found["precision"], found["recall"], found["flagged"]) == (0.5, 0.5, 2)
    assert against_truth(score, score < 0, np.zeros(4, dtype=bool))["auroc"] is None


def test_recall_at_a_precision_on_a_hand_worked_case():
    score = np.array([0.1, 0.2, 0.3, 0.4, 0.4, 0.9])
    bad = np.array([True, True, False, True, True, False])
    assert recall_at(score, bad, precision=0.95) == 0.5  # the two lowest; further on one in three is a false alarm
    assert recall_at(score, bad, precision=0.8) == 1.0  # four of five; the two of one score go together
    assert recall_at(score, ~bad, precision=0.95) == 0.0


def test_calibration_error_on_a_hand_worked_case():
    score, right = np.array([0.05, 0.05, 0.95, 1.0]), np.array([False, True, True, True])
    # two pairs of .05 of which half are right, and two of .975 on average which are both right
    assert calibration_error(score, right) == pytest.approx((2 * 0.45 + 2 * 0.025) / 4)


def test_against_web_noise_each_kind_is_measured_and_what_says_nothing_counts_nowhere_else(tmp_path):
    pairs = folder_of_pictures(tmp_path / "data", [[f"caption {k}"] for k in range(6)])
    found = findings(6, bad={0: None, 1: None, 2: None})
    found.reason[3] = VAGUE
    kinds = {0: "next", 1: "title", 2: "template", 3: "template"}
    means = {"next": "wrong", "title": "right", "template": "says nothing", "truncated": "right"}
    truth = Truth("mismatch", 0.5, 0, "caption", [0, 1, 2, 3], {0: 4, 1: 1}, "web", kinds, means)
    told = measured(truth, found, pairs)
    assert (told["flagged"], told["precision"], told["recall"]) == (3, 0.5, 1.0)  # rows 0 and 1; 2 is no false alarm
    assert told["kinds"] == {
        "next": {"means": "wrong", "pairs": 1, "flagged": 1.0, "told": 1.0},
        "title": {"means": "right", "pairs": 1, "flagged": 1.0, "told": 0.0},
        "template": {"means": "says nothing", "pairs": 2, "flagged": 0.5, "told": 0.5},
        "unchanged": {"means": "right", "pairs": 2, "flagged": 0.0, "told": 1.0},
    }


def test_a_table_of_something_else_is_one_clear_line(tmp_path):
    (tmp_path / "pairs.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadInput, match="not an audit's table"):
        read_findings(tmp_path / "pairs.csv")


# ---- the report ------------------------------------------------------------------------------------------------------


def test_no_caption_can_end_the_script_block_it_stands_in():
    text = safe_json({"a": NASTY, "b": "\u2028&"})
    assert "<" not in text and ">" not in text and "\u2028" not in text
    assert json.loads(text) == {"a": NASTY, "b": "\u2028&"}


def test_the_report_is_one_file_without_a_network_and_shows_what_was_found(tmp_path):
    pairs = folder_of_pictures(tmp_path / "<b>data", [[NASTY, "two"], ["three"], ["four"]])
    found = findings(4, bad={0: 2, 3: None})
    chart = histogram(np.random.default_rng(0).normal(size=50), np.full(50, 0.9), noise=0.1)
    write_report(tmp_path / "report.html", pairs, found, summary(pairs, found), chart)
    page = (tmp_path / "report.html").read_text()
    assert NASTY not in page and "<b>data" not in page
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page) and "@import" not in page
    assert "default-src 'none'" in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])
    assert [card["row"] for card in data["pairs"]] == [0, 3, 1, 2]  # suspects first
    assert data["pairs"][0]["src"].startswith("data:image/jpeg;base64,") and data["pairs"][0]["image"]["name"]
    assert len(data["rows"]) == 4 and data["rows"][0][2] == NASTY
    assert page.count("<svg") == 1 and 'aria-label="Histogram' in page
    for control in ("reason", "split", "most", "undo", "json", "csv", "find"):
        assert f'id="{control}"' in page


def test_every_file_of_a_page_is_shipped_with_the_package():
    root = Path(matchlight.__file__).parent
    shipped = tomllib.loads((root.parent / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    folders = {path.parent for kind in ("css", "js", "html") for path in root.rglob(f"*.{kind}")}
    packages = {"matchlight." + ".".join(path.parent.relative_to(root).parts) for path in folders}
    assert {path.name for path in folders} == {"page"} and packages == {
        name for name in shipped if "page/*" in shipped[name]
    }


def test_only_the_worst_pairs_carry_pictures(tmp_path):
    pairs = folder_of_pictures(tmp_path / "data", [[f"caption {k}"] for k in range(12)])
    found = findings(12, bad=dict.fromkeys(range(12)))
    write_report(tmp_path / "report.html", pairs, found, summary(pairs, found), "", cards=5)
    data = json.loads(re.search(r'id="data">(.*?)</script>', (tmp_path / "report.html").read_text(), re.S)[1])
    assert len(data["pairs"]) == 5 and len(data["rows"]) == 12


def test_the_chart_survives_no_pairs_and_equal_ones():
    assert histogram(np.zeros(0), np.zeros(0), noise=0.0).endswith("</svg>")
    assert histogram(np.ones(9), np.ones(9), noise=1.0, threshold=1.0).endswith("</svg>")


# ---- the cleaned copy ------------------------------------------------------------------------------------------------


def captions_of(path: Path) -> dict[str, list[str]]:
    lines = [json.loads(line) for line in (path / "captions.jsonl").read_text().splitlines()]
    out: dict[str, list[str]] = {}
    for line in lines:
        out.setdefault(line["image"], []).extend(line["captions"])
    return out


def test_dropping_leaves_suspects_out_and_the_original_alone(audited, tmp_path):
    folder, pairs = audited
    before = (pairs.root / "captions.jsonl").read_bytes()
    counts = apply(folder, tmp_path / "clean")
    assert (counts["kept"], counts["dropped"], counts["rematched"], counts["format"]) == (4, 2, 0, "jsonl")
    left = captions_of(tmp_path / "clean")
    assert left == {
        "images/0.png": ["one"],
        "images/1.png": ["three"],
        "images/2.png": ["=SUM(A1)"],
        "images/3.png": ["six"],
    }
    assert (pairs.root / "captions.jsonl").read_bytes() == before


def test_rematching_gives_a_caption_to_the_picture_it_fits_and_drops_the_rest(audited, tmp_path):
    folder, _ = audited
    counts = apply(folder, tmp_path / "clean", rematch=True)
    assert (counts["kept"], counts["dropped"], counts["rematched"]) == (4, 1, 1)
    assert sorted(captions_of(tmp_path / "clean")["images/3.png"]) == ["six", "two"]


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_a_person_s_decisions_come_before_the_audit_s(audited, tmp_path, kind):
    folder, _ = audited
    decided = [{"row": 1, "decision": "accept"}, {"row": 0, "decision": "reject"}]
    path = tmp_path / f"decisions.{kind}"
    path.write_text(json.dumps({"decisions": decided}) if kind == "json" else "row,decision\n1,accept\n0,reject\n")
    counts = apply(folder, tmp_path / "clean", decisions=path)
    assert counts["dropped"] == 2 and captions_of(tmp_path / "clean")["images/0.png"] == ["two"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"decisions": [{"row": 99, "decision": "accept"}]}', "row 99; the data has rows 0 to 5"),
        ("row,decision\n1,maybe\n", "'maybe'; keep, drop or rematch"),
        ("row,decision\nx,accept\n", "line 2"),
        ("{", "not a list of decisions"),
        ("hello", "no columns row and decision"),
    ],
)
def test_decisions_that_make_no_sense_are_one_clear_line(tmp_path, text, told):
    path = tmp_path / "decisions"
    path.write_text(text)
    with pytest.raises(BadInput, match=re.escape(told)):
        read_decisions(path, 6)


def test_data_that_changed_since_the_audit_is_refused(audited, tmp_path):
    folder, pairs = audited
    path = pairs.root / "captions.jsonl"
    path.write_text(path.read_text().replace("three", "tree"))
    with pytest.raises(BadInput, match="not the data that"):
        apply(folder, tmp_path / "clean")


def test_a_copy_with_nothing_left_is_refused():
    with pytest.raises(BadInput, match="nothing would be left"):
        clean(named(3, 1), {0, 1, 2}, {})


def test_a_copy_is_written_in_the_original_s_kind_where_that_can_hold_it(audited, tmp_path):
    _, pairs = audited
    formats.write(pairs, tmp_path / "table", to="csv")
    assert formats.format_for_copy(Pairs.read(tmp_path / "table")) == "csv"
    features = Pairs(["a", "b"], ["x", "y", "z"], np.array([0, 0, 1]), np.full(2, "train"), format="scan")
    assert formats.format_for_copy(features) == "npz"  # scan needs as many captions for every picture


def test_the_worst_of_the_rest_are_shown_where_few_are_suspect():
    found = findings(10, bad={3: None, 7: None})
    found.score[[3, 7]], found.score[5] = (0.02, 0.01), 0.6
    assert found.to_review(fewest=2, most=9).tolist() == [7, 3]
    assert found.to_review(fewest=3, most=9).tolist() == [7, 3, 5]
    assert len(found.to_review(fewest=40, most=40)) == 10 and len(found.to_review(fewest=40, most=6)) == 6


def test_of_many_suspects_the_worst_are_shown_and_the_rest_evenly_down_to_the_least():
    found = findings(300, bad=dict.fromkeys(range(200)))
    found.score[:200], found.score[200:] = np.linspace(0, 0.5, 200), 0.9
    found.reason[[250, 260]] = "near-duplicate", "caption fits many pictures"
    shown = found.to_review(fewest=10, most=42).tolist()
    assert len(shown) == 42 and shown[:20] == list(range(20)) and {199, 250, 260} <= set(shown)
    assert max(np.diff(shown[19:40])) <= 1 + 180 / 20


def test_a_report_that_shows_a_part_says_so(tmp_path):
    pairs = named(6, 1)
    found = findings(6, bad=dict.fromkeys(range(4)))
    for cards, told in ((2, "Of 4 suspects 2 are shown: the worst 1"), (9, None)):
        write_report(tmp_path / "r.html", pairs, found, summary(pairs, found), "", cards=cards)
        page = (tmp_path / "r.html").read_text()
        assert (told in page) if told else ("are shown" not in page)
