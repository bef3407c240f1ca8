"""Finished cells of other folders taken over: how machines that share no disk make one table."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from matchlight import files
from matchlight.comparing.cell_run import Settings
from matchlight.comparing.grid import agree, finished
from matchlight.comparing.variants import Cell
from matchlight.console import say
from matchlight.core import BadInput
from matchlight.pairs import Pairs

REPORT = "report.json"


def merge(folders: Sequence[Path], out: Path, cells: Sequence[Cell], pairs: Pairs, settings: Settings) -> int:
    """Copy each cell that is finished in one of these folders and not in `out`; how many there were."""
    for folder in folders:
        if not (folder / "settings.json").is_file():
            raise BadInput(f"--merge {folder}: holds no comparison")
        agree(folder, pairs, settings)  # other data or another kind of noise is refused
    agree(out, pairs, settings)
    count = sum(_taken(folder, out, cell) for folder in folders for cell in dict.fromkeys(c.trained for c in cells))
    say(f"{count} finished entries taken over")
    return count


def _taken(folder: Path, out: Path, cell: Cell) -> bool:
    """Copy a cell, its report last: what has one is whole."""
    source, place = folder / "cells" / cell.folder, out / "cells" / cell.folder
    if finished(place, cell) is not None or finished(source, cell) is None:
        return False
    with files.try_lock(place) as mine:
        if not mine:
            return False
        shutil.rmtree(place / "run", ignore_errors=True)  # what was begun here
        shutil.copytree(source, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns(REPORT, files.LOCK))
        shutil.copyfile(source / REPORT, place / f".{REPORT}")
        (place / f".{REPORT}").replace(place / REPORT)
    return True
