"""What the slots of a trained model of sets do: how far apart, how often used, how trained, how much beside the whole.

    python benchmarks/slots.py DATA RUN [RUN ...] [--split test] [--pictures 500] [--json] [--sheet OUT]

Per network of a run, of either side:

    CV        circular variance within a set: 0 collapsed, .5 four orthogonal vectors
    constant  share of the spread within sets that is the same in all items, and so tells nothing about any of them
    usage     over all fitting pairs, the share in which a slot has the largest cosine of all; `slots` is the
              exponential of its entropy: 4 where four are used alike, 1 where one does all the work
    pull      share of the gradient that a slot gets on one batch, from the complementary log loss at temperature .05
    alike     the mean cosine between the gradients of two slots of one item; 1: they are pulled the same way
    slot/whole  length of what a slot found over the length of the whole, as they are added; of what differs between
              items only, in brackets

`--sheet` also draws what every slot takes of a few pictures, as `matchlight reproduce dive-attention` does, into a
folder for each run and network.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import matchlight as ml
from matchlight.core import IMAGE, TEXT, BadInput, Embedding, Matcher, Scores
from matchlight.inputs.batches import Table, collate
from matchlight.measuring.metrics import circular_variance
from matchlight.methods.slots import SetPrediction
from matchlight.parts.objectives import SoftmaxLoss
from matchlight.parts.set_similarities import SetSimilarity
from matchlight.reproduce import reproduce
from matchlight.scoring.encode import encode
from matchlight.training.network import whole_batch

Figures = dict[str, float | list[float]]
PULLED = 64  # pictures of the batch whose gradients are looked at


def constant_share(sets: Tensor) -> float:
    """(N, K, D): of the squared distances to a set's own mean, the share that is the mean over items."""
    apart = sets - sets.mean(1, keepdim=True)
    return float(apart.mean(0).square().sum() / apart.square().mean(0).sum().clamp(min=1e-12))


