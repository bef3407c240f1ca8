"""The run that NCR's figures look at: one that is named, or one trained here on pairs broken on purpose."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matchlight.auditing.truth_check import check_truth
from matchlight.core import BadInput
from matchlight.data.fingerprints import fingerprint
from matchlight.data.noise import Truth, mismatch
from matchlight.files import read_npz
from matchlight.methods.ncr import FIRST, LAST
from matchlight.pairs import Pairs
from matchlight.reproduce import style
from matchlight.reproduce.exhibit_page import run_facts
from matchlight.reproduce.exhibits import MethodSetup, Paths, Work, paths_of
from matchlight.runs.folder import Run

PAPER = "Learning with Noisy Correspondence for Cross-modal Matching (NeurIPS 2021)"
NCR = MethodSetup("NCR", "ncr", quick={"scorer": "vse_infty", "epochs": 4, "warm": 2, "dim": 128, "word_dim": 64})
NOISE = 0.5  # the larger of the two shares that the paper trains with


def one_path(run: Paths | None, what: str) -> Path | None:
    """A single path out of what was asked for."""
    paths = [] if run is None else paths_of(run)
    if len(paths) > 1:
        raise BadInput(f"{what} looks at one run; {len(paths)} were given")
    return paths[0] if paths else None


def asked_run(work: Work, run: Paths | None, *, noise: float, truth: Truth | None = None) -> tuple[Run, Truth | None]:
    """The named run; else NCR trained on the data, a share `noise` of it mismatched unless it has a truth already."""
    path = one_path(run, work.name)
    if path is not None:
        work.check_idle()
        return Run.load(path, device=work.device), truth
    work.check((NCR,))
    broken, truth = mismatch(work.pairs, ratio=noise, seed=0) if truth is None else (work.pairs, truth)
    made = work.train(NCR, pairs=broken)
    truth.save(made.folder / "truth.json")
    return made, truth


@dataclass(frozen=True)
class Division:
    """What a run thought of its training pairs, by network; `clean` is the truth where it is known."""

    rows: np.ndarray
    losses: dict[str, np.ndarray]
    probability: dict[str, np.ndarray]  # of being clean
    labels: dict[str, np.ndarray]  # rectified; NaN for pairs that were never trained on after the warm-up
    clean: np.ndarray | None
    seed: int  # the mixture's
    when: str = "at the end of the run"
    threshold: float = 0.5  # of being called clean
    run: str = ""  # a line on the run


def division(work: Work, *, run: Paths | None, truth: str | Path | None, noise: float, first: bool = False) -> Division:
    """Read what the run that is looked at has left: its last division, or the `first`, right after the warm-up."""
    style.ready()
    known = None if truth is None else _known(truth, work.pairs)
    loaded, known_truth = asked_run(work, run, noise=noise, truth=known)
    early = first and (loaded.folder / FIRST).is_file()
    arrays = read_division(loaded.folder, FIRST if early else LAST)
    epoch = arrays.pop("epoch", None)
    size = len(next(iter(arrays.values())))
    if size != len(work.pairs):
        raise BadInput(f"{loaded.folder}: was trained on {size} pairs, but {work.pairs.root} has {len(work.pairs)}")
    if one_path(run, work.name) is not None:  # a run made here has learnt from these pairs, as they are or broken
        _check_data(loaded, work.pairs, known)
    names = sorted(name.removeprefix("loss_") for name in arrays if name.startswith("loss_"))
    rows = np.flatnonzero(np.isfinite(arrays[f"loss_{names[0]}"]))
    parts = {
        what: {name: arrays[f"{what}_{name}"][rows] for name in names if f"{what}_{name}" in arrays}
        for what in ("loss", "clean", "label")
    }
    given = loaded.info["arguments"]
    made_for = int(epoch) if epoch is not None else int(given.get("epochs", 1)) - 1
    return Division(
        rows,
        parts["loss"],
        parts["clean"],
        parts["label"],
        clean=None if known_truth is None else known_truth.clean(rows),
        seed=int(loaded.info.get("seed", 0)) + made_for,
        when="right after the warm-up" if early else "at the end of the run",
        threshold=float(given.get("threshold", 0.5)),
        run=run_facts("run", loaded),
    )


def _known(path: str | Path, pairs: Pairs) -> Truth:
    """The truth of mismatched pairs, if it can be about this data."""
    truth = Truth.load(path)
    if truth.kind != "mismatch":
        raise BadInput(f"{path}: tells of wrong labels; the truth of mismatched pairs is needed")
    check_truth(truth, pairs)
    return truth


def _check_data(run: Run, pairs: Pairs, truth: Truth | None) -> None:
    """Refuse a run of other data: its losses are by row. The data before it was broken on purpose has the same rows."""
    trained = run.info.get("data", {}).get("fingerprint")
    if trained == fingerprint(pairs):
        return
    beside = run.folder / "truth.json"  # a run that an exhibit made on broken pairs has one
    if truth is None and beside.is_file():
        truth = _known(beside, pairs)
    if truth is None or trained != fingerprint(_broken(pairs, truth)):
        raise BadInput(f"{run.folder}: was trained on other data than {pairs.root}; give the data it was trained on")


def _broken(pairs: Pairs, truth: Truth) -> Pairs:
    """The pairs after what the truth tells of was done to them."""
    return pairs.with_captions_moved(np.array(list(truth.source), int), np.array(list(truth.source.values()), int))


def read_division(folder: Path, file: str = LAST) -> dict[str, np.ndarray]:
    """The arrays by row of the whole table that NCR leaves, and the epoch they were measured for where it is known."""
    path = folder / file
    arrays = read_npz(path, "a finished run of ncr has one")
    by_row = {name: value for name, value in arrays.items() if value.ndim == 1 and value.dtype.kind == "f"}
    if not any(name.startswith("loss_") for name in by_row):
        raise BadInput(f"{path}: holds no losses of pairs (loss_A, loss_B); a finished run of ncr has them")
    epoch = arrays.get("epoch")
    return by_row | ({"epoch": epoch} if epoch is not None and epoch.shape == () and epoch.dtype.kind in "iu" else {})
