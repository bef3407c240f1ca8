"""How much faster than the plain loop, on this machine: the same scores, the same step, both by the clock.

Random unit vectors stand in for data, since the work does not depend on the pictures: pictures of 36 regions, captions
of 6 to 40 words, about 13 on average. The plain loop (`matchlight.comparing.caption_loop`) goes caption by caption, so
its time is taken on an even sample of the captions and scaled by their number; both sides are warmed up, then timed
several times, and the median counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NotRequired, TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from matchlight.comparing.caption_loop import COLUMNS, CaptionLoop
from matchlight.console import track
from matchlight.core import IMAGE, TEXT, BadInput, Batch, Embedding, Items, Matcher, Sizes
from matchlight.scoring.all_pairs import score_all
from matchlight.training.arguments import Value
from matchlight.training.contract import Recipe
from matchlight.training.network import Network, score_batch, whole_batch
from matchlight.training.registry import find

REGIONS, VOCABULARY, SAMPLE, RUNS = 36, 1000, 50, 5
METHODS = tuple(COLUMNS)


class Speed(TypedDict):
    """How fast ours is beside the plain loop; what was scored or trained comes with it."""

    method: str
    device: str
    ours_seconds: float
    naive_seconds: float
    ratio: float
    largest_difference: float
    pictures: NotRequired[int]
    captions: NotRequired[int]
    dim: NotRequired[int]
    naive_captions: NotRequired[int]
    batch: NotRequired[int]
    precision: NotRequired[str]


def pick(device: str) -> torch.device:
    """The device of that name; auto is a GPU where there is one."""
    if device not in ("auto", "cpu", "cuda"):
        raise BadInput(f"--device {device}: auto, cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("--device cuda: there is no GPU here; --device cpu works everywhere")
    return torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")


def caption_lengths(count: int, *, seed: int = 0) -> Tensor:
    """(count,) words a caption: 6 to 40, about 13 on average."""
    drawn = 6 + np.random.default_rng(seed).gamma(1.4, 5.3, count)
    return torch.from_numpy(np.clip(drawn, 6, 40).astype(np.int64))


def unit_vectors(*shape: int, device: torch.device, seed: int) -> Tensor:
    """Random vectors of unit length along the last axis."""
    draw = torch.Generator(device=device).manual_seed(seed)
    return F.normalize(torch.randn(*shape, generator=draw, device=device), dim=-1)


def sides(pictures: int, captions: int, dim: int, device: torch.device) -> tuple[Embedding, Embedding]:
    """Random pictures and captions as encoders would leave them, on the device."""
    lengths = caption_lengths(captions)
    longest = int(lengths.max())
    mask = (torch.arange(longest)[None] < lengths[:, None]).to(device)
    words = unit_vectors(captions, longest, dim, device=device, seed=1) * mask[..., None]
    wholes = [unit_vectors(n, 1, dim, device=device, seed=2 + k) for k, n in enumerate((pictures, captions))]
    regions = unit_vectors(pictures, REGIONS, dim, device=device, seed=4)
    return Embedding(regions, None, {"global": wholes[0]}), Embedding(words, mask, {"global": wholes[1]})


def built(name: str, dim: int, **options: Value) -> Recipe:
    """A method's recipe at this width, sizes beside it in the papers' proportions."""
    method = find(name)
    if name not in METHODS:
        raise BadInput(f"--method {name}: bench knows {', '.join(METHODS)}")
    sizes = Sizes(10000, 2000, "regions", 2 * dim, regions=REGIONS, vocabulary=VOCABULARY)
    known = {"dim": dim, "sim_dim": max(16, dim // 4), "word_dim": max(16, 300 * dim // 1024)}
    given = {key: value for key, value in known.items() if key in method.defaults}
    return method.build(sizes, **{**method.defaults, **given, **options})


def seconds(work: Callable[[], object], device: torch.device, what: str, *, runs: int = RUNS) -> float:
    """Median seconds of some runs after one to warm up."""
    times = []
    for run in track(range(runs + 1), what):
        started = _now(device)
        work()
        if run:
            times.append(_now(device) - started)
    return statistics.median(times)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def result(name: str, device: torch.device, ours: float, loop: float, apart: float) -> Speed:
    """One line of the table."""
    return {
        "method": name,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "ours_seconds": ours,
        "naive_seconds": loop,
        "ratio": loop / ours,
        "largest_difference": apart,
    }


@torch.inference_mode()
def score(name: str, *, device: str = "auto", pictures: int = 200, captions: int = 1000, dim: int = 256) -> Speed:
    """All pictures against all captions: ours as evaluation does it, and the plain loop."""
    where = pick(device)
    torch.manual_seed(0)
    matcher: Matcher = built(name, dim).matcher().to(where).eval()
    images, texts = sides(pictures, captions, dim, where)
    some = torch.linspace(0, captions - 1, min(captions, SAMPLE)).long().unique()
    loop, few = CaptionLoop(matcher.similarity, name).eval(), texts.take(some)
    ours = seconds(lambda: score_all(matcher, images, texts), where, f"{name}: all at once")
    slow = seconds(lambda: loop(images, few).cpu(), where, f"{name}: caption by caption") * captions / len(some)
    quick = torch.from_numpy(score_all(matcher, images, texts))[:, some]
    line = result(name, where, ours, slow, float((quick - loop(images, few).cpu()).abs().max()))
    return {**line, "pictures": pictures, "captions": captions, "dim": dim, "naive_captions": len(some)}


def random_batch(size: int, dim: int, device: torch.device) -> Batch:
    """A training batch of random features and words, one caption a picture."""
    draw = torch.Generator().manual_seed(0)
    lengths = caption_lengths(size)
    longest = int(lengths.max())
    mask = torch.arange(longest)[None] < lengths[:, None]
    words = torch.randint(4, VOCABULARY, (size, longest), generator=draw) * mask
    place = torch.arange(size)
    image = Items(torch.randn(size, REGIONS, 2 * dim, generator=draw), None, place)
    text = Items(words, mask, place, {"picture": place, "length": lengths})
    return Batch({IMAGE: image, TEXT: text}, {"positive": torch.stack([place, place], 1)}, place).to(device)


def step(network: Network, batch: Batch, *, precision: str = "fp32") -> None:
    """One training step as the trainer takes it: encode, score, loss, gradients, update."""
    network.matcher.train()
    with torch.autocast(network.device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
        embeddings, batch = whole_batch(network.matcher, batch)
        scores = score_batch(network.matcher, embeddings, batch, matrix=True)
    network.step(network.objective.total(network.objective(scores, embeddings, batch)))


@torch.no_grad()
def batch_scores(network: Network, batch: Batch) -> Tensor:
    """The matrix of a batch outside training."""
    network.matcher.eval()
    embeddings = {side: network.matcher.embed(side, items) for side, items in batch.sides.items()}
    return network.matcher.score(embeddings[IMAGE], embeddings[TEXT]).float()


def train(
    name: str, *, device: str = "auto", batch: int | None = None, dim: int = 256, precision: str = "auto"
) -> Speed:
    """One training step: ours in the precision that training would take, the plain loop in float32."""
    from matchlight.devices import pick_precision

    where = pick(device)
    taken = pick_precision(precision, where)
    size = batch or (128 if where.type == "cuda" else 32)
    recipe, data = built(name, dim), random_batch(size, dim, where)
    ours, plain = (Network(recipe, seed=0, device=where) for _ in range(2))
    plain.matcher.similarity = CaptionLoop(plain.matcher.similarity, name)
    apart = float((batch_scores(ours, data) - batch_scores(plain, data)).abs().max())
    quick = seconds(lambda: step(ours, data, precision=taken), where, f"{name}: step")
    slow = seconds(lambda: step(plain, data), where, f"{name}: step, caption by caption")
    return {**result(name, where, quick, slow, apart), "batch": size, "dim": dim, "precision": taken}
