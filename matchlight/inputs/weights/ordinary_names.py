"""Ordinary names where a backbone or a sentence encoder is asked for, and `auto`: the best that is on the machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from matchlight.console import say
from matchlight.core import BadInput
from matchlight.inputs.weights import weight_store
from matchlight.inputs.weights.known_weights import CATALOGUE, Kind, Weights, known

AUTO = "auto"
ASKED: dict[str, Kind] = {"backbone": "picture", "sentences": "sentence"}  # arguments of methods that take a name
Value = TypeVar("Value")


def opened_as_folder(kind: Kind) -> list[str]:
    """The ordinary names that stand for a folder which transformers opens."""
    return [weights.name for weights in CATALOGUE.values() if weights.kind == kind and weights.is_folder]


def folder_of(name: str, kind: Kind) -> Path | None:
    """The folder that an ordinary name stands for; None for other names, one line where it is not here."""
    weights = known(name, kind)
    return weight_store.needed(weights) if weights is not None and weights.is_folder else None


def is_ordinary(name: str, kind: Kind) -> bool:
    """Whether a name stands for such a folder, here or not."""
    weights = known(name, kind)
    return weights is not None and weights.is_folder


def settled(name: str, kind: Kind, *, asked: str) -> str:
    """The one name for what was asked for: `auto` is the best that is here, and said; an alias is its name."""
    if name != AUTO:
        weights = known(name, kind)
        return name if weights is None else weights.name
    best = weight_store.best(kind)
    if best is None:
        raise BadInput(f"{asked}=auto: no {kind} encoder is on this machine; {_first_step(kind)}")
    say(f"{asked}=auto: {best.name} ({best.what})")
    return best.name


def settle_arguments(
    given: Mapping[str, Value | str], *, begun: Mapping[str, object] | None = None
) -> dict[str, Value | str]:
    """A method's arguments with names settled, so that a run records which; one that goes on keeps what it `begun`."""
    settled_ones = dict(given)
    for argument, kind in ASKED.items():
        name = given.get(argument)
        if isinstance(name, str) and name:
            before = (begun or {}).get(argument)
            settled_ones[argument] = (
                before if name == AUTO and isinstance(before, str) else settled(name, kind, asked=argument)
            )
    return settled_ones


def _first_step(kind: Kind) -> str:
    wanted: Weights = next(weights for weights in CATALOGUE.values() if weights.kind == kind)
    return f"`matchlight weights get {wanted.name}` fetches one"
