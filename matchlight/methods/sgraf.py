"""SGR, SAF and SGRAF: reason over, or filter, how each word of a caption fits a picture.

Diao et al., "Similarity Reasoning and Filtration for Image-Text Matching", AAAI 2021, arXiv:2101.01368. The maths of a
pair (similarity vectors, the graph of SGR, the gate of SAF) is in `similarity_vectors`; here are the encoders, which also
give one vector for the whole picture and one for the whole caption, and the recipes. SGRAF is one network of each kind,
trained apart, scores averaged.

Departs from the paper: captions of the same picture are never negatives (`siblings="negatives"` counts them, as the code
does); a run of SGRAF keeps the epoch whose averaged scores are best on validation, the authors the best epoch of each
network. From the code: any number of regions (their BatchNorm is built for 36), padded regions do not count, and biases
that a softmax cancels are left out. `batch_norm="batch"` gives SAF's gate one set of statistics a batch in training; the
code's are one a caption.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchlight import processes
from matchlight.core import IMAGE, TEXT, BadInput, Embedding, Items, Matcher, Objective, Recipe, Sizes, Strategy
from matchlight.encoders import Words, gru_names, lengths
from matchlight.layers import BatchNorm, glorot, masked_mean, masked_softmax, unit
from matchlight.methods.similarity_vectors import Filter, Reason, SimilarityVectors, full
from matchlight.methods.vse import staircase
from matchlight.objectives import Hinge
from matchlight.recipes import Foreign, Method, renamed
from matchlight.strategies import Apart, Plain, WarmUp

# ---- encoders ----------------------------------------------------------------------------------------------------------


class RegionNorm(BatchNorm):
    """BatchNorm whose channels are a picture's places: region k of all pictures, all its dimensions, is one channel."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(N, K, D) -> the same, K at most the places this layer knows; padded regions do not count."""
        assert self.running_mean is not None and self.running_var is not None and self.momentum is not None
        k = x.shape[1]
        if not self.training or (mask is None and processes.world() == 1):
            averages, scales = (self.running_mean[:k], self.running_var[:k]), (self.weight[:k], self.bias[:k])
            return F.batch_norm(x, *averages, *scales, self.training, self.momentum, self.eps)
        return self._masked(x.float(), mask).to(x.dtype)

    def _masked(self, x: Tensor, mask: Tensor | None) -> Tensor:
        weight = x.new_ones(*x.shape[:2], 1) if mask is None else mask[..., None].to(x.dtype)
        count = processes.total(weight.sum((0, 2)) * x.shape[2])
        some = count.clamp(min=1)
        mean = processes.total((x * weight).sum((0, 2))) / some
        variance = processes.total(((x - mean[:, None]).square() * weight).sum((0, 2))) / some
        self._move(mean.detach(), variance.detach() * some / (some - 1).clamp(min=1), count > 0)
        scale = torch.rsqrt(variance + self.eps) * self.weight[: len(mean)]
        return (x - mean[:, None]) * scale[:, None] + self.bias[: len(mean), None]

    @torch.no_grad()
    def _move(self, mean: Tensor, variance: Tensor, seen: Tensor) -> None:
        """Running averages of the places that some picture had."""
        assert self.running_mean is not None and self.running_var is not None and self.momentum is not None
        for running, new in ((self.running_mean, mean), (self.running_var, variance)):
            held = running[: len(new)]
            held.copy_(torch.where(seen, held.lerp(new, self.momentum), held))
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)


