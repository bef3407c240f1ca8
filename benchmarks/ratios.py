"""One table of ratios against the plain way: scoring, training, evaluation, search, the audit, features, start-up.

    python benchmarks/ratios.py [--device auto] [--only evaluation,audit] [--backbone NAME] [-o FILE.json]
    python benchmarks/ratios.py --page CPU.json GPU.json    # writes a table of each into docs/results/speed.md

`make bench` runs it. Each line is the same result reached the plain way and ours, one after the other in one process.
Times are of the processor, summed over threads, where both ways run on the CPU, since other work on the machine
stretches seconds; by the clock where a GPU works, and for scoring, training and search, whose own commands
(`matchlight bench`) measure so.

The limit is the ratio that would be left if only what cannot be saved were done: matrix products at the rate measured
here, one pass over the scores, the fits themselves, an interpreter that does nothing. What needs a GPU is skipped with
a line that says so. FILE.json is written after each group, and groups that were not asked for stay in it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from matchlight.comparing import speed
from matchlight.comparing.caption_loop import CaptionLoop
from matchlight.core import BadInput, Embedding, Matcher
from matchlight.measuring.metrics import Relevance, ranks
from matchlight.measuring.referee import report_of
from matchlight.pairs import Pairs
from matchlight.parts.canonical_correlation import Moments, fit_canonical_correlation
from matchlight.parts.set_similarities import SmoothChamfer
from matchlight.runs.evaluation import Scoring, scored_sides
from matchlight.scoring.all_pairs import held_scores

METHODS = ("scan", "bfan", "sgr", "saf")
RUNS = 3
FOLDS = 10
EVERYTHING = "import matchlight.serve, matchlight.reproduce"
PAGE = Path(__file__).parent.parent / "docs" / "results" / "speed.md"
BEGIN, END = "<!-- made by benchmarks/ratios.py --page -->", "<!-- end of what it made -->"


@dataclass(frozen=True)
class Line:
    """One piece of work, the plain way and ours."""

    what: str
    plain: str
    plain_seconds: float
    seconds: float
    ratio: float
    by: str  # "processor" or "clock"
    limit: float | None = None  # the ratio that could not be passed, where it is known


@dataclass(frozen=True)
class Skipped:
    """What was not measured."""

    what: str
    why: str


def line(
    what: str, plain: str, slow: float, quick: float, *, by: str = "processor", least: float | None = None
) -> Line:
    """`least` is what cannot be saved, in seconds."""
    return Line(what, plain, slow, quick, slow / quick, by, None if least is None else slow / least)


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


def product_seconds(operations: float, device: torch.device) -> float:
    """Seconds that so many operations take at the rate of a matrix product in float32 that fits the cache."""
    one, other = (torch.randn(1024, 1024, device=device) for _ in range(2))
    return operations / (20 * 2 * 1024**3 / spent(lambda: [one @ other for _ in range(20)], device))


# ---- scoring, training, search ---------------------------------------------------------------------------------------


def scoring(device: torch.device) -> Iterator[Line]:
    """All pictures against all captions; SCAN's and BFAN's limit is the product of all words with all regions."""
    words = float(speed.caption_lengths(1000).sum())
    least = product_seconds(2 * 200 * speed.REGIONS * words * 256, device) / torch.get_num_threads()
    for name in METHODS:
        one = speed.score(name, device=device.type)
        what, slow, quick = f"score {name}, 200 x 1,000", one["naive_seconds"], one["ours_seconds"]
        bound = least if name in ("scan", "bfan") else None
        yield line(what, "caption by caption", slow, quick, by="clock", least=bound)


def training(device: torch.device) -> Iterator[Line]:
    """One training step."""
    for name in METHODS:
        one = speed.train(name, device=device.type)
        yield line(f"train {name}, a step", "caption by caption", one["naive_seconds"], one["ours_seconds"], by="clock")


def kernels(gpu: torch.device | None) -> Iterator[Line | Skipped]:
    """`evaluate` on a GPU at the papers' size, products in TF32 or fp16: scores, ranks, recalls both ways."""
    sets = "evaluate sets of 4, 5,000 x 25,000 at 1,024"
    named = {name: f"evaluate {name}, 1,000 x 5,000 at 1,024" for name in METHODS}
    if gpu is None:
        yield from (Skipped(what, "there is no GPU here") for what in (*named.values(), sets))
        return
    for name, what in named.items():
        yield evaluated(name, what, gpu)
    yield evaluated_sets(sets, gpu)


@torch.inference_mode()
def evaluated(name: str, what: str, device: torch.device, *, pictures: int = 1000, dim: int = 1024) -> Line:
    """One method of regions and words; SCAN's and BFAN's limit is the product of all words with all regions."""
    torch.manual_seed(0)
    matcher, captions = speed.built(name, dim).matcher().to(device).eval(), 5 * pictures
    images, texts = speed.sides(pictures, captions, dim, device)
    few = texts.take(torch.linspace(0, captions - 1, speed.SAMPLE).long())
    loop = CaptionLoop(matcher.similarity, name).eval()
    alone = spent(lambda: loop(images, few), device) * captions / len(few)
    slow, quick = both_ways(matcher, images, texts, alone)
    operations = 2 * pictures * speed.REGIONS * float(speed.caption_lengths(captions).sum()) * dim
    least = operations / half_rate(device) if name in ("scan", "bfan") else None
    return line(what, "caption by caption, sort", slow, quick, by="clock", least=least)


