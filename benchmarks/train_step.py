"""What does a step of training cost: kernels, launches, the host's share, as it is and with steps kept as CUDA graphs?

    python benchmarks/train_step.py [--methods lantern,dual,ncr+,ncr] [--cells 577,145,65] [--seconds 95] [--hogs 25]

Random features, random captions and the sizes of a real run: the trainer's own step on batches that are made before.
"kernels" and "launches" are what the profiler saw a step, "host" the time until a step's launches were made, "ms a
step" the time from step to step, all of them waited for at the end. `--hogs` prints the costliest kernels and ops of
the first case. On a machine without a GPU everything runs small, and launches are calls that would be kernels there.
"""

from __future__ import annotations

import argparse
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from matchlight import devices
from matchlight.core import BadInput, Batch
from matchlight.inputs import sentence_encoders
from matchlight.inputs.batches import collate, filled, seeded
from matchlight.inputs.prepare import prepare, view_of
from matchlight.pairs import Pairs
from matchlight.parts import encoders
from matchlight.training.contract import Phase
from matchlight.training.pair_losses import fits
from matchlight.training.registry import choose, settings_of
from matchlight.training.trainer import Trainer

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "lantern": ("lantern", {"preset": "paper"}),
    "dual": ("vse_infty", {"preset": "dual", "sentences": "minilm", "projections": "random"}),
    "ncr+": ("ncr+", {"preset": "paper"}),
    "ncr": ("ncr", {"preset": "paper", "scorer": "vse_infty"}),
}
SMALL = {"batch": 40, "dim": 32}
WORDS = "a the man woman dog child red blue black white in on at with and of is are two three".split()
WORDS += "running jumping playing standing sitting riding holding wearing looking street beach grass water snow".split()
WORDS += "ball bike shirt hat rock field tree crowd building skateboarder photographer motorcyclist".split()
WARM, TIMED, PROFILED, CHECKED = 6, 10, 3, 20


class Arrays:
    """Features held in memory."""

    def __init__(self, array: np.ndarray):
        self.array, self.shape = array, array.shape

    def __len__(self) -> int:
        return len(self.array)

    def gather(self, index: np.ndarray) -> np.ndarray:
        """Rows in this order."""
        return self.array[index]

    def stamp(self) -> str:
        """Random, so no other."""
        return "random"

    def take(self, index: np.ndarray) -> Arrays:
        """Some pictures."""
        return Arrays(self.array[index])


def random_pairs(pictures: int, cells: int, dim: int) -> Pairs:
    """Pictures of random features with five captions of random words each."""
    rng = np.random.default_rng(0)
    looks = rng.standard_normal((64, cells, dim)).astype(np.float16)
    features = looks[np.arange(pictures) % 64] * rng.choice([-1, 1], (pictures, 1, dim)).astype(np.float16)
    lengths = np.clip(rng.normal(11, 4, 5 * pictures).round(), 4, 28).astype(int)
    captions = [" ".join(rng.choice(WORDS, n)) for n in lengths]
    return Pairs(
        names=[str(k) for k in range(pictures)],
        captions=captions,
        picture=np.repeat(np.arange(pictures), 5),
        splits=np.array(["train"] * pictures),
        features=Arrays(features),
    )


class RandomReader(sentence_encoders.SentenceEncoder):
    """A text tower of MiniLM's size that has learnt nothing, for machines without its weights."""

    dim = 384

    def __init__(self) -> None:
        super().__init__()
        self.bert = sentence_encoders.Bert()

    def vocabulary(self) -> dict[str, int]:
        """As many pieces as MiniLM's."""
        return {"[CLS]": 101, "[SEP]": 102, "[MASK]": 103, **{f"p{k}": k for k in range(104, 30522)}}

    def token_ids(self, texts: Any) -> list[list[int]]:
        """A number a word."""
        return [[101, *(1000 + zlib.crc32(word.encode()) % 20000 for word in text.split()), 102] for text in texts]

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """States."""
        states: torch.Tensor = self.bert(ids, mask)
        return states

    def read(self, ids: torch.Tensor, mask: torch.Tensor, *, real: int | None = None) -> torch.Tensor:
        """As MiniLM does."""
        return self(ids, mask) if real is None else self.bert.packed(ids, mask, room=real + 1)


def read_by_something() -> None:
    """MiniLM where it is, else a tower of its size."""
    try:
        sentence_encoders.sentence_encoder("minilm")
    except BadInput as problem:
        print(f"random text tower: {problem}", flush=True)

        def random_reader(name: str = "", *, frozen: bool = False) -> sentence_encoders.SentenceEncoder:
            return RandomReader().eval()

        for module in (sentence_encoders, encoders):
            vars(module)["sentence_encoder"] = random_reader


