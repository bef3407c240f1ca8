"""SGR, SAF and SGRAF: reason over, or filter, how each word of a caption fits a picture.

Diao et al., "Similarity Reasoning and Filtration for Image-Text Matching", AAAI 2021, arXiv:2101.01368. What a pair
goes through is in `similarity_vectors` and `similarity_heads`, the encoders are in `whole_vectors`; here are the
recipes and the authors' checkpoints. SGRAF is one network of each kind, trained apart, scores averaged.

Departs from the paper: captions of the same picture are never negatives (`siblings="negatives"` counts them, as the
code does); a run of SGRAF keeps the epoch whose averaged scores are best on validation, the authors the best epoch of
each network. From the code: any number of regions (their BatchNorm is built for 36), padded regions do not count, and
biases that a softmax cancels are left out. `batch_norm="batch"` gives SAF's gate one set of statistics a batch in
training; the code's are one a caption. In neither: `harden`, epochs from all negatives to the hardest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

from torch import Tensor

from matchlight.core import IMAGE, TEXT, BadInput, Group, Matcher, Objective, Rates, Schedule, Sizes
from matchlight.methods.similarity_heads import Filter, Reason
from matchlight.methods.similarity_vectors import SimilarityVectors
from matchlight.methods.whole_vectors import Regions, WordStates
from matchlight.parts.encoders import gru_names
from matchlight.parts.objectives import Hinge
from matchlight.training.arguments import Count, Hardening, Pictures, Share, Staircase, Training, Value, Whole, above
from matchlight.training.contract import Recipe
from matchlight.training.registry import Checkpoint, Foreign, Method, renamed
from matchlight.training.schedules import staircase
from matchlight.training.strategies import Apart, Plain, WarmUp

# ---- recipes ---------------------------------------------------------------------------------------------------------


def groups(matcher: Matcher, objective: Objective, *, rate: float) -> list[Group]:
    """One group, named after the head: SGRAF's networks have schedules of their own."""
    name = "saf" if isinstance(matcher.similarity.head, Filter) else "sgr"
    return [Group(name=name, params=list(matcher.parameters()), lr=rate, weight_decay=0.0)]


def stairs(epoch: int, step: int, steps: int, *, sgr: int, saf: int) -> Rates:
    """A tenth of the rate again after each so many epochs, by kind of network."""
    return {"sgr": staircase(epoch, step, steps, every=sgr), "saf": staircase(epoch, step, steps, every=saf)}


@dataclass(frozen=True, kw_only=True)
class SimilarityArguments(Pictures, Hardening, Staircase, Training):
    """What the three methods have in common."""

    dim: Count = 1024
    sim_dim: Count = 256
    word_dim: Count = 300
    both_ways: bool = True
    temperature: Annotated[float, above(0, most=30)] = 9.0
    dropout: Share = 0.4
    hardest: bool = True
    warm: Whole = 0

    def network(self, sizes: Sizes, head: Callable[[], Reason | Filter]) -> Matcher:
        """One network: encoders of both sides, similarity vectors and a head."""
        image = Regions(sizes.image_dim, self.dim, places=sizes.regions, dropout=self.dropout)
        text = WordStates(
            sizes.vocabulary, self.dim, word_dim=self.word_dim, both_ways=self.both_ways, dropout=self.dropout
        )
        return Matcher({IMAGE: image, TEXT: text}, self.similarity(head()))

    def similarity(self, head: Reason | Filter) -> SimilarityVectors:
        """Similarity vectors, made into a score by a head."""
        return SimilarityVectors(self.dim, self.sim_dim, head, temperature=self.temperature)

    def trained(self, matcher: Callable[[], Matcher], schedule: Schedule) -> Recipe:
        """How all three are trained: a hinge, Adam, a staircase."""
        self.check_hardening(hardest=self.hardest)
        loss = partial(Hinge, margin=self.margin, siblings=self.siblings)
        gentle = WarmUp(loss(hardest=False), epochs=self.warm, harden=self.harden)
        recipe = Recipe(
            matcher=matcher,
            objective=partial(loss, hardest=self.hardest),
            strategy=gentle if self.warm or self.harden else Plain(),
            groups=partial(groups, rate=self.rate),
            schedule=schedule,
            epochs=self.epochs,
            batch=self.batch,
            clip=self.clip,
            select=self.select,
            siblings=self.siblings,
        )
        return self.ranked(recipe)


@dataclass(frozen=True, kw_only=True)
class SGR(SimilarityArguments):
    """SGR: similarity vectors reason over a graph."""

    steps: Count = 3
    epochs: Count = 40
    decay_every: Count = 30

    def recipe(self, sizes: Sizes) -> Recipe:
        """Networks, losses, rates and epochs."""
        head = partial(Reason, self.sim_dim, steps=self.steps)
        schedule = partial(stairs, sgr=self.decay_every, saf=self.decay_every)
        return self.trained(partial(self.network, sizes, head), schedule)


@dataclass(frozen=True, kw_only=True)
class SAF(SimilarityArguments):
    """SAF: similarity vectors are filtered by a gate."""

    batch_norm: Literal["per_caption", "batch"] = "per_caption"
    decay_every: Count = 20

    def recipe(self, sizes: Sizes) -> Recipe:
        """Networks, losses, rates and epochs."""
        head = partial(Filter, self.sim_dim, batch_norm=self.batch_norm)
        schedule = partial(stairs, sgr=self.decay_every, saf=self.decay_every)
        return self.trained(partial(self.network, sizes, head), schedule)


