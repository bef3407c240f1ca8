"""What every exhibit needs: runs that are trained once, numbers as CSV and JSON, and the figure beside them.

Runs lie in the folder `runs` of the output, named after their method and a hash of everything they follow from. A run
that is finished is opened, one that was cut short goes on, and exhibits that need the same run share it.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from matchlight import files
from matchlight.console import say
from matchlight.core import BadInput
from matchlight.data.fingerprints import data_marks, fingerprint
from matchlight.devices import pick_device
from matchlight.measuring.protocols import Report
from matchlight.measuring.protocols.measured import Unfit
from matchlight.measuring.protocols.recall import folds
from matchlight.measuring.referee import evaluate_file
from matchlight.pairs import Pairs
from matchlight.reproduce import style
from matchlight.reproduce.exhibit_page import data_facts, how_facts, page
from matchlight.reproduce.needs import needs
from matchlight.reproduce.numbers import Row, as_csv, mean_report, plain
from matchlight.runs.evaluation import evaluate
from matchlight.runs.folder import Run
from matchlight.runs.train_run import check_needs, train
from matchlight.training.registry import Chosen, find, nearest, settings_of

SHARED = ("seeds", "quick", "settings", "device", "split", "fold", "lenient")
Paths = str | Path | Sequence[str | Path]  # one file or folder, or several
Arguments = dict[str, Any]  # of a method
Result = Row  # what NAME.json of an exhibit holds


def paths_of(given: Paths) -> list[Path]:
    """What was given as a list of paths."""
    return [Path(given)] if isinstance(given, str | Path) else [Path(path) for path in given]


@dataclass(frozen=True)
class Gallery:
    """Pictures and captions that are ranked among each other: places in their split."""

    pictures: np.ndarray
    rows: np.ndarray


@dataclass(frozen=True)
class MethodSetup:
    """A method as one line of an exhibit: how it is shown, and the arguments that make it what it is.

    Below these, and below what a user asks for, are its `usual` settings, or in a hurry the `quick` ones.
    """

    shown: str
    method: str
    arguments: Arguments = field(default_factory=dict)
    quick: Arguments = field(default_factory=dict)
    usual: Arguments = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """The data, the folder to fill, and how thorough to be; `settings` are arguments for whatever is trained."""

    name: str
    pairs: Pairs
    out: Path
    seeds: int = 1
    quick: bool = False
    settings: Arguments = field(default_factory=dict)
    device: str = "auto"
    split: str = ""  # what is measured and shown; where none is asked for, testall if there is one, else test
    fold: int | None = None  # pictures of a gallery; None: the whole split is one
    more: tuple[Pairs, ...] = ()  # further data sets, for exhibits that put several side by side
    options: Arguments = field(default_factory=dict)  # all that was asked for, as NAME.json has it
    lenient: bool = False  # settings that concern nothing trained here are left aside: one of many exhibits
    notes: list[str] = field(default_factory=list)  # what the page says of the runs beside the exhibit's own facts

    def __post_init__(self) -> None:
        if not self.split:
            object.__setattr__(self, "split", "testall" if "testall" in self.pairs.split_names else "test")

    @property
    def every(self) -> dict[str, Work]:
        """The same work on each data set, by the name that is shown; like names are numbered."""
        sets = [self.pairs, *self.more]
        names = [pairs.root.name or "in memory" for pairs in sets]
        shown = [name if names.count(name) == 1 else f"{name} {k}" for k, name in enumerate(names, 1)]
        return {name: self._on(pairs) for name, pairs in zip(shown, sets, strict=True)}

    def _on(self, pairs: Pairs) -> Work:
        """The same on other data; whether a whole test split is called test or testall is the data's affair."""
        usual = self.split in ("test", "testall") and self.split not in pairs.split_names
        return replace(self, pairs=pairs, more=(), split="" if usual else self.split)

    def check(self, setups: Iterable[MethodSetup], *, splits: Sequence[str] = ()) -> None:
        """Refuse before anything slow: missing splits or labels, and settings that none of the methods takes."""
        self.check_splits(*(splits or ("train", self.split)))
        known, setups = {"preset"}, list(setups)
        for one in setups:
            chosen = self._method(one)
            check_needs(chosen.method, self.pairs)
            known |= set(chosen.defaults)
        for name in self.settings:
            if name not in known and not self.lenient:
                raise BadInput(f"{self.name} trains nothing that takes an argument {name!r}; {nearest(name, known)}")
        self._check_preset(setups)

    def _check_preset(self, setups: Sequence[MethodSetup]) -> None:
        """A preset that nothing trained here has is refused; of methods that lack it the user is told now."""
        preset, has = self.settings.get("preset", "auto"), {one.method: self._method(one).presets for one in setups}
        if preset == "auto" or not has:
            return
        if not self.lenient and not any(preset in presets for presets in has.values()):
            known = {name for presets in has.values() for name in presets}
            raise BadInput(f"preset={preset}: {self.name} trains nothing that has it; {nearest(str(preset), known)}")
        for method in (method for method, presets in has.items() if preset not in presets):
            line = f"{method} has no preset {preset}: it takes its paper's settings"
            if line not in self.notes:
                say(line)
                self.notes.append(line)

    def check_splits(self, *splits: str) -> None:
        """Refuse data without these splits, and a machine that cannot draw."""
        style.ready()
        for split in splits:
            if split not in self.pairs.split_names:
                there = ", ".join(self.pairs.split_names) or "none"
                raise Unfit(f"{self.pairs.root}: {self.name} needs a {split} split; this data has {there}")
        if self.fold is not None:
            self.galleries()

    def check_idle(self) -> None:
        """Refuse settings where nothing is trained: they would change nothing."""
        if self.settings:
            raise BadInput(f"{self.name} trains nothing here, so {', '.join(self.settings)} cannot be set")

    def _asked(self) -> str:
        where = pick_device(self.device).type
        asked = how_facts(seeds=self.seeds, quick=self.quick, settings=self.settings, device=where)
        return asked if self.fold is None else f"{asked}; galleries of {self.fold:,} pictures"

    def _below(self, one: MethodSetup) -> Arguments:
        """A setup's settings that anything else goes before, then the user's."""
        return {**({"preset": "small", **one.quick} if self.quick else one.usual), **self.settings}

    def _method(self, one: MethodSetup) -> Chosen:
        return Chosen.of(find(one.method), {**self._below(one), **one.arguments})

    def arguments(self, one: MethodSetup) -> Arguments:
        """All arguments a setup is trained with: of what is asked of everybody, what its method takes."""
        chosen = self._method(one)
        takes = {"preset", *chosen.defaults}
        below = {name: value for name, value in self._below(one).items() if name in takes}
        if below.get("preset", "auto") not in ("auto", *chosen.presets):
            below["preset"] = "paper"
        return {**below, **one.arguments}

    def settled(self, one: MethodSetup) -> Arguments:
        """Every argument that a setup comes to on this data and machine, defaults and presets included."""
        count, where = len(self.pairs.rows("train")), pick_device(self.device).type
        return settings_of(self._method(one).method, self.arguments(one), pairs=count, device=where)[0]

    def train(self, one: MethodSetup, *, pairs: Pairs | None = None, seed: int = 0, start: Run | None = None) -> Run:
        """A trained run, from `runs` where it is finished."""
        data = self.pairs if pairs is None else pairs
        given = self.arguments(one)
        source = None if start is None else start.folder.name
        facts = [one.method, given, seed, data_marks(data), source]
        tag = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:10]
        folder = self.out / "runs" / f"{one.method}-seed{seed}-{tag}"
        if (folder / "metrics.json").is_file():  # the last file a run writes
            return Run.load(folder, device=self.device)
        return train(one.method, data, folder, seed=seed, device=self.device, resume=True, start=start, **given)

    def galleries(self) -> list[Gallery]:
        """The split that is measured as one gallery, or as galleries of `fold` pictures each, in file order."""
        part = self.pairs.subset(self.split)
        if self.fold is None:
            return [Gallery(np.arange(len(part.names)), np.arange(len(part)))]
        return [Gallery(*places) for places in folds(part, self.fold)]

    def measured(
        self, run: Run | Path, *, split: str | None = None, protocol: str = "auto", fold: int | None = None
    ) -> Report:
        """A run's report on clean data, kept beside it, or a score file's: with folds, the mean over them."""
        split, fold = split or self.split, fold or self.fold
        if isinstance(run, Path):
            kind = "five-fold" if protocol == "recall" and fold else protocol
            return evaluate_file(run, self.pairs, split, protocol=kind, fold=fold)
        kept = run.folder / f"report-{split}-{protocol}{'' if fold is None else f'-{fold}'}.json"
        if run.folder.parent != self.out / "runs":
            return self._measure(run, split, protocol, fold)
        if not kept.is_file():
            files.write_json(kept, self._measure(run, split, protocol, fold))
        report: Report = files.read_json(kept, "a run's report")
        return report

    def _measure(self, run: Run, split: str, protocol: str, fold: int | None) -> Report:
        if fold is None or protocol == "pmrp":
            return evaluate(run, self.pairs, split, protocol=protocol, fold=fold)
        if protocol == "recall":
            return evaluate(run, self.pairs, split, protocol="five-fold", fold=fold)
        pictures = self.pairs.pictures_of(split)
        elsewhere = np.setdiff1d(np.arange(len(self.pairs.names)), pictures)
        reports = []
        for places, _ in folds(self.pairs.subset(split), fold):
            part = np.union1d(elsewhere, pictures[places])  # thresholds are chosen on other splits
            rows = np.flatnonzero(np.isin(self.pairs.picture, part))
            reports.append(evaluate(run, self.pairs.select(part, rows), split, protocol=protocol))
        return mean_report(reports)

    def save(
        self,
        rows: Sequence[Row],
        draw: Callable[[], style.Figure],
        *,
        table: Sequence[Row] = (),
        facts: Sequence[str] = (),
        published: Sequence[Row] = (),
        source: str = "",
        on_page: Sequence[Row] = (),
        **more: object,
    ) -> Result:
        """Write NAME.csv (`rows`), NAME.json, NAME.png and NAME.svg, and the page NAME.md; gives the JSON's content.

        The page holds the `table` (or the same with marks, `on_page`), what was run (`facts`), and what was `published`
        with where that is from (`source`).
        The numbers are written first: they are kept even if the figure cannot be. A figure of earlier ones is removed.
        """
        place = self.out / self.name
        written = [place.with_name(f"{self.name}.{kind}") for kind in ("csv", "json", "png", "svg")]
        for old in written[2:]:
            old.unlink(missing_ok=True)
        result: Result = {
            "exhibit": self.name,
            "data": self.pairs.root.name,
            "fingerprint": fingerprint(self.pairs),
            "seeds": self.seeds,
            "quick": self.quick,
            "settings": self.settings,
            "split": self.split,
            "fold": self.fold,
            "options": plain(self.options),
            **more,
            "published": list(published),
            "table": list(table),
        }
        if table:
            written.append(place.with_name(f"{self.name}.md"))
            sets = [data_facts(pairs) for pairs in (self.pairs, *self.more)]
            lines = [*sets, self._asked(), *self.notes, *facts]
            files.write_text(written[-1], page(self.name, lines, on_page or table, published=published, source=source))
        files.write_text(written[0], as_csv(rows))
        result["files"] = [str(file.name) for file in written]
        files.write_json(written[1], plain(result))
        with style.look():
            style.save(draw(), place)
        return result