class WholeVector(nn.Module):
    """A set of vectors -> one of unit length: each is weighed by how it fits the mean of all."""

    def __init__(self, dim: int, *, dropout: float, places: int | None = None):
        super().__init__()
        self.each = glorot(nn.Linear(dim, dim))
        self.mean = glorot(nn.Linear(dim, dim))
        self.weigh = nn.Linear(dim, 1, bias=False)  # a softmax follows: a bias would change nothing
        nn.init.xavier_uniform_(self.weigh.weight)
        self.norm_each = RegionNorm(places) if places else None
        self.norm_mean = BatchNorm(dim) if places else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(N, K, D) -> (N, 1, D)."""
        each, mean = self.each(x), self.mean(masked_mean(x, mask))
        if self.norm_each is not None and self.norm_mean is not None:
            each, mean = self.norm_each(each, mask), self.norm_mean(mean)
        each, mean = self.dropout(each.tanh()), self.dropout(mean.tanh())
        weights = masked_softmax(full(self.weigh(each * mean[:, None])).squeeze(-1), mask)
        return unit(full(weights[:, None] @ x))


class Regions(nn.Module):
    """Each region projected to unit length, and one vector for the whole picture."""

    def __init__(self, inside: int, dim: int, *, places: int, dropout: float):
        super().__init__()
        self.places = places
        self.fc = glorot(nn.Linear(inside, dim))
        self.whole = WholeVector(dim, dropout=dropout, places=places)

    def forward(self, items: Items) -> Embedding:
        """(N, R, dim); regions behind the last place that training knew count for words, not for the whole."""
        x = self.fc(items.x if items.x.dim() == 3 else items.x[:, None])
        regions, mask, k = unit(full(x)), items.mask, self.places
        if mask is None and regions.shape[1] > k:
            raise BadInput(f"pictures have {regions.shape[1]} regions each, and this model knows {k}")
        regions = regions if mask is None else regions * mask[..., None]
        whole = self.whole(regions[:, :k], None if mask is None else mask[:, :k])
        return Embedding(regions, mask, {"global": whole})


class WordStates(nn.Module):
    """Each word's state of unit length, and one vector for the whole caption."""

    def __init__(self, vocabulary: int, dim: int, *, word_dim: int, both_ways: bool, dropout: float):
        super().__init__()
        self.words = Words(vocabulary, dim, word_dim=word_dim, both_ways=both_ways, dropout=dropout)
        self.whole = WholeVector(dim, dropout=dropout)

    def forward(self, items: Items) -> Embedding:
        """(N, L, dim), 0 where padded; the lengths stay on the CPU for whoever groups captions by them."""
        states = unit(self.words(items))
        extra = {"global": self.whole(states, items.mask), "length": lengths(items)}
        return Embedding(states, items.mask, extra)


# ---- recipes -----------------------------------------------------------------------------------------------------------


def network(
    sizes: Sizes,
    head: Callable[[], Reason | Filter],
    *,
    dim: int,
    sim_dim: int,
    word_dim: int,
    both_ways: bool,
    temperature: float,
    dropout: float,
) -> Matcher:
    """One network: encoders of both sides, similarity vectors and a head."""
    image = Regions(sizes.image_dim, dim, places=sizes.regions, dropout=dropout)
    text = WordStates(sizes.vocabulary, dim, word_dim=word_dim, both_ways=both_ways, dropout=dropout)
    return Matcher({IMAGE: image, TEXT: text}, SimilarityVectors(dim, sim_dim, head(), temperature=temperature))


def groups(matcher: Matcher, objective: Objective, *, rate: float) -> list[dict[str, Any]]:
    """One group, named after the head: SGRAF's networks have schedules of their own."""
    name = "saf" if isinstance(matcher.similarity.head, Filter) else "sgr"
    return [{"name": name, "params": list(matcher.parameters()), "lr": rate, "weight_decay": 0.0}]


def stairs(epoch: int, step: int, steps: int, *, sgr: int, saf: int) -> dict[str, float]:
    """A tenth of the rate again after each so many epochs, by kind of network."""
    return {"sgr": staircase(epoch, step, steps, every=sgr), "saf": staircase(epoch, step, steps, every=saf)}


def filtering(sim_dim: int, batch_norm: str) -> Callable[[], Filter]:
    """SAF's head, built when a network is."""
    if batch_norm not in ("per_caption", "batch"):
        raise BadInput(f"batch_norm={batch_norm}: per_caption or batch")
    return partial(Filter, sim_dim, batch_norm=batch_norm)


def sgr(
    sizes: Sizes,
    *,
    dim: int = 1024,
    sim_dim: int = 256,
    steps: int = 3,
    word_dim: int = 300,
    both_ways: bool = True,
    temperature: float = 9.0,
    dropout: float = 0.4,
    margin: float = 0.2,
    hardest: bool = True,
    warm: int = 0,
    siblings: str = "masked",
    backbone: str = "lite0",
    pixels: int | None = None,
    epochs: int = 40,
    batch: int = 128,
    rate: float = 2e-4,
    decay_every: int = 30,
    clip: float = 2.0,
    select: str = "best",
) -> Recipe:
    """SGR: similarity vectors reason over a graph."""
    common = common_settings(locals())
    own = partial(network, sizes, partial(Reason, sim_dim, steps=steps), **shape_settings(locals()))
    return Recipe(matcher=own, schedule=partial(stairs, sgr=decay_every, saf=decay_every), **common)


