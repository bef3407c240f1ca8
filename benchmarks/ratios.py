"""One table of ratios against the plain way: scoring, training, evaluation, search, the audit, features, start-up.

    python benchmarks/ratios.py [--device auto] [--only evaluation,audit] [--backbone NAME] [-o FILE.json]

`make bench` runs it. Each line is the same result reached the plain way and ours, one after the other in one process.
Times are of the processor, summed over threads, where both ways run on the CPU, since other work on the machine
stretches seconds; by the clock where a GPU works, and for scoring, training and search, whose own commands
(`matchlight bench`) measure so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from matchlight.comparing import speed
from matchlight.core import BadInput, Embedding, Matcher
from matchlight.measuring.metrics import Relevance, ranks
from matchlight.parts.canonical_correlation import Moments, fit_canonical_correlation
from matchlight.parts.set_similarities import SmoothChamfer
from matchlight.scoring.all_pairs import held_scores

METHODS = ("scan", "bfan", "sgr", "saf")
RUNS = 3
FOLDS = 10


@dataclass(frozen=True)
class Line:
    """One piece of work, the plain way and ours."""

    what: str
    plain: str
    plain_seconds: float
    seconds: float
    ratio: float
    by: str  # "processor" or "clock"


def line(what: str, plain: str, slow: float, quick: float, *, by: str = "processor") -> Line:
    return Line(what, plain, slow, quick, slow / quick, by)


def spent(work: Callable[[], object], device: torch.device, *, runs: int = RUNS) -> float:
    """The least seconds of a few runs after one to warm up: of the processor, or by the clock on a GPU."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    times = []
    for _ in range(runs + 1):
        began = clock()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(clock() - began)
    return min(times[1:])


def by_the(device: torch.device) -> str:
    return "clock" if device.type == "cuda" else "processor"


# ---- scoring, training, search ---------------------------------------------------------------------------------------


def scoring(device: torch.device) -> Iterator[Line]:
    """All pictures against all captions."""
    for name in METHODS:
        one = speed.score(name, device=device.type)
        yield line(
            f"score {name}, 200 x 1,000", "caption by caption", one["naive_seconds"], one["ours_seconds"], by="clock"
        )


def training(device: torch.device) -> Iterator[Line]:
    """One training step."""
    for name in METHODS:
        one = speed.train(name, device=device.type)
        yield line(f"train {name}, a step", "caption by caption", one["naive_seconds"], one["ours_seconds"], by="clock")


def searching(device: torch.device) -> Iterator[Line]:
    """A question to a collection of sets of four vectors."""
    from matchlight.indexing.search_speed import time_drawn_sets

    one = time_drawn_sets(10_000)
    slow, quick = (one[key]["p50"] / 1000 for key in ("exact_milliseconds", "milliseconds"))  # type: ignore[literal-required]
    yield line("search among 10,000", "everything is scored", slow, quick, by="clock")


# ---- evaluation ------------------------------------------------------------------------------------------------------


def unit_sets(count: int, slots: int, device: torch.device, seed: int) -> Embedding:
    draw = torch.Generator(device=device).manual_seed(seed)
    return Embedding(F.normalize(torch.randn(count, slots, 256, generator=draw, device=device), dim=-1))


def sorted_ranks(scores: np.ndarray, owner: np.ndarray) -> None:
    """Ranks both ways by sorting every list."""
    for row, scored in enumerate(scores):
        order = np.argsort(scored)[::-1]
        np.flatnonzero(owner[order] == row).min()
    for column, scored in enumerate(scores.T):
        int(np.flatnonzero(np.argsort(scored)[::-1] == owner[column])[0])


def evaluation(device: torch.device) -> Iterator[Line]:
    """Ranks both ways of 1,000 x 5,000 scores, alone and with the scores of sets of four vectors."""
    owner = np.arange(5000) // 5
    fits, matcher = Relevance.of_owner(owner, pictures=1000), Matcher({}, SmoothChamfer())
    images, texts = unit_sets(1000, 4, device, 0), unit_sets(5000, 4, device, 1)
    held = held_scores(matcher, images, texts)

    def both(scores: torch.Tensor) -> None:
        ranks(scores, fits)
        ranks(scores.T, fits.T)

    slow = spent(lambda: sorted_ranks(held.cpu().numpy(), owner), device, runs=1)
    yield line(
        "rank 1,000 x 5,000 both ways", "sort every list", slow, spent(lambda: both(held), device), by=by_the(device)
    )
    alone = spent(lambda: [matcher.score(images, texts.take(slice(k, k + 1))) for k in range(200)], device, runs=1)
    quick = spent(lambda: both(held_scores(matcher, images, texts)), device)
    yield line(
        "evaluate sets of 4, 1,000 x 5,000", "caption by caption, sort", 25 * alone + slow, quick, by=by_the(device)
    )


