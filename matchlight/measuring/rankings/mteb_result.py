"""A report in the layout of MTEB's results: one file a task, retrieval of captions and of pictures being a task each.

`mteb.TaskResult.from_disk` reads them. The main score is NDCG@10, as in MTEB's retrieval tasks; `hit_rate_at_K` is the
field's R@K.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from matchlight.console import VERSION
from matchlight.core import Json
from matchlight.data.fingerprints import fingerprint
from matchlight.files import new_folder, write_json
from matchlight.measuring.rankings.ranked_figures import QueryFigures
from matchlight.measuring.rankings.ranked_lists import Ranking, Side, both_sides
from matchlight.pairs import Pairs

AT = (1, 3, 5, 10, 20, 100)
LAYOUT = "2.0.0"  # of MTEB, whose results look like this
TASKS = {"i2t": "I2TRetrieval", "t2i": "T2IRetrieval"}


def write_mteb(
    out: str | Path, scores: np.ndarray, part: Pairs, *, task: str, split: str = "test", ties: str = "worst"
) -> list[Path]:
    """{task}I2TRetrieval.json and {task}T2IRetrieval.json in a new folder."""
    name = "".join(letter for letter in task if letter.isalnum() or letter in "-_") or "Data"
    paths = []
    with new_folder(Path(out)) as folder:
        for direction, side in both_sides(scores, part).items():
            began = time.monotonic()
            figures: dict[str, Json] = {**_scores(side, ties)}
            about: dict[str, Json] = {"hf_subset": "default", "languages": ["eng-Latn"]}
            result: dict[str, Json] = {
                "dataset_revision": fingerprint(part),
                "task_name": f"{name}{TASKS[direction]}",
                "mteb_version": LAYOUT,
                "scores": {split: [{**figures, **about}]},
                "evaluation_time": round(time.monotonic() - began, 3),
                "kg_co2_emissions": None,
                "matchlight_version": VERSION,
            }
            write_json(folder / f"{name}{TASKS[direction]}.json", result)
            paths.append(Path(out) / f"{name}{TASKS[direction]}.json")
    return paths


def _scores(side: Side, ties: str) -> dict[str, float]:
    """Fractions, under MTEB's names."""
    judged = dict(side.judged())
    depth, each = max(AT), []
    for query, items, values in side.rankings(depth):
        if query in judged:
            ranking = Ranking(items, values, np.arange(len(items)))
            each.append(QueryFigures(ranking, dict.fromkeys(judged[query], 1.0), ties))
    ways = {
        "ndcg": lambda one, k: one.ndcg(k),
        "map": lambda one, k: one.average_precision(k),
        "recall": lambda one, k: one.found(k) / len(one.best),
        "precision": lambda one, k: one.found(k) / k,
        "mrr": lambda one, k: one.reciprocal(k),
        "hit_rate": lambda one, k: float(one.first <= k),
    }
    found = {f"{name}_at_{k}": float(np.mean([way(one, k) for one in each])) for name, way in ways.items() for k in AT}
    return {**found, "main_score": found["ndcg_at_10"]}
