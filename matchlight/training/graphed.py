"""Steps as CUDA graphs: what a step launches is recorded once for each shape of batch, then launched as one.

A small model's step is some thousand kernels, and a host takes longer to launch them than a GPU to run them. A graph
reads its batch where it was recorded, so a batch is copied there first; what else changes from step to step (draws, the
weight of a phase) comes with it as tensors. Draws of dropout follow from the generator's seed in a graph as elsewhere.

A step that waits for the device cannot be recorded: the step before is watched, and such steps stay as they are.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from matchlight.console import say
from matchlight.core import Named

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE as Pool

Work = Callable[[Named], Named]
Replay = Callable[[], Named]
Record = Callable[[Callable[[], Named]], Replay]
Key = tuple[Hashable, ...]

SEEN = 2  # steps of a shape before it is recorded: kernels are chosen by then
COMMON = 1 / 16  # share of the steps that a shape must have: recording a rare one takes longer than it saves
MOST = 24  # shapes a network
DRAWS = 4  # seeds that encoders may ask for in a step
WAITS = "synchronizing CUDA operation"


class Graphs:
    """How steps are recorded on one device: graphs share a pool, since one runs at a time."""

    def __init__(self, device: torch.device, *, alone: AbstractContextManager[object] | None = None):
        self.device = device
        self.alone = alone or nullcontext()  # held while the device must not be used by another thread
        self.refused = ""

    def pool(self) -> Pool | None:
        """Memory that the graphs of one network share: it goes with the last of them, so another needs its own."""
        return torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None

    def record(self, work: Callable[[], Named], pool: Pool | None) -> Replay:
        """Work that is not done now but each time the result is called; what it gives is overwritten each time."""
        gc.collect()  # an old step's gradients would be tied to the stream it ran on
        graph = torch.cuda.CUDAGraph()
        with self.alone, torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            found = work()

        def replay() -> Named:
            graph.replay()
            return found

        return replay

    @contextmanager
    def watched(self) -> Iterator[list[str]]:
        """Steps in here are told of when they wait for the device."""
        waits: list[str] = []
        if self.device.type != "cuda":
            yield waits
            return
        with self.alone, warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                yield waits
            finally:
                torch.cuda.set_sync_debug_mode("default")
                waits += [f"{one.filename}:{one.lineno}" for one in told if WAITS in str(one.message)]

    def refuse(self, why: str) -> None:
        """From here on everything is launched step by step."""
        self.refused = " ".join(why.split())[:160]
        if self.device.type == "cuda":  # a recording that broke off leaves the generator waiting for its end
            broken = torch.cuda.default_generators[self.device.index or torch.cuda.current_device()]
            broken.graphsafe_set_state(torch.Generator(self.device).graphsafe_get_state())
        say(f"steps are launched one kernel at a time: they cannot be kept as graphs ({self.refused})")


@dataclass
class Recorded:
    """A step of one shape: where its inputs are read, and how it is done again."""

    inputs: Named
    replay: Replay
    held: tuple[object, ...]  # what the key names by its place in memory

    def __call__(self, inputs: Named) -> Named:
        """What the step gives for these inputs."""
        for name, static in self.inputs.items():
            static.copy_(inputs[name], non_blocking=True)
        return {name: value.clone() for name, value in self.replay().items()}


class GraphedSteps:
    """The steps of one network by their shape; whoever has none of a shape yet does the step as usual."""

    def __init__(self, graphs: Graphs):
        self.graphs = graphs
        self.pool = graphs.pool()
        self.steps = 0
        self.seen: dict[Key, int] = {}
        self.watched: set[Key] = set()
        self.recorded: dict[Key, Recorded] = {}

    def __call__(self, key: Key, inputs: Named, work: Work, usual: Callable[[], Named], held: object) -> Named:
        """One step: replayed, recorded and then replayed, or as usual."""
        key = (*key, tuple((name, value.shape, value.dtype) for name, value in inputs.items()))
        self.steps += 1
        if (known := self.recorded.get(key)) is not None:
            return known(inputs)
        times = self.seen[key] = self.seen.get(key, 0) + 1
        common = times >= max(SEEN, COMMON * self.steps)
        if self.graphs.refused or len(self.recorded) >= MOST or not common:
            return usual()
        if key not in self.watched:
            self.watched.add(key)
            with self.graphs.watched() as waits:
                found = usual()
            if waits:
                self.graphs.refuse(f"{waits[0]} waits for the device")
            return found
        return self._first(key, inputs, work, usual, held)

    def _first(self, key: Key, inputs: Named, work: Work, usual: Callable[[], Named], held: object) -> Named:
        static = {name: value.to(self.graphs.device, copy=True) for name, value in inputs.items()}
        try:
            replay = self.graphs.record(lambda: work(static), self.pool)
        except RuntimeError as problem:
            self.graphs.refuse(str(problem))
            return usual()
        self.recorded[key] = Recorded(static, replay, (held,))
        return self.recorded[key](inputs)


# ---- what a step depends on ------------------------------------------------------------------------------------------


def signature(module: nn.Module) -> Key:
    """What tells two losses apart: kind, settings, learnt parts. A graph is recorded for one such."""
    plain = (bool, int, float, str, type(None))
    own = sorted((k, v) for k, v in vars(module).items() if not k.startswith("_"))
    settings = tuple((name, value if isinstance(value, plain) else id(value)) for name, value in own)
    learnt = tuple(id(value) for value in (*module.parameters(recurse=False), *module.buffers(recurse=False)))
    parts = tuple((name, signature(part)) for name, part in module.named_children())
    key: tuple[Hashable, ...] = (id(type(module)), settings, learnt, parts)
    return key
