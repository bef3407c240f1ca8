"""Progress where people see it: bars in a notebook are drawn in one place and taken away."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from matchlight import console


class Handle:
    """What IPython gives for something shown under an id."""

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def update(self, shown: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.seen.append(shown["text/html"])


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a notebook would show, one entry a change."""
    seen: list[str] = []

    def display(shown: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert raw and display_id and not seen
        seen.append(shown["text/html"])
        return Handle(seen)

    module = ModuleType("IPython.display")
    module.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(console.err, "is_jupyter", True)
    monkeypatch.setattr(console, "NOTEBOOK_EVERY", 0.0)
    return seen


def test_a_bar_in_a_notebook_says_how_far_and_goes_away(notebook: list[str]) -> None:
    assert list(console.track(["a", "b", "c"], "<reading>")) == ["a", "b", "c"]
    assert '&lt;reading&gt; <progress value="0" max="3"></progress> 0 of 3' in notebook[0]
    assert any("2 of 3" in shown for shown in notebook)
    assert notebook[-1] == "" and not console.Display.shown


def test_what_lasts_inside_something_gets_a_line_of_its_own_there(notebook: list[str]) -> None:
    for _ in console.track(range(2), "outer"):
        list(console.track(range(2), "inner"))
    both = [shown for shown in notebook if "outer" in shown and "inner" in shown]
    assert both and all(shown.count("<div>") == 2 for shown in both)


def test_many_steps_are_drawn_a_few_times_only(notebook: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "NOTEBOOK_EVERY", 60.0)
    list(console.track(range(10_000), "counting"))
    assert len(notebook) <= 2


def test_a_download_shows_its_bytes(notebook: list[str]) -> None:
    with console.download_progress("weights", total=2_000_000) as came:
        came(1_500_000)
    assert any("1,500,000 of 2,000,000" in shown for shown in notebook)


@pytest.mark.full
def test_the_real_ipython_shows_the_bar_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    shells = pytest.importorskip("IPython.core.interactiveshell", reason="IPython is not installed")
    from IPython.utils.capture import capture_output

    shell = shells.InteractiveShell.instance()
    monkeypatch.setattr(console.err, "is_jupyter", True)
    monkeypatch.setattr(console, "NOTEBOOK_EVERY", 0.0)
    try:
        with capture_output() as seen:
            list(console.track(range(3), "reading"))
        shown = [one.data["text/html"] for one in seen.outputs]
        assert any("2 of 3" in one for one in shown) and shown[-1] == ""
    finally:
        shell.clear_instance()
