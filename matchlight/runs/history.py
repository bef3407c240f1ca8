"""How a run's training went, epoch by epoch: log.jsonl as a result that prints as a table and becomes a data frame."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from matchlight.core import BadInput, Json
from matchlight.files import regular
from matchlight.measuring.shown import Shown, data_frame, plain_table

if TYPE_CHECKING:
    import pandas as pd

SHOWN = ("epoch", "phase", "loss", "seconds")


@dataclass(frozen=True)
class History(Shown):
    """The lines of log.jsonl, one an epoch; none for a run that was imported."""

    epochs: list[dict[str, Json]]

    @staticmethod
    def read(folder: Path) -> History:
        """The history in a run's folder."""
        path = regular(folder / "log.jsonl")
        if not path.is_file():
            return History([])
        try:
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        except (ValueError, RecursionError):
            raise BadInput(f"{path}: not a run's log; `matchlight train` writes it") from None
        if not all(isinstance(line, dict) for line in lines):
            raise BadInput(f"{path}: not a run's log; `matchlight train` writes it")
        return History(lines)

    def parts(self) -> Sequence[str | Table]:
        """A table with a line an epoch."""
        lines = [_flat(one) for one in self.epochs]
        more = [name for name in dict.fromkeys(name for line in lines for name in line) if name.startswith("val.")]
        columns = [*SHOWN, *(name for name in more if name in ("val.rsum", "val.map.mean"))]
        return [plain_table(columns, [[line.get(name, "") for name in columns] for line in lines])]

    def to_pandas(self) -> pd.DataFrame:
        """A line an epoch; what is measured on val stands in columns such as `val.rsum`."""
        return data_frame([_flat(one) for one in self.epochs], "epoch")


def _flat(value: dict[str, Json], before: str = "") -> dict[str, Json]:
    """Everything inside that is no object, by its path."""
    out: dict[str, Json] = {}
    for name, inside in value.items():
        out |= _flat(inside, f"{before}{name}.") if isinstance(inside, dict) else {f"{before}{name}": inside}
    return out