def saf(
    sizes: Sizes,
    *,
    dim: int = 1024,
    sim_dim: int = 256,
    batch_norm: str = "per_caption",
    word_dim: int = 300,
    both_ways: bool = True,
    temperature: float = 9.0,
    dropout: float = 0.4,
    margin: float = 0.2,
    hardest: bool = True,
    warm: int = 0,
    siblings: str = "masked",
    backbone: str = "lite0",
    pixels: int | None = None,
    epochs: int = 30,
    batch: int = 128,
    rate: float = 2e-4,
    decay_every: int = 20,
    clip: float = 2.0,
    select: str = "best",
) -> Recipe:
    """SAF: similarity vectors are filtered by a gate."""
    common = common_settings(locals())
    own = partial(network, sizes, filtering(sim_dim, batch_norm), **shape_settings(locals()))
    return Recipe(matcher=own, schedule=partial(stairs, sgr=decay_every, saf=decay_every), **common)


def sgraf(
    sizes: Sizes,
    *,
    head: str = "both",
    dim: int = 1024,
    sim_dim: int = 256,
    steps: int = 3,
    batch_norm: str = "per_caption",
    word_dim: int = 300,
    both_ways: bool = True,
    temperature: float = 9.0,
    dropout: float = 0.4,
    margin: float = 0.2,
    hardest: bool = True,
    warm: int = 0,
    siblings: str = "masked",
    backbone: str = "lite0",
    pixels: int | None = None,
    epochs: int = 40,
    saf_epochs: int = 30,
    batch: int = 128,
    rate: float = 2e-4,
    decay_every: int = 30,
    saf_decay_every: int = 20,
    clip: float = 2.0,
    select: str = "best",
) -> Recipe:
    """SGRAF: an SGR and a SAF, trained apart, scores averaged (`head=sgr | saf` is one of the two)."""
    if head not in ("both", "sgr", "saf"):
        raise BadInput(f"head={head}: both, sgr or saf")
    common, shape = common_settings(locals()), shape_settings(locals())
    reasons = partial(network, sizes, partial(Reason, sim_dim, steps=steps), **shape)
    filters = partial(network, sizes, filtering(sim_dim, batch_norm), **shape)
    matchers: dict[str, Callable[[], Matcher]] = {}
    if head == "both":
        gentle = Hinge(margin=margin, hardest=False, siblings=siblings)
        matchers = {"A": reasons, "B": filters}
        common["strategy"] = Apart({"A": epochs, "B": min(saf_epochs or epochs, epochs)}, warm=warm, gentle=gentle)
    rates = partial(stairs, sgr=decay_every, saf=saf_decay_every)
    return Recipe(matcher=filters if head == "saf" else reasons, matchers=matchers, schedule=rates, **common)


