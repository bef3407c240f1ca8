"""pairs.csv and summary.json of an audit: what was written is read again, and what was edited wrongly is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchlight.core import BadInput
from matchlight.data.findings import (
    MISMATCHED,
    WRONG_LABEL,
    Finding,
    LabelFinding,
    read_audit,
    read_findings,
    read_summary,
    write_findings,
)
from matchlight.data.fingerprints import fingerprint
from matchlight.pairs import Pairs

HEAD = "row,image,caption,score,suspect,reason\n"
TEXT = st.text(max_size=12).filter(lambda text: "\0" not in text and "\r" not in text and not text.startswith("'"))


def some_pairs() -> Pairs:
    return Pairs(["a", "=b", "c"], ["p", "q", "r"], np.arange(3), np.full(3, "train"))


@settings(deadline=None, max_examples=40)
@given(TEXT, TEXT, st.floats(0, 1), st.booleans())
def test_what_was_written_is_read_again(tmp_path_factory, caption, better, score, labelled):
    path = tmp_path_factory.mktemp("audit") / "pairs.csv"
    labels = LabelFinding("day", "+night", "text", "dusk", "day") if labelled else None
    one = Finding(3, "=b", caption, float(f"{score:.6g}"), True, MISMATCHED, "train", labels=labels)
    two = replace(one, row=4, suspect=False, reason="", better_caption=better or None, better_caption_row=3)
    write_findings(path, [one, two], labels=labelled)
    assert read_findings(path) == [one, two]


@pytest.mark.parametrize(("text", "suspect"), [("1", True), ("0", False), ("TRUE", True), ("false", False)])
def test_every_reader_takes_suspect_in_the_same_sense(tmp_path: Path, text: str, suspect: bool) -> None:
    (tmp_path / "pairs.csv").write_text(f"{HEAD}0,a,p,0.1,{text},\n")
    assert [one.suspect for one in read_findings(tmp_path / "pairs.csv")] == [suspect]
    assert read_audit(tmp_path, some_pairs()).findings[0].suspect is suspect


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("0,a,p,0.1,yes,", "line 2: row 0 has suspect 'yes'; 0 or 1"),
        ("0,a,p,0.1,,", "line 2: row 0 has suspect ''; 0 or 1"),
        ("0,a,p", "line 2: row 0 has suspect None; 0 or 1"),
        ("0,a,p,1.5,1,", "line 2: row 0 has score '1.5'; a number from 0 to 1"),
        ("0,a,p,nan,1,", "line 2: row 0 has score 'nan'"),
        ("x,a,p,0.1,1,", "line 2: 'x' is no row number"),
        ("0,a,p,0.1,1,\n0,a,p,0.1,1,", "line 3: row 0 stands there twice"),
    ],
)
def test_a_table_that_was_edited_wrongly_is_one_clear_line(tmp_path: Path, lines: str, complaint: str) -> None:
    (tmp_path / "pairs.csv").write_text(HEAD + lines + "\n")
    with pytest.raises(BadInput, match=complaint):
        read_findings(tmp_path / "pairs.csv")


def test_a_table_is_checked_against_the_data_and_the_summary_beside_it(tmp_path: Path) -> None:
    pairs = some_pairs()
    findings = [Finding(row, str(name), "", 0.5, suspect=False) for row, name in enumerate(pairs.names)]
    write_findings(tmp_path / "pairs.csv", findings, labels=False)
    (tmp_path / "summary.json").write_text(json.dumps({"data": {"fingerprint": fingerprint(pairs)}, "split": "train"}))
    assert set(read_audit(tmp_path, pairs).findings) == {0, 1, 2}
    with pytest.raises(BadInput, match="not the data that .* audited"):
        read_audit(tmp_path, replace(pairs, captions=["p", "q", "s"]))
    write_findings(tmp_path / "pairs.csv", [*findings, replace(findings[0], row=7)], labels=False)
    with pytest.raises(BadInput, match="line 5: row 7 is not of the data that was audited"):
        read_audit(tmp_path, pairs)
    write_findings(tmp_path / "pairs.csv", findings[1:], labels=False)
    with pytest.raises(BadInput, match=r"row 0 is missing \(1 in all\)"):
        read_audit(tmp_path, pairs)


def test_better_partners_are_places_of_the_data_whatever_their_names_look_like(tmp_path: Path) -> None:
    better = Finding(0, "a", "p", 0.1, True, WRONG_LABEL, better_image="=b", better_caption_row=2)
    write_findings(tmp_path / "pairs.csv", [better], labels=False)
    audited = read_audit(tmp_path / "pairs.csv", some_pairs())
    assert audited.better_pictures() == {0: 1} and audited.better_captions() == {0: 2}


@pytest.mark.parametrize("text", ["[]", "3", "{", ""])
def test_a_summary_that_is_none_is_one_clear_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(BadInput, match="summary.json"):
        read_summary(tmp_path)
