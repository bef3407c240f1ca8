"""A cleaned copy: the last decision of a row holds, what does not fit the audit is told, the original is left alone."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from matchlight.auditing import report
from matchlight.auditing.apply import apply, clean, sure_pictures
from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.data import formats
from matchlight.data.decisions import DECISIONS, OLD_WORDS, Decision, as_csv, named_partners, read_decisions
from matchlight.data.findings import read_audit
from matchlight.files import write_json
from matchlight.pairs import Labels, Pairs
from tests.auditing.test_audit_files import captions_of, findings, small_audit, summary, write_table
from tests.auditing.test_audit_labels import worded

HEAD = ["row", "decision", "image", "caption_row"]


@pytest.fixture
def audited(tmp_path: Path) -> tuple[Path, Pairs]:
    """Captions one two | three | =SUM(A1) five | six; rows 1 (it fits picture 3) and 4 are suspect."""
    return small_audit(tmp_path)


def decided(path: Path, kind: str, *lines: tuple[int, str, str | None, int | None]) -> Path:
    """The same decisions as either kind of file."""
    if kind == "json":
        path.write_text(json.dumps([dict(zip(HEAD, line, strict=True)) for line in lines]))
    else:
        with open(path, "w", newline="") as file:
            csv.writer(file).writerows([HEAD, *lines])
    return path


@pytest.fixture(params=["json", "csv"])
def kind(request) -> str:
    return request.param


# ---- what a person decided -------------------------------------------------------------------------------------------


def test_the_last_decision_about_a_row_holds(audited, tmp_path, kind):
    file = decided(
        tmp_path / "decisions", kind, (3, "rematch", None, 5), (0, "rematch", "images/3.png", None),
        (3, "accept", None, None), (0, "keep", None, None), (5, "accept", None, None), (5, "reject", None, None),
    )  # fmt: skip
    counts = apply(audited[0], tmp_path / "clean", decisions=file)
    assert (counts["kept"], counts["rematched"], counts["dropped"]) == (3, 0, 3)
    left = captions_of(tmp_path / "clean")
    assert left == {"images/0.png": ["one"], "images/1.png": ["three"], "images/2.png": ["=SUM(A1)"]}


def test_both_kinds_of_file_name_partners_and_row_0_is_one(audited, tmp_path, kind):
    lines = (1, "rematch", "images/1.png", None), (4, "rematch", None, 0)
    counts = apply(audited[0], tmp_path / "clean", decisions=decided(tmp_path / "decisions", kind, *lines))
    assert (counts["kept"], counts["rematched"], counts["dropped"]) == (4, 2, 0)
    left = captions_of(tmp_path / "clean")
    assert sorted(left["images/1.png"]) == ["three", "two"] and left["images/2.png"] == ["=SUM(A1)", "one"]


def test_blanks_around_a_decision_change_nothing(audited, tmp_path, kind):
    file = decided(tmp_path / "decisions", kind, (4, " rematch ", None, 0), (1, "accept ", None, None))
    counts = apply(audited[0], tmp_path / "clean", decisions=file)
    assert (counts["rematched"], counts["dropped"]) == (1, 0)


@pytest.mark.parametrize(
    "partner", [(None, None), ("images/9.png", None), (None, 6), ("images/9.png", 0), ("images/3.png", 0)]
)
def test_a_rematch_without_a_partner_in_the_data_is_one_clear_line(audited, tmp_path, kind, partner):
    file = decided(tmp_path / "decisions", kind, (1, "rematch", *partner))
    with pytest.raises(BadInput, match=r"decisions (line 2|decision 1): a rematch names either an image or"):
        apply(audited[0], tmp_path / "clean", decisions=file)
    assert not (tmp_path / "clean").exists()


@pytest.mark.parametrize("row", ["-1", "1.5", "9" * 5000, "true", '"x"', "null"])
def test_a_row_that_is_no_whole_number_is_one_clear_line(tmp_path, row):
    (tmp_path / "decisions").write_text(f'[{{"row": {row}, "decision": "accept"}}]')
    with pytest.raises(BadInput, match="is no row number|not a list of decisions"):
        read_decisions(tmp_path / "decisions", 6)
    (tmp_path / "decisions").write_text(f"row,decision\n{row},accept\n")
    with pytest.raises(BadInput, match="line 2: .* is no row number"):
        read_decisions(tmp_path / "decisions", 6)


# ---- what the audit wrote --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("\n2,", "\ntwo,", r"pairs.csv line 4: 'two' is no row number"),
        ("\n4,", "\n99999,", r"pairs.csv line 6: row 99999 is not of the data"),
        ("\n4,", "\n-4,", r"pairs.csv line 6: '-4' is no row number"),
        ("\n4,", "\n3,", r"pairs.csv line 6: row 3 stands there twice"),
        ('"five",0.1,1', '"five",0.1,yes', r"pairs.csv line 6: row 4 has suspect 'yes'; 0 or 1"),
        ('"images/3.png",0.5', '"images/8.png",0.5', r"row 1 names picture 'images/8.png' as better"),
        ('"images/3.png",0.5', '"images/3.png",half', r"row 1 has support 'half'"),
    ],
)
def test_a_table_that_does_not_fit_its_data_is_one_clear_line(audited, tmp_path, capsys, old, new, complaint):
    table = audited[0] / "pairs.csv"
    text = table.read_text()
    assert text.count(old) == 1
    table.write_text(text.replace(old, new))
    with pytest.raises(BadInput, match=complaint):
        apply(audited[0], tmp_path / "clean", rematch=True)
    assert main(["data", "apply", str(audited[0]), "-o", str(tmp_path / "clean"), "--rematch"]) == 2
    assert capsys.readouterr().err.count("\n") == 1 and not (tmp_path / "clean").exists()


@pytest.mark.parametrize(("lines", "first", "count"), [(1, 0, 6), (2, 1, 5), (6, 5, 1)])
def test_a_table_that_was_cut_is_refused(audited, tmp_path, lines, first, count):
    table = audited[0] / "pairs.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:lines]) + "\n")
    with pytest.raises(BadInput, match=rf"pairs.csv: row {first} is missing \({count} in all\)"):
        apply(audited[0], tmp_path / "clean")


def test_an_audit_of_one_split_needs_that_split_s_rows_alone(tmp_path):
    pairs = worded(12)
    pairs.splits[6:] = "test"
    formats.write(pairs, tmp_path / "data", to="npz")
    pairs, folder = Pairs.read(tmp_path / "data"), tmp_path / "audit"
    rows = np.flatnonzero(pairs.splits[pairs.picture] == "train")
    found = findings(12, bad={int(rows[0]): None})
    for name in ("row", "score", "suspect", "reason", "picture", "picture_support", "caption", "caption_support"):
        setattr(found, name, getattr(found, name)[rows])
    folder.mkdir()
    write_table(folder, pairs, found)
    write_json(folder / "summary.json", summary(pairs, found))
    assert apply(folder, tmp_path / "clean")["dropped"] == 1


# ---- names, labels and what spreadsheets do --------------------------------------------------------------------------


def test_of_pictures_that_share_a_name_the_one_that_was_meant_gets_the_caption(tmp_path):
    pairs = Pairs(["a", "same", "same", "b"], ["x", "y", "z", "w"], np.arange(4), np.full(4, "train"))
    found = findings(4, bad={0: 2})
    write_table(tmp_path, pairs, found)
    audited = read_audit(tmp_path, pairs)
    assert audited.findings[0].better_image == "same" and sure_pictures(audited) == {0: 2}
    audited.findings[0] = replace(audited.findings[0], better_image_row=None)
    with pytest.raises(
        BadInput, match="row 0 names picture 'same' as better, and 2 pictures of the data are called so"
    ):
        sure_pictures(audited)
    with pytest.raises(BadInput, match="said.csv line 2 names picture 'same'"):
        named_partners({0: Decision(0, "rematch", "same", where="said.csv line 2")}, pairs)


def test_a_caption_without_labels_of_its_own_has_those_of_the_picture_it_moves_to():
    hot = np.eye(3, dtype=bool)
    pairs = Pairs(["a", "b", "c"], ["x", "y", "z"], np.arange(3), np.full(3, "train"))
    for text, told in ((hot, 2), (hot[[1, 1, 2]], 1)):  # as its picture, or its own
        labelled = replace(pairs, labels=Labels(["k", "l", "m"], hot, text))
        cleaned, moved = clean(labelled, {0}, {0: 2})
        assert moved == 1 and cleaned.labels.text[0].argmax() == told


@pytest.mark.parametrize("text", ["\ufeffrow,decision\n4,accept\n", "\ufeffrow;decision\r\n4;accept\r\n"])
def test_a_table_that_a_spreadsheet_saved_is_read(audited, tmp_path, text):
    (tmp_path / "said.csv").write_text(text)
    table = audited[0] / "pairs.csv"
    table.write_text("\ufeff" + table.read_text())
    assert apply(audited[0], tmp_path / "clean", decisions=tmp_path / "said.csv")["dropped"] == 1


# ---- the original ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["data/clean", "data/images/clean", "link/clean", "data"])
def test_a_copy_inside_the_original_is_refused(audited, tmp_path, place):
    (tmp_path / "link").symlink_to(tmp_path / "data")
    before = sorted(path.name for path in (tmp_path / "data").rglob("*"))
    with pytest.raises(BadInput, match="inside the data folder .* never touched"):
        apply(audited[0], tmp_path / place)
    assert sorted(path.name for path in (tmp_path / "data").rglob("*")) == before


def test_a_copy_may_lie_beside_a_single_file_of_vectors_and_beside_a_folder(audited, tmp_path):
    assert apply(audited[0], tmp_path / "data_clean")["dropped"] == 2  # the name begins as the folder's does
    formats.write(worded(6), tmp_path / "vectors" / "set.npz", to="npz")
    pairs = Pairs.read(tmp_path / "vectors" / "set.npz")
    about = summary(pairs, findings(6))
    about["data"]["path"], about["split"] = str(tmp_path / "vectors" / "set.npz"), "all"
    write_json(audited[0] / "summary.json", about)
    assert apply(audited[0], tmp_path / "vectors" / "clean.npz")["kept"] == 4


def test_the_page_and_the_journal_use_the_words_that_are_read_here(tmp_path):
    script = (Path(report.__file__).parent / "page" / "report.js").read_text()
    for old, word in OLD_WORDS.items():
        assert f"'{word}'" in script and f"{old}: '{word}'" in script
        (tmp_path / "said.csv").write_text(f"row,decision\n0,{old}\n1,{word}\n")
        assert [one.decision for one in read_decisions(tmp_path / "said.csv", 2).values()] == [word, word]
    assert set(OLD_WORDS.values()) < set(DECISIONS)
    saved = [Decision(2, "rematch", "=a.png"), Decision(3, "rematch", None, 0), Decision(4, "drop")]
    (tmp_path / "said.csv").write_text(as_csv(saved))
    assert list(read_decisions(tmp_path / "said.csv", 5).values()) == saved
