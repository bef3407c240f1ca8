"""What methods of sets minimise: a triplet loss as a mean, crowds that look alike, elements of a set that do not.

A picture may come with several captions; all of them are its own, none is a negative.
"""

from __future__ import annotations

from matchlight.core import IMAGE, TEXT, Batch, Embedding, Objective, Scores, Terms
from matchlight.parts.objectives import Contrast, contrast, hinge_all, hinge_hardest
from matchlight.parts.set_similarities import diversity_loss, maximum_mean_discrepancy


def hinge_mean(c: Contrast, margin: float) -> Terms:
    """Per pair, hinge costs such that their mean over pairs is the mean over all (pair, negative) there are."""
    many = {"i2t": c.text_ok.sum(), "t2i": c.image_ok.sum()}
    return {name: cost * len(cost) / many[name].clamp(min=1) for name, cost in hinge_all(c, margin).items()}


def hinge_semihard(c: Contrast, margin: float) -> Terms:
    """Each way, the mean of the hinge costs above 0, none counted above the margin."""
    terms: Terms = {}
    for name, (score, ok) in c.directions().items():
        cost = (margin + score - c.own[:, None]).clamp(0, margin) * ok
        terms[name] = cost.sum() / (cost > 0).sum().clamp(min=1)
    return terms


class Triplet(Objective):
    """The ranking loss as a mean over pairs: against the hardest negative, all of them, or those not hopeless."""

    reduction = "mean"
    kinds = {"hardest": hinge_hardest, "all": hinge_mean, "semihard": hinge_semihard}

    def __init__(self, *, margin: float = 0.2, negatives: str = "hardest"):
        super().__init__()
        self.margin = margin
        self.negatives = negatives

    def forward(self, scores: Scores, embeddings: dict[str, Embedding], batch: Batch) -> Terms:
        """One term a direction."""
        assert scores.matrix is not None
        return self.kinds[self.negatives](contrast(scores.matrix, batch), self.margin)


def own_sets(embeddings: dict[str, Embedding], batch: Batch) -> tuple[Embedding, Embedding]:
    """The sets of a batch's own pictures and captions, without those that only serve further links."""
    images, texts = embeddings[IMAGE], embeddings[TEXT]
    pictures, captions = batch.core or (len(images), len(texts))
    return images.take(slice(0, pictures)), texts.take(slice(0, captions))


class SetLoss(Objective):
    """A ranking loss, plus: pictures and captions shall look alike as crowds, the elements of a set shall not."""

    reduction = "mean"

    def __init__(self, ranking: Objective, *, mmd: float = 0.01, diversity: float = 0.01):
        super().__init__()
        self.ranking = ranking
        self.mmd = mmd
        self.diversity = diversity

    def forward(self, scores: Scores, embeddings: dict[str, Embedding], batch: Batch) -> Terms:
        """The ranking's terms, "mmd", and "diversity" of each side, one value a set."""
        terms = dict(self.ranking(scores, embeddings, batch))
        images, texts = own_sets(embeddings, batch)
        if self.mmd:
            terms["mmd"] = self.mmd * maximum_mean_discrepancy(
                images.vectors.flatten(0, 1), texts.vectors.flatten(0, 1)
            )
        if self.diversity:
            terms["diversity_image"] = self.diversity * diversity_loss(images.extra["residual"])
            terms["diversity_text"] = self.diversity * diversity_loss(texts.extra["residual"])
        return terms

    def ranked_by(self, ranking: Objective) -> Objective:
        """The terms of the sets beside another loss, in the same proportion: both are means."""
        return SetLoss(ranking, mmd=self.mmd, diversity=self.diversity)
