"""What a network in training thinks of every training pair: one pass in evaluation mode, nothing learnt."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from matchlight import devices
from matchlight.core import IMAGE, TEXT, Batch, Embedding, Embeddings, Matcher
from matchlight.inputs.batches import Feed, collate, for_gpu, seeded
from matchlight.parts.objectives import contrast, log_probabilities
from matchlight.scoring.encode import encode
from matchlight.training.contract import TrainingRun
from matchlight.training.network import score_batch, whole_batch

Measure = Callable[[Tensor, dict[str, Embeddings], Batch], dict[str, Tensor]]
Beside = Callable[[dict[str, Embeddings], Batch], None]
POOL = 128  # manufactured partners in all: read once a pass, one for each pair
SALT = 4242
FEW_VECTORS = 8  # of a picture: sets and single vectors of all pictures fit anywhere


class ReadPictures:
    """Every training picture embedded once: shuffled batches would read each again for every one of its captions."""

    def __init__(self, run: TrainingRun, matcher: Matcher):
        pictures = np.unique(run.pairs.picture[run.rows])
        self.place = torch.full((len(run.pairs.names),), -1, device=run.device)
        self.place[torch.from_numpy(pictures).to(run.device)] = torch.arange(len(pictures), device=run.device)
        with torch.autocast(run.device.type, dtype=torch.bfloat16, enabled=run.precision == "bf16"):
            self.images = encode(matcher, run.table, IMAGE, pictures, keep_on_device=True)

    def of(self, batch: Batch) -> Embeddings:
        """The pictures of a batch."""
        return self.images.take(self.place[batch.sides[IMAGE].id])


@torch.no_grad()
def read_once(run: TrainingRun, matcher: Matcher) -> ReadPictures | None:
    """All pictures, where a picture is few vectors: one of many regions takes less time to read than room to keep."""
    if devices.world() > 1 or matcher.depends_on_padding:
        return None
    first = matcher.embed(IMAGE, run.table.items(IMAGE, run.pairs.picture[run.rows[:1]]).to(run.device))
    small = isinstance(first, Embedding) and first.vectors.shape[1] <= FEW_VECTORS
    return ReadPictures(run, matcher) if small else None


@torch.no_grad()
def scored(
    run: TrainingRun, matcher: Matcher, batch: Batch, pictures: ReadPictures | None = None
) -> tuple[Tensor, dict[str, Embeddings], Batch]:
    """The matrix of a batch, its embeddings and the batch of all processes; the matcher must be in eval mode."""
    with torch.autocast(run.device.type, dtype=torch.bfloat16, enabled=run.precision == "bf16"):
        if pictures is None:
            embeddings, batch = whole_batch(matcher, batch)
        else:
            embeddings = {IMAGE: pictures.of(batch), TEXT: matcher.embed(TEXT, batch.sides[TEXT])}
        matrix = score_batch(matcher, embeddings, batch, matrix=True).matrix
    assert matrix is not None
    return matrix, embeddings, batch


def over_rows(run: TrainingRun, matcher: Matcher, measure: Measure, *, draw: tuple[int, ...]) -> dict[str, np.ndarray]:
    """`measure` on every training row, in shuffled batches; by row of the whole table, NaN where it is no training row.

    `draw` names the shuffle: the same numbers give the same batches.
    """
    batches = run.table.plan(run.rows, run.recipe.batch, seeded(run.seed, SALT, *draw))
    measured: dict[str, list[Tensor]] = {}
    rows = []
    was = matcher.training
    matcher.eval()
    pictures = read_once(run, matcher)

    def make(step: int) -> Batch:
        return for_gpu(collate(run.table, batches[step], repeat=run.repeat), matcher, run.device)

    for batch in Feed(run.device).batches(make, range(len(batches))):
        matrix, embeddings, whole = scored(run, matcher, batch, pictures)
        rows.append(whole.row)
        for name, value in measure(matrix, embeddings, whole).items():
            measured.setdefault(name, []).append(value)
    matcher.train(was)
    places = torch.cat(rows).cpu().numpy()
    return {name: _by_row(len(run.pairs), places, torch.cat(parts)) for name, parts in measured.items()}


def _by_row(size: int, places: np.ndarray, values: Tensor) -> np.ndarray:
    out = np.full(size, np.nan)
    out[places] = values.double().cpu().numpy()
    return out


class Mismatches:
    """A fixed wrong caption and a fixed wrong picture for every row: what a mismatched pair scores, measured."""

    def __init__(self, run: TrainingRun, matcher: Matcher):
        draw = seeded(run.seed, SALT)
        rows = draw.choice(run.rows, min(POOL, len(run.rows)), replace=False)
        owner = run.pairs.picture[rows].astype(np.int64)
        self.owner, self.step = (torch.from_numpy(part).to(run.device) for part in (owner, steps_to_another(owner)))
        self.matcher, self.count = matcher, len(rows)
        matcher.eval()
        with torch.no_grad(), torch.autocast(run.device.type, dtype=torch.bfloat16, enabled=run.precision == "bf16"):
            self.texts = matcher.embed(TEXT, run.table.items(TEXT, rows).to(run.device))
            self.images = matcher.embed(IMAGE, run.table.items(IMAGE, run.pairs.picture[rows]).to(run.device))
        self.bf16 = run.precision == "bf16"

    def of(self, batch: Batch) -> Tensor:
        """(P,) the place in the pool of each row's stranger: always the same one, never a sibling.

        Where the pool has one picture only there is no stranger: the row then meets a caption of its own picture, its
        wrong double scores like a right pair, and nothing can be distinguished.
        """
        own = batch.sides[IMAGE].id[batch.positive[:, 0]]
        first = (batch.row * 7919) % self.count
        return torch.where(self.owner[first] == own, (first + self.step[first]) % self.count, first)

    def scores(self, embeddings: dict[str, Embeddings], batch: Batch) -> tuple[Tensor, Tensor]:
        """(P,) each pair's picture with its wrong caption, and its caption with its wrong picture."""
        place, link = self.of(batch), batch.positive
        with torch.autocast(self.owner.device.type, dtype=torch.bfloat16, enabled=self.bf16):
            texts = self.matcher.score_pairs(embeddings[IMAGE].take(link[:, 0]), self.texts.take(place))
            images = self.matcher.score_pairs(self.images.take(place), embeddings[TEXT].take(link[:, 1]))
        return texts.float(), images.float()


