"""Whole sides in, the matrix of all scores out: by kernels that pass their self-check, in plain PyTorch elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from matchlight.core import Embedding
from matchlight.scoring.kernels import cpu_attention, gpu_attention, reference, vector_scores
from matchlight.scoring.kernels.heads import Filtering, Reasoning, Step
from matchlight.scoring.kernels.packed import Packed, pack
from matchlight.scoring.kernels.reference import AttentionSettings
from matchlight.scoring.kernels.self_check import give_up, usable, usable_on_cpu
from matchlight.scoring.kernels.vector_scores import Captions, Head, Pictures, VectorLayers

UNIT = 1.01  # vectors up to this length are of unit length but for rounding


def _room(device: torch.device, asked: int | None) -> int:
    """Bytes a block may take: what was asked, or a quarter of what is free, at most 2 GiB."""
    if asked is not None:
        return asked
    if device.type != "cuda":
        return 256 << 20
    return min(torch.cuda.mem_get_info(device)[0] // 4, gpu_attention.BUDGET)


def attended_scores(
    regions: Tensor,
    region_mask: Tensor | None,
    texts: Packed,
    settings: AttentionSettings,
    *,
    precision: str = "tf32",
    budget: int | None = None,
) -> Tensor:
    """(I, T) float32: each query's cosine with what it saw, aggregated. Queries are words (t2i) or regions (i2t).

    regions (I, R, D), region_mask (I, R) or None, texts as `pack` makes them; precision of the products: fp32 | tf32 |
    fp16 | bf16, followed by float32.
    """
    if len(regions) == 0 or len(texts) == 0:
        return regions.new_zeros(len(regions), len(texts), dtype=torch.float32)

    on_cpu = usable_on_cpu(regions, texts.words) and len(texts) >= cpu_attention.QUERIES

    def run(quick: bool) -> Tensor:
        fast = cpu_attention.attended_scores if on_cpu else gpu_attention.attended_scores
        score: Callable[..., Tensor] = fast if quick else reference.attended_scores
        return score(regions, region_mask, texts, settings, precision=precision, budget=_room(regions.device, budget))

    fits = gpu_attention.fits(regions.shape[1], int(texts.lengths.max()))
    family = "compiled" if on_cpu else "attended"
    return _either(family, run, regions, on_cpu or (fits and usable(regions, texts.words)))


def _either(family: str, run: Callable[[bool], Tensor], where: Tensor, quick: bool) -> Tensor:
    """run(True), with the kernels, where they may be used and do not fail; else run(False), in plain PyTorch."""
    with torch.cuda.device_of(where), torch.autocast(where.device.type, enabled=False):
        try:
            return run(quick)
        except (ValueError, torch.cuda.OutOfMemoryError):  # a wrong option, or no memory: not the kernels' fault
            raise
        except Exception as error:
            if not quick:
                raise
            give_up(family, error)
        return run(False)


def attended_sets(
    images: Embedding, texts: Embedding, directions: Sequence[str], settings: AttentionSettings
) -> Tensor:
    """`attended_scores` of two batches of sets, summed over directions, in TF32 or fp16 where products may be."""
    packed = pack(texts.vectors, texts.mask)
    precision = "fp32" if torch.get_float32_matmul_precision() == "highest" else _quickest(images.vectors, packed.words)
    ways = [replace(settings, direction=way) for way in directions]
    scores = [attended_scores(images.vectors, images.mask, packed, way, precision=precision) for way in ways]
    return scores[0] if len(scores) == 1 else torch.stack(scores).sum(0)


def _quickest(*sides: Tensor) -> str:
    """fp16 for vectors of unit length on a GPU, for which it is as fine as TF32; longer ones might not fit it."""
    if not all(side.is_cuda and side.numel() for side in sides):
        return "tf32"
    longest = torch.stack([torch.linalg.vector_norm(side, dim=-1).amax() for side in sides])
    return "fp16" if bool((longest < UNIT).all()) else "tf32"


def _fusible(pictures: Pictures, captions: Captions, size: int) -> bool:
    """Whether similarity vectors of this size can be made and mixed by the kernels."""
    longest = max(captions.texts.lengths.tolist(), default=0) + 1
    shapes = (
        size <= vector_scores.WIDEST
        and gpu_attention.power(size) == size
        and gpu_attention.fits(pictures.regions.shape[1], longest)
    )
    return shapes and usable(pictures.regions, captions.texts.words, family="vectors")


def sgr_scores(
    pictures: Pictures,
    captions: Captions,
    layers: VectorLayers,
    steps: Sequence[Step],
    evaluate: nn.Linear,
    *,
    precision: str = "fp16",
    budget: int | None = None,
) -> Tensor:
    """(I, T) scores of SGR: similarity vectors by `layers`, graph `steps`, `evaluate` (S -> 1)."""

    def head(quick: bool, taken: str) -> Head:
        return Reasoning(steps, evaluate, precision=taken, fused=quick)

    return _scored(pictures, captions, layers, head, precision, budget)


def saf_scores(
    pictures: Pictures,
    captions: Captions,
    layers: VectorLayers,
    attend: nn.Linear,
    norm: nn.BatchNorm1d,
    evaluate: nn.Linear,
    *,
    precision: str = "fp16",
    budget: int | None = None,
) -> Tensor:
    """(I, T) scores of SAF: similarity vectors, gates by `attend` (S -> 1) and `norm` as in evaluation, `evaluate`."""

    def head(quick: bool, taken: str) -> Head:
        return Filtering(attend, norm, evaluate, fused=quick)

    return _scored(pictures, captions, layers, head, precision, budget)


def _scored(
    pictures: Pictures,
    captions: Captions,
    layers: VectorLayers,
    head: Callable[[bool, str], Head],
    precision: str,
    budget: int | None,
) -> Tensor:
    """Scores by the kernels where they may be used, else in plain PyTorch; `head` is made for (kernels?, precision)."""

    def run(quick: bool) -> Tensor:
        taken, room = precision if quick else "fp32", _room(pictures.regions.device, budget)
        return vector_scores.vector_scores(
            pictures, captions, layers, head(quick, taken), precision=taken, budget=room, fused=quick
        )

    return _either("vectors", run, pictures.regions, _fusible(pictures, captions, layers.local.out_features))
