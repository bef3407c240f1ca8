"""Vectors that somebody made already, compared by their cosine: a model with nothing to learn.

With it they are evaluated and searched like what any other model makes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from matchlight.core import IMAGE, TEXT, Embedding, Items, Matcher
from matchlight.parts.similarities import Dot


class AsGiven(nn.Module):
    """Vectors as they are, brought to one length."""

    def __init__(self) -> None:
        super().__init__()
        self.length = nn.Parameter(torch.ones(()), requires_grad=False)  # says on which device the model is

    def forward(self, items: Items) -> Embedding:
        """(N, 1, dim)."""
        return Embedding(self.length * F.normalize(items.x.float(), dim=-1)[:, None])


def given_matcher() -> Matcher:
    """Compares given vectors."""
    return Matcher({IMAGE: AsGiven(), TEXT: AsGiven()}, Dot())
