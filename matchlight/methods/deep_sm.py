"""deep-SM: one classifier a side, trained by cross-entropy; what labels alone give, wrong ones included.

Wei et al., "Cross-Modal Retrieval with CNN Visual Features: A New Baseline", IEEE Transactions on Cybernetics 2017, in
the form MRL compares with: MRL's networks and class centres, cross-entropy in place of its losses, vectors compared by
their cosine. `space="probability"` compares the class probabilities, as the original paper does.

Departs from the paper: pictures come as features, no CNN is trained; both sides share the centres of the classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from matchlight.core import Sizes
from matchlight.methods.mrl import RobustLearning, spheres
from matchlight.parts.labelwise import one_rate
from matchlight.training.arguments import BatchSize, Count, LabelTraining, NonNegative, Positive, Share, Value
from matchlight.training.contract import Recipe
from matchlight.training.registry import Method
from matchlight.training.schedules import cosine
from matchlight.training.strategies import UnitCentres


@dataclass(frozen=True, kw_only=True)
class DeepSM(LabelTraining):
    """Cross-entropy on the cosines with the class centres, both sides summed."""

    dim: Count = 512
    hidden: Count = 4096
    temperature: Positive = 1.0
    space: Literal["embedding", "probability"] = "embedding"
    dropout: Share = 0.0
    epochs: Count = 100
    batch: BatchSize = 50
    rate: Positive = 1e-4
    decay: NonNegative = 0.0

    def recipe(self, sizes: Sizes) -> Recipe:
        """Networks, losses, rates and epochs."""
        shape: dict[str, Any] = {
            "dim": self.dim,
            "hidden": self.hidden,
            "inputs": self.inputs,
            "dropout": self.dropout,
            "space": self.space,
        }
        return Recipe(
            matcher=partial(spheres, sizes, classes=sizes.classes, temperature=self.temperature, **shape),
            objective=partial(RobustLearning, beta=1.0, loss="ce"),
            strategy=UnitCentres(),
            epochs=self.epochs,
            batch=self.batch,
            groups=partial(one_rate, rate=self.rate, decay=self.decay),
            betas=(0.5, 0.999),
            schedule=partial(cosine, epochs=self.epochs),
            clip=self.clip,
            select=self.select,
            validate_every=self.validate_every,
            validate_loss=True,
            protocol="labels",
        )


SMALL: dict[str, Value] = {"dim": 128, "hidden": 256, "inputs": "standard", "epochs": 20, "batch": 100, "rate": 1e-3}

METHODS = [
    Method(
        "deep_sm",
        DeepSM,
        paper="Cross-Modal Retrieval with CNN Visual Features: A New Baseline (IEEE Trans. Cybernetics 2017)",
        needs=("labels",),
        small=SMALL,
        presets={
            "wikipedia": {**SMALL, "hidden": 512, "inputs": "raw", "epochs": 20},
            "inria": {"batch": 200},  # MRL's networks, so MRL's batches
            "nuswide": {"batch": 500},
            "xmedianet": {"batch": 500},
        },
        pooled=True,
    ),
]
