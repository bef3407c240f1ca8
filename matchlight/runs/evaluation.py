"""How good a run is: encode a split, score everything, hand the matrix to the protocols.

The matrix stays on the run's device, where ranks are counted; it comes to the host only to be written to a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from matchlight.core import IMAGE, TEXT, BadInput, Embeddings, Matcher
from matchlight.data.formats.safety import is_inside
from matchlight.files import is_array_file, write_array
from matchlight.inputs.prepare import Inputs
from matchlight.measuring.evaluation_result import Evaluation
from matchlight.measuring.metrics import best_threshold
from matchlight.measuring.protocols import ALL, Options
from matchlight.measuring.referee import Predicted, Scored, mean_of, report_of
from matchlight.pairs import Labels, Pairs
from matchlight.parts.set_similarities import SetSimilarity
from matchlight.runs.folder import Run
from matchlight.scoring.all_pairs import held_scores, to_host
from matchlight.scoring.encode import encode_both, predicted

PRECISIONS = ("fp32", "tf32")
SPREAD = 1 << 24  # numbers of sets looked at together


@dataclass(frozen=True)
class Scoring:
    """How a score matrix is computed; none of it changes what is measured."""

    budget: int | None = None  # bytes that a block of scores may take; None: what suits the device
    precision: str = "fp32"  # "tf32" lets a GPU round the inputs of products
    quiet: bool = True  # no progress bars


@contextmanager
def products_in(precision: str, device: torch.device) -> Iterator[None]:
    """Matrix products of this precision for a while: fp32 is exact, tf32 lets a GPU round their inputs."""
    if precision not in PRECISIONS:
        raise BadInput(f"--precision {precision}: {' or '.join(PRECISIONS)}")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" and device.type == "cuda" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def split_scores(
    run: Run, pairs: Pairs, split: str, *, budget: int | None = None, precision: str = "fp32", quiet: bool = True
) -> np.ndarray:
    """(pictures, captions) float32 scores of one split in host memory, in file order."""
    return to_host(_held(run, pairs, split, Scoring(budget, precision, quiet)))


def _held(run: Run, pairs: Pairs, split: str, how: Scoring) -> Tensor:
    """The same, on the device of the run."""
    with products_in(how.precision, run.device):
        images, texts = _encoded(run, run.inputs(pairs), split, quiet=how.quiet)
        return held_scores(run.matcher, images, texts, budget=how.budget, quiet=how.quiet)


def _encoded(run: Run, inputs: Inputs, split: str, *, quiet: bool) -> tuple[Embeddings, Embeddings]:
    """Pictures and captions of a split, in file order."""
    pairs = inputs.table.pairs
    return encode_both(run.matcher, inputs.table, pairs.pictures_of(split), pairs.rows(split), quiet=quiet)


def _predicted(run: Run, sides: tuple[Embeddings, Embeddings], labels: Labels) -> dict[str, np.ndarray]:
    """Label probabilities by side, columns as the data names its classes; empty where the method predicts none."""
    known = run.classes or labels.names
    return {side: _columns(named, known, labels.names) for side, named in predicted(run.matcher, *sides).items()}


def _columns(probabilities: np.ndarray, known: list[str], wanted: list[str]) -> np.ndarray:
    """Probabilities of the classes `wanted`; one that the run never saw has probability 0."""
    place = {name: k for k, name in enumerate(known[: probabilities.shape[1]])}
    out = np.zeros((len(probabilities), len(wanted)), np.float32)
    for column, name in enumerate(wanted):
        if name in place:
            out[:, column] = probabilities[:, place[name]]
    return out


def _thresholds(run: Run, inputs: Inputs, split: str, *, quiet: bool) -> dict[str, float] | None:
    """By side, the threshold with the best Micro-F1 on val; None where there is no val split beside `split`."""
    pairs = inputs.table.pairs
    if split == "val" or "val" not in pairs.split_names or not len(pairs.rows("val")):
        return None
    labels = pairs.subset("val").labels
    assert labels is not None
    real = {IMAGE: labels.image, TEXT: labels.text}
    named = _predicted(run, _encoded(run, inputs, "val", quiet=quiet), labels)
    return {side: best_threshold(given, real[side]) for side, given in named.items()}


def set_spread(matcher: Matcher, images: Embeddings, texts: Embeddings) -> dict[str, float] | None:
    """Mean circular variance within the sets of each side, 0 = collapsed; None where items are no sets of vectors."""
    members = matcher.each()
    sides = {IMAGE: images.members, TEXT: texts.members}
    several = min(part.vectors.shape[1] for parts in sides.values() for part in parts) > 1
    if not several or not all(isinstance(member.similarity, SetSimilarity) for member in members):
        return None
    return {side: float(np.mean([_variance(part.vectors) for part in parts])) for side, parts in sides.items()}


@torch.inference_mode()
def _variance(sets: Tensor) -> float:
    """The mean circular variance of (N, K, D) sets, computed where they are: bringing them to the host costs more."""
    blocks = sets.split(max(1, SPREAD // max(1, sets.shape[1] * sets.shape[2])))
    means = [normalize(block.double(), dim=2, eps=1e-300).sum(1).norm(dim=1) / sets.shape[1] for block in blocks]
    return float((1 - torch.cat(means)).mean())


class EvaluateOptions(Options, total=False):
    """Options of protocols, and whether 95% intervals are wanted."""

    ci: bool


def evaluate(
    run: Run,
    pairs: Pairs,
    split: str = "test",
    *,
    protocol: str = "auto",
    scores: str | Path | None = None,
    others: Sequence[Run] = (),
    scoring: Scoring | None = None,
    **options: Unpack[EvaluateOptions],
) -> Evaluation:
    """The report of a protocol on one split; `scores` keeps the matrix as a .npy file, `ci` adds 95% intervals.

    `auto` is `labels` for a method that was trained by labels, else what the data suggests; `all` is every protocol
    that the data allows. `others` make an ensemble: the mean of all scores is ranked. Options are those of protocols,
    such as `ties="official"` and `fold=1000`.
    """
    if scores is not None:
        check_scores_file(Path(scores), pairs)
    all_scores = scored(run, pairs, split, protocol=protocol, others=others, scoring=scoring)
    if scores is not None:
        write_array(Path(scores), all_scores.on_host())
    return Evaluation(report_of(all_scores, pairs.subset(split), protocol=protocol, **options), split, protocol)


def check_scores_file(path: Path, pairs: Pairs) -> None:
    """Refuse, before anything slow, to write over what is no .npy file, or among the data under another name."""
    if path.exists() and not is_array_file(path):
        raise BadInput(f"{path}: there already and no .npy file; --scores writes one, --from-scores reads one")
    among = pairs.format != "memory" and is_inside(os.path.realpath(pairs.root), str(path))
    if among and path.suffix != ".npy":
        raise BadInput(f"{path}: lies in the data folder {pairs.root}; --scores writes only FILE.npy there")


def scored(
    run: Run,
    pairs: Pairs,
    split: str = "test",
    *,
    protocol: str = "auto",
    others: Sequence[Run] = (),
    scoring: Scoring | None = None,
) -> Scored:
    """Encode and score a split, by one run or by several; labels are predicted where there is one run only."""
    pairs.need_captions("evaluation")
    how = scoring or Scoring()
    asked = protocol in ("labels", ALL) or (protocol == "auto" and run.by_labels)
    by_labels = pairs.labels is not None and asked
    inputs = run.inputs(pairs)
    said: Predicted = {}
    with products_in(how.precision, run.device):
        sides = _encoded(run, inputs, split, quiet=how.quiet)
        found = scored_sides(run.matcher, *sides, how, spread=not others)
        if by_labels and pairs.labels is not None and not others and (named := _predicted(run, sides, pairs.labels)):
            said = {"predictions": named, "thresholds": _thresholds(run, inputs, split, quiet=how.quiet)}
    matrix = found.matrix
    if others:
        assert isinstance(matrix, Tensor)
        matrix = mean_of(matrix, (_held(one, pairs, split, how) for one in others))
    return Scored(matrix, by_labels, said, found.spread)


def scored_sides(
    matcher: Matcher, images: Embeddings, texts: Embeddings, how: Scoring | None = None, *, spread: bool = True
) -> Scored:
    """The same of pictures and captions that are encoded already; `spread`: how far the vectors of sets are apart."""
    asked = how or Scoring()
    with products_in(asked.precision, images.members[0].vectors.device):
        matrix = held_scores(matcher, images, texts, budget=asked.budget, quiet=asked.quiet)
    return Scored(matrix, spread=set_spread(matcher, images, texts) if spread else None)
