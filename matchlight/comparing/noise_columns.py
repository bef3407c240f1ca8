"""Columns of a table: a share of noise, and whether captions move one by one or all those of a picture together.

A column is a number (0.4), or a word with a `p` behind the number where whole pictures lose their captions ("0.4p"):
the two are different noise, and never stand in one column or on one curve.
"""

from __future__ import annotations

from collections.abc import Iterable

from matchlight.core import BadInput

Noise = float | str
PICTURES = "p"  # behind a share: the captions of a picture move together


def parse_noise(text: str) -> list[Noise]:
    """Columns from a command line: 0,0.2,0.6p."""
    try:
        found = [_column(word.strip()) for word in text.split(",")]
    except ValueError:
        found = [-1.0]
    if not all(0 <= share_of(one) <= 1 for one in found):  # False for nan
        raise BadInput(
            f"--noise {text}: shares between 0 and 1 with commas between them, as in 0,0.2,0.4 (0.6p: whole pictures)"
        )
    return found


def _column(word: str) -> Noise:
    share = float(word.removesuffix(PICTURES))
    return f"{share:g}{PICTURES}" if word.endswith(PICTURES) and share else share  # no noise is of neither kind


def share_of(noise: Noise) -> float:
    """How much is made wrong."""
    return float(noise.removesuffix(PICTURES)) if isinstance(noise, str) else noise


def is_per_picture(noise: Noise) -> bool:
    """Whether a picture's captions move together in this column."""
    return isinstance(noise, str)


def in_order(noise: Iterable[Noise]) -> list[Noise]:
    """Each column once, growing; whole pictures behind the others."""
    return sorted(set(noise), key=lambda one: (is_per_picture(one), share_of(one)))


def key(noise: Noise) -> str:
    """As it stands in names of files and in JSON."""
    return noise if isinstance(noise, str) else f"{noise:g}"


def shown(noise: Noise) -> str:
    """60%, or 60% of whole pictures."""
    return f"{100 * share_of(noise):g}%{', whole pictures' if is_per_picture(noise) else ''}"


def heading(noise: Noise) -> str:
    """Above a column of the table."""
    return f"{100 * share_of(noise):g}% noise{', whole pictures' if is_per_picture(noise) else ''}"
