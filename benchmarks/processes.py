"""One, two and four processes train from shards to the same model; a killed process ends the group, and it goes on.

    python benchmarks/processes.py                      # a quarter of an hour on two busy cores
    python benchmarks/processes.py --methods dual       # one method

Scenes are drawn, written as WebDataset shards and streamed (`--stream always`: no store of pixels or features). Every
method is trained by plain Python and by `torchrun` with two and four processes (gloo, one thread each); the table holds
the largest difference to one process over all weights, and over the scores of all pairs of the test split. Dropout is
off, the only thing that draws by process; crops and dropped words are on. Then one of two processes is killed with
SIGKILL in the middle of an epoch, and the run is resumed by one process and by four.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

ROOT = Path(__file__).parents[1]
COMMON = {"preset": "small", "batch": 16, "epochs": 3, "select": "last"}
SMALL = {"dim": 32, "hidden": 16, "word_dim": 16, "dropout": 0.0}
# At the rate of the preset, a step on a network of fifty layers makes a difference of rounding thirty times as large.
PIXELS = {"finetune": True, "pixels": 64, "freeze_epochs": 0, "rate": 1e-5}
SETTINGS: dict[str, tuple[str, dict[str, object]]] = {
    "vse_infty, frozen features": ("vse_infty", SMALL),
    "vse_infty, from pixels": ("vse_infty", SMALL | PIXELS),
    "dual, tiny CLIP": ("dual", {"rate": 1e-4}),
    "ncr+, frozen features": ("ncr+", SMALL),
    "ncr+, from pixels": ("ncr+", SMALL | PIXELS),
    "lantern, frozen features": ("lantern", SMALL | {"head_dim": 8}),
    "lantern, from pixels": ("lantern", SMALL | PIXELS | {"head_dim": 8}),
}
WORLDS = (1, 2, 4)
PICTURES = 60
# A bias before a BatchNorm, which takes it out again: Adam moves it by errors of rounding alone, and the mean follows.
UNFELT = ("first.bias", "norm.running_mean")
MIDDLE = "epoch 2/"  # of the run that is killed: after this line


def train_all(folder: Path, names: list[str], world: int) -> None:
    """Train every setting as one process of `world`; under torchrun all of them run this."""
    import matchlight as ml

    pairs = ml.Pairs.read(folder / "shards")
    for number, name in enumerate(names):
        method, own = SETTINGS[name]
        more = {"model": f"hf:{folder / 'clip'}"} if method == "dual" else {}
        out = folder / f"{world}-{number}"
        ml.train(method, pairs, out, device="cpu", stream="always", **{**COMMON, **own, **more})


def started(world: int, arguments: list[str], folder: Path) -> subprocess.Popen[str]:
    """Python (one process) or torchrun with these arguments."""
    alone = [sys.executable]
    several = [str(Path(sys.executable).parent / "torchrun"), "--nproc-per-node", str(world)]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "MATCHLIGHT_CACHE": str(folder / "cache"),
    }
    command = [*(alone if world == 1 else several), *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finished(process: subprocess.Popen[str]) -> str:
    """What it printed; an exit code above 0 ends this script."""
    said = process.communicate()[0]
    if process.returncode:
        raise SystemExit(f"exit {process.returncode}\n{said}")
    return said


def weights_apart(one: Path, other: Path) -> float:
    """The largest difference between the weights of two runs."""
    ours, theirs = (load_file(run / "model.safetensors") for run in (one, other))
    names = [name for name in ours if not name.endswith(UNFELT)]
    return max(float(np.abs(ours[name].astype(np.float64) - theirs[name]).max()) for name in names)


def scores_of(run: Path, data: Path) -> np.ndarray:
    """The scores of all pairs of the test split."""
    import matchlight as ml
    from matchlight.scoring.all_pairs import score_all
    from matchlight.scoring.encode import encode_both

    pairs, model = ml.Pairs.read(data), ml.Run.load(run, device="cpu")
    pictures, rows = pairs.pictures_of("test"), pairs.rows("test")
    return score_all(model.matcher, *encode_both(model.matcher, model.inputs(pairs).table, pictures, rows))


def compared(folder: Path, names: list[str]) -> None:
    """Print the table of one, two and four processes."""
    for world in WORLDS:
        began = time.monotonic()
        finished(
            started(world, [__file__, "--worker", str(world), "--folder", str(folder), "--methods", *names], folder)
        )
        print(f"{world} processes: {time.monotonic() - began:.0f} s", file=sys.stderr)
    print("| | steps | 2 processes: weights | scores | 4 processes: weights | scores |\n|---|---|---|---|---|---|")
    for number, name in enumerate(names):
        runs = [folder / f"{world}-{number}" for world in WORLDS]
        scores = [scores_of(run, folder / "shards") for run in runs]
        steps = steps_of(runs[0])
        figures = [
            f"{weights_apart(runs[0], run):.1e} | {np.abs(score - scores[0]).max():.1e}"
            for run, score in zip(runs[1:], scores[1:], strict=True)
        ]
        print(f"| {name} | {steps} | {' | '.join(figures)} |")


def steps_of(run: Path) -> int:
    """The steps that a run took."""
    from matchlight.training.checkpoints import load_tree

    return load_tree(run / "state" / "latest.safetensors")["place"]["total_steps"]


def killed(folder: Path) -> None:
    """Kill one of two processes, go on with one and with four, and print how far the models are from one not killed."""
    base = ["-m", "matchlight", "train", "vse_infty", "--data", str(folder / "shards"), "--device", "cpu"]
    given = {**COMMON, **SMALL, "epochs": 12}
    base += ["--stream", "always", *(f"{name}={value}" for name, value in given.items())]
    finished(started(1, [*base, "-o", str(folder / "whole")], folder))
    for world in (1, 4):
        out = folder / f"killed-{world}"
        seconds, code, lines = kill_one_of_two([*base, "-o", str(out)], folder)
        print(f"one of 2 processes killed: exit {code} after {seconds:.1f} s, {len(lines)} line of ours: {lines[0]}")
        finished(started(world, [*base, "-o", str(out), "--resume"], folder))
        log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
        step = next(line["resumed_from_step"] for line in log if "resumed_from_step" in line)
        apart = weights_apart(folder / "whole", out)
        print(
            f"resumed by {world} from step {step} of {steps_of(out)}: weights differ by {apart:.1e} from one not killed"
        )


def kill_one_of_two(arguments: list[str], folder: Path) -> tuple[float, int, list[str]]:
    """Seconds from the kill to the end of the group, its exit code, and the lines that are Matchlight's."""
    process = started(2, arguments, folder)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(MIDDLE):
            break
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True).stdout
    second = next(pid for pid in children.split() if "\0LOCAL_RANK=1\0" in Path(f"/proc/{pid}/environ").read_text())
    began = time.monotonic()
    os.kill(int(second), signal.SIGKILL)
    said = process.communicate()[0]
    return time.monotonic() - began, process.returncode, re.findall(r"^matchlight: .*$", said, re.MULTILINE)


def make_data(folder: Path) -> None:
    """Scenes as shards, and a CLIP of random weights."""
    import matchlight as ml
    from matchlight.data import formats
    from matchlight.data.formats import webdataset
    from matchlight.data.scenes import draw
    from tests.joint import make

    draw(folder / "scenes", pictures=PICTURES, captions=2, size=(96, 72))
    webdataset.SHARD = PICTURES // 5  # pictures a shard
    formats.write(ml.Pairs.read(folder / "scenes"), folder / "shards", to="webdataset")
    make("clip", folder / "clip")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="*", help="settings by name or the beginning of it; all by default")
    parser.add_argument("--folder", type=Path, help="where to work (default: a folder that is removed)")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = [name for name in SETTINGS if not given.methods or any(map(name.startswith, given.methods))]
    sys.path.insert(0, str(ROOT))
    if given.worker:
        train_all(given.folder, names, given.worker)
        return
    folder = given.folder or Path(tempfile.mkdtemp(prefix="matchlight-processes-"))
    try:
        make_data(folder)
        if names:
            compared(folder, names)
        if not given.methods or not names:
            killed(folder)
    finally:
        if given.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
