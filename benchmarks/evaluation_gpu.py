"""What `matchlight evaluate` takes once pictures and captions are encoded: scores, ranks, recalls both ways.

    python benchmarks/evaluation_gpu.py [--device auto] [--scale 1.0] [--limit 80] [-o FILE.json]

DivE's sets at 5,000 x 25,000, a plain cosine of the same size, and SCAN, BFAN, SGR and SAF at 1,000 x 5,000 with 1,024
dimensions (`--scale 0.01` makes all of it small). Each is measured through `evaluate`'s own functions in every
precision that it takes: scores, ranks, what the host does besides, all of it together, peak memory, and the largest
difference from a float64 loop over captions on a part. For SCAN and BFAN the product alone stands beside, and the share
of the whole it is: what the rate of matrix units allows. Tiles of the attention kernels are swept last. Medians of 5
runs after two to warm up; sections that would begin after `--limit` seconds are left out.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import os
import statistics
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from matchlight.comparing import speed
from matchlight.comparing.caption_loop import CaptionLoop
from matchlight.core import Embedding, Matcher
from matchlight.measuring.metrics import Relevance, ranks
from matchlight.measuring.referee import Scored, report_of
from matchlight.pairs import Pairs
from matchlight.parts.set_similarities import SmoothChamfer
from matchlight.runs.evaluation import Scoring, products_in, scored, scored_sides
from matchlight.runs.folder import Run
from matchlight.scoring.all_pairs import held_scores
from matchlight.scoring.kernels import AttentionSettings, attended_scores, gpu_attention, pack
from matchlight.scoring.kernels.packed import Packed
from matchlight.scoring.kernels.products import as_operand, plan, product

RUNS, WARM = 5, 2
BEGAN = time.monotonic()
FOUND: list[dict[str, Any]] = []


def timed(work: Callable[[], Any], device: torch.device, *, runs: int = RUNS, warm: int = WARM) -> float:
    """Median seconds by the clock, the device waited for."""
    times = []
    for run in range(runs + warm):
        _wait(device)
        began = time.perf_counter()
        work()
        _wait(device)
        if run >= warm:
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_of(work: Callable[[], Any], device: torch.device) -> float:
    """GiB that it takes beyond what was held before."""
    if device.type != "cuda":
        work()
        return 0.0
    held = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    work()
    return (torch.cuda.max_memory_allocated(device) - held) / 2**30


def note(what: str, **numbers: Any) -> None:
    """One line now, one object in the JSON; seconds are shown in milliseconds."""
    FOUND.append({"what": what, **numbers})
    print(f"{what:40} " + "  ".join(_shown(*each) for each in numbers.items()), flush=True)


def _shown(name: str, value: Any) -> str:
    if name.endswith("_s"):
        return f"{name[:-2]} {1000 * value:.2f} ms"
    return f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"


def section(title: str, work: Callable[[], None], limit: float) -> None:
    """One section; its failure is printed and the next one runs."""
    at = time.monotonic() - BEGAN
    if at > limit:
        print(f"== {title}: no time left", flush=True)
        return
    print(f"== {title} (at {at:.0f} s)", flush=True)
    try:
        work()
    except Exception:
        traceback.print_exc(limit=6)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def data_of(pictures: int, captions: int) -> Pairs:
    """Names alone, as many captions a picture as there are."""
    owner = np.arange(captions) * pictures // captions
    names, texts = ([f"{kind} {k}" for k in range(many)] for kind, many in (("p", pictures), ("c", captions)))
    return Pairs(names, texts, owner, np.full(pictures, "test"))


def near_sets(pictures: int, each: int, slots: int, dim: int, device: torch.device) -> tuple[Embedding, Embedding]:
    """Unit vectors of pictures, and of captions that resemble their own picture."""
    images = speed.unit_vectors(pictures, slots, dim, device=device, seed=0)
    noise = speed.unit_vectors(pictures * each, slots, dim, device=device, seed=1)
    return Embedding(images), Embedding(F.normalize(noise + 0.15 * images.repeat_interleave(each, 0), dim=-1))


class Case:
    """One method at one size: its matcher, both sides on the device, and the data they belong to."""

    def __init__(self, name: str, matcher: Matcher, images: Embedding, texts: Embedding):
        self.name, self.images, self.texts = name, images, texts
        self.device = images.vectors.device
        self.matcher = matcher.to(self.device).eval()
        self.pairs = data_of(len(images), len(texts))
        self.fits = Relevance.of_owner(self.pairs.picture, pictures=len(images))

    def scores(self, precision: str) -> torch.Tensor:
        with products_in(precision, self.device):
            return held_scores(self.matcher, self.images, self.texts)

    def found(self, precision: str) -> Scored:
        return scored_sides(self.matcher, self.images, self.texts, Scoring(precision=precision))

    def both_ranks(self, scores: torch.Tensor) -> None:
        ranks(scores, self.fits)
        ranks(scores.T, self.fits.T)

    @torch.inference_mode()
    def measure(self, precision: str, *, right: Callable[[torch.Tensor], float] | None = None) -> None:
        """The whole way, and its parts."""

        def whole(ci: bool = False) -> None:
            report_of(self.found(precision), self.pairs.subset("test"), ci=ci)

        def only(scores: Scored) -> None:
            report_of(scores, self.pairs.subset("test"))

        ready = self.found(precision)
        assert isinstance(ready.matrix, torch.Tensor)
        matrix = ready.matrix
        parts = {
            "whole_s": timed(whole, self.device),
            "scores_s": timed(lambda: self.scores(precision), self.device),
            "ranks_s": timed(lambda: self.both_ranks(matrix), self.device),
            "report_s": timed(lambda: only(ready), self.device),
            "spread_and_rest_s": 0.0,
            "with_intervals_s": timed(lambda: whole(ci=True), self.device, runs=3, warm=1),
        }
        parts["spread_and_rest_s"] = parts["whole_s"] - parts["scores_s"] - parts["report_s"]
        more: dict[str, Any] = {"GiB": peak_of(whole, self.device), "on": str(matrix.device)}
        if right is not None:
            more["difference"] = right(matrix)
        note(f"{self.name} {precision}", **parts, **more)

    def profile(self, precision: str) -> None:
        """The five GPU kernels that take most of one evaluation."""
        from torch.profiler import ProfilerActivity
        from torch.profiler import profile as watch

        kinds = [ProfilerActivity.CPU, ProfilerActivity.CUDA][: 2 if self.device.type == "cuda" else 1]
        with watch(activities=kinds) as seen:
            report_of(self.found(precision), self.pairs.subset("test"))
            _wait(self.device)
        gpu = self.device.type == "cuda"
        times = [(one.self_device_time_total if gpu else one.self_cpu_time_total, one) for one in seen.key_averages()]
        kept = [(time, one) for time, one in times if not gpu or "cuda" in str(one.device_type).lower()]
        print(f"    {sum(micro for micro, _ in kept) / 1000:9.3f} ms in all")
        for micro, one in sorted(kept, key=lambda pair: -pair[0])[:8]:
            print(f"    {micro / 1000:9.3f} ms {one.count:5} x  {one.key[:100]}")


# ---- one and several vectors a side ----------------------------------------------------------------------------------


def dive(pictures: int, dim: int, device: torch.device) -> None:
    """Four vectors a side, compared by smooth-Chamfer."""
    case = Case(
        f"DivE {pictures}x{5 * pictures}", Matcher({}, SmoothChamfer()), *near_sets(pictures, 5, 4, dim, device)
    )
    few, some = slice(0, 50), slice(0, 200)
    exact = _chamfer(case.images.vectors[few].double(), case.texts.vectors[some].double())
    for precision in ("fp32", "tf32"):
        case.measure(precision, right=lambda scores: float((scores[few, some].double() - exact).abs().max()))
        case.profile(precision)


def _chamfer(images: torch.Tensor, texts: torch.Tensor, alpha: float = 16.0) -> torch.Tensor:
    near = (alpha * torch.einsum("ikd,tld->itkl", images, texts)).exp()
    return (near.sum(3).log().mean(2) + near.sum(2).log().mean(2)) / (2 * alpha)


def cosine(pictures: int, dim: int, device: torch.device) -> None:
    """`evaluate --vectors` of one vector a side: reading apart, then encode, score, rank."""
    images, texts = near_sets(pictures, 5, 1, dim, device)
    given = tuple(side.vectors[:, 0].cpu().numpy() for side in (images, texts))
    pairs = data_of(pictures, 5 * pictures)
    where = "cuda" if device.type == "cuda" else "cpu"
    began = time.perf_counter()
    run, data = Run.of_vectors(given, pairs, device=where)  # type: ignore[arg-type]
    opened = time.perf_counter() - began
    part = pairs.subset("test")
    seconds = timed(lambda: report_of(scored(run, data, "test"), part), device, runs=3, warm=1)
    ready = timed(lambda: scored(run, data, "test"), device, runs=3, warm=1)
    note(f"vectors {pictures}x{5 * pictures}", opened_s=opened, whole_s=seconds, encode_and_score_s=ready)


# ---- attention -------------------------------------------------------------------------------------------------------


def attention(name: str, asked: argparse.Namespace, device: torch.device, **options: Any) -> None:
    """A method of regions and words, in every precision that `evaluate` takes; SCAN and BFAN beside their product."""
    pictures = max(8, int(1000 * asked.scale))
    torch.manual_seed(0)
    case = Case(
        f"{name} {options.get('direction', '')}".strip(),
        speed.built(name, asked.dim, **options).matcher(),
        *speed.sides(pictures, 5 * pictures, asked.dim, device),
    )
    rows, columns = (
        torch.arange(pictures)[:: max(1, pictures // 50)],
        torch.arange(5 * pictures)[:: max(1, pictures // 40)],
    )
    exact = copy.deepcopy(case.matcher.similarity).to(torch.float64)
    with torch.inference_mode():
        sides = case.images.take(rows).map(_double), case.texts.take(columns).map(_double)
        right = CaptionLoop(exact, name)(*sides).cpu()
    apart = lambda scores: float((scores.cpu()[rows][:, columns] - right).abs().max())  # noqa: E731
    # without TF32, SGR and SAF are plain PyTorch: not what is asked here
    for precision in ("fp32", "tf32") if name in ("scan", "bfan") else ("tf32",):
        case.measure(precision, right=apart)
    case.profile("tf32")
    if name in ("scan", "bfan"):
        with torch.inference_mode():
            kernels_alone(case, apart)


def _double(x: torch.Tensor) -> torch.Tensor:
    return x.double() if x.is_floating_point() else x


def kernels_alone(case: Case, apart: Callable[[torch.Tensor], float]) -> None:
    """The kernels without packing and ranks, and the product of all words with all regions without the kernels."""
    similarity: Any = case.matcher.similarity
    flat, regions = pack(case.texts.vectors, case.texts.mask), case.images.vectors
    ways = [replace(similarity.fused(), direction=way) for way in similarity.directions]
    packing = timed(lambda: pack(case.texts.vectors, case.texts.mask), case.device)
    note(f"{case.name} packing", seconds_s=packing, words=len(flat.words))
    for precision in ("tf32", "fp16"):
        work = lambda p=precision: sum(attended_scores(regions, None, flat, way, precision=p) for way in ways)  # noqa: E731
        seconds, least = timed(work, case.device), product_alone(flat, regions, precision, case.device)
        rate = 2 * len(flat.words) * regions.shape[0] * regions.shape[1] * regions.shape[2] / least / 1e12
        share = least * len(ways) / seconds
        note(
            f"{case.name} kernels {precision}",
            seconds_s=seconds,
            product_s=least,
            TFLOPs=rate,
            share=share,
            difference=apart(work()),  # type: ignore[arg-type]
        )


def product_alone(flat: Packed, regions: torch.Tensor, precision: str, device: torch.device) -> float:
    """Seconds of the products in the blocks in which the kernels take them."""
    left, right = as_operand(flat.words, precision), as_operand(regions.flatten(0, 1), precision)
    count, size = regions.shape[:2]

    def work() -> None:
        for first, last, tall in plan(flat, pictures=count, regions=size, budget=gpu_attention.BUDGET):
            begin, end = int(flat.offsets[first]), int(flat.offsets[last])
            for i in range(0, count, tall):
                product(left[begin:end], right[i * size : (i + tall) * size], precision)

    return timed(work, device)


# rows a tile, warps a program, tiles a program, tiles on their way
SHAPES = (
    (32, 1, 8, 1),
    (32, 2, 8, 1),
    (32, 2, 1, 1),
    (16, 1, 8, 1),
    (16, 1, 1, 1),
    (16, 1, 32, 1),
    (16, 1, 8, 2),
    (64, 2, 8, 1),
    (64, 4, 8, 1),
    (32, 1, 8, 2),
    (32, 1, 1, 1),
    (16, 2, 8, 1),
)


def tiles(asked: argparse.Namespace, device: torch.device) -> None:
    """Other shapes of the kernels, on captions of at most 16 words alone: one compilation each."""
    pictures = max(8, int(1000 * asked.scale))
    images, texts = speed.sides(pictures, 5 * pictures, asked.dim, device)
    assert texts.mask is not None
    short = texts.take((texts.mask.sum(1) <= 16).nonzero()[:, 0])
    flat = pack(short.vectors, short.mask)
    before = dict(gpu_attention.SHAPES)
    print(f"    {len(flat)} captions, {len(flat.words)} words; rows, warps, tiles a program, tiles on their way")
    product_s = product_alone(flat, images.vectors, "fp16", device)
    note("tiles: the product alone", seconds_s=product_s)
    with torch.inference_mode():
        for shape, way in itertools.product(SHAPES, ("t2i", "i2t")):
            if time.monotonic() - BEGAN > asked.limit + 15:
                break
            gpu_attention.SHAPES[way] = gpu_attention.Shape(*shape)
            how = AttentionSettings(9.0, way)
            run = lambda how=how: attended_scores(images.vectors, None, flat, how, precision="fp16")  # noqa: E731
            try:
                seconds = timed(run, device, runs=3, warm=1)
                note(f"tiles {way} {shape}", seconds_s=seconds, pass_s=seconds - product_s)
            except Exception as error:
                print(f"    {way} {shape}: {type(error).__name__}")
    gpu_attention.SHAPES.update(before)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--device", default="auto")
    ask.add_argument("--scale", type=float, default=1.0, help="of the numbers of pictures and captions")
    ask.add_argument("--dim", type=int, default=1024)
    ask.add_argument("--limit", type=float, default=75, help="no section starts after so many seconds")
    ask.add_argument("-o", "--out", type=Path)
    asked = ask.parse_args()
    device, size = speed.pick(asked.device), max(8, int(5000 * asked.scale))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    print(torch.__version__, name, f"load {os.getloadavg()[0]:.1f}", flush=True)
    out = asked.out or (Path(os.environ["OUT"]) / "evaluation_gpu.json" if "OUT" in os.environ else None)
    sections: list[tuple[str, Callable[[], None]]] = [
        ("DivE", lambda: dive(size, asked.dim, device)),
        ("SCAN, words look", lambda: attention("scan", asked, device, direction="t2i")),
        ("SCAN, regions look", lambda: attention("scan", asked, device, direction="i2t")),
        ("SGR", lambda: attention("sgr", asked, device)),
        ("SAF", lambda: attention("saf", asked, device)),
        ("BFAN", lambda: attention("bfan", asked, device)),
        ("one vector a side", lambda: cosine(size, asked.dim, device)),
        ("tiles", lambda: tiles(asked, device)),
    ]
    for title, work in sections:
        section(title, work, asked.limit)
        if out:
            out.write_text(json.dumps({"device": f"torch {torch.__version__}, {name}", "found": FOUND}, indent=1))
    print(f"done in {time.monotonic() - BEGAN:.0f} s")


if __name__ == "__main__":
    main()
