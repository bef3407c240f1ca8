"""MvDA: one discriminant analysis over both sides, whose items are one cloud once they are projected.

Kan et al., ECCV 2012. Written as a single discriminant analysis: put a picture's vector in front of zeros and a text's
behind zeros, and one matrix projects both; scatters between and within classes are then those of these long vectors.
"""

from __future__ import annotations

import numpy as np

from matchlight.core import IMAGE, TEXT
from matchlight.reproduce.linear.views import Classes, Maps, Views, blocks, scatters, strongest


def mvda(views: Views) -> Maps:
    """Fitted on labels; pairs are not read."""
    image, text = (Classes.of(views.items[side], views.labels[side]) for side in (IMAGE, TEXT))
    total = np.concatenate([image.total, text.total], 1)
    between, within = scatters(image.count + text.count, total, blocks(image.square, text.square))
    return strongest(between, within, len(image.square))