def usage(images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
    """Of fitting sets (P, K, D) and (P, L, D): how often each slot has the largest cosine of all, of either side."""
    best = torch.einsum("pkd,pld->pkl", images, texts).flatten(1).argmax(1)
    count = texts.shape[1]
    return share_of(best // count, images.shape[1]), share_of(best % count, count)


def share_of(chosen: Tensor, count: int) -> Tensor:
    """How often each of `count` numbers is among the chosen."""
    return torch.bincount(chosen, minlength=count).float() / len(chosen)


def in_use(share: Tensor) -> float:
    """The exponential of the entropy: how many slots used alike would be as undecided."""
    return float(torch.special.entr(share).sum().exp())


def pulls(matcher: Matcher, table: Table, rows: np.ndarray) -> dict[str, Figures]:
    """How a batch's gradient is divided among the slots, and how alike the gradients of one set's slots are."""
    batch = collate(table, rows).to(next(matcher.parameters()).device)
    with torch.no_grad():
        found, batch = whole_batch(matcher.eval(), batch)
    sets = {side: Embedding(one.vectors.float().requires_grad_()) for side, one in found.items()}
    terms = SoftmaxLoss("rclog")(Scores(matcher.similarity(sets[IMAGE], sets[TEXT])), sets, batch)
    sum(term.mean() for term in terms.values()).backward()
    return {side: _pull(one.vectors) for side, one in sets.items()}


def _pull(vectors: Tensor) -> Figures:
    assert vectors.grad is not None
    unit = vectors.detach()
    along = (vectors.grad * unit).sum(-1, keepdim=True)
    grad = vectors.grad - along * unit  # what turns a vector: its length is fixed
    share = grad.norm(dim=-1).sum(0)
    way = F.normalize(grad, dim=-1)
    others = ~torch.eye(way.shape[1], dtype=torch.bool, device=way.device)
    alike = torch.einsum("nkd,nld->nkl", way, way)[:, others].mean()
    return {"pull": (share / share.sum()).tolist(), "alike": float(alike)}


class Lengths:
    """While it is entered, keeps what a set prediction module adds up: what the slots found, and the whole."""

    def __init__(self, module: SetPrediction):
        self.module = module
        self.slots: list[Tensor] = []
        self.whole: list[Tensor] = []

    def __enter__(self) -> Lengths:
        """Begin to keep."""
        self.hooks = [self.module.norm.register_forward_hook(lambda _m, _i, out: self.slots.append(out.cpu()))]
        if self.module.whole_norm is not None:
            keep = lambda _m, _i, out: self.whole.append(out.cpu())  # noqa: E731
            self.hooks.append(self.module.whole_norm.register_forward_hook(keep))
        return self

    def __exit__(self, *error: object) -> None:
        """Keep no more."""
        for hook in self.hooks:
            hook.remove()

    def figures(self) -> Figures:
        """Lengths of the slots' parts over the whole's, all of it and what differs between items."""
        if not self.whole:
            return {}
        slots, whole = torch.cat(self.slots).float(), torch.cat(self.whole).float()
        own = (slots - slots.mean(0)).norm(dim=-1).mean(0) / (whole - whole.mean(0)).norm(dim=-1).mean()
        return {
            "ratio": (slots.norm(dim=-1).mean(0) / whole.norm(dim=-1).mean()).tolist(),
            "ratio_between_items": own.tolist(),
        }


def encoded(matcher: Matcher, table: Table, side: str, index: np.ndarray) -> tuple[Tensor, Figures]:
    """Sets of one side, and the lengths of what they were added up from."""
    modules = [part for part in matcher.encoders[side].modules() if isinstance(part, SetPrediction)]
    if not modules:
        return _vectors(encode(matcher, table, side, index)), {}
    with Lengths(modules[0]) as lengths:
        sets = _vectors(encode(matcher, table, side, index))
    return sets, lengths.figures()


def _vectors(found: object) -> Tensor:
    assert isinstance(found, Embedding)
    return F.normalize(found.vectors.float(), dim=-1).cpu().clone()


def slot_report(matcher: Matcher, table: Table, pairs: ml.Pairs, split: str, most: int) -> dict[str, Figures]:
    """All figures of one network, by side."""
    pictures = pairs.pictures_of(split)[:most]
    rows = pairs.rows(split)
    rows = rows[np.isin(pairs.picture[rows], pictures)]
    place = {int(picture): k for k, picture in enumerate(pictures)}
    own = torch.tensor([place[int(picture)] for picture in pairs.picture[rows]])
    images, image_lengths = encoded(matcher, table, IMAGE, pictures)
    texts, text_lengths = encoded(matcher, table, TEXT, rows)
    used = dict(zip((IMAGE, TEXT), usage(images[own], texts), strict=True))
    pulled = pulls(matcher, table, rows[np.isin(pairs.picture[rows], pictures[:PULLED])])
    sets, lengths = {IMAGE: images, TEXT: texts}, {IMAGE: image_lengths, TEXT: text_lengths}
    return {
        side: {
            "variance": float(circular_variance(sets[side]).mean()),
            "constant": constant_share(sets[side]),
            "usage": used[side].tolist(),
            "slots": in_use(used[side]),
            **pulled[side],
            **lengths[side],
        }
        for side in (IMAGE, TEXT)
    }


def _shown(name: str, side: str, one: Figures) -> str:
    def few(key: str) -> str:
        values = one.get(key, [])
        return " ".join(f"{value:.2f}" for value in (values if isinstance(values, list) else [values]))

    between = f" ({few('ratio_between_items')})" if "ratio" in one else ""
    return (
        f"{name:28} {side:6} CV {one['variance']:.4f}  constant {few('constant')}  usage {few('usage')}"
        f" = {few('slots')} slots  pull {few('pull')}  alike {few('alike')}  slot/whole {few('ratio')}{between}"
    )


def reports(run: ml.Run, pairs: ml.Pairs, split: str, most: int) -> list[dict[str, Figures]]:
    """One report for each network of a run."""
    members = run.matcher.each()
    if not isinstance(members[0].similarity, SetSimilarity):
        raise BadInput(f"{run.folder}: {run.method} gives one vector an item; this looks at sets, as dive's")
    table = run.inputs(pairs).table
    return [slot_report(member, table, pairs, split, most) for member in members]


def main() -> None:
    """Two lines for each network, or one JSON object for all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--split", default="test")
    parser.add_argument("--pictures", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sheet", type=Path, metavar="OUT")
    args = parser.parse_args()
    pairs, found = ml.Pairs.read(args.data), {}
    for path in args.runs:
        found[str(path)] = reports(ml.Run.load(path), pairs, args.split, args.pictures)
        for number, one in enumerate([] if args.json else found[str(path)]):
            name = "/".join(path.parts[-2:]) + (f" #{number + 1}" if len(found[str(path)]) > 1 else "")
            print("\n".join(_shown(name, side, one[side]) for side in one), flush=True)
        for number in range(1, 1 + len(found[str(path)]) if args.sheet else 1):
            folder = args.sheet / f"{'-'.join(path.parts[-2:])}-{number}"
            reproduce("dive-attention", pairs, folder, run=path, split=args.split, network=number)
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
