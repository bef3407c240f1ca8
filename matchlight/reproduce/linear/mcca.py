"""MCCA: directions on which the sides of a pair correlate.

Rupnik and Shawe-Taylor, 2010: the sum of all covariances between sides, at unit variance of all sides together. With
two sides it is canonical correlation analysis.
"""

from __future__ import annotations

from matchlight.reproduce.linear.views import Maps, Views, blocks, strongest


def mcca(views: Views) -> Maps:
    """Fitted on pairs."""
    x, y = views.paired()
    own = blocks(x.T @ x / len(x), y.T @ y / len(y))
    across = blocks(0 * own[: x.shape[1], : x.shape[1]], 0 * own[x.shape[1] :, x.shape[1] :], x.T @ y / len(x))
    return strongest(across, own, x.shape[1], most=min(x.shape[1], y.shape[1]))
