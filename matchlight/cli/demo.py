"""The tour: draw scenes, break some pairs, train, measure, audit, index, and a page to look at all of it.

Every step is skipped if an earlier run finished it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from matchlight import files
from matchlight.console import BadInput, say
from matchlight.pairs import Pairs

if TYPE_CHECKING:
    from matchlight.runs.folder import Run

AUDITED = ("pairs", "flagged", "estimated_noise", "auroc", "precision", "recall")
BROKEN = 0.3  # share of the training pairs that get a wrong caption


def _step(folder: Path, make: Callable[[Path], None]) -> Path:
    """Do a step in a folder of its own that gets its name when it is done; what a killed demo left is thrown away."""
    if not folder.exists():
        draft = folder.with_name(folder.name + ".unfinished")
        shutil.rmtree(draft, ignore_errors=True)
        draft.parent.mkdir(parents=True, exist_ok=True)
        make(draft)
        draft.rename(folder)
    return folder


def _scenes(folder: Path, *, pictures: int, seed: int) -> None:
    from matchlight.data.scenes import draw

    say(f"drawing {pictures} picture-book scenes")
    draw(folder, pictures=pictures, seed=seed)


def _break(folder: Path, source: Path, *, seed: int) -> None:
    from matchlight.data import formats, noise

    say(f"giving {BROKEN:.0%} of the training captions to the wrong picture")
    noisy, truth = noise.mismatch(Pairs.read(source), ratio=BROKEN, seed=seed)
    formats.write(noisy, folder, to="jsonl")
    truth.save(folder / "truth.json")


def _audit(folder: Path, run: Run, data: Path) -> None:
    from matchlight.auditing import audit
    from matchlight.data.noise import Truth

    say("looking for the wrong pairs, without knowing which they are")
    # The run itself is asked: training cross-validated models as well would be surer, and take minutes more.
    truth = Truth.load(data / "truth.json")
    audit(run, Pairs.read(data), folder, truth=truth, source=data, captions="words", pictures="own")


def _index(folder: Path, run: Run, data: Path) -> None:
    from matchlight.indexing import Index

    say("building the search index")
    Index.build(run, Pairs.read(data), folder).close()


class Demo(TypedDict):
    """What a demo made, and what was measured; demo.json."""

    test: Mapping[str, object]
    chance_r1: float
    seconds: float
    data: str
    run: str
    audit: dict[str, str | int | float | None]
    index: str


def _right(summary: Mapping[str, float | None]) -> str:
    """How many of the suspects are really wrong: the audit does not know, but the demo knows what it broke."""
    precision = summary.get("precision")
    return "" if precision is None else f"; {precision:.0%} of those are wrong indeed"


def _agree(path: Path, settings: dict[str, int]) -> None:
    """A folder holds one demo: with other settings its finished steps must not be taken for this one's."""
    if path.exists() and (old := files.read_json(path, "a demo's settings")) != settings:
        raise BadInput(f"{path.parent} holds a demo with {old}; choose another -o for {settings}")
    files.write_json(path, settings)


def run_demo(out: Path, *, pictures: int = 2000, seed: int = 0) -> Demo:
    """Everything above into one folder; gives the test report beside what chance would reach."""
    from matchlight.measuring.protocols import figure
    from matchlight.runs.evaluation import evaluate
    from matchlight.runs.train_run import train

    if out.exists() and not out.is_dir():
        raise BadInput(f"{out}: not a folder; choose another -o")
    _agree(out / "settings.json", {"pictures": pictures, "seed": seed})
    began = time.monotonic()
    scenes = _step(out / "scenes", partial(_scenes, pictures=pictures, seed=seed))
    data = _step(out / "broken", partial(_break, source=scenes, seed=seed))
    pairs = Pairs.read(data)
    run = train("vse_infty", pairs, out / "run", seed=seed, resume=True, **DEMO_SETTINGS)
    report = evaluate(run, pairs, "test")
    chance = 100 / figure(report, "pictures")
    there, back = (figure(report, side, "r1") for side in ("t2i", "i2t"))
    say(f"R@1 {there:.1f}% text to picture, {back:.1f}% back; chance is {chance:.2f}%")
    audited = _step(out / "audit", partial(_audit, run=run, data=data))
    summary = files.read_json(audited / "summary.json", "an audit's summary")
    say(f"{summary['flagged']} of {summary['pairs']} pairs are suspect{_right(summary)}")
    index = _step(out / "index", partial(_index, run=run, data=data))
    seconds = time.monotonic() - began
    say(f"{seconds:.0f} s; the data is in {data}, the run in {run.folder}, the index in {index}")
    result: Demo = {
        "test": report,
        "chance_r1": chance,
        "seconds": round(seconds, 1),
        "data": str(data),
        "run": str(run.folder),
        "audit": {"folder": str(audited), **{name: summary.get(name) for name in AUDITED}},
        "index": str(index),
    }
    files.write_json(out / "demo.json", result)
    return result


DEMO_SETTINGS: dict[str, Any] = {"loss": "gce", "epochs": 8}  # a loss that does not pull hard on wrong pairs


def serve_demo(result: Demo, *, port: int = 8000) -> None:
    """The page of a finished demo, until Ctrl-C; on another port if this one is taken."""
    from matchlight.serve import create, require

    require()
    from matchlight.serve import server

    sock = server.bound_here(port)
    app = create(result["index"], audit=str(result["audit"]["folder"]))
    say(f"open {server.address(sock)} in a browser; Ctrl-C ends it")
    server.run(app, sock)
