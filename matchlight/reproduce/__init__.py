"""Tables and figures of the papers, made again on any data: `EXHIBITS` maps a name to what it shows and what makes it.

In reading order:

    exhibits.py         `Exhibit`, and `Work`: runs that are trained once, numbers and figures as files
    needs.py            what each exhibit needs, in a line
    numbers.py          tables as CSV, JSON and Markdown
    exhibit_page.py     the page of an exhibit, with the published numbers beside ours
    style.py            how figures look
    layouts.py          items in the plane by t-SNE
    sheets.py           queries with their answers as pictures
    mrl_methods.py      the methods of MRL's figures
    mrl_curves.py       MRL: precision and recall, convergence
    mrl_table.py        MRL: MAP by method and share of wrong labels
    mrl_maps.py         MRL: representations and clusters in the plane
    linear/             the linear baselines of MRL: MCCA, PLS, GMA, MvDA
    mrl_linear.py       the linear baselines on a data set
    sharing.py          the variants of semantic sharing, and data sets side by side
    sharing_lambda.py   semantic sharing: sensitivity to lambda
    sharing_f1.py       semantic sharing: Micro-F1
    sharing_consistency.py  semantic sharing: consistency
    superclasses.py     which class belongs to which super-class
    failures.py         semantic sharing: queries that went wrong, and why
    recalls.py          the six recalls of a run, as exhibits of pairs show them
    aoq_rounds.py       the runs of AOQ's exhibits
    aoq_ranks.py        AOQ: cross-retrieval ranks
    aoq_sensitivity.py  AOQ: alpha and beta
    aoq_batch.py        AOQ against larger batches, and two ways to draw
    aoq_examples.py     AOQ: queries that one of the two rounds answers rightly
    aoq_cost.py         AOQ: time of a step
    dive_runs.py        the runs of DivE's figures
    ranked_tables.py    tables with the best figure of a column in bold
    dive_eccv.py        DivE: ECCV Caption and CxC
    dive_capacity.py    DivE: one vector as dear as a set
    dive_ablation.py    DivE: the three changes to slot attention
    dive_cost.py        DivE: FLOPs and latency of scoring
    dive_tsne.py        DivE: elements of sets in the plane
    dive_attention.py   DivE: what slots take of a picture
    ncr_runs.py         the runs of NCR's figures
    ncr_figures.py      NCR: losses and rectified labels
    ncr_tables.py       NCR: recall and PMRP by method and noise
    ncr_examples.py     NCR: captions and pictures with their own and what comes first
    contact_sheet.py    small pictures of exhibits, and all of them on a sheet
    everything.py       every exhibit in one go
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matchlight.core import BadInput
from matchlight.pairs import Pairs
from matchlight.reproduce import (
    aoq_batch,
    aoq_cost,
    aoq_examples,
    aoq_ranks,
    aoq_rounds,
    aoq_sensitivity,
    dive_ablation,
    dive_attention,
    dive_capacity,
    dive_cost,
    dive_eccv,
    dive_runs,
    dive_tsne,
    failures,
    mrl_curves,
    mrl_maps,
    mrl_methods,
    mrl_table,
    ncr_examples,
    ncr_figures,
    ncr_runs,
    ncr_tables,
    sharing,
    sharing_consistency,
    sharing_f1,
    sharing_lambda,
)
from matchlight.reproduce.everything import Outcome, make_all
from matchlight.reproduce.exhibits import Exhibit, Result
from matchlight.training.registry import nearest

__all__ = ["EXHIBITS", "Exhibit", "exhibit", "reproduce", "reproduce_all"]

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
        "training loss, validation loss and MAP by epoch, cross-entropy beside MRL",
        mrl_curves.convergence,
        averages=True,
        of_training=True,
    ),
    Exhibit(
        "mrl-map",
        mrl_methods.PAPER,
        "MAP by method and share of wrong labels, linear baselines among them",
        mrl_table.main_table,
        averages=True,
    ),
    Exhibit(
        "mrl-tsne",
        mrl_methods.PAPER,
        "test items as each method represents them, in the plane",
        mrl_maps.representations,
    ),
    Exhibit(
        "mrl-clusters", mrl_methods.PAPER, "four classes round their learned centres", mrl_maps.clusters, folds=False
    ),
    Exhibit(
        "sharing-lambda",
        sharing.PAPER,
        "NDCG against the weight of guessing hidden words and regions, by data set",
        sharing_lambda.sensitivity,
        averages=True,
        several=True,
    ),
    Exhibit(
        "sharing-f1",
        sharing.PAPER,
        "Micro-F1 of pictures and of texts, by method and data set",
        sharing_f1.classification,
        averages=True,
        several=True,
    ),
    Exhibit(
        "sharing-consistency",
        sharing.PAPER,
        "Micro-F1 and NDCG by epoch of two networks, with and without a consistency loss",
        sharing_consistency.consistency,
        averages=True,
        of_training=True,
    ),
    Exhibit(
        "sharing-failures",
        sharing.PAPER,
        "queries whose first answers share no label, and why",
        failures.failures,
    ),
    Exhibit(
        "aoq-batch",
        aoq_rounds.PAPER,
        "recalls with larger batches, and with AOQ",
        aoq_batch.batch_size,
        averages=True,
    ),
    Exhibit(
        "aoq-sensitivity",
        aoq_rounds.PAPER,
        "recalls after the second round by alpha and beta",
        aoq_sensitivity.sensitivity,
        averages=True,
    ),
    Exhibit("aoq-cost", aoq_rounds.PAPER, "time of a step, plain and with companions", aoq_cost.cost, of_training=True),
    Exhibit("aoq-ranks", aoq_rounds.PAPER, "cross-retrieval ranks before and after a second round", aoq_ranks.ranks),
    Exhibit(
        "aoq-draw",
        aoq_rounds.PAPER,
        "recalls after a second round that draws uniformly or normally",
        aoq_batch.draws,
        averages=True,
    ),
    Exhibit("aoq-examples", aoq_rounds.PAPER, "queries that the rounds answer differently", aoq_examples.examples),
    Exhibit(
        "dive-ablation",
        dive_runs.PAPER,
        "the three changes to slot attention, each undone",
        dive_ablation.ablation,
        averages=True,
    ),
    Exhibit(
        "dive-eccv",
        dive_runs.PAPER,
        "all that fits, found: ECCV Caption and CxC, or a relevance file",
        dive_eccv.eccv,
        averages=True,
    ),
    Exhibit(
        "dive-capacity",
        dive_runs.PAPER,
        "rsum with FLOPs: VSE-infinity, widened to DivE's cost, and DivE",
        dive_capacity.capacity,
        averages=True,
    ),
    Exhibit(
        "dive-cost",
        dive_runs.PAPER,
        "FLOPs and latency of scoring, VSE-infinity = 1",
        dive_cost.cost,
        split="val",
    ),
    Exhibit("dive-tsne", dive_runs.PAPER, "elements of sets in the plane, by slot", dive_tsne.elements),
    Exhibit(
        "dive-attention",
        dive_runs.PAPER,
        "what slots take of a picture, round by round",
        dive_attention.maps,
    ),
    Exhibit(
        "ncr-losses",
        ncr_runs.PAPER,
        "losses after the warm-up and the mixture that divides them",
        ncr_figures.losses,
        of_training=True,
    ),
    Exhibit(
        "ncr-labels", ncr_runs.PAPER, "labels of pairs that are called noisy", ncr_figures.labels, of_training=True
    ),
    Exhibit("ncr-examples", ncr_runs.PAPER, "captions and pictures with what is found for them", ncr_examples.examples),
    Exhibit(
        "ncr-5k",
        ncr_runs.PAPER,
        "recall on a whole test split by method and noise",
        ncr_tables.recall_5k,
        averages=True,
    ),
    Exhibit("ncr-pmrp", ncr_runs.PAPER, "recalls and PMRP by method and noise", ncr_tables.pmrp, averages=True),
)
EXHIBITS: dict[str, Exhibit] = {one.name: one for one in _ALL}


def exhibit(name: str) -> Exhibit:
    """The exhibit of that name."""
    if name not in EXHIBITS:
        raise BadInput(f"{name!r} is no exhibit; {nearest(name, EXHIBITS)} (`matchlight reproduce` lists them)")
    return EXHIBITS[name]


def reproduce(name: str, pairs: Pairs | Sequence[Pairs], out: str | Path, **options: Any) -> Result:
    """Make a table or figure by name: options are seeds, quick, settings, device, split, fold and its own."""
    return exhibit(name)(pairs, out, **options)


def reproduce_all(pairs: Pairs, out: str | Path, **options: Any) -> list[Outcome]:
    """Every table and figure in one folder; options are seeds, quick, settings, device, split and fold."""
    return make_all(EXHIBITS.values(), pairs, Path(out), **options)
