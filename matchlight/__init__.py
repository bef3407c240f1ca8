"""Matchlight: image-text retrieval that learns from messy data, finds what is wrong with it, and serves the search.

The package in the order data flows:

    core.py         Items, Batch, Embedding, Matcher, Recipe: the types everything is written in; read this first
    scenes/         picture-book scenes: the embedded data set, with exact ground truth
    pairs.py        Pairs: pictures, captions, who belongs to whom, labels, splits
    formats/        readers and writers of every format
    noise/          seeded noise: mismatched pairs, flipped labels, replayable
    text/           tokenising, vocabularies, word ids; sentences.py: sentence encoders
    features/       grid and pooled features from pictures, cached; backbones
    augment.py      crops, flips, dropped words and regions, seeded per row
    prepare.py      pairs -> features, word ids and the sizes a recipe needs
    batches.py      rows -> Batch
    layers.py       shared maths: unit length, masked means, pooling
    encoders.py     encoders used by two methods or more
    similarity.py   similarities used by two methods or more; scoring everything in blocks
    objectives.py   hinges, InfoNCE, complementary and generalised cross-entropy
    strategies.py   how epochs are spent
    network.py      one network in training; trainer.py: the epochs, checkpoints and log of a run
    processes.py    several processes as one
    runs.py         run folders: train one, load one
    encode.py       a whole table through a model; embeddings.py: vectors out
    metrics/        pure functions on scores and relevance
    protocols/      the field's evaluation protocols, one report each
    evaluation.py   a run before the referee; referee.py: scores of any tool, and two against each other
    auditing/       which pairs are wrong, why, and what would fit better; a cleaned copy
    indexing/       search: candidates from an engine, decided by the true similarity; explanations, a map
    methods/        one file per family; recipes.py: their arguments and presets
    cli/            the commands
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
        Phase,
        Recipe,
        Scores,
        Similarity,
        Sizes,
    )
    from matchlight.indexing import Hit, Index, Results
    from matchlight.measuring.referee import evaluate_file
    from matchlight.pairs import Labels, Pairs
    from matchlight.runs.evaluation import evaluate
    from matchlight.runs.folder import Run, train

_HOMES = {
    "core": "BadInput Batch Embedding Ensemble Items Matcher Objective Parts Phase Recipe Scores Similarity Sizes",
    "pairs": "Labels Pairs",
    "runs.folder": "Run train",
    "runs.evaluation": "evaluate",
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
