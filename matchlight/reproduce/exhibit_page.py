"""The page of an exhibit: what was run, on which data, the numbers, and beside them what the paper printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matchlight.pairs import Pairs
from matchlight.reproduce.numbers import Row, as_markdown
from matchlight.runs.folder import Run


def page(
    name: str, facts: Sequence[str], table: Sequence[Row], *, published: Sequence[Row] = (), source: str = ""
) -> str:
    """Markdown: a heading, facts, the table, and a second table of published numbers with where they are from."""
    parts = [f"# {name}\n", "".join(f"- {fact}\n" for fact in facts), as_markdown(table)]
    if published:
        parts += [f"Published{f': {source}' if source else ''}\n", as_markdown(published)]
    return "\n".join(parts)


def data_facts(pairs: Pairs) -> str:
    """One line on the data: its name and the size of every split."""
    sizes = [
        f"{split} {len(pairs.pictures_of(split)):,} pictures, {len(pairs.rows(split)):,} captions"
        for split in pairs.split_names
    ]
    return f"data: {pairs.root.name or 'in memory'} ({'; '.join(sizes)})"


def how_facts(*, seeds: int, quick: bool, settings: Mapping[str, object], device: str) -> str:
    """One line on how it was asked for."""
    given = " ".join(f"{name}={value}" for name, value in settings.items()) or "none"
    hurried = ", --quick: to see that it works, not to be believed" if quick else ""
    return f"asked for: {seeds} seed{'s' if seeds > 1 else ''}, settings {given}, device {device}{hurried}"


def run_facts(shown: str, run: Run) -> str:
    """One line on a run that was trained or looked at."""
    given = run.info["arguments"]
    sizes = [f"{name} {given[name]}" for name in ("scorer", "base", "warm", "epochs", "batch", "dim") if name in given]
    where = [f"pictures as {run.info['view']['kind']}", run.info.get("precision", "fp32")]
    return f"{shown}: {run.method}, preset {run.info['preset']}, {', '.join(sizes + where)}"
