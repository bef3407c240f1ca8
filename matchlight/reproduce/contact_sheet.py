"""Small pictures of exhibits, and a sheet that shows all of them with their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from matchlight import files

WIDE, COLOURS = 420, 128  # pixels of a thumbnail; its colours, so that it is small on the disk
ACROSS, CELL, EDGE, NAME = 4, (300, 210), 12, 20  # the sheet: columns, a cell's size, the room around, a name's height


def thumbnails(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """thumbnails/NAME.png of every exhibit in a folder."""
    made = {}
    for name in names:
        target = folder / "thumbnails" / f"{name}.png"
        with Image.open(folder / f"{name}.png") as figure, files.replaced(target) as draft:
            high = round(figure.height * WIDE / figure.width)
            small = figure.convert("RGB").resize((WIDE, high), Image.Resampling.LANCZOS)
            small.quantize(COLOURS).save(draft, format="PNG", optimize=True)
        made[name] = target
    return made


def contact_sheet(small: dict[str, Path], target: Path) -> None:
    """All thumbnails in rows, each above its name."""
    lines = max(1, -(-len(small) // ACROSS))
    wide, high = CELL[0] + EDGE, CELL[1] + NAME + EDGE
    sheet = Image.new("RGB", (EDGE + ACROSS * wide, EDGE + lines * high), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(14)
    for k, (name, path) in enumerate(small.items()):
        x, y = EDGE + k % ACROSS * wide, EDGE + k // ACROSS * high
        with Image.open(path) as picture:
            shown = picture.convert("RGB")
            shown.thumbnail(CELL, Image.Resampling.LANCZOS)
        sheet.paste(shown, (x + (CELL[0] - shown.width) // 2, y + (CELL[1] - shown.height) // 2))
        pen.text((x + CELL[0] / 2, y + CELL[1] + NAME / 2), name, fill="#333333", font=font, anchor="mm")
    with files.replaced(target) as draft:
        sheet.save(draft, format="PNG", optimize=True)
