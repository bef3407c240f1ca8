"""The types everything else is written in: read this file first.

A picture or a caption becomes **a set of vectors with a mask** (`Embedding`; one vector is a set of one), and a
method's score is **a function from two batches of sets to a matrix** (`Similarity`; pictures are rows). Losses read
that matrix, mining sorts it, audits read what it leaves over the epochs, evaluation ranks it, the index searches the
vectors first.

Conventions kept everywhere: mask True = real; positives are links (places in the two sides), never a diagonal; an
item's `id` is its place in the whole table, so two items with one id are the same item; a `row` is a (picture, caption)
pair of the whole table and is never renumbered by a subset; whatever is random follows from a seed that is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NotRequired, TypedDict

import torch
from torch import Tensor, nn

# Names that need no torch live where reading data finds them without it; here they are part of the vocabulary too.
from matchlight.console import BadInput as BadInput
from matchlight.files import Json as Json
from matchlight.pairs import IMAGE as IMAGE
from matchlight.pairs import TEXT as TEXT

Rates = dict[str, float] | float  # factors on the learning rate: one a parameter group, or one for all; 0 = frozen
Seed = int | Tensor  # of draws by item; on the device where a step is recorded
Schedule = Callable[[int, int, int], Rates]  # (epoch, step, steps an epoch) -> factors
Named = dict[str, Tensor]
Terms = dict[str, Tensor]  # named, already weighted losses, one value per pair or one in all


def _move(extra: dict[str, Tensor], how: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    return {name: how(value) for name, value in extra.items()}


@dataclass(frozen=True)
class Items:
    """One side of a batch: pictures, captions, or a third modality."""

    x: Tensor  # (N, R, D) regions | (N, 3, H, W) pixels | (N, L) tokens | (N, D) one vector
    mask: Tensor | None  # (N, R) or (N, L), True = real
    id: Tensor  # (N,) place in the whole table
    extra: dict[str, Tensor] = field(default_factory=dict)  # "label", "box", ...: leading dimension N, always
    real: int | None = None  # of the mask's places at most so many are real; None: nobody counted

    def __len__(self) -> int:
        return len(self.id)

    def map(self, how: Callable[[Tensor], Tensor]) -> Items:
        """The same items with `how` applied to every tensor (a move, a slice, a repeat)."""
        mask = None if self.mask is None else how(self.mask)
        return Items(how(self.x), mask, how(self.id), _move(self.extra, how))

    def to(self, device: torch.device | str) -> Items:
        """Move to a device; "length" stays on the CPU, where packed sequences want it."""
        mask = None if self.mask is None else self.mask.to(device)
        extra = {name: value if name == "length" else value.to(device) for name, value in self.extra.items()}
        return Items(self.x.to(device), mask, self.id.to(device), extra, self.real)

    def take(self, index: Tensor | slice) -> Items:
        """The items at these places, in this order."""
        return self.map(lambda t: t[index if isinstance(index, slice) else index.to(t.device)])


@dataclass(frozen=True)
class Batch:
    """Items of each side, which of them belong together, and where these pairs stand in the whole table."""

    sides: dict[str, Items]  # sides may differ in length: a picture is encoded once for its five captions
    links: dict[str, Tensor]  # name -> (P, 2) places (image, text); "positive" = the labelled pairs
    row: Tensor  # (P,) row of each positive in the whole table
    extra: dict[str, Tensor] = field(default_factory=dict)  # what a strategy adds, leading dimension P
    core: tuple[int, int] | None = None  # pictures and captions of the matrix; what follows them only serves links

    @property
    def positive(self) -> Tensor:
        """The labelled pairs as (P, 2) places: image, text."""
        return self.links["positive"]

    def to(self, device: torch.device | str) -> Batch:
        """Everything moved to one device."""
        sides = {name: items.to(device) for name, items in self.sides.items()}
        links = {name: link.to(device) for name, link in self.links.items()}
        return replace(
            self, sides=sides, links=links, row=self.row.to(device), extra=_move(self.extra, lambda t: t.to(device))
        )

    def with_extra(self, **extra: Tensor) -> Batch:
        """The same batch with more per-pair values: how a strategy speaks to an objective."""
        return replace(self, extra={**self.extra, **extra})


@dataclass(frozen=True)
class Embedding:
    """A set of vectors per item; one vector is a set of one."""

    vectors: Tensor  # (N, K, D)
    mask: Tensor | None = None  # (N, K) True = real
    extra: dict[str, Tensor] = field(default_factory=dict)  # "id", "log_sigma", "residual", "states", "attention"

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def members(self) -> tuple[Embedding, ...]:
        """One embedding is an ensemble of one."""
        return (self,)

    @property
    def single(self) -> Tensor:
        """(N, D): the vector of a set of one."""
        if self.vectors.shape[1] != 1:
            raise ValueError(f"this embedding holds {self.vectors.shape[1]} vectors an item, not one")
        return self.vectors[:, 0]

    def map(self, how: Callable[[Tensor], Tensor]) -> Embedding:
        """The same sets with `how` applied to every tensor."""
        return Embedding(how(self.vectors), None if self.mask is None else how(self.mask), _move(self.extra, how))

    def to(self, device: torch.device | str) -> Embedding:
        """Moved to a device."""
        return self.map(lambda t: t.to(device))

    def take(self, index: Tensor | slice) -> Embedding:
        """The sets at these places, in this order."""
        return self.map(lambda t: t[index if isinstance(index, slice) else index.to(t.device)])


@dataclass(frozen=True)
class Parts:
    """The embeddings of an ensemble's members, item by item: moves, slices and stores as one."""

    members: tuple[Embedding, ...]

    def __len__(self) -> int:
        return len(self.members[0])

    def map(self, how: Callable[[Tensor], Tensor]) -> Parts:
        """Every member's tensors with `how` applied."""
        return Parts(tuple(member.map(how) for member in self.members))

    def to(self, device: torch.device | str) -> Parts:
        """Moved to a device."""
        return Parts(tuple(member.to(device) for member in self.members))

    def take(self, index: Tensor | slice) -> Parts:
        """Every member's sets at these places."""
        return Parts(tuple(member.take(index) for member in self.members))


