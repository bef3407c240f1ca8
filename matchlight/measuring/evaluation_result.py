"""What an evaluation gives back: its report, which prints as tables and becomes a data frame.

It is a `dict` with the keys of the protocol, so that `report["rsum"]` and `json.dumps(report)` do what they always did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from matchlight.measuring.protocols import Report, tables
from matchlight.measuring.shown import Shown, data_frame

if TYPE_CHECKING:
    import pandas as pd

NO_FIGURES = ("ci", "against", "folds", "left_out", "summaries")


@dataclass(eq=False, repr=False)
class Evaluation(Shown, dict[str, object]):
    """The report of a protocol on one split."""

    report: InitVar[Report]
    split: str = "test"
    protocol: str = "auto"  # as asked for

    def __post_init__(self, report: Report) -> None:
        self.update(report)

    def parts(self) -> Sequence[str | Table]:
        """The tables of the protocol, or of all of them."""
        return tables(self)

    def to_pandas(self) -> pd.DataFrame:
        """A line a figure, such as `i2t.r1`: its value, and the ends of its 95% interval where `ci` was asked for."""
        ends = self.get("ci")
        between = dict(_flat(ends)) if isinstance(ends, Mapping) else {}
        lines: list[dict[str, object]] = []
        for name, value in _flat({name: value for name, value in self.items() if name not in NO_FIGURES}):
            low_high = between.get(name)
            more = {"low": low_high[0], "high": low_high[1]} if isinstance(low_high, list) else {}
            if isinstance(value, int | float):
                lines.append({"figure": name, "value": value, **more})
        return data_frame(lines, "figure")


def _flat(report: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    """(path joined by dots, value) of everything inside that is no object."""
    for name, value in report.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value
