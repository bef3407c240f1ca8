"""A small real index and an audit of its data, made once a test session, and servers on it."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from PIL import Image, ImageDraw

from matchlight.pairs import Pairs

T = TypeVar("T")
COLOURS = {"red": (200, 40, 40), "green": (40, 150, 60), "blue": (50, 80, 200), "yellow": (230, 200, 40)}
SHAPES = ("ball", "box", "roof", "bar", "ring", "cross")
WRONG = 6  # rows of the audit that are suspect
START = "import sys; from matchlight.cli import main; sys.exit(main())"


def build(folder: Path) -> tuple[Path, Path]:
    """(index, data): coloured shapes with two captions each, a run of an epoch, an index."""
    from matchlight.indexing import Index
    from matchlight.runs.train_run import train

    data = drawn(folder / "shapes")
    pairs = Pairs.read(data)
    run = train("vse_infty", pairs, folder / "run", epochs=1, batch=16, dim=16, hidden=16, word_dim=16)
    Index.build(run, pairs, folder / "index", target=0.9).close()
    return folder / "index", data


def drawn(folder: Path) -> Path:
    """Twenty-four pictures, a coloured shape each."""
    (folder / "images").mkdir(parents=True)
    lines = []
    for number, (colour, shape) in enumerate((colour, shape) for colour in COLOURS for shape in SHAPES):
        _shape(shape, COLOURS[colour]).save(folder / "images" / f"{colour}_{shape}.png")
        captions = [f"a {colour} {shape} on white", f"the {shape} is {colour}"]
        split = ("train", "train", "train", "train", "val", "test")[number % 6]
        lines.append({"image": f"{colour}_{shape}.png", "captions": captions, "split": split, "labels": [shape]})
    (folder / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def _shape(shape: str, colour: tuple[int, int, int]) -> Image.Image:
    image = Image.new("RGB", (96, 72), "white")
    pen, box = ImageDraw.Draw(image), (24, 12, 72, 60)
    if shape == "ball":
        pen.ellipse(box, fill=colour)
    elif shape == "box":
        pen.rectangle(box, fill=colour)
    elif shape == "roof":
        pen.polygon([(24, 60), (48, 12), (72, 60)], fill=colour)
    elif shape == "bar":
        pen.rectangle((8, 30, 88, 42), fill=colour)
    elif shape == "ring":
        pen.ellipse(box, outline=colour, width=8)
    else:
        pen.line([(24, 12), (72, 60)], fill=colour, width=10)
        pen.line([(24, 60), (72, 12)], fill=colour, width=10)
    return image


def audit_of(data: Path, folder: Path) -> Path:
    """An audit's files about it: every eighth row is called wrong, with a better partner each."""
    from matchlight.data.findings import COLUMNS, MORE_COLUMNS
    from matchlight.data.fingerprints import fingerprint

    pairs = Pairs.read(data)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "pairs.csv", "w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow([*COLUMNS, *MORE_COLUMNS])
        for row in range(len(pairs)):
            own, bad = int(pairs.picture[row]), row % 8 == 4 and row < 8 * WRONG
            other = (own + 7) % len(pairs.names)
            better = [pairs.names[other], 0.8, 2 * other, pairs.captions[2 * other], 0.7, 2 * other]
            more = better if bad else [""] * len(better)
            score, reason = (0.001 * row, "mismatched") if bad else (0.9, "")
            line = [row, pairs.names[own], pairs.captions[row], score, int(bad), reason]
            out.writerow([*line, str(pairs.splits[own]), *more])
    summary = {"pairs": len(pairs), "flagged": WRONG, "estimated_noise": 0.02, "seconds": 1.0}
    about = {"path": str(data), "fingerprint": fingerprint(pairs)}
    (folder / "summary.json").write_text(json.dumps({**summary, "data": about}))
    return folder


def picture(
    kind: str = "PNG", size: tuple[int, int] = (64, 48), colour: tuple[int, int, int] = (200, 120, 40)
) -> bytes:
    """A picture file of one colour."""
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, kind)
    return file.getvalue()


def in_own_loop(job: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives, run in a thread of its own: Playwright leaves a loop running in the tests' thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, job).result()


def request(address: str, data: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    """Status and body of a request; a refusal is no exception."""
    asked = urllib.request.Request(address, data, {name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read()


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`matchlight serve` as a process on a free port, and the address it printed."""
    command = [sys.executable, "-c", START, "serve", *arguments, "--port", "0"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://"), process.stderr.read() if process.stderr else ""
        _wait(address.split("?")[0] + "api/health")
        yield process, address
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)


def _wait(address: str) -> None:
    for _ in range(200):
        try:
            request(address)
            return
        except urllib.error.URLError:
            time.sleep(0.05)
    raise AssertionError(f"{address} does not answer")
