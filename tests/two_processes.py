"""Processes that work together (two, or more), and 12 steps of recipes taken alone and by two.

They are forked from a server that has imported what they need: importing takes longer than the work.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from matchlight.inputs.batches import collate
from matchlight.inputs.prepare import prepare
from matchlight.methods.aoq import SecondRound
from matchlight.methods.quintuplets import Draw
from matchlight.training.network import Network, score_batch, whole_batch
from matchlight.training.registry import methods
from tests.reference.aoq import every_other
from tests.tiny import pairs_for, tiny_joint_model, tiny_pairs, tiny_settings, view_for

STEPS = 12
RATE = 2e-4  # the papers': at ten times that, attention turns the last bit of a weight into 1e-3 of a loss


def calm(module: nn.Module) -> None:
    """No dropout: draws differ between processes, and this is about arithmetic."""
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        if isinstance(getattr(part, "drop", None), float):
            part.drop = 0.0


def losses(name: str) -> list[float]:
    inputs = prepare(pairs_for(name), view_for(name), device=torch.device("cpu"))
    method = methods()[name]
    recipe = method.build(inputs.sizes, **{**method.defaults, **tiny_settings(method.defaults), "rate": RATE})
    network = Network(recipe, seed=0, device=torch.device("cpu"))
    calm(network.matcher)
    calm(network.objective)
    network.matcher.train()
    second = isinstance(recipe.strategy, SecondRound)
    draw = Draw(every_other(tiny_pairs(), np.arange(24)), tiny_pairs().picture, 20) if second else None
    out = []
    for step in range(STEPS):
        rows = np.random.default_rng(step).choice(24, 9, replace=False)
        more = draw(rows, np.random.default_rng(100 + step)) if draw else None
        batch = collate(inputs.table, rows, more=more, repeat=recipe.siblings == "negatives")
        embeddings, batch = whole_batch(network.matcher, batch)
        scores = score_batch(network.matcher, embeddings, batch, matrix=network.objective.needs_matrix)
        loss = network.objective.total(network.objective(scores, embeddings, batch))
        network.step(loss)
        out.append(float(loss.detach()))
    return out


def together(work: Callable[..., None], *arguments: object, count: int = 2) -> None:
    """`work(rank, *arguments)` in processes that can meet; what fails there is raised here."""
    with tempfile.TemporaryDirectory() as folder:
        started(Path(folder), work, *arguments, count=count).join()


def started(folder: Path, work: Callable[..., None], *arguments: object, count: int = 2) -> mp.ProcessContext:
    """The same without waiting for them; they meet in `folder`."""
    multiprocessing.set_forkserver_preload([__name__, "torch._dynamo", "transformers.models.clip.modeling_clip"])
    given = (f"file://{folder}/meet", count, dict(os.environ), work, arguments)
    context = mp.start_processes(_join, args=given, nprocs=count, start_method="forkserver", join=False)
    assert context is not None
    return context


def apart(work: Callable[..., None], *arguments: object) -> None:
    """`work(rank, *arguments)` in two processes that know nothing of each other; what fails there is raised here."""
    multiprocessing.set_forkserver_preload([__name__, "torch._dynamo", "transformers.models.clip.modeling_clip"])
    mp.start_processes(_alone, args=(dict(os.environ), work, arguments), nprocs=2, start_method="forkserver")


def _alone(rank: int, environment: dict[str, str], work: Callable[..., None], arguments: tuple[object, ...]) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    work(rank, *arguments)


def _join(
    rank: int,
    place: str,
    count: int,
    environment: dict[str, str],
    work: Callable[..., None],
    arguments: tuple[object, ...],
) -> None:
    os.environ.update(environment)  # the server has that of the time it was started
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # both are on this machine: no name has to be looked up
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=count)
    work(rank, *arguments)
    dist.destroy_process_group()


def _write_losses(rank: int, file: str, names: list[str]) -> None:
    found = {name: losses(name) for name in names}
    if rank == 0:
        Path(file).write_text(json.dumps(found))


def alone_and_together(folder: Path, names: list[str]) -> dict[str, tuple[list[float], list[float]]]:
    """The losses of each recipe, by one process and by two."""
    tiny_joint_model()  # before there are two: only one of them could write it
    together(_write_losses, str(folder / "two.json"), names)
    two = json.loads((folder / "two.json").read_text())
    return {name: (losses(name), two[name]) for name in names}
