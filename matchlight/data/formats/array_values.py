"""What the readers of arrays share: labels of any shape as multi-hot rows, boxes as parts of the picture, strings.

Labels come as a column of class numbers (any smallest value; below 0 = unlabelled) or as multi-hot rows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from matchlight.console import BadInput

MAX_CLASSES = 100_000


def one_per_item(values: np.ndarray) -> np.ndarray:
    """(N, 1) and (1, N) columns of numbers as (N,); multi-hot (N, K) as it is."""
    return values.reshape(-1) if values.ndim == 2 and 1 in values.shape and values.dtype != bool else values


def multi_hot(
    sides: list[np.ndarray], where: str, names: list[str] | None = None
) -> tuple[list[str], list[np.ndarray]]:
    """Class names and one boolean (n, K) a side, with the same classes for all sides."""
    sides = [one_per_item(np.asarray(side)) for side in sides]
    if len({side.ndim for side in sides}) > 1 or sides[0].ndim not in (1, 2):
        raise BadInput(f"{where}: labels must all be class numbers (n,) or all multi-hot rows (n, classes)")
    if sides[0].ndim == 2:
        return _wide(sides, where, names)
    if any(side.dtype.kind == "f" and not (side == np.round(side)).all() for side in sides):
        raise BadInput(f"{where}: labels must be whole numbers")
    classes = np.unique(np.concatenate(sides).astype(np.int64))
    classes = classes[classes >= 0]
    if names is not None and len(classes) and classes[-1] <= len(names):  # numbers count from 1 unless there is a 0
        first = 0 if classes[0] == 0 else 1
        classes = np.arange(first, first + len(names))
    if not 0 < len(classes) <= MAX_CLASSES:
        raise BadInput(f"{where}: {len(classes)} classes; labels must be between 1 and {MAX_CLASSES} class numbers")
    spelled = names if names is not None and len(names) == len(classes) else [str(value) for value in classes]
    return spelled, [side.astype(np.int64)[:, None] == classes for side in sides]


def _wide(sides: list[np.ndarray], where: str, names: list[str] | None) -> tuple[list[str], list[np.ndarray]]:
    widths = {side.shape[1] for side in sides}
    if len(widths) > 1:
        raise BadInput(f"{where}: label rows of different lengths ({', '.join(map(str, sorted(widths)))})")
    width = widths.pop()
    spelled = names if names is not None and len(names) == width else [str(place) for place in range(width)]
    return spelled, [side > 0 for side in sides]


def parts_of_picture(boxes: np.ndarray, extent: np.ndarray | None) -> np.ndarray:
    """(N, R, 5): corners and area as parts of width and height, from pixel corners and (width, height) rows."""
    if extent is None or boxes.shape[2] != 4:
        return np.asarray(boxes, dtype=np.float32)
    width, height = (extent[:, None, side].astype(np.float64) for side in (0, 1))
    x1, y1, x2, y2 = (boxes[:, :, corner] for corner in range(4))
    area = (x2 - x1) * (y2 - y1) / (width * height)
    return np.stack([x1 / width, y1 / height, x2 / width, y2 / height, area], axis=2).astype(np.float32)


def text_lines(path: Path) -> list[str]:
    """Lines of a UTF-8 file, split at newlines only and stripped; a last empty line is none."""
    lines = path.read_bytes().split(b"\n")
    if lines and not lines[-1].strip():
        lines.pop()
    out = []
    for number, line in enumerate(lines, 1):
        try:
            out.append(line.decode("utf-8-sig" if number == 1 else "utf-8").strip())
        except UnicodeDecodeError as error:
            raise BadInput(f"{path} line {number}: not UTF-8 text") from error
    return out


def pack(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Strings as one block of UTF-8 and where each begins: plain numbers, unlike arrays of objects."""
    blocks = [text.encode("utf-8", "replace") for text in texts]
    return np.frombuffer(b"".join(blocks), dtype=np.uint8), np.cumsum([0] + [len(block) for block in blocks])


def unpack(block: np.ndarray, starts: np.ndarray, where: str) -> list[str]:
    """The strings again."""
    starts = np.asarray(starts)
    if starts.ndim != 1 or not len(starts) or starts[0] != 0 or starts[-1] != block.size or (np.diff(starts) < 0).any():
        raise BadInput(f"{where}: damaged; the places of its texts do not fit")
    whole = np.asarray(block, dtype=np.uint8).tobytes()
    try:
        return [whole[a:b].decode("utf-8") for a, b in zip(starts[:-1], starts[1:], strict=True)]
    except UnicodeDecodeError as error:
        raise BadInput(f"{where}: damaged; its texts are not UTF-8") from error
