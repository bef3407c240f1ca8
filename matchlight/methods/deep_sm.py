"""deep-SM: one classifier a side, trained by cross-entropy; what labels alone give, wrong ones included.

Wei et al., "Cross-Modal Retrieval with CNN Visual Features: A New Baseline", IEEE Transactions on Cybernetics 2017, in
the form MRL compares with: MRL's networks and class centres, cross-entropy in place of its losses, vectors compared by
their cosine. `space="probability"` compares the class probabilities, as the original paper does.

Departs from the paper: pictures come as features, no CNN is trained; both sides share the centres of the classes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from matchlight.core import Recipe, Sizes
from matchlight.methods.mrl import RobustLearning, spheres
from matchlight.parts.labelwise import INPUTS, one_rate, settled
from matchlight.training.recipes import Method, check_choices
from matchlight.training.schedules import cosine
from matchlight.training.strategies import Plain


def recipe(
    sizes: Sizes,
    *,
    dim: int = 512,
    hidden: int = 4096,
    temperature: float = 1.0,
    space: str = "embedding",
    inputs: str = "raw",
    dropout: float = 0.0,
    epochs: int = 100,
    batch: int = 50,
    rate: float = 1e-4,
    decay: float = 0.0,
    clip: float = 0.0,
    select: str = "best",
    validate_every: int = 1,
) -> Recipe:
    """Cross-entropy on the cosines with the class centres, both sides summed."""
    check_choices(space=(space, ("embedding", "probability")), inputs=(inputs, INPUTS))
    shape: dict[str, Any] = {"dim": dim, "hidden": hidden, "inputs": inputs, "dropout": dropout, "space": space}
    return Recipe(
        matcher=partial(spheres, sizes, classes=sizes.classes, temperature=temperature, **shape),
        objective=partial(RobustLearning, beta=1.0, loss="ce"),
        strategy=Plain(),
        epochs=epochs,
        batch=batch,
        groups=partial(one_rate, rate=rate, decay=decay),
        betas=(0.5, 0.999),
        schedule=partial(cosine, epochs=epochs),
        clip=clip,
        select=select,
        validate_every=validate_every,
        protocol="labels",
        before_step=settled,
    )


SMALL = {"dim": 128, "hidden": 256, "inputs": "standard", "epochs": 20, "batch": 100, "rate": 1e-3}

METHODS = [
    Method(
        "deep_sm",
        recipe,
        paper="Cross-Modal Retrieval with CNN Visual Features: A New Baseline (IEEE Trans. Cybernetics 2017)",
        needs=("labels",),
        small=SMALL,
        presets={"wikipedia": {**SMALL, "hidden": 512, "inputs": "raw", "epochs": 20}},
        pooled=True,
    ),
]
