"""Cells of CSV files that people open in a spreadsheet: a text that looks like a formula gets a quote before it."""

from __future__ import annotations

FORMULA = ("=", "+", "-", "@", "\t", "\r")


def safe_cell(text: str) -> str:
    """A text no spreadsheet takes for a formula: one that would be gets a quote before it."""
    return f"'{text}" if text.startswith(FORMULA) else text


def plain_cell(text: str) -> str:
    """The text of a cell without the quote that `safe_cell` put before it."""
    return text[1:] if text.startswith("'") and text[1:].startswith(FORMULA) else text


def spellings(text: str) -> set[str]:
    """The ways in which a file may write a text: as it is, with the quote, and without one it begins with."""
    return {text, safe_cell(text), plain_cell(text)}
