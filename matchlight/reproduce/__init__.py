"""Tables and figures of the papers, made again on any data: `EXHIBITS` maps a name to what it shows and what makes it.

An exhibit trains what it needs (`work.py`), writes its numbers as CSV and JSON (`numbers.py`) and draws them
(`style.py`). One file a family: `mrl_curves.py`, `mrl_maps.py`, `sharing.py`, `failures.py`, `aoq_ranks.py`,
`ncr_figures.py`, `examples.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matchlight.core import BadInput
from matchlight.pairs import Pairs
from matchlight.recipes import nearest
from matchlight.reproduce import aoq_ranks, examples, failures, mrl_curves, mrl_maps, mrl_methods, ncr_figures, ncr_runs
from matchlight.reproduce import sharing as semantic_sharing
from matchlight.reproduce.work import Exhibit

__all__ = ["EXHIBITS", "Exhibit", "exhibit", "reproduce"]

_ALL = (
    Exhibit(
        "mrl-pr",
        mrl_methods.PAPER,
        "precision against recall, by method, after training on wrong labels",
        mrl_curves.precision_recall,
        averages=True,
    ),
    Exhibit(
        "mrl-convergence",
        mrl_methods.PAPER,
        "loss and validation MAP by epoch, cross-entropy beside MRL",
        mrl_curves.convergence,
        averages=True,
    ),
    Exhibit(
        "mrl-tsne",
        mrl_methods.PAPER,
        "test items as each method represents them, in the plane",
        mrl_maps.representations,
    ),
    Exhibit("mrl-clusters", mrl_methods.PAPER, "four classes round their learned centres", mrl_maps.clusters),
    Exhibit(
        "sharing-lambda",
        semantic_sharing.PAPER,
        "NDCG against the weight of guessing hidden words and regions",
        semantic_sharing.sensitivity,
        averages=True,
    ),
    Exhibit(
        "sharing-f1",
        semantic_sharing.PAPER,
        "Micro-F1 of pictures and of texts, by method",
        semantic_sharing.classification,
        averages=True,
    ),
    Exhibit(
        "sharing-consistency",
        semantic_sharing.PAPER,
        "Micro-F1 and NDCG by epoch, with and without a consistency loss",
        semantic_sharing.consistency,
        averages=True,
    ),
    Exhibit(
        "sharing-failures", semantic_sharing.PAPER, "queries whose first answers share no label", failures.failures
    ),
    Exhibit("aoq-ranks", aoq_ranks.PAPER, "cross-retrieval ranks before and after a second round", aoq_ranks.ranks),
    Exhibit("ncr-losses", ncr_runs.PAPER, "losses of pairs and the mixture that divides them", ncr_figures.losses),
    Exhibit("ncr-labels", ncr_runs.PAPER, "labels that clean and noisy pairs are given", ncr_figures.labels),
    Exhibit("ncr-examples", ncr_runs.PAPER, "captions with the pictures found for them", examples.examples),
)
EXHIBITS: dict[str, Exhibit] = {one.name: one for one in _ALL}


def exhibit(name: str) -> Exhibit:
    """The exhibit of that name."""
    if name not in EXHIBITS:
        raise BadInput(f"{name!r} is no exhibit; {nearest(name, EXHIBITS)} (`matchlight reproduce` lists them)")
    return EXHIBITS[name]


def reproduce(name: str, pairs: Pairs, out: str | Path, **options: Any) -> dict[str, Any]:
    """Make a table or figure by name: options are seeds, quick, settings, device and the exhibit's own."""
    return exhibit(name)(pairs, out, **options)
