"""An audit's report in a real browser, opened as a file: keys, filters and what is exported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from audited import named

from matchlight.auditing.report import write_report
from tests.auditing.test_audit_files import findings, summary


@pytest.fixture
def report(chromium, tmp_path: Path) -> Iterator[Any]:
    """Twelve pairs; rows 0 to 5 are suspect, the lower the worse, and row 8 says what many pictures show."""
    pairs, found = named(12, 1), findings(12, bad=dict.fromkeys(range(6)))
    found.score[:] = [(row + 1) / 20 for row in range(12)]
    found.reason[8] = "caption fits many pictures"
    write_report(tmp_path / "report.html", pairs, found, summary(pairs, found), "")
    page, wrong = chromium.new_page(), []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    page.on(
        "request", lambda asked: None if asked.url.startswith(("file:", "data:", "blob:")) else wrong.append(asked.url)
    )
    page.goto((tmp_path / "report.html").as_uri())
    yield page
    page.close()
    assert not wrong


def rows(page: Any) -> list[int]:
    labels = page.locator(".pair").evaluate_all("nodes => nodes.map(n => n.getAttribute('aria-label'))")
    return [int(label.split()[1]) for label in labels]


def test_keys_decide_undo_and_move_and_the_export_says_it(report, tmp_path):
    assert rows(report) == list(range(12))
    for key in (
        "k",
        "d",
        "d",
        "u",
        "ArrowRight",
        "ArrowLeft",
        "k",
    ):  # keep 0, drop 1 and 2, not 2, on to 3 and back, keep 2
        report.keyboard.press(key)
    assert report.locator("#state").text_content() == "12 pairs to review, 2 kept, 1 dropped"
    for button, name in (("#json", "d.json"), ("#csv", "d.csv")):
        with report.expect_download() as saved:
            report.click(button)
        saved.value.save_as(tmp_path / name)
    told = {one["row"]: one["decision"] for one in json.loads((tmp_path / "d.json").read_text())["decisions"]}
    assert told == {0: "keep", 1: "drop", 2: "keep"}
    assert (tmp_path / "d.csv").read_text().split() == ["row,decision", "0,keep", "1,drop", "2,keep"]
    report.reload()  # what was decided is kept
    assert report.locator(".pair.keep").count() == 2 and report.locator(".pair.drop").count() == 1


def test_decisions_that_an_earlier_report_of_the_data_stored_are_read_in_todays_words(report):
    key = "matchlight-audit-" + report.evaluate("data.key")
    # Written in the new document before its scripts: what the old one stored may reach a new process too late.
    report.add_init_script(f'localStorage.setItem({key!r}, \'{{"0": "accept", "1": "reject"}}\')')
    report.reload()
    assert report.locator("#state").text_content() == "12 pairs to review, 1 kept, 1 dropped"


def test_every_reason_that_can_be_chosen_has_pairs_to_show(report):
    offered = report.locator("#reason option").evaluate_all("nodes => nodes.map(n => n.value)")
    assert len(offered) == 3
    for reason in offered:
        report.select_option("#reason", reason)
        assert rows(report) == {"": list(range(12)), "caption fits many pictures": [8]}.get(reason, list(range(6)))


def test_score_and_words_narrow_what_is_shown(report):
    report.locator("#most").fill("0.15")
    assert rows(report) == [0, 1, 2] and report.locator("#lines tr").count() == 3
    report.locator("#most").fill("1")
    report.fill("#find", "no such words")
    assert report.locator("#where").text_content() == "no pair fits"
