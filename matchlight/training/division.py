"""Which pairs look clean, from per-pair losses (large = fits badly): NCR's mixture, and a share that is measured.

NCR's mixture finds two groups wherever it is asked, so it throws a fifth of unbroken data away and keeps mostly wrong
pairs when most are wrong. The order of the losses is better than that; only the border is hard to find. It can be
measured: mismatches can be manufactured, and pictures kept aside cannot have been memorised.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from sklearn.mixture import GaussianMixture

Floats = npt.NDArray[np.float64]
DEPTHS = (0.5, 0.35, 0.2)  # shares of the mismatches beyond which pairs are counted
SURE = 0.03  # a smaller share of noise cannot be distinguished from none


def min_max_scaled(losses: npt.ArrayLike) -> Floats:
    """Losses scaled to [0, 1]; equal losses are all 0."""
    values = np.asarray(losses, np.float64)
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.zeros_like(values)


def mixture(losses: npt.ArrayLike, *, seed: int = 0) -> GaussianMixture | None:
    """Two Gaussians fitted to the scaled losses in ten rough steps, as NCR's; None where there is nothing to divide."""
    values = min_max_scaled(losses)[:, None]
    if len(values) < 2 or not values.any():
        return None
    return GaussianMixture(2, random_state=seed, max_iter=10, tol=1e-2, reg_covar=5e-4).fit(values)


def clean_probability(losses: npt.ArrayLike, *, seed: int = 0) -> Floats:
    """(N,) probability of the component with the smaller mean."""
    values = min_max_scaled(losses)[:, None]
    fitted = mixture(losses, seed=seed)
    if fitted is None:
        return np.ones(len(values))
    return fitted.predict_proba(values)[:, int(fitted.means_.argmin())]


def looks_clean(probability: npt.ArrayLike, *, threshold: float = 0.5) -> npt.NDArray[np.bool_]:
    """The pairs above the threshold; where nothing looks noisy, about the lowest hundredth is called noisy."""
    w = np.asarray(probability, np.float64)
    if w.min() > threshold:
        threshold = float(np.sort(w)[len(w) // 100])
    return w > threshold


def share_of_wrong(losses: npt.ArrayLike, mismatched: npt.ArrayLike, *, errors: float = 0.0) -> float:
    """How many pairs are wrong, from pairs the model never trained on and mismatches manufactured among them.

    As many wrong pairs as mismatches fit worse than a given depth of the mismatches, and hardly a clean one does:
    nothing is assumed of what clean losses look like. Clean pairs of a weak model make a count too large, the fewer the
    deeper one looks; chance makes it too large or small, the more the deeper: the least of the counts is taken, each
    with so many standard `errors`. On pairs that were trained on it finds too few, for wrong ones are memorised too.
    """
    real, made = np.asarray(losses, np.float64), np.asarray(mismatched, np.float64)
    shares = []
    for depth, border in zip(DEPTHS, np.quantile(made, 1 - np.array(DEPTHS)), strict=True):
        share = (real > border).mean() / depth
        chance = share / (depth * len(real)) + share**2 * (1 - depth) / (depth * len(made))
        shares.append(share + errors * chance**0.5)
    return float(np.clip(min(shares), 0.0, 1.0))


def clean_probability_given_share(losses: npt.ArrayLike, noise: float, *, softness: float = 0.1) -> Floats:
    """(N,) clean probabilities when the share of wrong pairs is known: a soft step where that share begins.

    Trained-on pairs need this. The wrong ones among them are memorised unevenly, no law fits them, and a mixture that
    is free to choose calls too many clean; their order is good all the same.
    """
    values = np.asarray(losses, np.float64)
    if noise < SURE or not values.std():
        return np.ones(len(values))
    border = np.quantile(values, max(1 - noise, 0.02))
    return 1 / (1 + np.exp(np.clip((values - border) / (softness * values.std()), -30, 30)))
