"""What a comparison compares: methods with arguments of their own, each at several shares of noise and seeds."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from matchlight.core import BadInput
from matchlight.training.registry import Method, asked_for


class Described(TypedDict):
    """A line of the table: how a method is called, and what it was asked with."""

    label: str
    shown: str
    name: str
    arguments: dict[str, str]


@dataclass(frozen=True)
class Variant:
    """A method with arguments of its own: one line of the table."""

    name: str
    arguments: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """How it is called in tables: scan direction=i2t."""
        return " ".join([self.name, *(f"{name}={value}" for name, value in self.arguments)])

    @property
    def method(self) -> Method:
        """The method itself."""
        return asked_for(self.name)

    @property
    def by_labels(self) -> bool:
        """Whether it learns from labels, so that noise means wrong labels."""
        return "labels" in self.method.needs


@dataclass(frozen=True)
class Cell:
    """One entry: a method at one share of noise with one seed."""

    variant: Variant
    noise: float
    seed: int

    @property
    def folder(self) -> str:
        """Its place below the comparison's folder; labels that look alike as file names stay apart by their hash."""
        plain = re.sub(r"[^A-Za-z0-9+._-]+", "-", self.variant.label)[:60]
        tag = "" if plain == self.variant.label else "-" + hashlib.sha256(self.variant.label.encode()).hexdigest()[:8]
        return f"{plain}{tag}/noise{self.noise:g}-seed{self.seed}"

    def __str__(self) -> str:
        return f"{self.variant.label} at {100 * self.noise:g}% noise, seed {self.seed}"


def parse_variants(words: Sequence[str]) -> list[Variant]:
    """Methods from a command line: name=value belongs to the method before it, or to all if no method came yet."""
    common: dict[str, str] = {}
    named: list[tuple[str, dict[str, str]]] = []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            named.append((word, {}))
        elif not name:
            raise BadInput(f"{word!r}: an override is written name=value, as in epochs=20")
        else:
            (named[-1][1] if named else common)[name] = value
    if not named:
        raise BadInput("compare needs at least one method; `matchlight methods` lists them")
    out = [Variant(name, tuple({**common, **own}.items())) for name, own in named]
    for one in out:
        if out.count(one) > 1:
            raise BadInput(f"{one.label}: asked for twice")
    return out


def all_cells(methods: Sequence[Variant], noise: Sequence[float], seeds: int) -> list[Cell]:
    """All cells: the whole table at the first seed, then at the next, so that what there is can be read at any time."""
    return [Cell(one, share, seed) for seed in range(seeds) for share in sorted(set(noise)) for one in methods]


def described(methods: Sequence[Variant]) -> list[Described]:
    """The lines of the table; where they are shown, arguments that all of them share are left out."""
    shared = set.intersection(*(set(one.arguments) for one in methods))
    lines: list[Described] = []
    for one in methods:
        own = Variant(one.name, tuple(pair for pair in one.arguments if pair not in shared))
        lines.append({"label": one.label, "shown": own.label, "name": one.name, "arguments": dict(one.arguments)})
    return lines
