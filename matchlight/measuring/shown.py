"""Results that print as tables, on a terminal and in a notebook, and become data frames of pandas."""

from __future__ import annotations

import html
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from matchlight.console import BadInput, visible

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 110  # letters of a printed line


class Shown:
    """A result that `print` shows as text and tables, and a notebook too."""

    def parts(self) -> Sequence[str | Table]:
        """Lines and tables, in the order in which they are printed."""
        raise NotImplementedError

    def __str__(self) -> str:
        file = io.StringIO()
        console = Console(file=file, width=WIDTH, highlight=False, color_system=None, force_jupyter=False)
        for part in self.parts():
            console.print(Text(visible(part)) if isinstance(part, str) else part)
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines())

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Columns of short texts and numbers; what a terminal would obey in a stranger's caption is shown, not sent."""
    shown = Table()
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(visible(f"{cell:.3g}" if isinstance(cell, float) else str(cell))) for cell in row))
    return shown


def data_frame(records: Sequence[Mapping[str, object]], index: str | None = None) -> pd.DataFrame:
    """The records as a data frame, one of its columns as the index."""
    try:
        import pandas as pd
    except ImportError:
        raise BadInput("pandas is not installed: pip install 'matchlight[pandas]'") from None
    frame = pd.DataFrame.from_records(list(records))
    return frame if index is None or frame.empty else frame.set_index(index)
