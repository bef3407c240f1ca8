"""How fast are sets scored and ranked: all pictures against all captions, four unit vectors each?

    python benchmarks/sets_gpu.py [--sizes 1000x5000,5000x25000] [--dim 1024] [--slots 4] [--device auto] [-o FILE.json]

For each size: the plain loop (caption by caption, timed on a sample of captions and scaled), scores brought to the
host and ranked there, and evaluation's own way, scores and ranks on the device, in fp32, TF32, fp16 and bf16, with the
ratio to the loop, the largest difference from float64 on a corner, and the parts: product, reduction, ranks. Times are
medians of 7 runs after two to warm up; "total" includes ranks both ways. `--compile` adds the reduction compiled.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from matchlight.core import Embedding, Matcher
from matchlight.measuring.metrics import Relevance, ranks
from matchlight.parts.set_similarities import SmoothChamfer, cosines
from matchlight.scoring.all_pairs import held_scores, score_all
from matchlight.scoring.kernels.products import matrix_units

RUNS, WARM, SAMPLE, CORNER = 7, 2, 200, 100
FOUND: list[dict[str, Any]] = []


def timed(work: Callable[[], Any], device: torch.device, runs: int = RUNS) -> float:
    """Median seconds by the clock, the device waited for."""
    times = []
    for run in range(runs + WARM):
        _wait(device)
        began = time.perf_counter()
        work()
        _wait(device)
        if run >= WARM:
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def note(what: str, seconds: float, naive: float | None = None, **more: Any) -> None:
    """One line now, one object in the JSON."""
    FOUND.append({"what": what, "seconds": seconds, "ratio": naive and naive / seconds, **more})
    ratio = "" if naive is None else f"  {naive / seconds:9.1f} x"
    shown = "  ".join(
        f"{key} {value:.2g}" if isinstance(value, float) else f"{key} {value}" for key, value in more.items()
    )
    print(f"{what:44}{1000 * seconds:11.3f} ms{ratio}  {shown}", flush=True)


def random_sets(count: int, slots: int, dim: int, device: torch.device, seed: int) -> torch.Tensor:
    """(count, slots, dim) unit vectors."""
    draw = torch.Generator(device=device).manual_seed(seed)
    return F.normalize(torch.randn(count, slots, dim, generator=draw, device=device), dim=-1)


def loop(images: torch.Tensor, texts: torch.Tensor, *, alpha: float = 16.0) -> torch.Tensor:
    """(I, T), a Python loop over captions, each met with all pictures."""
    columns = []
    for text in texts:
        near = (alpha * (images @ text.T)).exp()
        columns.append((near.sum(2).log().mean(1) + near.sum(1).log().mean(1)) / (2 * alpha))
    return torch.stack(columns, 1)


class Case:
    """One size: sets on the device, whose captions they are, and exact scores of a corner."""

    def __init__(self, pictures: int, captions: int, asked: argparse.Namespace, device: torch.device):
        self.device, self.label = device, f"{pictures}x{captions}"
        self.images = Embedding(random_sets(pictures, asked.slots, asked.dim, device, 0))
        self.texts = Embedding(random_sets(captions, asked.slots, asked.dim, device, 1))
        self.relevance = Relevance.of_owner(np.arange(captions) * pictures // captions, pictures=pictures)
        self.matcher = Matcher({}, SmoothChamfer())
        self.right = loop(self.images.vectors[:CORNER].double(), self.texts.vectors[:CORNER].double())
        self.naive = self._naive()

    def _naive(self) -> float:
        some = self.texts.vectors[:SAMPLE]
        seconds = timed(lambda: loop(self.images.vectors, some), self.device, runs=3) * len(self.texts) / len(some)
        note(f"{self.label} caption by caption, no ranks", seconds)
        return seconds

    def apart(self, scores: torch.Tensor) -> float:
        return float((scores[:CORNER, :CORNER].double() - self.right.to(scores.device)).abs().max())

    def host(self) -> None:
        """Scores to the host in blocks, ranks counted there."""

        def work() -> None:
            scores = score_all(self.matcher, self.images, self.texts, device=self.device)
            ranks(scores, self.relevance)
            ranks(scores.T, self.relevance.T)

        only = timed(lambda: score_all(self.matcher, self.images, self.texts, device=self.device), self.device, runs=3)
        note(f"{self.label} score_all", only, self.naive)
        note(f"{self.label} score_all + ranks on the host", timed(work, self.device, runs=1), self.naive)

    def on_device(self, precision: str) -> None:
        """Scores and ranks without leaving the device."""
        similarity: Any = self.matcher.similarity
        similarity.precision = precision
        with torch.inference_mode():
            scores = held_scores(self.matcher, self.images, self.texts)
            score = timed(lambda: held_scores(self.matcher, self.images, self.texts), self.device)
            rank = timed(lambda: self._ranks(scores), self.device)
            total = timed(lambda: self._both(), self.device)
        parts = {"score_ms": 1000 * score, "ranks_ms": 1000 * rank, "difference": self.apart(scores)}
        note(f"{self.label} on the device, {precision}, total", total, self.naive, **parts)
        similarity.precision = None

    def _both(self) -> None:
        self._ranks(held_scores(self.matcher, self.images, self.texts))

    def _ranks(self, scores: torch.Tensor) -> None:
        ranks(scores, self.relevance)
        ranks(scores.T, self.relevance.T)

    def parts(self, compiled: bool) -> None:
        """The product and the reduction behind it, apart, on as many pictures as a block holds."""
        images = self.images.vectors[: max(1, 5_000_000 // len(self.texts))]
        similarity: Any = self.matcher.similarity
        with torch.inference_mode():
            for precision in ("fp32", "tf32", "fp16", "bf16"):
                make = lambda p=precision: cosines(images, self.texts.vectors, scale=16.0, precision=p)  # noqa: E731
                work = 2 * images.shape[0] * len(self.texts) * images.shape[1] ** 2 * images.shape[2]
                seconds = timed(make, self.device)
                note(
                    f"{self.label} product, {len(images)} pictures, {precision}", seconds, TFLOPs=work / seconds / 1e12
                )
            seen = cosines(images, self.texts.vectors)
            bytes_read = 4 * seen.numel()
            ways = {"reduction": similarity.reduce}
            if compiled:
                ways["reduction compiled"] = torch.compile(similarity.reduce)
            for name, reduce in ways.items():
                seconds = timed(lambda r=reduce: r(seen.zero_()), self.device)
                note(f"{self.label} {name}", seconds, TBs=bytes_read / seconds / 1e12)


def training(asked: argparse.Namespace, device: torch.device) -> None:
    """Scores of a training batch of 200 pictures with five captions each, there and back."""
    images = random_sets(200, asked.slots, asked.dim, device, 0).requires_grad_()
    texts = random_sets(1000, asked.slots, asked.dim, device, 1).requires_grad_()
    similarity = SmoothChamfer()

    def step(score: Callable[[], torch.Tensor]) -> None:
        score().sum().backward()

    with matrix_units(tf32=True):
        quick = timed(lambda: step(lambda: similarity(Embedding(images), Embedding(texts))), device)
    slow = timed(lambda: step(lambda: loop(images, texts)), device, runs=1)
    note("200x1000 caption by caption, with gradients", slow)
    note("200x1000 at once, with gradients", quick, slow)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--sizes", default="1000x5000,5000x25000")
    ask.add_argument("--dim", type=int, default=1024)
    ask.add_argument("--slots", type=int, default=4)
    ask.add_argument("--device", default="auto")
    ask.add_argument("--compile", action="store_true")
    ask.add_argument("-o", "--out", type=Path)
    asked = ask.parse_args()
    name = ("cuda" if torch.cuda.is_available() else "cpu") if asked.device == "auto" else asked.device
    device = torch.device(name)
    print(torch.__version__, torch.cuda.get_device_name() if device.type == "cuda" else "cpu", flush=True)
    for size in asked.sizes.split(","):
        pictures, captions = map(int, size.split("x"))
        case = Case(pictures, captions, asked, device)
        for precision in ("fp32", "tf32", "fp16", "bf16"):
            case.on_device(precision)
        case.host()
        case.parts(asked.compile)
        del case
        if device.type == "cuda":
            torch.cuda.empty_cache()
    training(asked, device)
    if asked.out:
        asked.out.write_text(json.dumps(FOUND, indent=1))


if __name__ == "__main__":
    main()
