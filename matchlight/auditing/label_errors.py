"""Which class labels look wrong: the predictions of cross-validated classifiers and neighbours against the labels.

Each side of a pair (picture, text) has a class label of its own, and both are about one thing. A logistic regression
and the nearest neighbours, both fitted without the fold they score, give each side's probability of every class. With
an unknown share of labels replaced by another class at random, Bayes' rule says how likely the true class is the one
written; the share, and how much each label counts in the next round's training, follow from that (expectation
maximisation).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from matchlight.auditing.folds import divide, near_duplicate_groups
from matchlight.auditing.mixture import flagged
from matchlight.core import BadInput
from matchlight.pairs import Pairs

ROUNDS = 6
NEIGHBOURS = 15
LEAST = 1e-4  # no class is ruled out


@dataclass(frozen=True)
class LabelVerdict:
    """The outcome for the labels of some rows (`image` is that of the row's picture)."""

    image: np.ndarray  # (n,) probability that the picture's label is right
    text: np.ndarray  # (n,) the same of the text's
    likely: np.ndarray  # (n,) the likeliest class that is not suspect itself
    noise: float  # estimated share of wrong labels
    wrong: dict[str, np.ndarray]  # "image", "text" -> (n,) bool: this side's label is suspect

    @property
    def suspect(self) -> np.ndarray:
        """(n,) bool: one of the two labels is."""
        return self.wrong["image"] | self.wrong["text"]

    @property
    def side(self) -> np.ndarray:
        """(n,) whose label is suspect: "image", "text", "both", or "" for neither."""
        return np.array(["", "image", "text", "both"], dtype=object)[self.wrong["image"] + 2 * self.wrong["text"]]

    @property
    def score(self) -> np.ndarray:
        """(n,) of the row: that of its worse label."""
        return np.minimum(self.image, self.text)


def has_single_labels(pairs: Pairs) -> bool:
    """Labels are audited where every item has exactly one and there are at least two classes."""
    return pairs.labels is not None and pairs.labels.single and len(pairs.labels.names) > 1


def find_label_errors(
    pairs: Pairs, rows: np.ndarray, image: np.ndarray, text: np.ndarray, *, folds: int = 5, seed: int = 0
) -> LabelVerdict:
    """Audit the labels of these rows; `image` and `text` (n, d) are what each row's sides look like."""
    if not has_single_labels(pairs) or pairs.labels is None:
        raise BadInput(f"{pairs.root}: a label audit needs exactly one class for each picture and each text")
    fold = divide(pairs, rows, near_duplicate_groups(pairs), count=folds, seed=seed).fold
    given = {"image": pairs.labels.image[pairs.picture[rows]].argmax(1), "text": pairs.labels.text[rows].argmax(1)}
    seen = {"image": _standardised(image), "text": _standardised(text)}
    return _estimate(seen, given, fold, len(pairs.labels.names))


def _estimate(
    seen: dict[str, np.ndarray], given: dict[str, np.ndarray], fold: np.ndarray, classes: int
) -> LabelVerdict:
    one = bool((given["image"] == given["text"]).all())  # one label written twice must not count twice
    right = {side: np.ones(len(fold)) for side in seen}
    noise = 0.2
    posterior = np.full((len(fold), classes), 1 / classes)
    for _ in range(ROUNDS):
        predicted = [_class_probabilities(seen[side], given[side], right[side], fold, classes) for side in seen]
        prior = np.mean([np.bincount(given[side], right[side], classes) for side in seen], 0) + 1e-9
        features = sum(np.log(part) for part in predicted) - np.log(prior / prior.sum())
        for _ in range(20):
            written = _log_likelihood(given["image"], noise, classes) + (
                0 if one else _log_likelihood(given["text"], noise, classes)
            )
            posterior = _softmax(features + written)
            right = {side: posterior[np.arange(len(fold)), given[side]] for side in seen}
            noise = float(np.clip(1 - np.mean([right[side].mean() for side in seen]), 1e-3, 0.95))
    wrong = {side: flagged(1 - right[side]) for side in seen}
    for side, bad in wrong.items():
        posterior[bad, given[side][bad]] = -1  # the first of many classes may be suspect: it is not its own replacement
    return LabelVerdict(right["image"], right["text"], posterior.argmax(1), noise, wrong)


def _log_likelihood(given: np.ndarray, noise: float, classes: int) -> np.ndarray:
    """(n, classes) log probability of the written label under every true class."""
    out = np.full((len(given), classes), np.log(noise / (classes - 1)))
    out[np.arange(len(given)), given] = np.log(1 - noise)
    return out


def _class_probabilities(
    x: np.ndarray, given: np.ndarray, right: np.ndarray, fold: np.ndarray, classes: int
) -> np.ndarray:
    """(n, classes) probabilities by a regression and by neighbours that never saw the item's fold."""
    out = np.zeros((len(x), classes))
    for k in np.unique(fold):
        inside, outside = fold == k, fold != k
        line = _regression(x[outside], given[outside], right[outside], x[inside], classes)
        near = _neighbours(x[outside], given[outside], right[outside], x[inside], classes)
        out[inside] = (line + near) / 2
    return np.clip(out, LEAST, None) / np.clip(out, LEAST, None).sum(1, keepdims=True)


def _regression(x: np.ndarray, y: np.ndarray, weight: np.ndarray, queries: np.ndarray, classes: int) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression

    out = np.full((len(queries), classes), LEAST)
    known = np.unique(y)
    if len(known) < 2:
        out[:, known] = 1.0
        return out
    model = LogisticRegression(C=0.3, max_iter=200).fit(x, y, sample_weight=weight + 1e-3)
    out[:, model.classes_] = model.predict_proba(queries)
    return out


def _neighbours(x: np.ndarray, y: np.ndarray, weight: np.ndarray, queries: np.ndarray, classes: int) -> np.ndarray:
    from sklearn.neighbors import NearestNeighbors

    count = min(NEIGHBOURS, len(x))
    near = NearestNeighbors(n_neighbors=count).fit(x).kneighbors(queries, return_distance=False)
    out = np.full((len(queries), classes), 1.0 / classes)  # one vote shared by all: few neighbours prove little
    np.add.at(out, (np.arange(len(queries))[:, None], y[near]), weight[near])
    return out / out.sum(1, keepdims=True)


def _standardised(x: np.ndarray) -> np.ndarray:
    """Standardised, and folded into at most 128 directions."""
    x = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
    x = (x - x.mean(0)) / (x.std(0) + 1e-9)
    if x.shape[1] > 128 < len(x):
        from sklearn.decomposition import PCA

        x = PCA(128, random_state=0).fit_transform(x)
        x /= x.std(0).mean() + 1e-9
    return x


def _softmax(x: np.ndarray) -> np.ndarray:
    x = np.exp(x - x.max(1, keepdims=True))
    return x / x.sum(1, keepdims=True)