@torch.inference_mode()
def evaluated_sets(what: str, device: torch.device, *, pictures: int = 5000, dim: int = 1024) -> Line:
    """DivE's sets; the limit is the product of all vectors with all vectors in TF32, at half the rate of fp16."""
    matcher, captions = Matcher({}, SmoothChamfer()), 5 * pictures
    images, texts = (
        Embedding(speed.unit_vectors(count, 4, dim, device=device, seed=count)) for count in (pictures, captions)
    )
    alone = spent(lambda: [matcher.score(images, texts.take(slice(k, k + 1))) for k in range(100)], device, runs=1)
    slow, quick = both_ways(matcher, images, texts, alone * captions / 100)
    least = 2 * 2 * (4 * pictures) * (4 * captions) * dim / half_rate(device)
    return line(what, "caption by caption, sort", slow, quick, by="clock", least=least)


def both_ways(matcher: Matcher, images: Embedding, texts: Embedding, alone: float) -> tuple[float, float]:
    """Seconds of the plain way, its scores taking `alone`, and of `evaluate` once both sides are encoded."""
    owner = np.arange(len(texts)) // 5
    pairs = Pairs([str(k) for k in range(len(images))], [""] * len(owner), owner, np.full(len(images), "test"))
    how = Scoring(precision="tf32")

    def ours() -> None:
        report_of(scored_sides(matcher, images, texts, how), pairs.subset("test"), protocol="recall")

    quick = spent(ours, images.vectors.device)
    found = scored_sides(matcher, images, texts, how, spread=False).matrix
    assert isinstance(found, torch.Tensor)
    some = found[:200].cpu().numpy(), found[:, :200].cpu().numpy()
    cpu = torch.device("cpu")
    rows = spent(lambda: [np.argsort(one)[::-1] for one in some[0]], cpu, runs=1) * len(images) / 200
    columns = spent(lambda: [np.argsort(one)[::-1] for one in some[1].T], cpu, runs=1) * len(texts) / 200
    return alone + rows + columns, quick


def half_rate(device: torch.device) -> float:
    """Operations a second of a large product in half precision; on a CPU, of a small one in float32."""
    if device.type == "cpu":
        return 1e9 / product_seconds(1e9, device)
    one, other = (torch.randn(8192, 8192, device=device, dtype=torch.float16) for _ in range(2))
    return 2 * 8192**3 / spent(lambda: one @ other, device)


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
    quick, by = spent(lambda: both(held), device), by_the(device)
    passes = spent(lambda: (held.amax(0), held.amax(1)), device)
    yield line("rank 1,000 x 5,000 both ways", "sort every list", slow, quick, by=by, least=passes)
    alone = spent(lambda: [matcher.score(images, texts.take(slice(k, k + 1))) for k in range(200)], device, runs=1)
    quick = spent(lambda: both(held_scores(matcher, images, texts)), device)
    least = product_seconds(2 * 4000 * 20_000 * 256, device) + passes
    what = "evaluate sets of 4, 1,000 x 5,000"
    yield line(what, "caption by caption, sort", 25 * alone + slow, quick, by=by, least=least)


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

    cpu, whole = torch.device("cpu"), sums(0)
    slow, quick = spent(plain, cpu, runs=1), spent(ours, cpu, runs=1)
    fits = spent(lambda: [whole.fit() for _ in range(FOLDS)], cpu, runs=1)
    yield line("audit: ten fits on 10,000 pairs", "each from its pairs", slow, quick, least=fits)


# ---- features and start-up -------------------------------------------------------------------------------------------


def looking(names: list[str]) -> Iterator[Line | Skipped]:
    """Pictures a network looks at on the CPU, by each runtime."""
    from features import PLAIN, rates, stand_ins

    for name in names:
        try:
            found = rates(name, stand_ins(48), runs=2)
        except BadInput as missing:
            yield Skipped(f"{name} by each runtime", str(missing))
            continue
        base = next(one for one in found if one.runtime == PLAIN)
        for one in found:
            if one.runtime != PLAIN:
                what = f"{name} by {one.runtime}, a picture (likeness {one.likeness:.3f})"
                yield line(what, "torch, as published", base.cpu_ms / 1000, one.cpu_ms / 1000)


def started(code: str) -> float:
    """Processor seconds of a fresh interpreter, the least of three."""
    used = [_children_used()]
    for _ in range(3):
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        used.append(_children_used())
    return min(after - before for before, after in pairwise(used))


def _children_used() -> float:
    now = resource.getrusage(resource.RUSAGE_CHILDREN)  # finer than os.times, whose hundredths are half of a bare start
    return now.ru_utime + now.ru_stime


