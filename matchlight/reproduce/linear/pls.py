"""PLS: directions on which the sides of a pair have the largest covariance, by scikit-learn's `PLSSVD`."""

from __future__ import annotations

from matchlight.core import IMAGE, TEXT
from matchlight.reproduce.linear.views import MOST, Maps, Views


def pls(views: Views) -> Maps:
    """Fitted on pairs: the singular vectors of their covariance."""
    from sklearn.cross_decomposition import PLSSVD

    x, y = views.paired()
    fit = PLSSVD(n_components=min(MOST, x.shape[1], y.shape[1], len(x)), scale=False).fit(x, y)
    return Maps({IMAGE: fit.x_weights_, TEXT: fit.y_weights_})
