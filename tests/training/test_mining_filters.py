"""What is struck from the lists: captions alike, pairs known to fit, and what an audit doubts or would rather see."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from matchlight.core import BadInput
from matchlight.data.findings import MISMATCHED, VAGUE, Finding, write_findings
from matchlight.data.fingerprints import fingerprint
from matchlight.pairs import Pairs
from matchlight.training.mining import NONE, Candidates
from matchlight.training.mining.audit_filter import read_doubts
from matchlight.training.mining.filters import filtered, struck, tfidf
from tests.reference import aoq as naive


def as_lists(array: np.ndarray) -> list[list[int]]:
    return [[int(v) for v in row if v != NONE] for row in array]


def words(*captions: str, each: int = 1, **more: object) -> Pairs:
    count = len(captions) // each
    picture = np.repeat(np.arange(count), each)
    return Pairs([str(i) for i in range(count)], list(captions), picture, np.full(count, "train"), **more)  # type: ignore[arg-type]


def test_captions_that_all_but_repeat_ones_own_are_struck_out() -> None:
    pairs = words("a red ball", "one dog", "a red ball", "two cats", "the red ball", "a green kite", each=2)
    lists = naive.every_other(pairs, np.arange(6))
    found = filtered(lists, pairs, kind="captions", alike=0.9)
    assert as_lists(found.texts) == [[3, 4, 5], [1, 4, 5], [0, 1, 2, 3]]
    assert as_lists(found.images) == [[2], [1, 2], [2], [0, 2], [0, 1], [0, 1]]
    assert np.allclose(tfidf(["x y", "x y"]).multiply(tfidf(["x y", "x y"])).sum(1), 1)


def test_pairs_known_to_fit_are_struck_out() -> None:
    from scipy.sparse import csr_matrix

    fits = np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]], bool)  # captions x pictures: caption 0 fits picture 2 too
    pairs = words("p", "q", "r", relevance=csr_matrix(fits))
    found = filtered(naive.every_other(pairs, np.arange(3)), pairs, kind="relevance")
    assert as_lists(found.texts) == [[1], [0, 2], [1]] and as_lists(found.images) == [[1], [0, 2], [1]]
    with pytest.raises(BadInput, match="relevance file"):
        filtered(naive.every_other(words("p", "q"), np.arange(2)), words("p", "q"), kind="relevance")


def test_what_went_is_counted_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = words("a red ball", "a red ball", "two cats")
    lists = naive.every_other(pairs, np.arange(3))
    found = filtered(lists, pairs, kind="captions", alike=1.0)  # a caption is like itself, whatever the rounding
    assert as_lists(found.texts) == [[2], [2], [0, 1]] and as_lists(found.images) == [[2], [2], [0, 1]]
    count = {"struck_captions": 2, "struck_pictures": 2, "pictures_without": 0, "captions_without": 0}
    assert struck(lists, found) == count
    assert "filter=captions: 2 captions and 2 pictures were struck" in capsys.readouterr().err
    bare = found.without(found.texts == 2, found.images > 0)
    assert struck(found, bare) == {
        "struck_captions": 2, "struck_pictures": 3, "pictures_without": 2, "captions_without": 2
    }  # fmt: skip


def test_nothing_to_filter_is_no_error_and_no_word(capsys: pytest.CaptureFixture[str]) -> None:
    none, empty = np.zeros(0, np.int64), np.zeros((0, 1), np.int64)
    nothing = Candidates(none, none, empty, empty)
    assert filtered(nothing, words("p", "q"), kind="captions").texts.shape == (0, 1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("alike", [0.0, -0.1, 1.01, float("nan")])
@pytest.mark.parametrize("kind", ["none", "captions"])
def test_alike_is_a_cosine_above_nothing(alike: float, kind: str) -> None:
    pairs = words("p", "q")
    with pytest.raises(BadInput, match="alike=.* above 0 and up to 1"):
        filtered(naive.every_other(pairs, np.arange(2)), pairs, kind=kind, alike=alike)


# ---- an audit --------------------------------------------------------------------------------------------------------


def audited(path: Path, pairs: Pairs, **known: dict[int, object]) -> Path:
    """A pairs.csv as an audit writes it; `known` says per column what is not blank."""
    names = [str(pairs.names[place]) for place in pairs.picture]
    found = [Finding(row, names[row], text, 0.9, suspect=False) for row, text in enumerate(pairs.captions)]
    for column, values in known.items():
        for row, value in values.items():
            found[row] = replace(found[row], **{column: value})
    write_findings(path / "pairs.csv", found, labels=False)
    return path


def test_what_an_audit_doubts_is_struck_out(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text(
        "row,image,caption,score,suspect,reason\n0,a,p,0.1,true,\n1,b,q,0.9,false,\n2,c,r,0.2,1,\n3,c,s,0.8,0,\n"
    )
    pairs = Pairs(["a", "b", "c"], ["p", "q", "r", "s"], np.array([0, 1, 2, 2]), np.full(3, "train"))
    assert read_doubts(tmp_path, pairs).suspects.tolist() == [0, 2]
    lists = Candidates(
        np.arange(3), np.arange(4), np.array([[1, 2, 3], [0, 2, 3], [0, 1, -1]]), np.tile([0, 1, 2], (4, 1))
    )
    found = filtered(lists, pairs, kind="scores", audit=tmp_path / "pairs.csv")
    assert as_lists(found.texts) == [[1, 3], [3], [1]] and as_lists(found.images) == [[1, 2]] * 4
    with pytest.raises(BadInput, match="line 4: row 2 is not of the data that was audited"):
        read_doubts(tmp_path, words("p", "q"))
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadInput, match="not an audit's table; its columns begin row,image,caption,score,suspect"):
        read_doubts(tmp_path / "other.csv", pairs)


def test_partners_that_an_audit_names_are_no_negatives_either_way(tmp_path: Path) -> None:
    names, said = ["a", "=b", "c", "d"], ["p", "q", "r", "s", "t"]
    pairs = Pairs(names, said, np.array([0, 1, 2, 3, 3]), np.full(4, "train"))
    suspect, reason = {0: True, 3: True}, {0: MISMATCHED, 3: MISMATCHED}
    # caption 0 rather fits picture 1, whose name a spreadsheet would take for a formula; picture 3 rather has caption 2
    audited(tmp_path, pairs, suspect=suspect, reason=reason, better_image={0: "=b"}, better_caption_row={3: 2})
    assert "'=b" in (tmp_path / "pairs.csv").read_text()
    assert read_doubts(tmp_path, pairs).fits.toarray().nonzero()[0].tolist() == [0, 2]
    lists = Candidates(
        np.arange(4),
        np.arange(5),
        np.array([[1, 2, 3, 4], [0, 2, 3, 4], [0, 1, 3, 4], [0, 1, 2, -1]]),
        np.array([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2], [0, 1, 2]]),
    )
    found = filtered(lists, pairs, kind="scores", audit=tmp_path)
    assert as_lists(found.texts) == [[1, 2, 4], [2, 4], [1, 4], [1]]  # no 0, no 3; and no caption 2 for picture 3
    # picture 0 has no trusted caption left; caption 0 has no picture 1, caption 2 no picture 3
    assert as_lists(found.images) == [[2, 3], [2, 3], [1], [1, 2], [1, 2]]
    assert struck(lists, found)["struck_pictures"] == 15 - 9


def test_captions_that_fit_many_pictures_are_no_negatives_but_their_pictures_are(tmp_path: Path) -> None:
    pairs = words("p", "q", "r")
    audited(tmp_path, pairs, reason={1: VAGUE})
    lists = naive.every_other(pairs, np.arange(3))
    found = filtered(lists, pairs, kind="scores", audit=tmp_path)
    assert as_lists(found.texts) == [[2], [0, 2], [0]] and as_lists(found.images) == as_lists(lists.images)


def test_partners_that_the_data_does_not_have_are_of_another_audit(tmp_path: Path) -> None:
    head = "row,image,caption,score,suspect,reason,better_image,better_caption_row\n"
    for line, told in (
        ("0,a,p,0.1,1,,z,", "picture 'z'"),
        ("0,a,p,0.1,1,,,2", "caption row '2'"),
        ("0,a,p,0.1,1,,,-1", "caption row '-1'"),
        ("0,a,p,0.1,1,,,x", "caption row 'x'"),
    ):
        (tmp_path / "pairs.csv").write_text(head + line + "\n")
        with pytest.raises(BadInput, match=f"row 0 names {told} as better.*other data"):
            read_doubts(tmp_path, words("p", "q"))


def test_an_audit_of_other_data_or_one_that_was_cut_strikes_nothing(tmp_path: Path) -> None:
    pairs = words("p", "q", "r")
    audited(tmp_path, pairs, suspect={1: True})
    about = {"data": {"fingerprint": fingerprint(pairs)}, "split": "all"}
    (tmp_path / "summary.json").write_text(json.dumps(about))
    assert read_doubts(tmp_path, pairs).suspects.tolist() == [1]
    with pytest.raises(BadInput, match="not the data that .* audited"):
        read_doubts(tmp_path, words("p", "q", "s"))
    table = tmp_path / "pairs.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:2]) + "\n")
    with pytest.raises(BadInput, match=r"pairs.csv: row 1 is missing \(2 in all\)"):
        read_doubts(tmp_path, pairs)