class Case:
    """A trainer in the middle of its work, and batches that are on the device already."""

    def __init__(self, name: str, pairs: Pairs, device: torch.device, folder: Path, *, graphs: bool):
        method, settings = CASES[name]
        chosen, given = choose(method, {**settings, **({} if device.type == "cuda" else SMALL)})
        flat, _ = settings_of(chosen.method, given, pairs=30000, device="cuda")
        inputs = prepare(pairs, view_of(flat, pooled=chosen.pooled, pairs=pairs), device=device, streamed=False)
        recipe = chosen.build(inputs.sizes, **flat)
        self.trainer = Trainer(folder, recipe, inputs, device=device, precision="bf16")
        if not graphs:
            self.trainer.graphs = None
            for network in self.trainer.networks.values():
                network.graphed = None
        self.phase = self._late_phase()
        self.network = self.trainer.networks[self.phase.network]
        self.network.matcher.train()
        self.batches = [self._made(rows) for rows in self._plan()[:8]]
        self.done = 0

    def _late_phase(self) -> Phase:
        """A phase of the main part of the training, with everything about pairs that it needs said to be known."""
        run, rows = self.trainer, len(self.trainer.pairs)
        strategy: Any = run.recipe.strategy
        if hasattr(strategy, "second"):  # NCR+ and lantern
            strategy.measured, strategy.fresh, strategy.noise = 10**6, True, 0.1
            strategy.clean = np.linspace(0, 1, rows)
        elif hasattr(strategy, "divided"):  # NCR
            strategy.divided = strategy.warm
            strategy.clean = {name: np.linspace(0, 1, rows) for name in strategy.networks}
            strategy.trust = {name: np.ones(rows) for name in strategy.networks}
        run.epoch = getattr(strategy, "warm", 0)
        return strategy.phases(run, run.epoch)[0]

    def _plan(self) -> list[np.ndarray]:
        rng = seeded(0, 1)
        if self.phase.order:
            return self.phase.order(rng)
        return self.trainer.table.plan(self.phase.rows, self.trainer.recipe.batch, rng)

    def _made(self, rows: np.ndarray) -> Batch:
        run = self.trainer
        return filled(collate(run.table, rows, repeat=run.repeat and not self.phase.together)).to(run.device)

    def step(self) -> None:
        """The trainer's own."""
        self.trainer.step = self.done
        self.trainer._step(self.network, self.phase, self.batches[self.done % len(self.batches)], 10**4)
        self.done += 1

    def losses(self, steps: int) -> list[float]:
        """Of the first so many steps."""
        for _ in range(steps):
            self.step()
        return torch.stack(self.trainer.losses).float().tolist()


def waited(device: torch.device) -> float:
    """The time, everything done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def timed(case: Case, device: torch.device, steps: int) -> tuple[float, float]:
    """Milliseconds of a step, and of the host's part of it."""
    began = waited(device)
    for _ in range(steps):
        case.step()
    queued = time.perf_counter()
    return 1000 * (waited(device) - began) / steps, 1000 * (queued - began) / steps


class Calls(TorchDispatchMode):
    """Counts calls that would be kernels on a GPU: everything but views and questions."""

    VIEWS = ("view", "expand", "permute", "transpose", "select", "slice", "unsqueeze", "squeeze", "alias", "detach")
    VIEWS += ("as_strided", "split", "unbind", "t.", "empty", "_unsafe_view", "size", "stride", "is_same_size")

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).removeprefix("aten.")
        if not name.startswith(self.VIEWS):
            self.seen[name] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Calls that would be kernels."""
    with Calls() as calls:
        yield calls.seen


def kernels(case: Case, device: torch.device, hogs: int) -> tuple[float, float]:
    """Milliseconds of kernels a step, and launches."""
    if device.type != "cuda":
        with counted() as seen:
            case.step()
        for name, count in seen.most_common(hogs):
            print(f"        {count:5} {name}", flush=True)
        return float("nan"), seen.total()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=bool(hogs)) as profiler:
        timed(case, device, PROFILED)
    total: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CUDA and not event.name.startswith(
            ("Optimizer.", "Profiler")
        ):
            total[event.name] += event.self_device_time_total
            count[event.name] += 1
    if hogs:
        print_hogs(profiler, total, count, hogs)
    return total.total() / 1000 / PROFILED, count.total() / PROFILED


def print_hogs(profiler: Any, total: Counter[str], count: Counter[str], hogs: int) -> None:
    """The costliest kernels by name, and the costliest ops with the shapes they were given."""
    for name, us in total.most_common(hogs):
        print(f"        {us / 1000 / PROFILED:8.3f} ms {count[name] / PROFILED:7.1f} x  {name[:150]}", flush=True)
    ops = [
        e for e in profiler.key_averages(group_by_input_shape=True) if e.device_type != torch.autograd.DeviceType.CUDA
    ]
    for op in sorted(ops, key=lambda e: -e.self_device_time_total)[: 2 * hogs]:
        ms = op.self_device_time_total / 1000 / PROFILED
        print(f"        {ms:8.3f} ms {op.count / PROFILED:7.1f} x  {op.key} {str(op.input_shapes)[:140]}", flush=True)


def waits(case: Case) -> None:
    """Where a step waits for the device, if anywhere."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        case.step()
        print("      no step waits for the device", flush=True)
    except RuntimeError:
        lines = [line for line in traceback.format_exc().splitlines() if "/matchlight/" in line]
        print(f"      a step waits for the device: {lines[-1].strip() if lines else '?'}", flush=True)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def measured(name: str, pairs: Pairs, device: torch.device, *, graphs: bool, hogs: int) -> Case:
    """One line about one case."""
    with TemporaryDirectory() as folder:
        case = Case(name, pairs, device, Path(folder), graphs=graphs)
        steps = (WARM, TIMED) if device.type == "cuda" else (1, 1)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        timed(case, device, steps[0] if not graphs else 5 * len(case.batches))
        step, host = timed(case, device, steps[1])
        busy, launches = kernels(case, device, hogs)
        memory = torch.cuda.max_memory_reserved(device) / 2**30 if device.type == "cuda" else float("nan")
    how = "graphed" if graphs else "eager"
    shown = f"kernels {busy:7.2f} ms  launches {launches:6.0f}  host {host:7.2f} ms  step {step:7.2f} ms"
    print(f"    {how:8} {shown}  memory {memory:5.1f} GiB", flush=True)
    return case


