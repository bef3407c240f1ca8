"""Relevance: which captions fit which pictures, worked out exactly from scene graphs and meanings.

A caption fits a picture if the picture is in a place and at a time the caption allows, its totals are right, and its
noun phrases can each stand for a group of their own so that all relations hold. An inverted index proposes the few
pictures that hold a group for every noun phrase; only those are looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from matchlight.data.scenes.graph import Group, Meaning, Scene, Term

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Key = tuple[str, int | str, str | None, str | None]  # noun, count, size, colour; None: not told


def stands_for(term: Term, group: Group) -> bool:
    """True if a noun phrase describes a group."""
    return (
        term.get("object", group["object"]) == group["object"]
        and ("category" not in term or term["category"] in group["categories"])
        and (group["count"] > 1 if term["count"] == "many" else group["count"] == term["count"])
        and term.get("size", group["size"]) == group["size"]
        and term.get("colour", group["colour"]) == group["colour"]
    )


def total(category: str, scene: Scene) -> int:
    """How many things of a category a picture holds."""
    return sum(group["count"] for group in scene["groups"] if category in group["categories"])


def fits(meaning: Meaning, scene: Scene) -> bool:
    """True if a caption with this meaning is right for a picture."""
    if meaning["places"] and scene["place"] not in meaning["places"]:
        return False
    if meaning["times"] and scene["time"] not in meaning["times"]:
        return False
    for term in meaning["totals"]:
        there = total(term["category"], scene)
        if not (there > 1 if term["count"] == "many" else there == term["count"]):
            return False
    return _assign(meaning, scene, [])


def _assign(meaning: Meaning, scene: Scene, chosen: list[int]) -> bool:
    """True if the noun phrases that are left can be given groups of their own (`chosen`: those given so far)."""
    place = len(chosen)
    if place == len(meaning["things"]):
        held = {tuple(link) for link in scene["relations"]}
        return all((chosen[a], name, chosen[b]) in held for a, name, b in meaning["relations"])
    term = meaning["things"][place]
    free = (g for g in range(len(scene["groups"])) if g not in chosen and stands_for(term, scene["groups"][g]))
    return any(_assign(meaning, scene, [*chosen, group]) for group in free)


def _keys(group: Group) -> Iterable[Key]:
    """Every way a noun phrase can describe the group."""
    counts = (group["count"], "many") if group["count"] > 1 else (1,)
    colours = (None,) if group["colour"] is None else (None, group["colour"])
    nouns = [group["object"], *(f"any {name}" for name in group["categories"])]
    return ((n, c, s, k) for n in nouns for c in counts for s in (None, group["size"]) for k in colours)


def _key(term: Term) -> Key:
    noun = term["object"] if "object" in term else f"any {term['category']}"
    return noun, term["count"], term.get("size"), term.get("colour")


class Index:
    """Pictures by what they hold."""

    def __init__(self, scenes: Sequence[Scene]):
        self.scenes = scenes
        self.holding: dict[Key, set[int]] = {}
        self.kinds: dict[str, set[int]] = {}
        for picture, scene in enumerate(scenes):
            for group in scene["groups"]:
                for key in _keys(group):
                    self.holding.setdefault(key, set()).add(picture)
                for name in group["categories"]:
                    self.kinds.setdefault(name, set()).add(picture)

    def pictures(self, meaning: Meaning) -> list[int]:
        """The pictures a caption fits, in order."""
        lists = [self.holding.get(_key(term), set()) for term in meaning["things"]]
        lists += [self.kinds.get(term["category"], set()) for term in meaning["totals"]]
        close = set.intersection(*sorted(lists, key=len)) if lists else range(len(self.scenes))
        return sorted(picture for picture in close if fits(meaning, self.scenes[picture]))


def matrix(meanings: Sequence[Meaning], scenes: Sequence[Scene]) -> csr_matrix:
    """Captions x pictures, 1 where the caption fits."""
    from scipy.sparse import csr_matrix

    index, known = Index(scenes), dict[str, list[int]]()
    rows = []
    for meaning in meanings:
        name = json.dumps(meaning, sort_keys=True)  # loose captions mean the same thing many times over
        if name not in known:
            known[name] = index.pictures(meaning)
        rows.append(known[name])
    ends = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
    columns = np.fromiter((picture for row in rows for picture in row), dtype=np.int64, count=int(ends[-1]))
    return csr_matrix((np.ones(len(columns), np.uint8), columns, ends), shape=(len(rows), len(scenes)))