Embeddings = Embedding | Parts


def pad_sets(parts: Sequence[Tensor], size: int | None = None) -> list[Tensor]:
    """Zero-pad (N, K, ...) tensors along K to a common size (False for masks)."""
    wide = max(part.shape[1] for part in parts) if size is None else size
    return [_widen(part, wide) for part in parts]


def _widen(part: Tensor, wide: int) -> Tensor:
    if part.shape[1] == wide:
        return part
    room = part.new_zeros(part.shape[0], wide - part.shape[1], *part.shape[2:])
    return torch.cat([part, room], 1)


def concatenate(parts: Sequence[Embeddings]) -> Embeddings:
    """One embedding of all items; shorter sets are padded, so sets of unequal size need masks."""
    members = [_concatenate(list(same)) for same in zip(*(part.members for part in parts), strict=True)]
    return Parts(tuple(members)) if isinstance(parts[0], Parts) else members[0]


def _concatenate(sets: list[Embedding]) -> Embedding:
    extra = {name: _join([part.extra[name] for part in sets]) for name in sets[0].extra}
    mask = None if sets[0].mask is None else _join([part.mask for part in sets if part.mask is not None])
    return Embedding(_join([part.vectors for part in sets]), mask, extra)


def _join(tensors: list[Tensor]) -> Tensor:
    return torch.cat(tensors if tensors[0].dim() < 2 else pad_sets(tensors))


class Similarity(nn.Module):
    """Two batches of sets -> how well each picture fits each caption; parameters that score live here."""

    def forward(self, images: Embedding, texts: Embedding) -> Tensor:
        """(I, T) scores of all pairs; pictures are rows."""
        raise NotImplementedError

    def pairs(self, images: Embedding, texts: Embedding) -> Tensor:
        """(P,) scores row by row. Methods override this where the matrix of one row is not the cheap way."""
        rows = [self(images.take(slice(i, i + 1)), texts.take(slice(i, i + 1))) for i in range(len(images))]
        return torch.cat(rows).flatten() if rows else images.vectors.new_zeros(0)

    def coarse(self, embedding: Embedding, side: str) -> Tensor | None:
        """(N, k, d) unit vectors whose largest dot product proposes candidates; None = score everything."""
        return None

    def cost(self, images: Embedding, texts: Embedding) -> int:
        """Bytes that scoring one pair needs at its widest: what the block size follows."""
        return 4 * images.vectors.shape[1] * texts.vectors.shape[1] * 4

    def per_cosine(self) -> float:
        """How many times as far apart as cosines its scores lie: what scores are divided by before a temperature."""
        return 1.0

    def has_kernel(self, device: torch.device) -> bool:
        """Whether a kernel that cuts its own blocks can compute these scores on such a device, as they are set now."""
        return False

    def predict(self, embedding: Embedding, side: str) -> Tensor | None:
        """(N, classes) label probabilities of one side's items; None = this method predicts no labels."""
        return None


@dataclass(frozen=True)
class Scores:
    """What a batch scored: the matrix of all pairs (absent for methods that need none) and the asked-for links."""

    matrix: Tensor | None  # (I, T)
    links: dict[str, Tensor] = field(default_factory=dict)  # name -> (P,)


