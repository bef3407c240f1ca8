"""Drawing a whole data set into a folder: pictures by a pool of workers, then scenes, relevance and, last, captions.

Picture k depends on (seed, k) alone: not on how many pictures are drawn, nor on how many workers draw them. The file
`captions.jsonl`, by which every reader knows a data set, is written last, so a draw cut short never looks whole.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from random import Random

from matchlight import files
from matchlight.console import BadInput, track
from matchlight.data.scenes.compose import compose
from matchlight.data.scenes.exact_relevance import matrix
from matchlight.data.scenes.grammar import captions as caption
from matchlight.data.scenes.graph import Scene, relations
from matchlight.data.scenes.render import encode, render
from matchlight.data.scenes.sprites import require

CHUNK = 16  # pictures a worker takes at a time
UNFINISHED = "UNFINISHED"  # a file that stands in the folder while it is being drawn
LICENCE = """Picture-book scenes, drawn by matchlight
pictures {pictures}, captions {captions} each, seed {seed}, size {width}x{height}

The pictures are made of OpenMoji sprites (https://openmoji.org), changed: painted, scaled, tilted and composed.
All emojis designed by OpenMoji, the open-source emoji and icon project. Licence: CC BY-SA 4.0.
The pictures are therefore under CC BY-SA 4.0 too: https://creativecommons.org/licenses/by-sa/4.0/
Whoever passes them on names OpenMoji and keeps this licence.

captions.jsonl   one picture a line: image, captions, split, labels
scenes.jsonl     one picture a line: boxes in pixels, groups, relations, and what each caption means
relevance.npz    sparse captions x pictures: 1 where a caption fits a picture (scipy.sparse.load_npz)
"""


def draw(
    out: Path,
    *,
    pictures: int = 2000,
    captions: int = 5,
    seed: int = 0,
    size: tuple[int, int] = (192, 144),
    workers: int | None = None,
) -> None:
    """Draw a data set of picture-book scenes with exact relevance into an empty or new folder."""
    out = Path(out)
    _check(pictures, captions, seed, size)
    require()
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out}: is a file; scenes are drawn into a new or empty folder")
    licence = LICENCE.format(pictures=pictures, captions=captions, seed=seed, width=size[0], height=size[1])
    with files.locked(out, "drawing there"):
        try:
            _claim(out)
            work = partial(one, out, captions, seed, size)
            scenes = list(track(_spread(work, pictures, workers or os.cpu_count() or 1), "drawing scenes", pictures))
            _write(out, scenes, seed, licence)
        except OSError as error:
            why = files.FULL if files.is_full(error) else error.strerror or error
            raise BadInput(f"{out}: writing failed ({why}); the folder holds no whole data set") from None


def one(out: Path, captions: int, seed: int, size: tuple[int, int], index: int) -> Scene:
    """Draw picture `index`, write its file, and say what is on it."""
    name = f"images/{index:06d}.webp"
    layout = compose(Random(f"{seed}/{index}/layout"), size)
    picture = render(layout, Random(f"{seed}/{index}/backdrop"), size)
    (out / name).write_bytes(encode(picture))
    links = relations(layout.groups, size)
    scene: Scene = {
        "image": name,
        "size": size,
        "place": layout.place.name,
        "time": layout.time,
        "groups": layout.groups,
        "relations": links,
        "captions": [],
    }
    scene["captions"] = caption(scene, captions, Random(f"{seed}/{index}/captions"))
    return scene


def splits(count: int, seed: int) -> list[str]:
    """A split for each picture: a tenth val, a tenth test, the rest train."""
    order = Random(f"{seed}/splits").sample(range(count), count)
    tenth = round(count / 10)
    names = ["train"] * count
    for place, picture in enumerate(order[: 2 * tenth]):
        names[picture] = "val" if place < tenth else "test"
    return names


def _spread(work: Callable[[int], Scene], count: int, workers: int) -> Iterator[Scene]:
    """The scenes in order, drawn here or by a pool where that pays."""
    workers = min(workers, -(-count // CHUNK))
    if workers < 2:
        yield from map(work, range(count))
        return
    # A fork shares what is loaded and needs no guard around a script's main part; elsewhere than Linux it is not safe.
    way = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    with ProcessPoolExecutor(workers, way, initializer=_leave_interrupts_to_parent) as pool:
        try:
            yield from pool.map(work, range(count), chunksize=CHUNK)
        except BrokenProcessPool:
            raise BadInput("a process that drew scenes was ended from outside, or memory ran out; draw again") from None


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _check(pictures: int, captions: int, seed: int, size: tuple[int, int]) -> None:
    if pictures < 1:
        raise BadInput(f"pictures={pictures}: a data set needs at least 1 picture")
    if pictures > 100_000:
        raise BadInput(f"pictures={pictures}: at most 100000 can be drawn")
    if not 1 <= captions <= 20:
        raise BadInput(f"captions={captions}: between 1 and 20 captions a picture can be made")
    if seed < 0:
        raise BadInput(f"seed={seed}: a seed is 0 or more")
    if len(size) != 2 or not all(32 <= side <= 1024 for side in size):
        raise BadInput(f"size={'x'.join(map(str, size))}: width and height must each be between 32 and 1024 pixels")


def _claim(out: Path) -> None:
    """Mark the folder, which we hold, as being drawn; what a draw left that was cut short is drawn again."""
    if (out / UNFINISHED).exists():
        for path in (out / "README.txt", out / "scenes.jsonl", out / "relevance.npz", *(out / "images").glob("*.webp")):
            path.unlink(missing_ok=True)
        if (out / "images").is_dir():
            (out / "images").rmdir()
        (out / UNFINISHED).unlink()
    if not files.is_free(out):
        raise BadInput(f"{out}: is not empty; scenes are drawn into a new or empty folder")
    (out / UNFINISHED).touch()
    (out / "images").mkdir()


def _write(out: Path, scenes: Sequence[Scene], seed: int, licence: str) -> None:
    """Everything but the pictures; captions.jsonl last."""
    from scipy.sparse import save_npz

    fit = matrix([caption["meaning"] for scene in scenes for caption in scene["captions"]], scenes)
    files.write_text(out / "README.txt", licence)
    _write_lines(out / "scenes.jsonl", scenes)
    with files.replaced(out / "relevance.npz") as draft:
        save_npz(draft, fit)
    rows = [_row(scene, split) for scene, split in zip(scenes, splits(len(scenes), seed), strict=True)]
    (out / UNFINISHED).unlink()
    _write_lines(out / "captions.jsonl", rows)


def _row(scene: Scene, split: str) -> dict[str, object]:
    texts = [caption["text"] for caption in scene["captions"]]
    labels = [group["object"] for group in scene["groups"]]
    return {"image": scene["image"], "captions": texts, "split": split, "labels": labels}


def _write_lines(path: Path, records: Sequence[object]) -> None:
    with files.replaced(path) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