def passes(case: Case, device: torch.device) -> None:
    """A whole pass with its loader, and the measuring of all pairs."""
    run = case.trainer
    run.step = 0
    before, began = run.total_steps, waited(device)
    run._pass(case.phase)
    steps = run.total_steps - before
    spent = waited(device)
    fits(run, case.network.matcher, draw=(0, 0))
    measure = waited(device) - spent
    made = f"{1000 * (spent - began) / steps:.2f} ms a step of a whole pass ({steps} steps)"
    print(f"      {made}; measuring {len(run.rows)} pairs {measure:.3f} s", flush=True)


def same_losses(name: str, pairs: Pairs, device: torch.device) -> None:
    """Eager and graphed steps from the same start."""
    found = []
    for graphs in (False, False, True):
        with TemporaryDirectory() as folder:
            found.append(np.array(Case(name, pairs, device, Path(folder), graphs=graphs).losses(CHECKED)))
    apart = [np.abs(other / found[0] - 1).max() for other in found[1:]]
    print(
        f"      losses of {CHECKED} steps: largest relative difference, eager again {apart[0]:.2e}, "
        f"graphed {apart[1]:.2e}; last {found[0][-1]:.5f} {found[2][-1]:.5f}",
        flush=True,
    )


def guarded(work: Callable[[], Any]) -> Any:
    """What goes wrong is told and costs nothing else."""
    try:
        return work()
    except Exception:
        print(traceback.format_exc()[-1800:], flush=True)
        return None


def main() -> None:
    """Every case in turn, until the time is spent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="lantern,dual,ncr+,ncr")
    parser.add_argument("--cells", default="577,65,145")
    parser.add_argument("--seconds", type=float, default=95)
    parser.add_argument("--hogs", type=int, default=30)
    parser.add_argument("--device", default="auto")
    asked = parser.parse_args()
    device, began = devices.pick_device(asked.device), time.perf_counter()
    devices.pick_precision("auto", device)
    read_by_something()
    told: set[str] = set()
    for cells in map(int, asked.cells.split(",")):
        pairs = random_pairs(1024, cells, 384) if device.type == "cuda" else random_pairs(32, min(cells, 20), 24)
        for name in asked.methods.split(","):
            if time.perf_counter() - began > asked.seconds:
                print("the time is spent", flush=True)
                return
            print(f"  {name}, {cells} cells ({time.perf_counter() - began:.0f} s)", flush=True)
            hogs = 0 if name in told else asked.hogs
            told.add(name)
            case = guarded(lambda: measured(name, pairs, device, graphs=False, hogs=hogs))  # noqa: B023
            if case is not None and device.type == "cuda" and hogs:
                guarded(lambda: waits(case))  # noqa: B023
                guarded(lambda: passes(case, device))  # noqa: B023
            case = None
            if device.type == "cuda":
                case = guarded(lambda: measured(name, pairs, device, graphs=True, hogs=0))  # noqa: B023
                if case is not None and hogs:
                    guarded(lambda: passes(case, device))  # noqa: B023
                case = None
                if hogs:
                    guarded(lambda: same_losses(name, pairs, device))  # noqa: B023


if __name__ == "__main__":
    main()