# ---- the audit -------------------------------------------------------------------------------------------------------


def auditing(device: torch.device) -> Iterator[Line]:
    """Ten fits of canonical correlation, each on nine tenths of 10,000 pairs."""
    rng = np.random.default_rng(0)
    picture, fold = np.arange(10_000) // 5, np.arange(10_000) // 5 % FOLDS
    images, texts = (torch.from_numpy(rng.normal(size=size)) for size in ((2000, 512), (10_000, 512)))
    weight = torch.ones(10_000, dtype=torch.float64)

    def plain() -> None:
        for k in range(FOLDS):
            rows = torch.from_numpy(np.flatnonzero(fold != k))
            fit_canonical_correlation(images[picture[rows]], texts[rows], weight[rows])

    def sums(k: int) -> Moments:
        rows = np.flatnonzero(fold == k)
        pictures, place = np.unique(picture[rows], return_inverse=True)
        return Moments.of(images[pictures], texts[rows], torch.from_numpy(place), weight[rows])

    def ours() -> None:
        parts = [sums(k) for k in range(FOLDS)]
        whole = parts[0]
        for part in parts[1:]:
            whole = whole + part
        for part in parts:
            (whole - part).fit()

    cpu = torch.device("cpu")
    yield line(
        "audit: ten fits on 10,000 pairs", "each from its pairs", spent(plain, cpu, runs=1), spent(ours, cpu, runs=1)
    )


# ---- features and start-up -------------------------------------------------------------------------------------------


def looking(names: list[str]) -> Iterator[Line]:
    """Pictures a network looks at on the CPU, by each runtime."""
    from features import PLAIN, rates, stand_ins

    for name in names:
        try:
            found = rates(name, stand_ins(48), runs=2)
        except BadInput as missing:
            print(f"{name}: {missing}", file=sys.stderr)
            continue
        base = next(one for one in found if one.runtime == PLAIN)
        for one in found:
            if one.runtime != PLAIN:
                what = f"{name} by {one.runtime}, a picture (likeness {one.likeness:.3f})"
                yield line(what, "torch, as published", base.cpu_ms / 1000, one.cpu_ms / 1000)


def started(code: str) -> float:
    """Processor seconds of a fresh interpreter, the least of three."""
    times = []
    for _ in range(3):
        before = os.times()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return min(times)


def starting() -> Iterator[Line]:
    """How soon the command line answers."""
    ours = started("from matchlight.cli import main; main(['--help'])")
    yield line(
        "matchlight --help", "with everything imported", started("import matchlight.serve, matchlight.reproduce"), ours
    )


# ---- all of it -------------------------------------------------------------------------------------------------------


def show(lines: list[Line]) -> None:
    """The table."""
    print(f"{'':52}{'plain way':26}{'plain':>10}{'ours':>10}{'ratio':>8}  by")
    for one in lines:
        times = f"{_in_words(one.plain_seconds):>10}{_in_words(one.seconds):>10}{one.ratio:8.1f}"
        print(f"{one.what:52}{one.plain:26}{times}  {one.by}")


def _in_words(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def main() -> None:
    """Measure, print the table, write JSON."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--device", default="auto")
    ask.add_argument("--backbone", action="append", help="further networks, such as dinov2-small or hf:FOLDER")
    ask.add_argument("--only", default="")
    ask.add_argument("-o", "--out", type=Path)
    asked = ask.parse_args()
    device = speed.pick(asked.device)
    groups: dict[str, Callable[[], Iterator[Line]]] = {
        "start": starting,
        "scoring": lambda: scoring(device),
        "training": lambda: training(device),
        "evaluation": lambda: evaluation(device),
        "search": lambda: searching(device),
        "audit": lambda: auditing(device),
        "features": lambda: looking(["lite0", *(asked.backbone or [])]),
    }
    wanted = asked.only.split(",") if asked.only else list(groups)
    if unknown := set(wanted) - set(groups):
        ask.error(f"--only {', '.join(sorted(unknown))}: known are {', '.join(groups)}")
    lines = [one for name in wanted for one in groups[name]()]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"torch {torch.__version__}, {name}, load {os.getloadavg()[0]:.1f}")
    show(lines)
    if asked.out:
        asked.out.write_text(json.dumps({"device": name, "lines": [asdict(one) for one in lines]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
