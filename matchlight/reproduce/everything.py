"""Every exhibit in one go, on one data set and into one folder: called again, it goes on where it was stopped.

A finished exhibit is kept if it was asked for in the same way on the same data. One that the data cannot make is left
out with its reason; one that fails is told, and the others go on. Runs are shared wherever their settings agree.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from matchlight import files
from matchlight.console import say
from matchlight.core import BadInput
from matchlight.data.fingerprints import fingerprint
from matchlight.measuring.protocols.measured import Unfit
from matchlight.pairs import Pairs
from matchlight.reproduce import style
from matchlight.reproduce.contact_sheet import contact_sheet, thumbnails
from matchlight.reproduce.exhibits import Exhibit
from matchlight.reproduce.numbers import as_markdown, plain
from matchlight.training.registry import methods, nearest

ALL = "all"
State = Literal["made", "kept", "left out", "failed"]


@dataclass(frozen=True)
class Outcome:
    """What became of an exhibit: why it was left out or failed, and how long it took."""

    name: str
    state: State
    seconds: float = 0.0
    why: str = ""

    @property
    def line(self) -> str:
        """In a line."""
        took = f" ({self.seconds:.0f} s)" if self.state == "made" else ""
        return f"{self.name}: {self.state}{took}{f': {self.why}' if self.why else ''}"


def make_all(exhibits: Iterable[Exhibit], pairs: Pairs, out: Path, **options: Any) -> list[Outcome]:
    """Make every exhibit; `options` are seeds, quick, settings, device, split and fold."""
    style.ready()
    given = {name: value for name, value in options.items() if value is not None}
    _check_settings(given.get("settings", {}))
    listed = list(exhibits)
    outcomes = []
    with files.locked(out, "making exhibits there"):
        for number, one in enumerate(listed, 1):
            outcome = _made(one, pairs, out, given)
            outcomes.append(outcome)
            took = f" ({outcome.seconds:.0f} s)" if outcome.state == "made" else ""
            say(
                f"[{number}/{len(listed)}] {one.name}: {outcome.state}{took}{f': {outcome.why}' if outcome.why else ''}"
            )
        _summary(out, listed, outcomes)
    return outcomes


def _check_settings(settings: Mapping[str, object]) -> None:
    """Refuse a name that no method has: exhibits leave aside what does not concern them, and nobody would see it."""
    known = {"preset", "slots", *(name for one in methods().values() for name in one.defaults)}
    for name in settings:
        if name not in known and "." not in name:  # with a dot it belongs to a method that another is built on
            raise BadInput(f"no method takes an argument {name!r}; {nearest(name, known)}")


def _made(one: Exhibit, pairs: Pairs, out: Path, given: Mapping[str, Any]) -> Outcome:
    asked = {**given, "seeds": given.get("seeds", 1) if one.averages else 1}
    unused = ("split", "fold") if one.of_training else () if one.folds else ("fold",)
    asked = {name: value for name, value in asked.items() if name not in unused}
    if is_finished(one, pairs, out, asked):
        return Outcome(one.name, "kept")
    began = time.monotonic()
    try:
        one(pairs, out, lenient=True, **asked)
    except Unfit as why:
        return Outcome(one.name, "left out", why=_one_line(why))
    except Exception as error:
        if not isinstance(error, BadInput | OSError):
            traceback.print_exception(error)  # a fault of ours: whoever mends it needs to see where
        return Outcome(one.name, "failed", time.monotonic() - began, _one_line(error))
    return Outcome(one.name, "made", time.monotonic() - began)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, BadInput) else f"{type(error).__name__}: {text}"


def is_finished(one: Exhibit, pairs: Pairs, out: Path, asked: Mapping[str, Any]) -> bool:
    """Whether an exhibit is there with all its files, of this data and asked for in this way."""
    try:
        told = json.loads((out / f"{one.name}.json").read_text(encoding="utf-8"))
        whole = all((out / name).is_file() for name in told["files"])
        same = told["fingerprint"] == fingerprint(pairs) and told["options"] == one.asked_for(pairs, asked)
    except (OSError, ValueError, KeyError, TypeError):  # none, or one that somebody else wrote
        return False
    return whole and same


def _summary(out: Path, exhibits: list[Exhibit], outcomes: list[Outcome]) -> None:
    """all.md and all.json, a thumbnail an exhibit, and one sheet of them."""
    by_name = {one.name: one for one in exhibits}
    shown = [one.name for one in outcomes if one.state in ("made", "kept")]
    table = [
        {
            "exhibit": f"[{one.name}]({one.name}.md)" if one.name in shown else one.name,
            "shows": by_name[one.name].shows,
            "state": "left out" if one.state == "left out" else "failed" if one.state == "failed" else "there",
            "why": one.why,
        }
        for one in outcomes
    ]
    small = thumbnails(out, shown)
    contact_sheet(small, out / "contact-sheet.png")
    files.write_text(out / f"{ALL}.md", f"# {ALL}\n\n![every exhibit](contact-sheet.png)\n\n{as_markdown(table)}")
    files.write_json(out / f"{ALL}.json", plain([asdict(one) for one in outcomes]))
