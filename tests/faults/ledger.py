"""Cases, what became of them, and the table: a case that held is not run again when the table is asked for anew."""

from __future__ import annotations

import json
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

MOST_MEMORY = 2 << 30  # bytes that any case may take, the 0.4 GB of the warm process included


@dataclass(frozen=True)
class Outcome:
    """What became of one case, or of `count` requests."""

    held: bool
    how: str  # in a word or two: what is counted in the table
    note: str = ""  # the line that was said, or what went wrong
    peak: int = 0  # bytes
    count: int = 1


@dataclass(frozen=True)
class Case:
    """One thing that may go wrong: done in an empty folder of its own."""

    area: str
    row: str  # the stage or the format
    fault: str
    number: int
    run: Callable[[Path], Outcome]

    @property
    def name(self) -> str:
        return f"{self.area}/{self.row}/{self.fault}/{self.number}"


class Ledger:
    """A file of outcomes, a line a case; the last line about a case counts."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.file = folder / "ledger.jsonl"
        self.known: dict[str, Outcome] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for line in self.file.read_text().splitlines() if self.file.exists() else ():
            found = json.loads(line)
            name = found.pop("case")
            self.known[name] = Outcome(**found)

    def run(self, case: Case) -> Outcome:
        """What became of a case; the folder of one that failed is kept to be looked at."""
        if (known := self.known.get(case.name)) is not None and known.held:
            return known
        place = self.folder / "cases" / case.name.replace("/", "-").replace("+", "p").replace(" ", "_")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True, exist_ok=True)
        try:
            outcome = case.run(place)
        except Exception as error:
            outcome = Outcome(False, "judge failed", "".join(traceback.format_exception(error))[-1500:])
        if outcome.peak > MOST_MEMORY:
            outcome = Outcome(False, "memory", f"{outcome.peak >> 20} MB; {outcome.note}", outcome.peak)
        if outcome.held:
            shutil.rmtree(place, ignore_errors=True)
        with self.file.open("a") as out:
            out.write(json.dumps({"case": case.name, **asdict(outcome)}) + "\n")
        self.known[case.name] = outcome
        return outcome


def run_all(cases: Iterable[Case], ledger: Ledger, *, seconds: float, say: Callable[[str], None]) -> dict[str, Outcome]:
    """Every case, or as many as fit the seconds; failures are told as they come."""
    until, found = time.monotonic() + seconds, {}
    for case in cases:
        if time.monotonic() > until:
            say("no time left; the same command goes on from here")
            break
        found[case.name] = outcome = ledger.run(case)
        if not outcome.held:
            say(f"FAILED {case.name}: {outcome.how}: {outcome.note[-400:]}")
    return found


def table(found: dict[str, Outcome]) -> str:
    """Area by area, a line for each stage or format: cases, failures, the most memory one took, how they ended."""
    lines = [f"{'area':16}{'of':42}{'cases':>7}{'failed':>8}{'peak MB':>9}  how"]
    groups: dict[str, dict[str, list[Outcome]]] = {}
    for name, outcome in found.items():
        area, row, _, _ = name.rsplit("/", 3)
        groups.setdefault(area, {}).setdefault(row, []).append(outcome)
    for area, rows in groups.items():
        lines += [f"{area:16}{row:42}{_figures(own)}" for row, own in rows.items()]
    lines.append("")
    for area, rows in groups.items():
        lines.append(f"{area:16}{'':42}{_figures([one for own in rows.values() for one in own])}")
    lines.append(f"{'all':16}{'':42}{_figures(list(found.values()))}")
    return "\n".join(lines)


def _figures(own: list[Outcome]) -> str:
    ways: Counter[str] = Counter()
    for one in own:
        ways[one.how] += one.count
    how = ", ".join(f"{count} {name}" for name, count in ways.most_common())
    failed, peak = sum(not one.held for one in own), max((one.peak for one in own), default=0)
    return f"{sum(one.count for one in own):7}{failed:8}{peak >> 20:9}  {how}"
