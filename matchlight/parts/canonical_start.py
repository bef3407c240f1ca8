"""Two towers whose projections begin where canonical correlation ends: an epoch is then enough on little data.

Pretrained networks know pictures and captions already; what is missing is the map from one to the other. Learned from a
random start it takes many epochs. Its closed form (`canonical_correlation.py`) takes seconds, and training goes on from
there. Wrong pairs only blur what is fitted: they agree on no direction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from matchlight import devices
from matchlight.core import IMAGE, TEXT, Items, Matcher
from matchlight.inputs.batches import Table, seeded
from matchlight.parts.canonical_correlation import CanonicalMaps, fit_canonical_correlation
from matchlight.parts.encoders import Seen
from matchlight.parts.layers import masked_mean

POWER = 1.0  # how much more a direction counts where both sides agree on it, as is best for ranking
MOST = 20_000  # pairs that are read for the fit
CENTRED = 1_000  # items that the mean of a side's vectors is taken of
LEFT_OVER = 0.1  # size of outputs that no direction is left for, of what they began with
APART = 37  # of this draw's own, so that it follows from the seed and from nothing else


class Projects(Protocol):
    """An encoder of sets whose every member goes through one linear map before the set becomes one vector."""

    @property
    def linear(self) -> nn.Linear:
        """That map."""

    def inputs(self, items: Items) -> Items:
        """The items as the sets that it maps, (N, K, in) with their mask."""

    def pooled(self, members: Items) -> Tensor:
        """(N, out): the members, mapped and pooled."""

    def settle(self) -> None:
        """Let nothing but the map count at first: other layers add nothing, and pooling is a mean."""


@torch.no_grad()
def start_canonically(matcher: Matcher, table: Table, rows: np.ndarray, seed: int) -> None:
    """Set both sides' projections to the canonical directions of these rows; all of it follows from the seed."""
    was = matcher.training
    matcher.eval()
    chosen = rows if len(rows) <= MOST else np.sort(seeded(seed, APART).choice(rows, MOST, replace=False))
    pictures, place = np.unique(table.pairs.picture[chosen], return_inverse=True)
    sides = {IMAGE: (_encoder(matcher, IMAGE), pictures), TEXT: (_encoder(matcher, TEXT), chosen)}
    found = _fitted(matcher, table, sides, place) if devices.rank() == 0 else None
    fit: CanonicalMaps = devices.broadcast(found)
    for (side, (encoder, places)), directions in zip(sides.items(), fit.maps, strict=True):
        encoder.settle()
        set_directions(encoder.linear, directions)
        few = np.sort(seeded(seed, APART, 1).choice(places, min(CENTRED, len(places)), replace=False))
        pooled = [encoder.pooled(members).float() for members in _members(matcher, table, side, few)]
        encoder.linear.bias.copy_(-devices.broadcast(torch.cat(pooled).mean(0).cpu()))
    matcher.train(was)


def _encoder(matcher: Matcher, side: str) -> Projects:
    encoder = matcher.encoders[side]
    return encoder.regions if isinstance(encoder, Seen) else encoder  # type: ignore[return-value]


def _members(matcher: Matcher, table: Table, side: str, places: np.ndarray) -> Iterator[Items]:
    """What a side's projection reads, batch after batch."""
    encoder = matcher.encoders[side]
    for start in range(0, len(places), matcher.encode_batch):
        items = table.items(side, places[start : start + matcher.encode_batch]).to(next(encoder.parameters()).device)
        items = replace(items, x=items.x.float()) if items.x.is_floating_point() else items  # kept in half the space
        yield _encoder(matcher, side).inputs(encoder.cells(items) if isinstance(encoder, Seen) else items)


def _fitted(
    matcher: Matcher, table: Table, sides: dict[str, tuple[Projects, np.ndarray]], place: np.ndarray
) -> CanonicalMaps:
    """The closed form between the means of the sets, in double precision."""
    means = []
    for side, (_, places) in sides.items():
        order = np.argsort(table.captions.lengths[places], kind="stable") if side == TEXT and table.captions else None
        read = places if order is None else places[order]  # captions of like length together: little padding
        mean = torch.cat([masked_mean(m.x, m.mask).double().cpu() for m in _members(matcher, table, side, read)])
        means.append(mean if order is None else mean[torch.from_numpy(np.argsort(order))])
    images = means[0][torch.from_numpy(place)]
    return fit_canonical_correlation(images, means[1], torch.ones(len(images)).double(), power=POWER)


def set_directions(linear: nn.Linear, directions: Tensor) -> None:
    """The first outputs become the directions, as large as the random weights were, so that rates mean the same.

    Outputs that are left over stay random but small: at 0 on both sides they would never learn.
    """
    count = min(linear.out_features, directions.shape[1])
    size, own = linear.weight.square().mean().sqrt().cpu(), directions.square().mean().sqrt()
    linear.weight *= LEFT_OVER
    linear.weight[:count] = (directions[:, :count].T * (size / own)).to(linear.weight)
    linear.bias.zero_()
