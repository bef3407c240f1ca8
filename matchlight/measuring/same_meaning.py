"""Which captions say about the same: words in common, rare ones for more (TF-IDF); and questions of a word or two.

A picture's captions describe one thing in several ways. A caption of another picture that agrees with a question as
well as half of such captions agree with each other says the same: its picture answers the question too. Where pictures
have one caption each nothing is known of that, and only the own one is right. People ask for less than a caption says:
a question of one or two words of a caption is answered by every picture with a caption that holds them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

PAIRS = 2000  # of captions of one picture, from which the border is learnt
LEAST = 0.15  # agreement below which nothing counts as the same
RARE, COMMON = 3, 0.35  # captions that hold a word of a short question: at least so many, at most this share


class SameMeaning:
    """The captions (C,) of some pictures, `picture` (C,) their owners."""

    def __init__(self, captions: Sequence[str], picture: np.ndarray):
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.picture, self.captions = picture, captions
        self.names: list[str] = []
        try:
            counted = TfidfVectorizer(sublinear_tf=True, stop_words="english", dtype=np.float32)
            self.words = counted.fit_transform(captions).tocsr()
            self.names = counted.get_feature_names_out().tolist()
        except ValueError:  # not a word in any of them
            self.words = None
        self.border = self._border()

    def _border(self) -> float:
        """What half of the pairs of one picture reach; above 1: nothing is the same."""
        order = np.argsort(self.picture, kind="stable")
        twins = np.flatnonzero(self.picture[order][1:] == self.picture[order][:-1])
        if self.words is None or len(twins) < max(10, len(order) // 10):
            return 2.0
        some = twins[np.unique(np.linspace(0, len(twins) - 1, min(PAIRS, len(twins))).astype(np.int64))]
        one, other = self.words[order[some]], self.words[order[some + 1]]
        return max(LEAST, float(np.median(np.asarray(one.multiply(other).sum(1)))))

    def length(self, row: int) -> int:
        """How many words a caption has."""
        return len(self.captions[row].split())

    def for_words(self, rows: np.ndarray, pictures: np.ndarray) -> np.ndarray:
        """(Q, n) which pictures are right for captions: their own, and those with a caption that says the same."""
        right = self.picture[rows][:, None] == pictures[None]
        if self.border > 1 or self.words is None:
            return np.asarray(right)
        place = np.full(int(max(self.picture.max(), pictures.max())) + 1, -1)
        place[pictures] = np.arange(len(pictures))
        close = (self.words[rows] @ self.words.T).tocoo()
        keep = (close.data >= self.border) & (place[self.picture[close.col]] >= 0)
        right[close.row[keep], place[self.picture[close.col[keep]]]] = True
        return np.asarray(right)

    def for_pictures(self, pictures: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """(Q, n) which captions are right for pictures: their own, and those that say the same as one of them."""
        right = pictures[:, None] == self.picture[rows][None]
        if self.border > 1 or self.words is None:
            return np.asarray(right)
        for number, picture in enumerate(pictures.tolist()):
            own = np.flatnonzero(self.picture == picture)
            close = (self.words[own] @ self.words[rows].T).tocoo()
            right[number, close.col[close.data >= self.border]] = True
        return np.asarray(right)

    def short_questions(self, rows: np.ndarray, draw: np.random.Generator) -> list[tuple[str, np.ndarray]]:
        """One or two words of each of these captions, with the pictures (ascending) that have a caption with them."""
        if self.words is None:
            return []
        columns = self.words.tocsc()
        counts = np.diff(columns.indptr)
        usual = (counts >= RARE) & (counts <= COMMON * len(self.picture))
        made = []
        for row in rows.tolist():
            own = self.words[row].indices
            own = own[usual[own]]
            if len(own):
                chosen = draw.choice(own, min(len(own), int(draw.integers(1, 3))), replace=False)
                holding = [columns.indices[columns.indptr[one] : columns.indptr[one + 1]] for one in chosen]
                both = holding[0] if len(holding) == 1 else np.intersect1d(*holding)
                made.append((" ".join(self.names[one] for one in chosen), np.unique(self.picture[both])))
        return made
