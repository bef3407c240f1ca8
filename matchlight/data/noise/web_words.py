"""Captions as pages of the web have them, made by rule: titles, file names, templates, captions that were cut off."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

FEWEST_TO_CUT = 5  # words of a caption that still says something after it was cut
TITLE_WORDS = 2, 5  # content words of a title: at least, at most
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
# Words that titles leave out.
SMALL = frozenset(
    "a an and are as at be by for from has have he her his in into is it its of off on onto or out over she some "
    "that the their them there they this to under up was were while who with".split()
)
FIRST = "Anna Ben Carla David Elena Frank Grace Hugo Ines Jonas Karin Leo Maria Nils Olga Paul".split()
LAST = "Adler Brandt Costa Dahl Evans Fischer Garcia Holm Ito Jensen Keller Lopez Moreau Novak Olsen Park".split()
MONTHS = "January March April June July September October December".split()
SITES = ("Example Photos", "Example Image Library", "My Photo Pages", "example.org")
TITLES = (
    "{title} - Stock Photo",
    "{title} | {site}",
    "{title} - {site}",
    "{slug}.jpg",
    "{slug}-{number}.jpg",
    "{title}",
)
FILE_NAMES = (
    "IMG_{number}",
    "IMG_{number}.JPG",
    "DSC0{number}.JPG",
    "P10{number}",
    "image-{number}.png",
    "photo {number}",
    "scan{number}.tif",
    "{number}_large.jpg",
    "untitled-{small}",
)
TEMPLATES = (
    "Image of product",
    "Stock photo",
    "Click to enlarge",
    "View full size image",
    "No description available",
    "Image may be subject to copyright",
    "Picture {small} of {large}",
    "Thumbnail for image {small}",
    "Photo by {name}",
    "Photo courtesy of {name}",
    "Uploaded by {name} on {small} {month} {year}",
    "Photo gallery, {month} {year}",
)


def title(caption: str, rng: np.random.Generator) -> str | None:
    """The caption's own words as the title of a page or the name of a file; None where it has too few."""
    words = [word for word in WORD.findall(caption) if word.lower() not in SMALL]
    if len(words) < TITLE_WORDS[0]:
        return None
    kept = words[: int(rng.integers(TITLE_WORDS[0] + 1, TITLE_WORDS[1] + 1))]
    shown, slug = " ".join(word.capitalize() for word in kept), "-".join(kept).lower()
    return _filled(TITLES, rng, title=shown, slug=slug)


def truncated(caption: str, rng: np.random.Generator) -> str | None:
    """The first half to three quarters of the caption's words; None where it has too few."""
    words = caption.rstrip(" .").split()
    if len(words) < FEWEST_TO_CUT:
        return None
    kept = max(3, round(len(words) * rng.uniform(0.5, 0.75)))
    return " ".join(words[:kept]) + ("", " ...", "...")[int(rng.integers(3))]


def file_name(caption: str, rng: np.random.Generator) -> str:
    """What a camera or a scanner calls a picture."""
    return _filled(FILE_NAMES, rng)


def template(caption: str, rng: np.random.Generator) -> str:
    """What a page says of any picture."""
    return _filled(TEMPLATES, rng)


MADE: dict[str, Callable[[str, np.random.Generator], str | None]] = {
    "title": title,
    "truncated": truncated,
    "file name": file_name,
    "template": template,
}


def _filled(patterns: Sequence[str], rng: np.random.Generator, **words: str) -> str:
    """One of the patterns with its gaps filled."""
    pattern = str(rng.choice(patterns))
    small = int(rng.integers(1, 29))
    name = f"{rng.choice(FIRST)} {rng.choice(LAST)}"
    return pattern.format(
        number=f"{rng.integers(1, 10_000):04d}",
        small=small,
        large=small + int(rng.integers(1, 40)),
        name=name,
        month=rng.choice(MONTHS),
        year=rng.integers(2004, 2024),
        site=rng.choice(SITES),
        **words,
    )
