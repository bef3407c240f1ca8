"""A few cases of each area of the table of faults, and that its judge tells good from bad; `make faults` runs them all.

The table forks a process that has done nothing with torch, so it runs in one of its own here as well.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import damage, questions
from tests.faults.__main__ import AREAS, every
from tests.faults.children import Ended
from tests.faults.ledger import Case, Ledger, Outcome, run_all, table
from tests.faults.results import contents, differences
from tests.faults.stages import World

SHORT = """
random kills/train plain/kill -9/0
random kills/mine/kill -9/15
file events/train plain/kill at an event/7
file events/mine/full disk at an event/6
two processes/mine/two on one folder/0
data sets/jsonl/wrong value/0
data sets/jsonl/control characters/0
data sets/csv/a stray quote/0
data sets/parquet/bits flipped/0
data sets/scan/wrong array/0
checkpoints/code inside/a call/0
run folders/evaluate, resume/wrong value/2
index fields/search/wrong value, sums fit/1
index arrays/search/wrong array, sums fit/9
"""


@pytest.mark.skipif(sys.platform != "linux", reason="cases run in forked children")
def test_a_few_cases_of_each_area_hold(tmp_path: Path) -> None:
    (tmp_path / "only").write_text(SHORT.strip())
    words = [sys.executable, "-m", "tests.faults", "-o", str(tmp_path / "out"), "--only", str(tmp_path / "only")]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parents[2], env={**os.environ})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    said = [json.loads(line) for line in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    assert {one["case"] for one in said} == set(SHORT.strip().splitlines())
    assert all(one["held"] and one["count"] for one in said)


def case(name: str, outcome: Outcome) -> Case:
    return Case("area", "row", name, 0, lambda _: outcome)


def test_what_held_is_not_run_again_and_what_failed_is(tmp_path: Path) -> None:
    cases = [case("good", Outcome(True, "equal")), case("bad", Outcome(False, "differs", "why"))]
    cases.append(case("large", Outcome(True, "read", peak=3 << 30)))
    said: list[str] = []
    found = run_all(cases, Ledger(tmp_path), seconds=60, say=said.append)
    assert [one.held for one in found.values()] == [True, False, False]
    assert len(said) == 2 and "FAILED area/row/bad/0: differs: why" in said[0] and "3072 MB" in said[1]
    assert "1 equal, 1 differs, 1 memory" in table(found).splitlines()[-1]
    again = [case("good", Outcome(False, "not asked")), case("bad", Outcome(True, "mended"))]
    assert all(one.held for one in run_all(again, Ledger(tmp_path), seconds=60, say=said.append).values())


def test_a_table_without_time_stops_and_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    assert not run_all([case("good", Outcome(True, "equal"))], Ledger(tmp_path), seconds=-1, say=said.append)
    assert said == ["no time left; the same command goes on from here"]


@pytest.mark.parametrize(
    ("code", "out", "err", "why"),
    [
        (0, "fine\n", "", None),
        (2, "", "matchlight: a.csv: no captions\n", None),
        (2, "", "no captions\n", "without a line"),
        (1, "", "matchlight: internal failure: KeyError\n", "exit 1"),
        (0, "", "Traceback (most recent call last)\n", "traceback"),
        (0, "a dog\x1b]0;mine\x07\n", "", "control characters"),
        (-11, "", "", "exit -11"),
    ],
)
def test_the_judge_tells_a_clear_end_from_others(code: int, out: str, err: str, why: str | None) -> None:
    complaint = Ended(code, out, err, 0, 0.0).complaint
    assert complaint is None if why is None else why in str(complaint)


def test_times_are_no_difference_and_anything_else_is(tmp_path: Path) -> None:
    for name, seconds, value in (("a", 1.5, 3), ("b", 2.5, 3), ("c", 1.5, 4)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "about.json").write_text(json.dumps({"seconds": seconds, "deep": [{"value": value}]}))
        (tmp_path / name / "table.csv").write_text(f"method,value,seconds\nncr,{value},{seconds}\n")
        (tmp_path / name / "report.html").write_text(f"<td>{value}</td><td>{seconds} s</td>")
    a, b, c = (contents(tmp_path / name) for name in "abc")
    assert differences(a, b) == [] and differences(a, c) == ["about.json", "report.html", "table.csv"]
    (tmp_path / "b" / "more").touch()
    assert differences(a, contents(tmp_path / "b")) == ["more"]


def everything(world: World) -> Iterator[Case]:
    for area in AREAS.values():
        yield from area(world, 1.0)


def test_the_table_has_the_cases_that_were_promised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(World, "has", lambda self, name, make: tmp_path / name)
    found = [one.name for one in everything(World(tmp_path))]
    assert len(found) == len(set(found))
    areas = [name.split("/")[0] for name in found]
    assert areas.count("random kills") == 200 and areas.count("data sets") >= 500
    assert questions.BATCHES * questions.IN_PROCESS + questions.SOCKETS * questions.RAW >= 13_000
    stages = {name.split("/")[1] for name in found if name.startswith("random kills")}
    for area in ("file events", "full disk", "read-only", "slow disk", "two processes", "clock", "cache"):
        assert {name.split("/")[1] for name in found if name.startswith(f"{area}/")} == stages
    assert set(SHORT.strip().splitlines()) <= set(found)


def test_a_share_of_cases_is_spread_over_all() -> None:
    cases = [Case("area", "row", "fault", number, lambda _: Outcome(True, "")) for number in range(10)]
    assert [one.number for one in every(iter(cases), 0.3)] == [3, 6, 9]
    assert len(list(every(iter(cases), 1.0))) == 10


def test_every_way_of_damage_changes_some_file(tmp_path: Path) -> None:
    import numpy as np

    for number, way in enumerate(damage.WAYS):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "a.jsonl").write_text('{"image": "a.png", "captions": ["a dog"]}\n' * 3)
        (folder / "b.txt").write_text("one dog\n")
        np.save(folder / "c.npy", np.ones((3, 2), np.float32))
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert damage.damaged(folder, way, np.random.default_rng(number))
        after = {
            path.name: path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            for path in folder.iterdir()
        }
        assert before != after, way
