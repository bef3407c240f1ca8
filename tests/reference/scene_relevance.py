"""Relevance of scenes the slow way: every caption against every picture, from `scenes.jsonl` alone, in plain loops.

Shares no code with the package: relations are worked out from the boxes, and noun phrases are tried on every ordering
of the groups.
"""

import itertools
import json
from pathlib import Path


def read(folder):
    """The records of a drawn folder."""
    return [json.loads(line) for line in (Path(folder) / "scenes.jsonl").read_text(encoding="utf-8").splitlines()]


def holds(relation, one, two, width, height):
    """Whether group `one` is in a relation to group `two`."""
    box, other = one["box"], two["box"]
    common_x = min(box[2], other[2]) - max(box[0], other[0])
    common_y = min(box[3], other[3]) - max(box[1], other[1])
    if relation == "left of":
        return box[2] <= other[0]
    if relation == "above":
        return not one["stands"] and box[3] <= other[1]
    if relation == "in front of":
        narrow = min(box[2] - box[0], other[2] - other[0])
        lower = (box[3] - other[3]) / height >= 1 / 12
        return one["stands"] and two["stands"] and common_x >= narrow / 2 and lower
    if relation == "next to":
        short = min(box[3] - box[1], other[3] - other[1])
        near = common_x <= 0 and -common_x / width <= 1 / 5
        return one["stands"] == two["stands"] and near and common_y >= short / 2
    inverse = {"right of": "left of", "below": "above", "behind": "in front of"}[relation]
    return holds(inverse, two, one, width, height)


def describes(term, group):
    """Whether a noun phrase can stand for a group."""
    if "object" in term and term["object"] != group["object"]:
        return False
    if "category" in term and term["category"] not in group["categories"]:
        return False
    if term["count"] == "many":
        if group["count"] < 2:
            return False
    elif term["count"] != group["count"]:
        return False
    return all(term[what] == group[what] for what in ("size", "colour") if what in term)


def fits(meaning, scene):
    """Whether a caption fits a picture."""
    if meaning["places"] and scene["place"] not in meaning["places"]:
        return False
    if meaning["times"] and scene["time"] not in meaning["times"]:
        return False
    for term in meaning["totals"]:
        there = 0
        for group in scene["groups"]:
            if term["category"] in group["categories"]:
                there += group["count"]
        if there < 2 if term["count"] == "many" else there != term["count"]:
            return False
    width, height = scene["size"]
    for order in itertools.permutations(scene["groups"], len(meaning["things"])):
        if all(describes(term, group) for term, group in zip(meaning["things"], order, strict=True)) and all(
            holds(relation, order[a], order[b], width, height) for a, relation, b in meaning["relations"]
        ):
            return True
    return False


def relevance(scenes):
    """Captions x pictures as lists of True and False."""
    return [[fits(caption["meaning"], scene) for scene in scenes] for own in scenes for caption in own["captions"]]
