"""Which recipe to train where none was named: the most robust one for the data, the machine and the weights at hand."""

from __future__ import annotations

from dataclasses import dataclass

from matchlight.core import BadInput
from matchlight.devices import multiplies_in_bfloat16
from matchlight.inputs.weights import weight_store
from matchlight.inputs.weights.known_weights import CATALOGUE
from matchlight.pairs import Pairs
from matchlight.training.arguments import Settings, Value

READER = "minilm"
# What was there before the first step is kept unless training makes it better; no words are dropped, so that captions
# are read once.
GENTLE: dict[str, Value] = {"sentences_rate": 0.0, "loss": "gce", "schedule": "cycle", "drop_words": 0.0}
MOST, FEWEST, SEEN = 5, 2, 250_000  # epochs, and how often all pairs together are seen at most: minutes on two cores
# a model that knows pictures and sentences together: its heads learn, its networks stay as they are
STARTER = "starter-small"
FROM_STARTER: dict[str, Value] = {**GENTLE, "backbone": STARTER, "finetune": False, "rate": 4e-4}
# a map between two networks that know pictures and sentences apart: its start has a closed form, which wrong pairs
# harm little
OF_FEATURES: dict[str, Value] = {**GENTLE, "sentences": READER, "rate": 2e-4}


@dataclass(frozen=True)
class FirstChoice:
    """A method, the settings that are not its preset's, why, the run to begin with, and what is multiplied in."""

    method: str
    settings: Settings
    why: str
    start: str | None = None
    precision: str = "auto"


def first_choice(pairs: Pairs, device: str) -> FirstChoice:
    """The recipe for these data on this machine."""
    if pairs.text_features is not None:
        if pairs.labels is None:
            raise BadInput(f"{pairs.root}: text vectors without class labels; name a method (`matchlight methods`)")
        return FirstChoice("mrl", {}, "texts are vectors with class labels, and it survives wrong labels")
    reads = weight_store.here(CATALOGUE[READER]) is not None
    if device != "cpu":
        best = {"backbone": "auto"} if pairs.features is None else {}
        words = {} if reads else {"sentences": None}
        return FirstChoice("lantern", {**best, **words}, "on a GPU the most accurate, with wrong pairs or without")
    epochs: dict[str, Value] = {"epochs": max(FEWEST, min(MOST, SEEN // max(1, len(pairs.rows("train")))))}
    if reads and pairs.features is None:
        why = f"on a CPU: {STARTER} knows photos and captions already, and wrong pairs harm it little"
        quick = "bf16" if multiplies_in_bfloat16() else "auto"  # heads over cells are nearly all products
        return FirstChoice("vse_infty", {**FROM_STARTER, **epochs}, why, start=STARTER, precision=quick)
    if reads:
        why = f"on a CPU: {READER} reads captions, and wrong pairs harm it little"
        return FirstChoice("vse_infty", {**OF_FEATURES, **epochs}, why)
    why = "on a CPU, with a loss that survives wrong pairs"
    return FirstChoice("vse_infty", {}, f"{why}; pip install 'matchlight[sentences]' makes it more accurate")
