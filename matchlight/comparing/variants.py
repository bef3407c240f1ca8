"""What a comparison compares: methods with arguments of their own, each at several shares of noise and seeds.

Three words belong to the table and not to the method: `as=NAME` is what a row is called, `oracle=true` trains it on the
right pairs only (what knowing the truth is worth), and `from=NAME` begins it with the run of the row of that name with
the same noise and seed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict

from matchlight.comparing.noise_columns import Noise, heading, in_order, key, share_of
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
    oracle: bool = False  # it is given the right pairs only
    begin: Variant | None = None  # the line whose runs its own begin with
    called: str = field(default="", compare=False)

    @property
    def label(self) -> str:
        """All that tells it from others: scan direction=i2t."""
        words = [self.name, *(f"{name}={value}" for name, value in self.arguments)]
        words += ["oracle=true"] * self.oracle
        return " ".join([*words, *([f"from=({self.begin.label})"] if self.begin else [])])

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
    noise: Noise
    seed: int

    @property
    def trained(self) -> Cell:
        """The cell whose run this is: without noise all pairs are right, so the oracle is the method itself."""
        plain = self.variant.oracle and not share_of(self.noise)
        return replace(self, variant=replace(self.variant, oracle=False)) if plain else self

    @property
    def begin(self) -> Cell | None:
        """The cell whose run this one begins with."""
        return replace(self, variant=self.variant.begin).trained if self.variant.begin else None

    @property
    def root(self) -> Cell:
        """The first of the cells that this one builds on."""
        return self.begin.root if self.begin else self.trained

    @property
    def folder(self) -> str:
        """Its place below the comparison's folder; labels that look alike as file names stay apart by their hash."""
        label = self.trained.variant.label
        plain = re.sub(r"[^A-Za-z0-9+._-]+", "-", label)[:60]
        tag = "" if plain == label else "-" + hashlib.sha256(label.encode()).hexdigest()[:8]
        return f"{plain}{tag}/noise{key(self.noise)}-seed{self.seed}"

    def __str__(self) -> str:
        return f"{self.variant.called or self.variant.label} at {heading(self.noise)}, seed {self.seed}"


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
    out: list[Variant] = []
    for name, own in named:
        out.append(_variant(name, {**common, **own}, out))
    for one in out:
        if out.count(one) > 1:
            raise BadInput(f"{one.label}: asked for twice")
    return out


def _variant(name: str, given: dict[str, str], before: Sequence[Variant]) -> Variant:
    """A line; what belongs to the table is taken out of the method's arguments."""
    called, oracle, start = given.pop("as", ""), given.pop("oracle", "false").lower(), given.pop("from", "")
    if oracle not in ("true", "false"):
        raise BadInput(f"oracle={oracle}: true or false")
    if called and called in [one.called for one in before]:
        raise BadInput(f"as={called}: two rows cannot have one name")
    begin = _begun(start, before) if start else None
    return Variant(name, tuple(given.items()), oracle == "true", begin, called)


def _begun(start: str, before: Sequence[Variant]) -> Variant:
    """The line that `from=` names: by the name it was given, or by its method."""
    found = [one for one in before if one.called == start] or [one for one in before if one.name == start]
    if len(found) == 1:
        return found[0]
    known = ", ".join(one.called or one.name for one in before) or "none"
    many = "several rows before it are" if found else "no row before it is"
    raise BadInput(f"from={start}: {many} called so (there: {known}); as=NAME gives a row a name")


def all_cells(methods: Sequence[Variant], noise: Sequence[Noise], seeds: int) -> list[Cell]:
    """All cells: the whole table at the first seed, then at the next, so that what there is can be read at any time."""
    return [Cell(one, share, seed) for seed in range(seeds) for share in in_order(noise) for one in methods]


def part_of(cells: Sequence[Cell], part: tuple[int, int]) -> list[Cell]:
    """The k-th of n parts: every n-th cell, with the cells that begin with it."""
    number, parts = part
    roots = list(dict.fromkeys(cell.root for cell in cells))
    mine = {root for place, root in enumerate(roots) if place % parts == number - 1}
    return [cell for cell in cells if cell.root in mine]


def described(methods: Sequence[Variant]) -> list[Described]:
    """The lines of the table; where they are shown, arguments that all of them share are left out."""
    shared = set.intersection(*(set(one.arguments) for one in methods))
    return [
        {"label": one.label, "shown": _shown(one, shared), "name": one.name, "arguments": dict(one.arguments)}
        for one in methods
    ]


def _shown(one: Variant, shared: set[tuple[str, str]]) -> str:
    if one.called:
        return one.called
    own = Variant(one.name, tuple(pair for pair in one.arguments if pair not in shared)).label
    own += f" from={one.begin.called or one.begin.name}" if one.begin else ""
    return f"{own}, right pairs only" if one.oracle else own
