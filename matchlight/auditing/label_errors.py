"""Which class labels look wrong: the predictions of cross-validated classifiers and neighbours against the labels.

Each side of a pair (picture, text) has a class label of its own, and both are about one thing. A logistic regression
and the nearest neighbours, both fitted without the fold they score, give each side's probability of every class. With
an unknown share of labels replaced by another class at random, Bayes' rule says how likely the true class is the one
written; the share, and how much each label counts in the next round's training, follow from that (expectation
maximisation). Where the classifiers guess the written classes hardly better than chance, none is called wrong.
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
USUAL = 0.2  # share of wrong labels to begin with
CHANCE = 3.0  # standard errors by which classifiers must do better than chance
FEWEST_OF_CLASS = 5  # pictures of a class, on average, from which its look can be learned


@dataclass(frozen=True)
class LabelVerdict:
    """The outcome for the labels of some rows (`image` is that of the row's picture)."""

    image: np.ndarray  # (n,) probability that the picture's label is right
    text: np.ndarray  # (n,) the same of the text's
    likely: np.ndarray  # (n,) the likeliest class that is not suspect itself
    noise: float  # estimated share of wrong labels
    wrong: dict[str, np.ndarray]  # "image", "text" -> (n,) bool: this side's label is suspect
    unsure: str = ""  # why right and wrong labels cannot be told apart, and none is suspect

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
    return _estimate(seen, given, fold, len(pairs.labels.names), pictures=len(np.unique(pairs.picture[rows])))


def _estimate(
    seen: dict[str, np.ndarray], given: dict[str, np.ndarray], fold: np.ndarray, classes: int, *, pictures: int
) -> LabelVerdict:
    right = {side: np.ones(len(fold)) for side in seen}
    noise, posterior = USUAL, np.full((len(fold), classes), 1 / classes)
    for number in range(ROUNDS):
        features = _looks(seen, given, right, fold, classes)
        if not number and (unsure := _unsure(features.argmax(1), given, classes, pictures)):
            return _cannot_tell(features, given, unsure)
        for _ in range(20):
            posterior = _softmax(features + _written(given, noise, classes))
            right = {side: posterior[np.arange(len(fold)), given[side]] for side in seen}
            noise = float(np.clip(1 - np.mean([right[side].mean() for side in seen]), 1e-3, 0.95))
    wrong = {side: flagged(1 - right[side]) for side in seen}
    for side, bad in wrong.items():
        posterior[bad, given[side][bad]] = -1  # the first of many classes may be suspect: it is not its own replacement
    return LabelVerdict(right["image"], right["text"], posterior.argmax(1), noise, wrong)


def _looks(
    seen: dict[str, np.ndarray],
    given: dict[str, np.ndarray],
    right: dict[str, np.ndarray],
    fold: np.ndarray,
    classes: int,
) -> np.ndarray:
    """(n, classes) log probability of each true class by what both sides look like, what is written left out."""
    predicted = [_class_probabilities(seen[side], given[side], right[side], fold, classes) for side in seen]
    prior = np.mean([np.bincount(given[side], right[side], classes) for side in seen], 0) + 1e-9
    return np.sum([np.log(part) for part in predicted], 0) - np.log(prior / prior.sum())


def _agreement(likeliest: np.ndarray, given: dict[str, np.ndarray], classes: int) -> tuple[float, float]:
    """How often the likeliest class is the one written, and how often it would be by chance."""
    shares = np.bincount(likeliest, minlength=classes) / len(likeliest)
    written = np.mean([np.bincount(one, minlength=classes) / len(one) for one in given.values()], 0)
    return float(np.mean([likeliest == one for one in given.values()])), float(shares @ written)


def _unsure(likeliest: np.ndarray, given: dict[str, np.ndarray], classes: int, pictures: int) -> str:
    """Why right and wrong labels cannot be told apart; "" where they can."""
    named = len(np.unique(np.concatenate(list(given.values()))))
    if pictures < FEWEST_OF_CLASS * named:
        return f"{pictures} pictures are too few to tell which labels of {named} classes are wrong; none is flagged"
    agreed, chance = _agreement(likeliest, given, classes)
    if agreed > chance + CHANCE * (chance * (1 - chance) / pictures) ** 0.5:
        return ""
    return "labels fit what they label hardly better than chance: wrong ones cannot be told, and none is flagged"


def _cannot_tell(features: np.ndarray, given: dict[str, np.ndarray], unsure: str) -> LabelVerdict:
    """Nothing is suspect; the share is what it would be if the classifiers never erred."""
    count, classes = features.shape
    posterior = _softmax(features + _written(given, USUAL, classes))
    image, text = (posterior[np.arange(count), given[side]] for side in ("image", "text"))
    agreed, chance = _agreement(features.argmax(1), given, classes)
    share = float(np.clip((1 - agreed) / max(1 - chance, 1e-9), 0, 1))
    nothing = {side: np.zeros(count, dtype=bool) for side in given}
    return LabelVerdict(image, text, posterior.argmax(1), share, nothing, unsure)


def _written(given: dict[str, np.ndarray], noise: float, classes: int) -> np.ndarray:
    """(n, classes) log probability of what is written under every true class; one label written twice counts once."""
    image = _log_likelihood(given["image"], noise, classes)
    same = bool((given["image"] == given["text"]).all())
    return image if same else image + _log_likelihood(given["text"], noise, classes)


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
