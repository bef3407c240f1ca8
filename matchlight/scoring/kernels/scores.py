"""Whole sides in, the matrix of all scores out: fused where the kernels can be trusted, plain PyTorch elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from matchlight.core import Embedding
from matchlight.scoring.kernels import fused, lanes, plain, reasoning
from matchlight.scoring.kernels.heads import Filtering, Reasoning, Step
from matchlight.scoring.kernels.packed import pack
from matchlight.scoring.kernels.reasoning import Captions, Head, Pictures
from matchlight.scoring.kernels.trust import give_up, usable, usable_on_cpu


def _room(device: torch.device, asked: int | None) -> int:
    """Bytes a block may take: what was asked, or a quarter of what is free, at most 2 GiB."""
    if asked is not None:
        return asked
    if device.type != "cuda":
        return 256 << 20
    return min(torch.cuda.mem_get_info(device)[0] // 4, fused.BUDGET)


def attended_scores(
    regions: Tensor,
    region_mask: Tensor | None,
    words: Tensor,
    offsets: Tensor,
    *,
    direction: str = "t2i",
    temperature: float,
    norm: str = "clipped_l2norm",
    aggregate: str = "mean",
    lse: float = 6.0,
    gate: str = "none",
    precision: str = "tf32",
    budget: int | None = None,
) -> Tensor:
    """(I, T) float32: each query's cosine with what it saw, aggregated. Queries are words (t2i) or regions (i2t).

    regions (I, R, D), region_mask (I, R) or None, words (W, D) packed, offsets (T + 1,) on the CPU (`pack` makes both).
    norm: clipped_l2norm | l2norm | clipped | no_norm; aggregate: mean | lse | max | sum; gate: none | equal | prob
    (BFAN); precision of the products: fp32 | tf32 | fp16 | bf16, followed by float32.
    """
    if len(regions) == 0 or len(offsets) == 1:
        return regions.new_zeros(len(regions), len(offsets) - 1, dtype=torch.float32)

    on_cpu = usable_on_cpu(regions, words) and len(offsets) > lanes.LANES

    def run(quick: bool) -> Tensor:
        fast = lanes.attended_scores if on_cpu else fused.attended_scores
        score: Callable[..., Tensor] = fast if quick else plain.attended_scores
        return score(
            regions, region_mask, words, offsets, direction=direction, temperature=temperature, norm=norm,
            aggregate=aggregate, lse=lse, gate=gate, precision=precision, budget=_room(regions.device, budget),
        )  # fmt: skip

    fits = fused.fits(regions.shape[1], int(offsets.diff().max()))
    family = "compiled" if on_cpu else "attended"
    return _either(family, run, regions, on_cpu or (fits and usable(regions, words)))


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


def attended_sets(images: Embedding, texts: Embedding, directions: Sequence[str], **settings: Any) -> Tensor:
    """`attended_scores` of two batches of sets, summed over directions, in TF32 where products may be."""
    texts_alone = pack(texts.vectors, texts.mask)
    precision = "fp32" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    sides = (images.vectors, images.mask, texts_alone.words, texts_alone.offsets)
    scores = [attended_scores(*sides, direction=way, precision=precision, **settings) for way in directions]
    return scores[0] if len(scores) == 1 else torch.stack(scores).sum(0)


def _fusible(pictures: Pictures, captions: Captions, size: int) -> bool:
    """Whether similarity vectors of this size can be made and mixed by the kernels."""
    longest = max(captions.texts.lengths.tolist(), default=0) + 1
    shapes = size <= reasoning.WIDEST and fused.power(size) == size and fused.fits(pictures.regions.shape[1], longest)
    return shapes and usable(pictures.regions, captions.texts.words, family="vectors")


def sgr_scores(
    pictures: Pictures,
    captions: Captions,
    local: nn.Linear,
    overall: nn.Linear,
    steps: Sequence[Step],
    evaluate: nn.Linear,
    *,
    temperature: float = 9.0,
    precision: str = "fp16",
    budget: int | None = None,
) -> Tensor:
    """(I, T) scores of SGR: similarity vectors by `local`, `overall` (D -> S), graph `steps`, `evaluate` (S -> 1)."""

    def run(quick: bool) -> Tensor:
        taken = precision if quick else "fp32"
        head = Reasoning(steps, evaluate, precision=taken, fused=quick)
        return _scored(pictures, captions, local, overall, head, temperature, taken, budget, quick)

    return _either("vectors", run, pictures.regions, _fusible(pictures, captions, local.out_features))


def saf_scores(
    pictures: Pictures,
    captions: Captions,
    local: nn.Linear,
    overall: nn.Linear,
    attend: nn.Linear,
    norm: nn.BatchNorm1d,
    evaluate: nn.Linear,
    *,
    temperature: float = 9.0,
    precision: str = "fp16",
    budget: int | None = None,
) -> Tensor:
    """(I, T) scores of SAF: similarity vectors, gates by `attend` (S -> 1) and `norm` as in evaluation, `evaluate`."""

    def run(quick: bool) -> Tensor:
        taken, head = precision if quick else "fp32", Filtering(attend, norm, evaluate)
        return _scored(pictures, captions, local, overall, head, temperature, taken, budget, quick)

    return _either("vectors", run, pictures.regions, _fusible(pictures, captions, local.out_features))


def _scored(
    pictures: Pictures, captions: Captions, local: nn.Linear, overall: nn.Linear, head: Head,
    temperature: float, precision: str, budget: int | None, quick: bool,
) -> Tensor:  # fmt: skip
    return reasoning.vector_scores(
        pictures, captions, local, overall, head, temperature=temperature, precision=precision,
        budget=_room(pictures.regions.device, budget), fused=quick,
    )  # fmt: skip
