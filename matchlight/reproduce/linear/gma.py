"""GMA: classes far apart on each side, and the means of a class in the same place on both.

Sharma et al., CVPR 2012, with linear discriminants on each side (GMLDA). The means of the classes are what is matched
across sides, with the paper's weight of 10; the within-class scatter of texts is brought to the size of that of
pictures.
"""

from __future__ import annotations

from matchlight.core import IMAGE, TEXT
from matchlight.reproduce.linear.views import Classes, Maps, Views, blocks, means, scatters, strongest

MATCH = 10.0  # alpha of the paper: how much matched means count beside scatters between classes


def gma(views: Views) -> Maps:
    """Fitted on labels; pairs are not read."""
    image, text = (Classes.of(views.items[side], views.labels[side]) for side in (IMAGE, TEXT))
    (between_x, within_x), (between_y, within_y) = (scatters(one.count, one.total, one.square) for one in (image, text))
    shared = (image.count + text.count) / 2
    matched = means(image.count, image.total).T @ (means(text.count, text.total) * shared[:, None])
    same_size = within_x.trace() / max(within_y.trace(), 1e-12)
    wanted = blocks(between_x, between_y, MATCH * matched)
    return strongest(wanted, blocks(within_x, same_size * within_y), len(within_x))