def starting() -> Iterator[Line]:
    """How soon the command line answers."""
    ours, slow = started("from matchlight.cli import main; main(['--help'])"), started(EVERYTHING)
    yield line("matchlight --help", "with everything imported", slow, ours, least=started("pass"))


# ---- all of it -------------------------------------------------------------------------------------------------------


Result = Line | Skipped
Found = dict[str, list[Result]]  # by group


def all_lines(found: Found) -> list[Line]:
    """What was measured, over all groups."""
    return [one for lines in found.values() for one in lines if isinstance(one, Line)]


def all_skipped(found: Found) -> list[Skipped]:
    """What was not."""
    return [one for lines in found.values() for one in lines if isinstance(one, Skipped)]


def show(found: Found) -> None:
    """The table on the screen."""
    print(f"{'':52}{'plain way':26}{'plain':>10}{'ours':>10}{'ratio':>8}{'limit':>8}  by")
    for one in all_lines(found):
        times = f"{_in_words(one.plain_seconds):>10}{_in_words(one.seconds):>10}{one.ratio:8.1f}{_bound(one):>8}"
        print(f"{one.what:52}{one.plain:26}{times}  {one.by}")
    for left in all_skipped(found):
        print(f"{left.what:52}skipped: {left.why}")


def page(machine: str, found: Found, *, skipped: bool) -> str:
    """The same as a table of the page; `skipped`: what was not measured is named below it."""
    head = "| | plain way | plain | ours | ratio | limit | time |\n|---|---|---|---|---|---|---|\n"
    rows = (
        f"| {one.what} | {one.plain} | {_in_words(one.plain_seconds)} | {_in_words(one.seconds)} "
        f"| {one.ratio:.1f} | {_bound(one)} | {one.by} |\n"
        for one in all_lines(found)
    )
    left = "".join(f"\n{one.what}: skipped, {one.why}.\n" for one in all_skipped(found)) if skipped else ""
    return f"{machine}.\n\n{head}{''.join(rows)}{left}"


def write_page(paths: list[Path]) -> None:
    """Puts the tables of JSON files, one a machine, between the marks of the page."""
    tables = [page(*read_found(path), skipped=len(paths) == 1) for path in paths]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{chr(10).join(tables)}\n{END}{after}")


def _bound(one: Line) -> str:
    return "" if one.limit is None else f"{one.limit:.1f}"


def _in_words(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def read_found(path: Path) -> tuple[str, Found]:
    """What a JSON file holds: the machine, and lines by group."""
    stored = json.loads(path.read_text())
    groups = stored["groups"].items()
    return stored["device"], {
        name: [Skipped(**one) if "why" in one else Line(**one) for one in lines] for name, lines in groups
    }


def write_found(path: Path, machine: str, found: Found) -> None:
    """What `read_found` reads."""
    groups = {name: [asdict(one) for one in lines] for name, lines in found.items()}
    path.write_text(json.dumps({"device": machine, "groups": groups}, indent=1) + "\n")


def measure(asked: argparse.Namespace, groups: dict[str, Callable[[], Iterator[Result]]], machine: str) -> Found:
    """The groups that were asked for, beside those that the file holds already."""
    wanted = asked.only.split(",") if asked.only else list(groups)
    before = read_found(asked.out)[1] if asked.out and asked.out.exists() and asked.only else {}
    found: Found = {name: before[name] for name in groups if name in before}
    for name in wanted:
        found[name] = list(groups[name]())
        found = {known: found[known] for known in groups if known in found}
        if asked.out:
            write_found(asked.out, machine, found)
    return found


def main() -> None:
    """Measure, print the table, write JSON; or write the page."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--device", default="auto")
    ask.add_argument("--backbone", action="append", help="further networks, such as dinov2-small or hf:FOLDER")
    ask.add_argument("--only", default="")
    ask.add_argument("-o", "--out", type=Path)
    ask.add_argument("--page", type=Path, nargs="+", metavar="FILE.json", help="measure nothing; write their tables")
    asked = ask.parse_args()
    if asked.page:
        write_page(asked.page)
        return
    device = speed.pick(asked.device)
    groups: dict[str, Callable[[], Iterator[Result]]] = {
        "start": starting,
        "evaluation": lambda: evaluation(device),
        "audit": lambda: auditing(device),
        "search": lambda: searching(device),
        "features": lambda: looking(["lite0", *(asked.backbone or [])]),
        "scoring": lambda: scoring(device),
        "training": lambda: training(device),
        "kernels": lambda: kernels(device if device.type == "cuda" else None),
    }
    if unknown := set(asked.only.split(",") if asked.only else []) - set(groups):
        ask.error(f"--only {', '.join(sorted(unknown))}: known are {', '.join(groups)}")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _threads(torch.get_num_threads())
    machine = f"torch {torch.__version__}, {name}, load {os.getloadavg()[0]:.1f}"
    found = measure(asked, groups, machine)
    print(machine)
    show(found)


def _threads(count: int) -> str:
    return "one CPU thread" if count == 1 else f"{count} CPU threads"


if __name__ == "__main__":
    main()
