"""Matchlight: image-text retrieval that learns from messy data, finds what is wrong with it, and serves the search.

Everything that lies here, in the order data flows. A package imports only what stands above it, and its own docstring
lists its files:

    core.py      Items, Batch, Embedding, Matcher, Recipe: the types everything is written in; read this first
    pairs.py     Pairs: pictures, captions, which belong together, class labels, splits
    console.py   what is printed while something lasts; the version
    files.py     files written whole or not at all, and locks
    devices.py   the choice of device and precision; several processes as one
    plugins.py   methods, formats, backbones and engines of this package and of others
    data/        reading and writing data sets, noise on purpose, drawn scenes, near-duplicates, fingerprints, the cache
    cluster/     work in shards, done by many processes; Ray
    inputs/      from pairs to tensors: text, sentence encoders, picture backbones and features, augmentation, batches
    scoring/     scores of all pairs in blocks; kernels
    measuring/   metrics, evaluation protocols, confidence intervals, significance
    parts/       layers, attention, encoders, similarities and objectives that two methods share
    training/    what a method has to give; strategies, the training loop, checkpoints, hard-negative mining
    methods/     one file for each family of papers
    runs/        run folders: train, load, evaluate, export, import
    comparing/   methods against each other: noise, speed
    auditing/    which pairs are wrong, why, and what would fit better; a cleaned copy
    indexing/    search: candidates from an engine, decided by the model's own similarity
    serve/       an index as a REST API and a web page; the review of an audit
    reproduce/   tables and figures of the papers
    cli/         the commands
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from matchlight.console import VERSION as __version__

if TYPE_CHECKING:
    from matchlight.auditing import Audit, audit
    from matchlight.core import (
        BadInput,
        Batch,
        Embedding,
        Ensemble,
        Items,
        Matcher,
        Objective,
        Parts,
        Scores,
        Similarity,
        Sizes,
    )
    from matchlight.indexing import Hit, Index, Results
    from matchlight.measuring.evaluation_result import Evaluation
    from matchlight.measuring.referee import evaluate_file
    from matchlight.pairs import Labels, Pairs
    from matchlight.runs.evaluation import evaluate
    from matchlight.runs.folder import Run, load
    from matchlight.runs.train_run import train
    from matchlight.training.contract import Phase, Recipe, Strategy

_HOMES = {
    "core": "BadInput Batch Embedding Ensemble Items Matcher Objective Parts Scores Similarity Sizes",
    "pairs": "Labels Pairs",
    "training.contract": "Phase Recipe Strategy",
    "runs.folder": "Run load",
    "runs.train_run": "train",
    "runs.evaluation": "evaluate",
    "measuring.evaluation_result": "Evaluation",
    "measuring.referee": "evaluate_file",
    "auditing": "Audit audit",
    "indexing": "Hit Index Results",
}
_HOME = {name: f"matchlight.{module}" for module, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Public names are loaded when first asked for, so that the command line starts without torch."""
    if name not in _HOME:
        raise AttributeError(f"module 'matchlight' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