def shape_settings(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments that shape a network."""
    names = ("dim", "sim_dim", "word_dim", "both_ways", "temperature", "dropout")
    return {name: given[name] for name in names}


def common_settings(given: dict[str, Any]) -> dict[str, Any]:
    """What the three recipes do alike, from their arguments."""
    loss = partial(Hinge, margin=given["margin"], siblings=given["siblings"])
    warm = given["warm"]
    strategy: Strategy = WarmUp(loss(hardest=False), epochs=warm) if warm else Plain()
    same = {name: given[name] for name in ("epochs", "batch", "clip", "select", "siblings")}
    loss_now = partial(loss, hardest=given["hardest"])
    return {"objective": loss_now, "strategy": strategy, "groups": partial(groups, rate=given["rate"]), **same}


# ---- the authors' checkpoints -----------------------------------------------------------------------------------------

IMAGES = {"fc.": "encoders.image.fc."}
TEXTS = {"embed.": "encoders.text.words.embed."} | gru_names("cap_rnn.", "encoders.text.words.")
PAIRS = {
    "v_global_w.embedding_local.0.": "encoders.image.whole.each.",
    "v_global_w.embedding_local.1.": "encoders.image.whole.norm_each.",
    "v_global_w.embedding_global.0.": "encoders.image.whole.mean.",
    "v_global_w.embedding_global.1.": "encoders.image.whole.norm_mean.",
    "v_global_w.embedding_common.0.": "encoders.image.whole.weigh.",
    "t_global_w.embedding_local.0.": "encoders.text.whole.each.",
    "t_global_w.embedding_global.0.": "encoders.text.whole.mean.",
    "t_global_w.embedding_common.0.": "encoders.text.whole.weigh.",
    "sim_tranloc_w.": "similarity.local.",
    "sim_tranglo_w.": "similarity.whole.",
    "sim_eval_w.": "similarity.judge.",
    "SAF_module.attn_sim_w.": "similarity.head.gate.",
    "SAF_module.bn.": "similarity.head.norm.",
}
IDLE = (".graph_key_w.bias", ".embedding_common.0.bias")  # cancelled by the softmax that follows: we have none


def kind_of(pair: dict[str, Any]) -> str:
    """"sgr" or "saf", by the names of the weights."""
    for name, prefix in (("sgr", "SGR_module."), ("saf", "SAF_module.")):
        if any(key.startswith(prefix) for key in pair):
            return name
    raise BadInput("neither SGR's nor SAF's weights are in this file")


def read_network(parts: list[dict[str, Any]], options: dict[str, Any]) -> tuple[str, Foreign]:
    """One network, [image, text, similarity], and its kind; SGRAF, DECL and NCR keep theirs so."""
    image, text, pair = ({k.removeprefix("module."): v for k, v in part.items()} for part in parts[:3])
    if options.get("no_imgnorm") or options.get("no_txtnorm"):
        raise BadInput("a model trained without unit vectors (no_imgnorm, no_txtnorm); only the usual ones can be read")
    kind = kind_of(pair)
    steps = len({key.split(".")[1] for key in pair if key.startswith("SGR_module.")})
    rounds = {
        f"SGR_module.{k}.{old}_w.": f"similarity.head.steps.{k}.{new}."
        for k in range(steps)
        for old, new in (("graph_query", "query"), ("graph_key", "key"), ("sim_graph", "out"))
    }
    needed = {key: value for key, value in pair.items() if not key.endswith(IDLE)}
    weights = renamed(image, IMAGES) | renamed(text, TEXTS) | renamed(needed, PAIRS | rounds)
    named = {
        "dim": image["fc.weight"].shape[0],
        "sim_dim": pair["sim_tranloc_w.weight"].shape[0],
        "word_dim": text["embed.weight"].shape[1],
        "both_ways": "cap_rnn.weight_ih_l0_reverse" in text,
        "margin": float(options.get("margin", 0.2)),
        "siblings": "negatives",
    } | ({"steps": steps} if kind == "sgr" else {})
    sizes = {
        "image_dim": image["fc.weight"].shape[1],
        "regions": len(pair["v_global_w.embedding_local.1.weight"]),
        "vocabulary": len(text["embed.weight"]),
    }
    return kind, Foreign(named, sizes, weights)


def read_one(file: dict[str, Any], *, wanted: str) -> Foreign:
    """A file of SGRAF or DECL with the one kind of network that was asked for."""
    kind, found = read_network(file["model"], file["opt"])
    if kind != wanted:
        raise BadInput(f"this file holds {kind.upper()}, not {wanted.upper()}: --method {kind} reads it (or sgraf)")
    return found


def read_either(file: dict[str, Any]) -> Foreign:
    """A file with either kind: SGRAF's two networks come in two files."""
    kind, found = read_network(file["model"], file["opt"])
    return Foreign({**found.arguments, "head": kind}, found.sizes, found.weights)


def read_ncr(file: dict[str, Any]) -> list[Foreign]:
    """NCR's two networks, each an SGR or a SAF (`scorer`)."""
    both = [read_network(file[name], file["opt"]) for name in ("model_A", "model_B")]
    return [Foreign({**found.arguments, "scorer": kind}, found.sizes, found.weights) for kind, found in both]


SMALL = {"dim": 256, "sim_dim": 64, "word_dim": 128, "batch": 64, "epochs": 8, "rate": 1e-3, "decay_every": 6}
PAPER = "Similarity Reasoning and Filtration for Image-Text Matching (AAAI 2021)"
COCO = {"epochs": 20, "decay_every": 10}

METHODS = [
    Method(
        "sgr",
        sgr,
        paper=f"SGR: {PAPER}",
        needs=("pairs", "regions"),
        small={**SMALL},
        presets={"f30k": {"epochs": 40, "decay_every": 30}, "coco": COCO},
        reader=partial(read_one, wanted="sgr"),
    ),
    Method(
        "saf",
        saf,
        paper=f"SAF: {PAPER}",
        needs=("pairs", "regions"),
        small={**SMALL},
        presets={"f30k": {"epochs": 30, "decay_every": 20}, "coco": COCO},
        reader=partial(read_one, wanted="saf"),
    ),
    Method(
        "sgraf",
        sgraf,
        paper=PAPER,
        needs=("pairs", "regions"),
        small={**SMALL, "saf_epochs": 0, "saf_decay_every": 6},
        presets={
            "f30k": {"epochs": 40, "decay_every": 30, "saf_epochs": 30, "saf_decay_every": 20},
            "coco": {**COCO, "saf_epochs": 20, "saf_decay_every": 10},
        },
        reader=read_either,
    ),
]
