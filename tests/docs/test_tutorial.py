"""The tutorial's notebook runs from top to bottom."""

from __future__ import annotations

import json

from docs.pages import ROOT

NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"


def test_the_notebook_runs_and_finds_most_of_the_wrong_pairs() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    scope: dict[str, object] = {}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"tutorial.ipynb, cell {number}", "exec"), scope)
    summary = scope["audit"].summary  # type: ignore[attr-defined]
    assert summary["auroc"] > 0.8
    assert scope["counts"]["dropped"] == summary["flagged"] > 0  # type: ignore[index]
    assert scope["report"]["rsum"] > 0  # type: ignore[index]
