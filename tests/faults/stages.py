"""The commands that are interrupted, each on data so small that it takes about a second.

A `World` holds what they work on and what they give when nothing happens: twice, which has to be equal.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.faults import children
from tests.faults.results import contents, differences

# One method for each way to spend epochs (the classes of `Strategy`), and what makes it small.
STRATEGIES = {
    "plain": ["vse++"],
    "warm-up": ["vse_infty", "warm=1"],
    "together": ["dive", "head_dim=8"],
    "apart": ["sgraf", "sim_dim=8", "saf_epochs=1"],
    "unit centres": ["mrl"],
    "stages": ["fgcrossnet"],
    "aligned": ["dccae"],
    "gently": ["vsrn", "warm=1", "caption_hidden=8", "caption_word_dim=8"],
    "second round": ["aoq", "first=1"],
    "co-teaching": ["ncr"],
    "trust weights": ["ncr+"],
    "lantern": ["lantern", "sentences=none"],
    "joint model": ["dual"],
}
SMALL = {"dim": 16, "hidden": 8, "word_dim": 8, "batch": 8, "epochs": 2}
MODEL_BYTES = 600_000  # of the weights that are fetched


@dataclass(frozen=True)
class Stage:
    """A command that writes to a folder; given again, with `again` added, it goes on."""

    name: str
    words: Callable[[Path], list[object]]  # out -> the command line
    again: tuple[str, ...] = ()
    before: Callable[[], None] | None = None  # in the child, before the command
    written: str = "out"  # what is compared: out, or a part of the cache


@dataclass(frozen=True)
class Place:
    """Where one case works: an output folder and a cache of its own."""

    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "work" / "out"

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def result(self, stage: Stage) -> dict[str, str]:
        """What the stage has written here."""
        return contents(self.out if stage.written == "out" else self.cache / stage.written)

    def start(self, stage: Stage, *, again: bool = False, before: Callable[[], None] | None = None) -> children.Child:
        """Start the command."""
        self.out.parent.mkdir(parents=True, exist_ok=True)
        words = [*stage.words(self.out), *(stage.again if again else ())]
        return children.Child(words, cache=self.cache, before=_both(stage.before, before))


def _both(one: Callable[[], None] | None, other: Callable[[], None] | None) -> Callable[[], None]:
    def each() -> None:
        for work in (one, other):
            if work is not None:
                work()

    return each


class World:
    """The data, runs and results that cases start from, made once in a folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._expected: dict[str, tuple[dict[str, str], float]] = {}
        self._wheel: str | None = None

    def has(self, name: str, make: Callable[[Path], object]) -> Path:
        """A file or folder of this world; `make` is asked for it, in a child, if it is not there yet."""
        path = self.folder / name
        if not path.exists():
            draft = self.folder / "making" / "it"
            shutil.rmtree(draft.parent, ignore_errors=True)
            draft.parent.mkdir(parents=True)
            children.do(lambda: make(draft))
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.rename(path)
        return path

    @cached_property
    def given(self) -> Path:
        """Features, captions and labels in a file."""
        return self.has("given.npz", _write_given)

    @cached_property
    def shapes(self) -> Path:
        """Pictures with captions."""
        return self.has("shapes", _draw)

    @cached_property
    def run(self) -> Path:
        """A run on the given features."""
        data = self.given
        return self.has("run", lambda path: self.command(training_words(["vse++"], data, path)))

    @cached_property
    def joint(self) -> Path:
        """A tiny joint model."""
        return self.has("joint", _make_joint)

    def command(self, words: list[object]) -> None:
        """In a child: a command that has to succeed."""
        from matchlight.cli import main

        assert main([str(word) for word in words]) == 0

    def expected(self, stage: Stage) -> tuple[dict[str, str], float]:
        """What a stage gives if nothing happens, and the seconds it takes; computed twice, the same both times."""
        if stage.name not in self._expected:
            note = self.folder / "expected" / f"{stage.name}.json"
            if not note.exists():
                note.parent.mkdir(parents=True, exist_ok=True)
                found = [self._undisturbed(stage, self.folder / "undisturbed" / stage.name / str(k)) for k in (0, 1)]
                assert found[0][0], f"{stage.name} wrote nothing"
                assert not (differ := differences(found[0][0], found[1][0])), f"{stage.name} is not settled: {differ}"
                note.write_text(json.dumps(found[1]))
            result, seconds = json.loads(note.read_text())
            self._expected[stage.name] = result, seconds
        return self._expected[stage.name]

    def _undisturbed(self, stage: Stage, folder: Path) -> tuple[dict[str, str], float]:
        shutil.rmtree(folder, ignore_errors=True)
        place = Place(folder)
        ended = place.start(stage).wait()
        assert ended.code == 0, f"{stage.name}: {ended.err[-1000:]}"
        return place.result(stage), ended.seconds

    def stages(self) -> list[Stage]:
        """All of them, trainings first."""
        return [
            *(self._training(name, words) for name, words in STRATEGIES.items()),
            Stage("train photos", lambda out: training_words(["vse++"], self.shapes, out), again=("--resume",)),
            Stage("features", lambda out: ["data", "features", self.shapes, "-o", out]),
            Stage("mine", lambda out: ["mine", self.run, "--data", self.given, "-o", out, "--top", 5]),
            Stage("audit", lambda out: ["audit", self.run, "--data", self.given, "-o", out, "--split", "all"]),
            Stage("index", lambda out: ["index", self.run, "--data", self.given, "-o", out]),
            Stage("compare", lambda out: ["compare", *COMPARED, "--data", self.given, "--noise", "0,0.4", "-o", out]),
            Stage("weights", lambda _: ["weights", "get", "toy"], before=self._shop, written="weights/toy"),
        ]

    def _training(self, name: str, words: list[str]) -> Stage:
        def command(out: Path) -> list[object]:
            if words[0] != "dual":
                return training_words(words, self.given, out)
            return training_words([*words, f"model=hf:{self.joint}", "crop=1.0"], self.shapes, out)

        return Stage(f"train {name}", command, again=("--resume",))

    def _shop(self) -> None:
        """In the child: a catalogue with one entry, whose wheel is read from a local server with pauses."""
        from tests.faults.toy_weights import open_shop

        open_shop(MODEL_BYTES)


COMPARED = ["vse++", "epochs=1", "dim=8", "ncr", "epochs=1", "dim=8"]


def training_words(words: list[str], data: Path, out: Path) -> list[object]:
    from matchlight.training.registry import Chosen, methods

    known = Chosen.of(methods()[words[0]], {}).defaults
    said = {word.partition("=")[0] for word in words[1:]}
    small = [f"{name}={value}" for name, value in SMALL.items() if name in known and name not in said]
    return ["train", *words, *small, "--data", data, "-o", out, "--device", "cpu", "--save-minutes", "0.0001"]


def _write_given(path: Path) -> None:
    from matchlight.data import formats
    from tests.tiny import tiny_pairs

    formats.write(tiny_pairs(), path, to="npz")


def _draw(path: Path) -> None:
    from tests.serving import drawn

    drawn(path)


def _make_joint(path: Path) -> None:
    from tests.joint import make

    make("clip", path)