@dataclass(frozen=True)
class Exhibit:
    """A table or figure of a paper: `exhibit(pairs, out, **options)` makes it."""

    name: str
    paper: str
    shows: str
    function: Callable[..., Result]  # (work, **options)
    averages: bool = False  # over seeds; others show one run
    several: bool = False  # data sets side by side; others show one
    split: str = ""  # the one that is measured if none is asked for and the data has it; else testall or test
    folds: bool = True  # compares items, so that galleries can be asked for
    of_training: bool = False  # shows what training logs: there is no split or fold to choose

    @property
    def needs(self) -> str:
        """The data, and what is trained or given."""
        return needs(self.name)

    @property
    def options(self) -> list[str]:
        """What can be asked of it besides seeds, quick, settings, device, split and fold."""
        return [name for name in inspect.signature(self.function).parameters if name != "work"]

    def refuse(self, options: Mapping[str, object]) -> None:
        """One clear line for an option that is given and that it does not have."""
        for name, value in options.items():
            if value is not None and name not in (*SHARED, *self.options):
                own = f"its own are {', '.join(self.options)}" if self.options else "it has none of its own"
                raise BadInput(f"{self.name} takes no option {name!r}; {own}")
        if options.get("fold") is not None and not self.folds:
            raise BadInput(
                f"--fold {options['fold']}: {self.name} finds nothing in a gallery; it shows items beside centres"
            )
        for name in ("split", "fold"):
            if self.of_training and options.get(name) is not None:
                raise BadInput(f"--{name} {options[name]}: {self.name} shows the training itself; it measures no split")

    def asked_for(self, pairs: Pairs, options: Mapping[str, Any]) -> Arguments:
        """All that decides what is made of some data: its options and those of `Work`, as JSON has them."""
        given = {
            name: value for name, value in options.items() if value is not None and name not in ("device", "lenient")
        }
        usual = {"seeds": 1, "quick": False, "settings": {}, "split": Work(self.name, pairs, Path()).split}
        found = plain({**usual, **given})
        assert isinstance(found, dict)
        return json.loads(json.dumps(found, default=str))  # type: ignore[no-any-return]

    def __call__(self, pairs: Pairs | Sequence[Pairs], out: str | Path, **options: Any) -> Result:
        """Make it from `pairs`, or several data sets, into `out`; options that are None count as not given."""
        self.refuse(options)
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise BadInput("exhibits are made by one process; under torchrun, train and evaluate run by run")
        given = {name: value for name, value in options.items() if value is not None}
        shared = {name: given.pop(name) for name in SHARED if name in given}
        first, *more = [pairs] if isinstance(pairs, Pairs) else pairs
        if self.split in first.split_names:
            shared.setdefault("split", self.split)
        if more and not self.several:
            raise BadInput(f"{self.name} shows one data set; {1 + len(more)} were given")
        asked = self.asked_for(first, options)
        work = Work(self.name, first, Path(out), **shared, more=tuple(more), options=asked)
        if work.seeds < 1 or (work.seeds > 1 and not self.averages):
            why = "at least 1 is needed" if work.seeds < 1 else f"{self.name} shows one run, it averages nothing"
            raise BadInput(f"seeds={work.seeds}: {why}")
        return self.function(work, **given)