@dataclass(frozen=True, kw_only=True)
class SGRAF(SimilarityArguments):
    """SGRAF: an SGR and a SAF, trained apart, scores averaged (`head=sgr | saf` is one of the two)."""

    head: Literal["both", "sgr", "saf"] = "both"
    steps: Count = 3
    batch_norm: Literal["per_caption", "batch"] = "per_caption"
    epochs: Count = 40
    saf_epochs: Whole = 30
    decay_every: Count = 30
    saf_decay_every: Count = 20

    def recipe(self, sizes: Sizes) -> Recipe:
        """Networks, losses, rates and epochs."""
        reasons = partial(self.network, sizes, partial(Reason, self.sim_dim, steps=self.steps))
        filters = partial(self.network, sizes, partial(Filter, self.sim_dim, batch_norm=self.batch_norm))
        schedule = partial(stairs, sgr=self.decay_every, saf=self.saf_decay_every)
        recipe = self.trained(filters if self.head == "saf" else reasons, schedule)
        if self.head != "both":
            return recipe
        gentle = Hinge(margin=self.margin, hardest=False, siblings=self.siblings)
        epochs = {"A": self.epochs, "B": min(self.saf_epochs or self.epochs, self.epochs)}
        strategy = Apart(epochs, warm=self.warm, gentle=gentle, harden=self.harden)
        return replace(recipe, matchers={"A": reasons, "B": filters}, strategy=strategy)


# ---- the authors' checkpoints ----------------------------------------------------------------------------------------

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


def kind_of(pair: Mapping[str, Tensor]) -> str:
    """Which of the two, "sgr" or "saf", by the names of the weights."""
    for name, prefix in (("sgr", "SGR_module."), ("saf", "SAF_module.")):
        if any(key.startswith(prefix) for key in pair):
            return name
    raise BadInput("neither SGR's nor SAF's weights are in this file")


def read_network(parts: Sequence[Mapping[str, Tensor]], options: Checkpoint) -> tuple[str, Foreign]:
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
    named: dict[str, Value] = {
        "dim": image["fc.weight"].shape[0],
        "sim_dim": pair["sim_tranloc_w.weight"].shape[0],
        "word_dim": text["embed.weight"].shape[1],
        "both_ways": "cap_rnn.weight_ih_l0_reverse" in text,
        "margin": float(options.get("margin", 0.2)),
        "siblings": "negatives",
    }
    named |= {"steps": steps} if kind == "sgr" else {}
    sizes = {
        "image_dim": image["fc.weight"].shape[1],
        "regions": len(pair["v_global_w.embedding_local.1.weight"]),
        "vocabulary": len(text["embed.weight"]),
    }
    return kind, Foreign(named, sizes, weights)


def read_one(file: Checkpoint, *, wanted: str) -> Foreign:
    """A file of SGRAF or DECL with the one kind of network that was asked for."""
    kind, foreign = read_network(file["model"], file["opt"])
    if kind != wanted:
        raise BadInput(f"this file holds {kind.upper()}, not {wanted.upper()}: --method {kind} reads it (or sgraf)")
    return foreign


def read_either(file: Checkpoint) -> Foreign:
    """A file with either kind: SGRAF's two networks come in two files."""
    kind, foreign = read_network(file["model"], file["opt"])
    return Foreign({**foreign.arguments, "head": kind}, foreign.sizes, foreign.weights)


def read_ncr(file: Checkpoint) -> list[Foreign]:
    """NCR's two networks, each an SGR or a SAF (`scorer`)."""
    both = [read_network(file[name], file["opt"]) for name in ("model_A", "model_B")]
    return [Foreign({**foreign.arguments, "scorer": kind}, foreign.sizes, foreign.weights) for kind, foreign in both]


SMALL: dict[str, Value] = {"dim": 128, "sim_dim": 32, "word_dim": 128, "dropout": 0.1, "hardest": False}
SMALL |= {"batch": 64, "epochs": 8, "rate": 1e-3, "decay_every": 20}  # hard negatives need far more steps than these
ROBUST: dict[str, Value] = {"loss": "rclog", "warm": 0}
PAPER = "Similarity Reasoning and Filtration for Image-Text Matching (AAAI 2021)"
COCO: dict[str, Value] = {"epochs": 20, "decay_every": 10}

METHODS = [
    Method(
        "sgr",
        SGR,
        paper=f"SGR: {PAPER}",
        needs=("pairs", "regions"),
        small=SMALL,
        robust=ROBUST,
        presets={"f30k": {"epochs": 40, "decay_every": 30}, "coco": COCO},
        reader=partial(read_one, wanted="sgr"),
    ),
    Method(
        "saf",
        SAF,
        paper=f"SAF: {PAPER}",
        needs=("pairs", "regions"),
        small=SMALL,
        robust=ROBUST,
        presets={"f30k": {"epochs": 30, "decay_every": 20}, "coco": COCO},
        reader=partial(read_one, wanted="saf"),
    ),
    Method(
        "sgraf",
        SGRAF,
        paper=PAPER,
        needs=("pairs", "regions"),
        small={**SMALL, "saf_epochs": 0},
        robust=ROBUST,
        presets={
            "f30k": {"epochs": 40, "decay_every": 30, "saf_epochs": 30, "saf_decay_every": 20},
            "coco": {**COCO, "saf_epochs": 20, "saf_decay_every": 10},
        },
        reader=read_either,
    ),
]
