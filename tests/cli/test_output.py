"""What is printed of a stranger's file: a terminal gets nothing to obey."""

from __future__ import annotations

import pytest

from matchlight.cli.audit import _print
from matchlight.cli.output import table, tell
from matchlight.console import say, visible

TRICK = "a dog\x1b]0;mine\x07 \x9b2J\u202egod\r\n\x85b"


def test_what_a_terminal_would_obey_is_shown_and_letters_of_all_languages_stay() -> None:
    assert visible(TRICK) == r"a dog\x1b]0;mine\x07 \x9b2J\u202egod  \x85b"
    for text in ("Füße, naïve", "犬が走る", "می\u200cخواهم", "👨\u200d👩\u200d👧", "क्\u200dष"):
        assert visible(text) == text
    assert visible("a\u00a0b\tc") == "a b c"


def test_tables_and_messages_send_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    table(TRICK, ["caption"], [[TRICK]])
    say(TRICK)
    tell(TRICK)
    told = capsys.readouterr()
    assert told.out.count("x1b]0") == 3 and "x1b]0" in told.err
    assert all(one.isprintable() or one == "\n" for one in told.out + told.err)


def test_the_audits_worst_pairs_send_no_control_characters(capsys: pytest.CaptureFixture[str], tmp_path) -> None:
    class Found:
        folder = tmp_path
        suspects = [{"image": TRICK, "score": 0.1, "caption": TRICK}]
        summary = {"reasons": {"mismatched": 1}, "flagged": 1, "pairs": 9, "split": "train", "estimated_noise": 0.1}
        summary |= {"estimated_noise_interval": (0.0, 0.2), "expected_false_alarms": 0.0}

    _print(Found())  # type: ignore[arg-type]
    assert all(one.isprintable() or one == "\n" for one in capsys.readouterr().out)
