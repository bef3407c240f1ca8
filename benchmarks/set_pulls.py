"""What a similarity between sets does to the sets: how alike its slots are pulled, and whether a step spreads them.

    python benchmarks/set_pulls.py [--similarity smooth_chamfer,chamfer,mil] [--alpha 16] [--temperature 0.05]

No data and no training: 64 random pairs of sets, four elements each, whose wholes have a cosine of about .6 and whose
k-th elements differ from their wholes by orthogonal parts with a cosine of about `own`. A line says the circular
variance (CV), the mean share of the gradient by slot, largest first, the mean cosine between the gradients of two slots
of a set (1: pulled the same way), and how a small step along them changes the variance, over their length (below 0: the
sets contract).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from matchlight.core import Embedding
from matchlight.parts.set_similarities import SetSimilarity, set_similarity

PAIRS, SLOTS, DIM, WHOLES = 64, 4, 128, 0.6
SPREADS, OWN = (0.05, 0.3, 1.0), (0.0, 0.6, 0.9)


@dataclass(frozen=True)
class Pull:
    """What the gradient of one loss does to the sets of pictures."""

    variance: float
    shares: list[float]  # by slot, largest first
    alike: float
    change: float


def near(x: Tensor, other: Tensor, cosine: float) -> Tensor:
    """Unit vectors of about this cosine with x: part of it, and part of the other."""
    return F.normalize(cosine * x + (1 - cosine**2) ** 0.5 * other, dim=-1)


def random_pairs(spread: float, own: float, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Sets of pictures and of their captions: a whole, and orthogonal parts of this length."""
    draw = torch.Generator().manual_seed(seed)

    def wholes() -> Tensor:
        return F.normalize(torch.randn(PAIRS, 1, DIM, generator=draw), dim=-1)

    def parts() -> Tensor:
        return torch.linalg.qr(torch.randn(PAIRS, DIM, SLOTS, generator=draw))[0].transpose(1, 2)

    whole, part = wholes(), parts()
    images = whole + spread * part
    texts = near(whole, wholes(), WHOLES) + spread * near(part, parts(), own)
    return F.normalize(images, dim=-1), F.normalize(texts, dim=-1)


def pulled(similarity: SetSimilarity, images: Tensor, texts: Tensor, *, temperature: float) -> Pull:
    """What InfoNCE both ways does to the sets of pictures."""
    images = images.clone().requires_grad_()
    scores = similarity(Embedding(images), Embedding(texts)) / temperature
    loss = -(scores.log_softmax(1).diag().mean() + scores.log_softmax(0).diag().mean()) / 2
    (gradient,) = torch.autograd.grad(loss, images)
    unit = images.detach()
    step = -(gradient - (gradient * unit).sum(-1, keepdim=True) * unit)  # what turns a vector: its length is fixed
    length = step.norm(dim=-1)
    way = F.normalize(step, dim=-1)
    others = ~torch.eye(SLOTS, dtype=torch.bool)
    middle = unit.mean(1)
    change = -(middle * step.mean(1)).sum(-1) / middle.norm(dim=-1)
    return Pull(
        float(1 - middle.norm(dim=-1).mean()),
        (length / length.sum(1, keepdim=True)).sort(1, descending=True)[0].mean(0).tolist(),
        float(torch.einsum("nkd,nld->nkl", way, way)[:, others].mean()),
        float(change.mean() / length.mean()),
    )


def main() -> None:
    """One line for each similarity, cosine of the parts and length of the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--similarity", default="smooth_chamfer,chamfer,mil")
    parser.add_argument("--alpha", type=float, default=16.0)
    parser.add_argument("--temperature", type=float, default=0.05)
    args = parser.parse_args()
    print(f"{'similarity':16}{'own':>5}{'CV':>8}  {'shares of the pull':22}{'alike':>7}{'change':>9}")
    for name in args.similarity.split(","):
        for own in OWN:
            for spread in SPREADS:
                sets = random_pairs(spread, own)
                one = pulled(set_similarity(name, alpha=args.alpha), *sets, temperature=args.temperature)
                shares = " ".join(f"{share:.2f}" for share in one.shares)
                print(f"{name:16}{own:5.1f}{one.variance:8.4f}  {shares:22}{one.alike:7.2f}{one.change:+9.4f}")


if __name__ == "__main__":
    main()
