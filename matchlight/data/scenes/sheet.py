"""A contact sheet: some scenes with their first captions, to see at a glance what a data set looks like."""

from __future__ import annotations

import json
import textwrap
from itertools import islice
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from matchlight import files
from matchlight.console import BadInput

COLUMNS, GAP, LINES, LINE = 6, 10, 4, 13


def contact_sheet(folder: Path, path: Path, count: int = 24) -> None:
    """Write a sheet of the first `count` scenes of a drawn folder, captions below the pictures."""
    rows = _rows(Path(folder), count)
    pictures = [Image.open(Path(folder) / row["image"]).convert("RGB") for row in rows]
    width, height = max(p.width for p in pictures), max(p.height for p in pictures)
    columns = min(COLUMNS, len(rows))
    step_x, step_y = width + GAP, height + LINES * LINE + GAP
    sheet = Image.new("RGB", (columns * step_x + GAP, -(-len(rows) // columns) * step_y + GAP), "#fffdf8")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    for k, (row, picture) in enumerate(zip(rows, pictures, strict=True)):
        x, y = GAP + k % columns * step_x, GAP + k // columns * step_y
        sheet.paste(picture, (x, y))
        text = textwrap.wrap(row["captions"][0], max(10, int(width / 5.6)), max_lines=LINES, placeholder=" ...")
        for line, words in enumerate(text):
            pen.text((x + 1, y + height + 2 + line * LINE), words, fill="#33313b", font=font)
    _save(sheet, Path(path))


def _save(sheet: Image.Image, path: Path) -> None:
    """A PNG gets a palette, a third of the size; what is already there is replaced only by a whole file."""
    try:
        with files.replaced(path) as draft:
            (sheet.quantize(256) if path.suffix == ".png" else sheet).save(draft, optimize=True)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot write the sheet there ({error}); name a .png, .jpg or .webp file") from None


def _rows(folder: Path, count: int) -> list[dict[str, Any]]:
    file = folder / "captions.jsonl"
    if not file.is_file():
        raise BadInput(f"{file}: not there; draw the scenes first")
    if count < 1:
        raise BadInput(f"count={count}: a sheet shows at least 1 scene")
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in islice(lines, count)]
