"""The table of faults: `python -m tests.faults -o FOLDER [--area NAME] [--share 0.1] [--only FILE] [--seconds 900]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults import artefacts, data_sets, interrupted, questions, surroundings
from tests.faults.ledger import Case, Ledger, run_all, table
from tests.faults.stages import World

Area = Callable[[World, float], Iterator[Case]]
AREAS: dict[str, Area] = {
    "kills": lambda world, share: interrupted.random_kills(world, max(1, int(share * interrupted.KILLS))),
    "events": lambda world, share: interrupted.file_events(world, each=max(1, int(share * interrupted.EVENTS))),
    "around": lambda world, share: every(surroundings.around(world), share),
    "data": lambda world, share: every(data_sets.malformed(world), share),
    "artefacts": lambda world, share: every(artefacts.tampered(world), share),
    "requests": lambda world, share: every(questions.requests(world), share),
}


def every(cases: Iterator[Case], share: float) -> Iterator[Case]:
    """A share of the cases, evenly spread."""
    return (case for number, case in enumerate(cases) if int((number + 1) * share) > int(number * share))


def main() -> int:
    """Run what is asked for, print the table; 1 where a case did not hold or was not reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="The table of faults.")
    parser.add_argument(
        "-o", "--out", type=Path, required=True, help="what ran is noted there; a stopped table goes on"
    )
    parser.add_argument("--area", action="append", choices=list(AREAS), help="may be repeated; default: all")
    parser.add_argument("--share", type=float, default=1.0, help="of the cases of each area")
    parser.add_argument("--only", type=Path, help="a file of cases, one name a line: these alone")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so many; the next call goes on")
    asked = parser.parse_args()
    out = asked.out.resolve()
    world, ledger = World(out / "world"), Ledger(out)
    cases = (case for name in asked.area or AREAS for case in AREAS[name](world, asked.share))
    if asked.only is not None:
        wanted = set(asked.only.read_text().splitlines())
        cases = (case for case in cases if case.name in wanted)

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    began = time.monotonic()
    found = run_all(cases, ledger, seconds=asked.seconds, say=say)
    print(table(found))
    stopped = time.monotonic() - began > asked.seconds
    return 0 if found and not stopped and all(outcome.held for outcome in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
