"""Which recipe to train where none was named: the most robust one for the data, the machine and the weights at hand."""

from __future__ import annotations

from dataclasses import dataclass

from matchlight.core import BadInput
from matchlight.inputs.weights import weight_store
from matchlight.inputs.weights.known_weights import CATALOGUE
from matchlight.pairs import Pairs
from matchlight.training.arguments import Settings, Value

READER = "minilm"
# a map between two networks that know pictures and sentences already: its start has a closed form, which wrong pairs
# harm little, and it is kept unless training makes it better; no words are dropped, so that captions are read once
ON_CPU: dict[str, Value] = {"sentences": READER, "sentences_rate": 0.0, "loss": "gce", "rate": 2e-4}
ON_CPU |= {"schedule": "cycle", "epochs": 5, "drop_words": 0.0}


@dataclass(frozen=True)
class FirstChoice:
    """A method, the settings that are not its preset's, and why."""

    method: str
    settings: Settings
    why: str


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
    if reads:
        return FirstChoice("vse_infty", ON_CPU, f"on a CPU: {READER} reads captions, and wrong pairs harm it little")
    why = "on a CPU, with a loss that survives wrong pairs"
    return FirstChoice("vse_infty", {}, f"{why}; pip install 'matchlight[sentences]' makes it more accurate")
