"""The runs of AOQ's exhibits: one first round a base, mined once; every second round starts from it and its lists.

A second round with the paper's own settings is the same run in all exhibits, so they share it.
"""

from __future__ import annotations

from pathlib import Path

from matchlight.devices import pick_device
from matchlight.methods.aoq import AOQ, SPARE
from matchlight.reproduce.exhibits import Arguments, MethodSetup, Work
from matchlight.runs.folder import Run
from matchlight.runs.hard_negatives import mine_run
from matchlight.training.registry import Chosen, find, settings_of

PAPER = "Adaptive Offline Quintuplet Loss for Image-Text Matching (ECCV 2020)"
BASES, QUICK_BASES = ("vsrn", "bfan"), ("vse_infty", "bfan")
QUICK = {"epochs": 2, "dim": 128, "word_dim": 64}
FOLD = 1000
TITLES = {"vsrn": "VSRN", "bfan": "BFAN", "scan": "SCAN", "vse_infty": "VSE∞", "vse++": "VSE++"}


def bases(work: Work) -> tuple[str, ...]:
    """The bases that are compared: the one asked for, else the paper's two, in a hurry quicker ones."""
    asked = work.settings.get("base")
    return (str(asked),) if asked else QUICK_BASES if work.quick else BASES


def title(base: str) -> str:
    """A base as a figure calls it."""
    return TITLES.get(base, base)


def first(base: str, **changes: object) -> MethodSetup:
    """The base by itself."""
    return MethodSetup(title(base), base, changes, QUICK)


def second(base: str, lists: Path | None = None, **changes: object) -> MethodSetup:
    """A second round over the base; `changes` are what is not as in the paper."""
    drawn: Arguments = {} if lists is None else {"candidates": str(lists)}
    return MethodSetup(f"{title(base)} + AOQ", "aoq", {"base": base, **changes, **drawn}, QUICK)


def mined(work: Work, base: str, run: Run) -> Path:
    """The folder of a first round's lists, as long as the second round asks for."""
    count, where = len(work.pairs.rows("train")), pick_device(work.device).type
    given, _ = settings_of(find("aoq"), work.arguments(second(base)), pairs=count, device=where)
    asked = Chosen.of(find("aoq"), given).typed(given)
    assert isinstance(asked, AOQ)
    folder = run.folder.parent / f"lists-{run.folder.name}-{asked.h}"
    top = asked.h * (1 if asked.filter == "none" else SPARE)
    mine_run(run, work.pairs, folder, top=top, coarse=asked.coarse)
    return folder


def both_rounds(work: Work, base: str, *, seed: int = 0) -> tuple[Run, Run]:
    """A first round of the base, then AOQ from its weights and lists, with the paper's settings."""
    one = work.train(first(base), seed=seed)
    return one, work.train(second(base, mined(work, base, one)), seed=seed, start=one)


def fold_of(work: Work) -> int | None:
    """The paper's tables are of COCO 1K: galleries of 1,000 pictures where two can be made."""
    return work.fold or (FOLD if len(work.pairs.pictures_of(work.split)) >= 2 * FOLD else None)


def galleries(fold: int | None) -> str:
    """How recalls were measured, in words."""
    return "one gallery" if fold is None else f"the mean over galleries of {fold:,} pictures"
