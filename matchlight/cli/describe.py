"""What `matchlight data info` shows a person: splits, sizes, labels and problems of a data set, a fact a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from matchlight.cli.errors import one_line
from matchlight.cli.output import shown, table, tell

if TYPE_CHECKING:
    from matchlight.data.formats.info import Info, ProblemInfo

NAMES = 12  # classes spelt out


def describe(path: str, facts: Info) -> None:
    """Print what `formats.info` found."""
    tell(one_line(f"{path}: {facts['format']}"))
    rows = [[name, split["pictures"], split["captions"]] for name, split in facts["splits"].items()]
    if len(rows) > 1:
        rows.append(["all", *(sum(column) for column in list(zip(*rows, strict=True))[1:])])
    table("", ["split", "pictures", "captions"], rows)
    for name, fact in _facts(facts):
        tell(f"{name + ':':<22}{fact}")
    _problems(facts["problems"])


def _facts(facts: Info) -> Iterator[tuple[str, str]]:
    yield "captions a picture", _spread(facts["captions_per_picture"], "mean")
    if sizes := facts.get("picture_sizes"):
        yield "width", f"{_spread(sizes['width'], 'median')} px"
        yield "height", f"{_spread(sizes['height'], 'median')} px"
    if features := facts["features"]:
        yield "picture features", shown(tuple(features))
    if features := facts["text_features"]:
        yield "text features", shown(tuple(features))
    if labels := facts["labels"]:
        names = one_line(", ".join(labels["names"][:NAMES]))
        yield "labels", f"{shown(labels['classes'])} classes ({names}{', ...' if labels['classes'] > NAMES else ''})"
        yield "labels a picture", _spread(labels["per_picture"], "mean")
    if facts.get("relevance") is not None:
        yield "relevance", f"{shown(facts['relevance'])} fitting (caption, picture) pairs are known"


def _spread(values: dict[str, float], middle: str) -> str:
    if values["min"] == values["max"]:
        return f"{values['min']:g}"
    return f"{values['min']:g} to {values['max']:g} ({middle} {values[middle]:.4g})"


def _problems(problems: list[ProblemInfo]) -> None:
    if not problems:
        tell("no problems found")
        return
    for problem in problems:
        tell(f"problem: {problem['kind']}, {shown(problem['count'])}")
        for example in problem["examples"][:3]:
            tell(f"    {one_line(example, 160)}")
