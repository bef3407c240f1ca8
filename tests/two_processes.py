"""Run 12 steps of recipes alone and as two processes, and write both series of losses.

python -m tests.two_processes FOLDER RECIPE...
"""

from __future__ import annotations

import json
import os
import sys
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


def work(rank: int, folder: str, names: list[str]) -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # both are on this machine: no name has to be looked up
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    found = {name: losses(name) for name in names}
    if rank == 0:
        Path(folder, "two.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def main(folder: str, names: list[str]) -> None:
    torch.set_num_threads(1)
    tiny_joint_model()  # before there are two: only one of them could write it
    mp.spawn(work, args=(folder, names), nprocs=2)
    two = json.loads(Path(folder, "two.json").read_text())
    Path(folder, "losses.json").write_text(json.dumps({name: [losses(name), two[name]] for name in names}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
