"""The model card: what a run measured, with intervals a reader can check."""

from __future__ import annotations

import pytest

from matchlight.runs.card_figures import figures, wilson


def test_the_interval_of_a_share_by_hand() -> None:
    low, high = wilson(0.5, 100)
    assert (low, high) == (pytest.approx(0.4038, abs=1e-4), pytest.approx(0.5962, abs=1e-4))  # a table of Wilson's
    assert wilson(0.0, 10)[0] == 0.0
    assert wilson(0.0, 10)[1] == pytest.approx(0.2775, abs=1e-4)
    assert wilson(1.0, 10)[1] == pytest.approx(1.0)


def test_recalls_get_an_interval_from_the_number_of_pictures() -> None:
    report = {"t2i": {"r1": 50.0, "r5": 80.0, "r10": 100.0}, "i2t": {"r1": 0.0}, "pictures": 100, "captions": 500}
    found = figures({"epoch": 3, "val": report})
    assert [one.name for one in found] == [
        "pictures for words, R@1",
        "pictures for words, R@5",
        "pictures for words, R@10",
        "captions for a picture, R@1",
    ]
    assert found[0].interval == [pytest.approx(40.38, abs=0.01), pytest.approx(59.62, abs=0.01)]


def test_intervals_that_were_measured_are_told_instead() -> None:
    report = {"t2i": {"r1": 50.0}, "pictures": 100, "ci": {"t2i": {"r1": [44.0, 55.0]}}}
    assert figures({"val": report})[0].interval == [44.0, 55.0]
    by_label = {"map": {"i2t": 0.5, "t2i": 0.25, "mean": 0.375}, "ci": {"map": {"t2i": [0.2, 0.3]}}}
    found = figures({"val": by_label})
    assert [(one.value, one.interval) for one in found] == [(25.0, [20.0, 30.0]), (50.0, None)]


@pytest.mark.parametrize("odd", [{}, {"val": None}, {"val": []}, {"val": {"t2i": 3, "map": "x", "ci": [1]}}])
def test_a_run_that_measured_nothing_known_has_no_figures(odd: dict) -> None:
    assert figures(odd) == []
