"""SGR, SAF and SGRAF: reason over, or filter, how each word of a caption fits a picture.

Diao et al., "Similarity Reasoning and Filtration for Image-Text Matching", AAAI 2021, arXiv:2101.01368. What a pair
goes through is in `similarity_vectors` and `similarity_heads`, the encoders are in `whole_vectors`; here are the
recipes and the authors' checkpoints. SGRAF is one network of each kind, trained apart, scores averaged.

Departs from the paper: captions of the same picture are never negatives (`siblings="negatives"` counts them, as the
code does); a run of SGRAF keeps the epoch whose averaged scores are best on validation, the authors the best epoch of
each network. From the code: any number of regions (their BatchNorm is built for 36), padded regions do not count, and
biases that a softmax cancels are left out. `batch_norm="batch"` gives SAF's gate one set of statistics a batch in
training; the code's are one a caption.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from matchlight.core import IMAGE, TEXT, BadInput, Matcher, Objective, Recipe, Sizes, Strategy
from matchlight.methods.similarity_heads import Filter, Reason
from matchlight.methods.similarity_vectors import SimilarityVectors
from matchlight.methods.whole_vectors import Regions, WordStates
from matchlight.parts.encoders import gru_names
from matchlight.parts.objectives import Hinge
from matchlight.training.recipes import Foreign, Method, renamed
from matchlight.training.schedules import staircase
from matchlight.training.strategies import Apart, Plain, WarmUp

# ---- recipes ---------------------------------------------------------------------------------------------------------


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
    if not 0 < given["temperature"] <= 30:
        raise BadInput(f"temperature={given['temperature']}: above 0 and at most 30 (the paper's is 9)")
    loss = partial(Hinge, margin=given["margin"], siblings=given["siblings"])
    warm = given["warm"]
    strategy: Strategy = WarmUp(loss(hardest=False), epochs=warm) if warm else Plain()
    same = {name: given[name] for name in ("epochs", "batch", "clip", "select", "siblings")}
    loss_now = partial(loss, hardest=given["hardest"])
    return {"objective": loss_now, "strategy": strategy, "groups": partial(groups, rate=given["rate"]), **same}


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


def kind_of(pair: dict[str, Any]) -> str:
    """Which of the two, "sgr" or "saf", by the names of the weights."""
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


SMALL = {"dim": 128, "sim_dim": 32, "word_dim": 128, "dropout": 0.1, "hardest": False}
SMALL |= {"batch": 64, "epochs": 8, "rate": 1e-3, "decay_every": 20}  # hard negatives need far more steps than these
PAPER = "Similarity Reasoning and Filtration for Image-Text Matching (AAAI 2021)"
COCO = {"epochs": 20, "decay_every": 10}

METHODS = [
    Method(
        "sgr",
        sgr,
        paper=f"SGR: {PAPER}",
        needs=("pairs", "regions"),
        small=SMALL,
        presets={"f30k": {"epochs": 40, "decay_every": 30}, "coco": COCO},
        reader=partial(read_one, wanted="sgr"),
    ),
    Method(
        "saf",
        saf,
        paper=f"SAF: {PAPER}",
        needs=("pairs", "regions"),
        small=SMALL,
        presets={"f30k": {"epochs": 30, "decay_every": 20}, "coco": COCO},
        reader=partial(read_one, wanted="saf"),
    ),
    Method(
        "sgraf",
        sgraf,
        paper=PAPER,
        needs=("pairs", "regions"),
        small={**SMALL, "saf_epochs": 0},
        presets={
            "f30k": {"epochs": 40, "decay_every": 30, "saf_epochs": 30, "saf_decay_every": 20},
            "coco": {**COCO, "saf_epochs": 20, "saf_decay_every": 10},
        },
        reader=read_either,
    ),
]