def steps_to_another(owner: np.ndarray) -> np.ndarray:
    """(n,) from each place, how far on the next one of another owner is, round and round; 0 where there is none."""
    places = np.arange(len(owner))
    return (owner[(places[:, None] + places) % len(owner)] != owner[:, None]).argmax(1)


@torch.no_grad()
def fits(
    run: TrainingRun,
    matcher: Matcher,
    *,
    draw: tuple[int, ...],
    temperature: float = 0.05,
    beside: Beside | None = None,
) -> dict[str, np.ndarray]:
    """Per row: `loss` (-log probability of the pair in its batch) and `null`, that of its manufactured mismatch.

    `beside` is shown the embeddings of every batch.
    """
    mismatches = Mismatches(run, matcher)

    def measure(matrix: Tensor, embeddings: dict[str, Embeddings], batch: Batch) -> dict[str, Tensor]:
        if beside is not None:
            beside(embeddings, batch)
        c = contrast(matrix.float(), batch)
        sure = log_probabilities(c, temperature)
        null = []
        for (score, ok), wrong in zip(c.directions().values(), mismatches.scores(embeddings, batch), strict=True):
            rest = torch.logsumexp((score / temperature).masked_fill(~ok, -torch.inf), 1)
            null.append(torch.logaddexp(wrong / temperature, rest) - wrong / temperature)  # the own partner left out
        return {"loss": -(sure["i2t"][0] + sure["t2i"][0]) / 2, "null": (null[0] + null[1]) / 2}

    return over_rows(run, matcher, measure, draw=draw)
