"""Everything against everything, keeping only the best: offline mining over a whole training set.

Pictures and captions come in chunks; a *unit* is one chunk of each. Its scores are made in blocks under a byte budget,
a pair's own items are struck out, and the rest is offered to the running lists of both sides. What is done is written
down every so often, so that a search that was killed goes on behind the last unit it wrote down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from matchlight.console import track
from matchlight.core import BadInput, Json, Matcher
from matchlight.data.fingerprints import CONTENT
from matchlight.inputs.batches import Table
from matchlight.scoring.all_pairs import score_blocks
from matchlight.training import checkpoints
from matchlight.training.checkpoints import State
from matchlight.training.mining.chunks import Room, both_sides, caption_order
from matchlight.training.mining.top_k import INF, TopK

SAVE_SECONDS = 20.0
Lists = tuple[TopK, TopK]  # captions of each picture, pictures of each caption


@dataclass
class Ledger:
    """Where a search stands, on the disk: nothing is written where there is no folder."""

    path: Path | None
    about: dict[str, Json]
    search: Search
    saved: float = 0.0

    def read(self) -> State | None:
        """What an earlier search left, whose units are then kept to; None where there is none. Another's is refused."""
        if self.path is None or not self.path.exists():
            return None
        state = checkpoints.load_tree(self.path)
        differs = differing(self.about, state["about"])
        if differs:  # the other search may have taken days: it is not for us to throw away
            where = f"{self.path.parent}: holds a half-done search"
            raise BadInput(f"{where} with other settings ({differs} differ); another -o, or remove {self.path.name}")
        self.search.images.size, self.search.texts.size = state["sizes"]
        return state

    def write(self, state: Callable[[], State], *, now: bool = False) -> None:
        """Keep the state if it is time to."""
        self.saved = self.saved or time.monotonic()
        if self.path is not None and (now or time.monotonic() - self.saved > SAVE_SECONDS):
            sizes = (self.search.images.size, self.search.texts.size)
            checkpoints.save_tree(self.path, {"about": self.about, "sizes": sizes, **state()})
            self.saved = time.monotonic()


def differing(about: dict[str, Json], known: dict[str, Json]) -> str:
    """The names whose values are not the same in what is known of another search; old ones say nothing of content."""
    return ", ".join(
        name for name in about if known.get(name, ...) != about[name] and (name != CONTENT or name in known)
    )


def check_numbers(lists: Iterable[Tensor]) -> None:
    """Scores that are no numbers rank nothing: they are reported, not left out."""
    if any(bool(scores.isnan().any()) for scores in lists):
        raise BadInput("this model gives scores that are no numbers; nothing can be mined with it")


class Search:
    """One search: the model, the chunks of both sides, and who belongs to whom."""

    def __init__(self, matcher: Matcher, table: Table, rows: np.ndarray, *, memory: int | None, quiet: bool):
        self.matcher, self.quiet = matcher, quiet
        self.where = next(matcher.parameters()).device
        self.pictures = np.unique(table.pairs.picture[rows])
        self.order = caption_order(matcher, table, rows)
        self.rows = rows[self.order]
        room = Room.on(self.where, memory)
        self.images, self.texts = both_sides(matcher, table, self.pictures, self.rows, room)
        owner = np.searchsorted(self.pictures, table.pairs.picture[self.rows])
        self.owner = torch.from_numpy(owner).to(self.where)

    @property
    def units(self) -> int:
        """How many there are."""
        return len(self.images) * len(self.texts)

    def empty(self, texts: int, images: int) -> Lists:
        """Lists with nothing in them yet."""
        count = len(self.pictures), len(self.rows)
        return TopK(count[0], min(texts, count[1]), self.where), TopK(count[1], min(images, count[0]), self.where)

    def go(self, what: str, work: Callable[[int, int], None], *, start: int, after: Callable[[int], None]) -> None:
        """`work` on every unit that is left (chunk of pictures, chunk of captions), `after` each."""
        left = range(start, self.units)
        for unit in left if self.quiet else track(left, what):
            work(*divmod(unit, len(self.texts)))
            after(unit + 1)

    def offer(self, scores: Tensor, k: int, j: int, lists: Lists) -> None:
        """Strike out own items and keep the best of a unit both ways."""
        tall, wide = self.images.span(k), self.texts.span(j)
        owner = self.owner[wide] - tall.start
        mine = (owner >= 0) & (owner < len(scores))
        place = torch.arange(len(owner), device=scores.device)
        scores[owner[mine], place[mine]] = -INF
        lists[0].add(tall, scores, wide.start)
        lists[1].add(wide, scores.T.contiguous(), tall.start)

    def exact(self, k: int, j: int) -> Tensor:
        """(pictures, captions) scores of a unit by the model's own similarity."""
        images, texts = self.images[k], self.texts[j]
        out = torch.empty(len(images), len(texts), device=self.where)
        for i, places, block in score_blocks(self.matcher, images, texts, self.where):
            out[i : i + len(block), torch.from_numpy(places).to(self.where)] = block
        return out


def sweep(search: Search, scores: Callable[[int, int], Tensor], lists: Lists, ledger: Ledger, *, name: str) -> None:
    """Offer every unit's scores to the lists, going on where an earlier sweep stopped."""
    state, start = ledger.read(), 0
    if state is not None and state["stage"] == name:
        start = state["done"]
        for best, kept in zip(lists, state["lists"], strict=True):
            best.restore(kept)

    def note(done: int) -> None:
        ledger.write(lambda: {"stage": name, "done": done, "lists": [best.state() for best in lists]})

    what = "mining" if name == "exact" else "proposing"
    search.go(what, lambda k, j: search.offer(scores(k, j), k, j, lists), start=start, after=note)