class Objective(nn.Module):
    """Scores and embeddings -> named losses. Learned parts (cluster centres, a caption decoder) are its parameters."""

    reduction = "sum"  # "sum" | "mean": how (P,) terms become one number; gradient clipping depends on it
    needs_matrix = True  # label methods that never compare pictures with captions say False

    def forward(self, scores: Scores, embeddings: dict[str, Embedding], batch: Batch) -> Terms:
        """Named, already weighted terms."""
        raise NotImplementedError

    def total(self, terms: Terms) -> Tensor:
        """The one number to minimise."""
        reduce = torch.sum if self.reduction == "sum" else torch.mean
        return torch.stack([reduce(term) for term in terms.values()]).sum()

    def ranked_by(self, ranking: Objective) -> Objective:
        """This objective with another ranking loss, its further terms kept; one that only ranks is replaced whole."""
        return ranking


class Matcher(nn.Module):
    """Encoders (one a side) and the similarity between what they give."""

    depends_on_padding = False  # imported models whose authors' code is not padding-invariant say True
    encode_batch = 128  # items encoded at once; models that depend on padding read as many as their authors' code

    def __init__(self, encoders: dict[str, nn.Module], similarity: Similarity):
        super().__init__()
        self.encoders = nn.ModuleDict(encoders)
        self.similarity = similarity

    def each(self) -> list[Matcher]:
        """The matchers that score by themselves: one matcher is an ensemble of one."""
        return [self]

    def embed(self, side: str, items: Items) -> Embeddings:
        """Sets of vectors for one side; every embedding carries the ids of its items."""
        if items.x.dtype == torch.float16 and not torch.is_autocast_enabled(items.x.device.type):
            items = replace(items, x=items.x.float())  # stored in half the space; autocast takes it as it is
        embedding: Embedding = self.encoders[side](items)
        return replace(embedding, extra={"id": items.id, **embedding.extra})

    def score(self, images: Embeddings, texts: Embeddings) -> Tensor:
        """(I, T) scores of all pairs."""
        scores: Tensor = self.similarity(images, texts)
        return scores

    def per_cosine(self) -> float:
        """How many times as far apart as cosines its scores lie."""
        return self.similarity.per_cosine()

    def score_pairs(self, images: Embeddings, texts: Embeddings) -> Tensor:
        """(P,) scores row by row."""
        return self.similarity.pairs(images, texts)  # type: ignore[arg-type]

    def predict(self, embedding: Embeddings, side: str) -> Tensor | None:
        """(N, classes) label probabilities of one side's items; None where the method predicts no labels."""
        return self.similarity.predict(embedding, side)  # type: ignore[arg-type]


class Ensemble(Matcher):
    """Several matchers whose scores are averaged (SGRAF, NCR, BFAN equal + prob, AOQ)."""

    def __init__(self, members: Iterable[Matcher]):
        nn.Module.__init__(self)
        self.members = nn.ModuleList(members)
        self.depends_on_padding = any(member.depends_on_padding for member in self.each())
        self.encode_batch = self.each()[0].encode_batch

    def each(self) -> list[Matcher]:
        """The members."""
        return [member for member in self.members if isinstance(member, Matcher)]

    def embed(self, side: str, items: Items) -> Parts:
        """One embedding a member."""
        embeddings = [member.embed(side, items) for member in self.each()]
        return Parts(tuple(one for embedding in embeddings for one in embedding.members))

    def score(self, images: Embeddings, texts: Embeddings) -> Tensor:
        """The mean of the members' scores."""
        sides = zip(self.each(), images.members, texts.members, strict=True)
        return torch.stack([member.score(i, t) for member, i, t in sides]).mean(0)

    def per_cosine(self) -> float:
        """The mean of the members'."""
        each = [member.per_cosine() for member in self.each()]
        return sum(each) / len(each)

    def score_pairs(self, images: Embeddings, texts: Embeddings) -> Tensor:
        """The mean of the members' scores, row by row."""
        sides = zip(self.each(), images.members, texts.members, strict=True)
        return torch.stack([member.score_pairs(i, t) for member, i, t in sides]).mean(0)

    def predict(self, embedding: Embeddings, side: str) -> Tensor | None:
        """The mean of the members' probabilities, if all of them predict labels."""
        each = zip(self.each(), embedding.members, strict=True)
        probabilities = [member.predict(part, side) for member, part in each]
        known = [one for one in probabilities if one is not None]
        return torch.stack(known).mean(0) if len(known) == len(probabilities) else None


class Group(TypedDict):
    """Parameters that share a learning rate, as torch's optimisers take them."""

    name: str
    params: list[nn.Parameter]
    lr: float
    weight_decay: NotRequired[float]
    momentum: NotRequired[float]


@dataclass(frozen=True)
class Sizes:
    """What a recipe must know of the data before it can build a network."""

    pairs: int  # training pairs
    pictures: int  # training pictures
    image: str  # "vector" | "regions" | "pixels"
    image_dim: int  # length of a feature vector (pixels: of the backbone's)
    regions: int = 1  # vectors a picture
    vocabulary: int = 0  # words known, special ones included
    text_dim: int = 0  # length of a text feature where captions are vectors
    classes: int = 0  # label classes
