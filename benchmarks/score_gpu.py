"""How fast is exact all-pairs scoring on this GPU, how right is it, and where does a training step spend its time?

    python benchmarks/score_gpu.py [--pictures 1000] [--captions 5000] [--dim 1024] [--limit 230] [-o FILE.json]

Sections, each of which may fail without stopping the others: (1) kernels against plain PyTorch on a small case, every
option; (2) SCAN, BFAN, SGR and SAF at full size, plain and fused, with peak memory and the largest difference from the
caption-by-caption loop in float64 on 50 pictures x 200 captions; (3) other tile sizes for the kernels, so that the best
can be written into `fused` and `reasoning`; (4) the parts of a block of SGR with the rate each reaches; (5) training
steps, and a profile of SGR's. Times are medians of 5 runs after a warm-up.
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

import torch

from matchlight.comparing import speed
from matchlight.comparing.caption_loop import CaptionLoop
from matchlight.core import Embedding, Similarity
from matchlight.scoring import kernels
from matchlight.scoring.all_pairs import score_all
from matchlight.scoring.kernels import gpu_attention, heads, reference, self_check, vector_scores
from matchlight.scoring.kernels.packed import Packed, pack
from matchlight.training.network import Network

GPU = torch.device("cuda")
BEGAN = time.monotonic()
FOUND: list[dict[str, Any]] = []


def timed(work: Callable[[], Any], runs: int = 5) -> tuple[float, float]:
    """Median seconds by device events, and peak memory in GiB beyond what was held before."""
    work()
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(runs):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) / 1000)
    return statistics.median(times), (torch.cuda.max_memory_allocated() - held) / 2**30


def note(what: str, **numbers: Any) -> None:
    """One line now, one object in the JSON."""
    FOUND.append({"what": what, **numbers})
    shown = "  ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in numbers.items()
    )
    print(f"{what:44} {shown}", flush=True)


def section(title: str, work: Callable[[], None], limit: float) -> None:
    """Run one section; its failure is printed and the next one runs."""
    if time.monotonic() - BEGAN > limit:
        print(f"== {title}: no time left", flush=True)
        return
    print(f"== {title} (at {time.monotonic() - BEGAN:.0f} s)", flush=True)
    try:
        work()
    except Exception:
        traceback.print_exc(limit=4)
    torch.cuda.empty_cache()


# ---- (1) -------------------------------------------------------------------------------------------------------------


def small() -> None:
    with torch.inference_mode():
        note("self-check attended", difference=self_check.check_attended(GPU))
        note("self-check vectors", difference=self_check.check_vectors(GPU))
        regions, mask, texts = self_check.small_case(GPU)
        for direction, precision in itertools.product(("t2i", "i2t"), ("fp32", "tf32", "fp16", "bf16")):
            worst: dict[str, float] = {}
            for norm, aggregate, gate in itertools.product(reference.NORMS, reference.AGGREGATES, reference.GATES):
                unusual = (norm != "clipped_l2norm") + (aggregate != "mean") + (gate != "none")
                if unusual > (precision == "fp32") and gate == "none" or unusual > 1:  # each set is a compilation
                    continue
                how = kernels.AttentionSettings(9.0, direction, norm=norm, aggregate=aggregate, gate=gate)
                quick = gpu_attention.attended_scores(regions, mask, texts, how, precision=precision)
                right = reference.attended_scores(regions, mask, texts, how)
                worst[gate] = max(worst.get(gate, 0.0), float((quick - right).abs().max()))
            note(f"small {direction} {precision}", **worst)


# ---- (2) -------------------------------------------------------------------------------------------------------------


class Case:
    """One method at full size: its matcher, both sides on the GPU, and exact scores of a corner."""

    def __init__(self, name: str, asked: argparse.Namespace, images: Embedding, texts: Embedding, **options: Any):
        torch.manual_seed(0)
        self.name, self.images, self.texts = name, images, texts
        self.matcher = speed.built(name, asked.dim, **options).matcher().to(GPU).eval()
        self.rows, self.columns = torch.arange(len(images))[:: max(1, len(images) // 50)][:50], _even(len(texts), 200)
        exact = copy.deepcopy(self.matcher.similarity).to(torch.float64)
        few = [self.images.take(self.rows).map(_double), self.texts.take(self.columns).map(_double)]
        self.right = CaptionLoop(exact, name)(*few).float().cpu()

    def difference(self, scores: torch.Tensor) -> float:
        return float((scores.cpu()[self.rows][:, self.columns] - self.right).abs().max())

    def plainly(self, precision: str = "fp32") -> None:
        """As evaluation does without kernels."""
        os.environ[self_check.SWITCH] = "0"
        try:
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bf16"):
                seconds, peak = timed(lambda: score_all(self.matcher, self.images, self.texts), runs=1)
                apart = self.difference(torch.from_numpy(score_all(self.matcher, self.images, self.texts)))
        finally:
            os.environ[self_check.SWITCH] = "1"
        note(f"{self.name} plain {precision}", seconds=seconds, GiB=peak, difference=apart)

    def hooked(self) -> None:
        """As evaluation does by default, the copy to the host included."""
        seconds, peak = timed(lambda: score_all(self.matcher, self.images, self.texts))
        apart = self.difference(torch.from_numpy(score_all(self.matcher, self.images, self.texts)))
        note(f"{self.name} score_all", seconds=seconds, GiB=peak, difference=apart)


def _double(x: torch.Tensor) -> torch.Tensor:
    return x.double() if x.is_floating_point() else x


def _even(count: int, some: int) -> torch.Tensor:
    return torch.linspace(0, count - 1, min(count, some)).long().unique()


def attended(asked: argparse.Namespace, name: str, **options: Any) -> None:
    """SCAN one way, or BFAN: plain, by the kernels in each precision, and as score_all does it."""
    with torch.inference_mode():
        images, texts = speed.sides(asked.pictures, asked.captions, asked.dim, GPU)
        case = Case(name, asked, images, texts, **options)
        label = f"{name} {options.get('direction', '')}".strip()
        flat = pack(texts.vectors, texts.mask)
        note(label, words=len(flat.words))
        case.plainly()
        similarity: Any = case.matcher.similarity
        for precision in ("fp32", "tf32", "fp16", "bf16"):
            work = _attended_work(similarity, images, flat, precision)
            seconds, peak = timed(work)
            note(f"{label} kernels {precision}", seconds=seconds, GiB=peak, difference=case.difference(work()))
        torch.set_float32_matmul_precision("high")
        case.hooked()


def _attended_work(similarity: Any, images: Embedding, flat: Packed, precision: str) -> Callable[[], torch.Tensor]:
    sides, settings = (images.vectors, images.mask, flat), similarity.fused()
    ways = [replace(settings, direction=way) for way in similarity.directions]
    return lambda: sum(kernels.attended_scores(*sides, way, precision=precision) for way in ways)  # type: ignore[return-value]


def vectors(asked: argparse.Namespace, name: str) -> None:
    """SGR or SAF: plain, by the kernels in each precision, and as score_all does it."""
    with torch.inference_mode():
        images, texts = speed.sides(asked.pictures, asked.captions, asked.dim, GPU)
        case = Case(name, asked, images, texts)
        similarity = case.matcher.similarity
        flat = pack(texts.vectors, texts.mask)
        for precision in ("fp16", "bf16"):
            work = _vectors_work(similarity, images, texts, flat, precision)
            seconds, peak = timed(work, runs=3)
            note(f"{name} kernels {precision}", seconds=seconds, GiB=peak, difference=case.difference(work()))
        torch.set_float32_matmul_precision("high")
        case.hooked()
        case.plainly("bf16")


def _vectors_work(
    similarity: Similarity, images: Embedding, texts: Embedding, flat: Packed, precision: str
) -> Callable[[], torch.Tensor]:
    s: Any = similarity
    sides = kernels.Pictures(images.vectors, images.mask, images.extra["global"][:, 0])
    other = kernels.Captions(flat, texts.extra["global"][:, 0])
    layers = kernels.VectorLayers(s.local, s.whole, s.temperature)
    if hasattr(s.head, "steps"):
        steps = [(step.query, step.key, step.out) for step in s.head.steps]
        return lambda: kernels.sgr_scores(sides, other, layers, steps, s.judge, precision=precision)
    gate, norm = s.head.gate, s.head.norm
    return lambda: kernels.saf_scores(sides, other, layers, gate, norm, s.judge, precision=precision)


# ---- (3) -------------------------------------------------------------------------------------------------------------


def tiles(asked: argparse.Namespace) -> None:
    """Other rows and warps a tile; and what the product alone takes."""
    with torch.inference_mode():
        images, texts = speed.sides(asked.pictures, asked.captions, asked.dim, GPU)
        flat = pack(texts.vectors, texts.mask)
        for precision in ("tf32", "fp16"):
            left = gpu_attention.as_operand(flat.words, precision)
            right = gpu_attention.as_operand(images.vectors.flatten(0, 1)[: 200 * speed.REGIONS], precision)
            seconds, _ = timed(lambda left=left, right=right, p=precision: gpu_attention.product(left, right, p))
            work = 2 * len(left) * len(right) * asked.dim
            note(f"product alone {precision}, 200 pictures", seconds=seconds, TFLOPs=work / seconds / 1e12)
        before = dict(gpu_attention.SHAPES)
        for direction, rows, warps in itertools.product(("t2i", "i2t"), (16, 32, 64), (1, 2, 4)):
            gpu_attention.SHAPES[direction] = gpu_attention.Shape(rows, warps)
            try:
                run = lambda way=direction: gpu_attention.attended_scores(  # noqa: E731
                    images.vectors, None, flat, kernels.AttentionSettings(9.0, way), precision="fp16"
                )
                note(f"{direction} fp16 rows {rows} warps {warps}", seconds=timed(run, runs=3)[0])
            except Exception as error:
                note(f"{direction} fp16 rows {rows} warps {warps}", failed=type(error).__name__)
        gpu_attention.SHAPES.update(before)


# ---- (4) -------------------------------------------------------------------------------------------------------------


def parts(asked: argparse.Namespace, length: int = 13, pictures: int = 200, captions: int = 200) -> None:
    """One block of SGR, kernel by kernel, in several tile sizes."""
    size, dim = 256, asked.dim
    with torch.inference_mode():
        regions = speed.unit_vectors(pictures, speed.REGIONS, dim, device=GPU, seed=0)
        words = speed.unit_vectors(captions * length, dim, device=GPU, seed=1)
        local = torch.nn.Linear(dim, size, device=GPU)
        half = torch.float16
        layer, bias, short = local.weight.T.to(half).contiguous(), local.bias, regions.to(half)
        s = gpu_attention.product(words.to(half), short.flatten(0, 1), "fp16")
        see = lambda: vector_scores.attend(  # noqa: E731
            s, gpu_attention.padded_grams(regions), None, length, temperature=9.0, norm="clipped_l2norm", dtype=half
        )
        note("attend", seconds=timed(see)[0])
        weights, scale = see()
        nodes = torch.empty(pictures, captions, length + 1, size, device=GPU, dtype=half)
        texts = words.to(half)
        work = 2 * pictures * len(words) * dim * (size + speed.REGIONS)
        before = vector_scores.SHORT
        for setting in ((128, 64, 8, 3), (128, 64, 8, 2), (128, 32, 8, 4), (64, 64, 4, 3), (64, 32, 4, 4)):
            vector_scores.SHORT = setting
            run = lambda: vector_scores.compare(weights, scale, short, texts, layer, bias, nodes, length=length)  # noqa: E731
            _rate(f"compare {setting}", run, work)
        vector_scores.SHORT = before
        flat = nodes.flatten(0, 1)
        mix = torch.randn(size, size, device=GPU).div(16).to(half)
        work = 2 * 2 * flat.shape[0] * flat.shape[1] * size * size
        for setting in ((128, 64, 8, 2), (128, 64, 8, 1), (128, 32, 8, 2), (64, 64, 4, 2), (64, 64, 8, 2)):
            vector_scores.SHORT = setting
            _rate(f"reason {setting}", lambda: vector_scores.reason(flat, mix, bias, mix, bias), work)
        vector_scores.SHORT = before
        _rate("reason plain", lambda: vector_scores.reason_plain(flat, mix, bias, mix, bias), work)
        step = tuple(torch.nn.Linear(size, size, device=GPU) for _ in range(3))
        last = heads.Reasoning([step], torch.nn.Linear(size, 1, device=GPU))  # type: ignore[list-item]
        note("last step", seconds=timed(lambda: last(flat))[0], pairs=len(flat))


def _rate(what: str, work: Callable[[], Any], operations: int) -> None:
    try:
        seconds = timed(work)[0]
        note(what, seconds=seconds, TFLOPs=operations / seconds / 1e12)
    except Exception as error:
        note(what, failed=f"{type(error).__name__}: {str(error)[:80]}")


# ---- (5) -------------------------------------------------------------------------------------------------------------


def steps(asked: argparse.Namespace) -> None:
    """A training step of each method at batch 128."""
    torch.set_float32_matmul_precision("high")
    data = speed.random_batch(128, asked.dim, GPU)
    for name, precision in itertools.product(("sgr", "saf", "scan", "bfan"), ("tf32", "bf16")):
        try:
            network = Network(speed.built(name, asked.dim), seed=0, device=GPU)
            clock, peak = timed(lambda n=network, p=precision: speed.step(n, data, precision=p))
            note(f"step {name} {precision}", seconds=clock, GiB=peak)
        except Exception:
            traceback.print_exc(limit=3)


def profile(asked: argparse.Namespace) -> None:
    """Where three SGR steps in bf16 spend their time."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watch

    data = speed.random_batch(128, asked.dim, GPU)
    network = Network(speed.built("sgr", asked.dim), seed=0, device=GPU)
    for _ in range(3):
        speed.step(network, data, precision="bf16")
    torch.cuda.synchronize()
    with watch(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        for _ in range(3):
            speed.step(network, data, precision="bf16")
        torch.cuda.synchronize()
    table = seen.key_averages()
    print(table.table(sort_by="cuda_time_total", row_limit=12, max_name_column_width=60))
    print(table.table(sort_by="self_cpu_time_total", row_limit=8, max_name_column_width=60))


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--pictures", type=int, default=1000)
    ask.add_argument("--captions", type=int, default=5000)
    ask.add_argument("--dim", type=int, default=1024)
    ask.add_argument("--limit", type=float, default=210, help="no section starts after so many seconds")
    ask.add_argument("-o", "--out", type=Path)
    asked = ask.parse_args()
    print(torch.__version__, torch.cuda.get_device_name(), torch.cuda.get_device_capability())
    section("kernels against plain PyTorch", small, asked.limit)
    section("SCAN, words look", lambda: attended(asked, "scan", direction="t2i"), asked.limit)
    section("SCAN, regions look", lambda: attended(asked, "scan", direction="i2t"), asked.limit)
    section("BFAN", lambda: attended(asked, "bfan"), asked.limit)
    section("SGR", lambda: vectors(asked, "sgr"), asked.limit)
    section("SAF", lambda: vectors(asked, "saf"), asked.limit)
    section("training steps", lambda: steps(asked), asked.limit)
    section("profile of an SGR step", lambda: profile(asked), asked.limit)
    section("parts of SGR", lambda: parts(asked), asked.limit)
    section("tiles", lambda: tiles(asked), asked.limit)
    print(f"done in {time.monotonic() - BEGAN:.0f} s")
    if asked.out:
        asked.out.write_text(json.dumps(FOUND, indent=1))


if __name__ == "__main__":
    main()
