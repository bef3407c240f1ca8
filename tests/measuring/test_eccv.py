"""Our figures on COCO's test split against the code of the `eccv-caption` package, on rankings drawn at random."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

from matchlight.measuring.protocols import eccv_and_cxc, evaluate_scores
from matchlight.pairs import Pairs

pytest.importorskip("eccv_caption", reason="the extra eccv is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")
PICTURES, EACH, FOLD = 5000, 5, 1000
DEEP = 60  # items of a list that the package reads: no query has more than 48 positives
TARGETS = ("coco_1k_recalls", "coco_5k_recalls", "cxc_recalls", "eccv_r1", "eccv_rprecision", "eccv_map_at_r")


@cache
def coco_test() -> tuple[Pairs, np.ndarray, np.ndarray]:
    """COCO's test split without its words: pairs in the package's order, picture ids, caption ids."""
    folder = eccv_and_cxc.truth_folder()
    captions = np.load(folder / "coco_test_ids.npy", allow_pickle=False)
    owners = json.loads((folder / "original_caption_to_image.json").read_text())
    images = np.array([owners[str(caption)][0] for caption in captions[::EACH]])
    names = [f"COCO_val2014_{image:012d}.jpg" for image in images]
    owner = np.repeat(np.arange(PICTURES), EACH)
    return Pairs(names, [""] * len(captions), owner, np.full(PICTURES, "test")), images, captions


def drawn_scores(seed: int) -> np.ndarray:
    """Rankings at random that are right now and then; rounded to half precision, so that scores tie as well."""
    rng = np.random.default_rng(seed)
    picture = rng.normal(size=(PICTURES, 24)).astype(np.float32)
    caption = 0.75 * picture[np.arange(PICTURES * EACH) // EACH] + rng.normal(size=(PICTURES * EACH, 24))
    return (picture @ caption.T.astype(np.float32)).astype(np.float16).astype(np.float32)  # halves are read slowly


def ranked(scores: np.ndarray, ids: np.ndarray, each: int) -> list[list[int]]:
    """Per row the ids of its first items, and of the first of its own fold: all that the package's figures look at.

    The larger place comes first among equals. `each` is how many columns a picture has.
    """
    lists = []
    for row, line in enumerate(scores):
        fold = (row * each // EACH) // FOLD  # rows are pictures (each 5) or captions (each 1)
        near = slice(fold * FOLD * each, (fold + 1) * FOLD * each)
        cut, own = np.partition(line, -DEEP)[-DEEP], np.partition(line[near], -10)[-10]
        wanted = line >= cut
        wanted[near] |= line[near] >= own
        places = np.flatnonzero(wanted)
        lists.append(ids[places[np.lexsort((-places, -line[places]))]].tolist())
    return lists


def test_every_figure_equals_the_packages_own_on_random_rankings():
    from eccv_caption.metrics import Metrics

    pairs, images, captions = coco_test()
    scores = drawn_scores(seed=0)
    texts = dict(zip(images.tolist(), ranked(scores, captions, EACH), strict=True))
    pictures = dict(zip(captions.tolist(), ranked(np.ascontiguousarray(scores.T), images, 1), strict=True))
    theirs = Metrics().compute_all_metrics(texts, pictures, target_metrics=TARGETS, Ks=(1, 5, 10))
    rules = {"ties": "official"}
    ours = evaluate_scores(scores, pairs, protocol="eccv", **rules) | evaluate_scores(
        scores, pairs, protocol="cxc", **rules
    )
    for name, protocol in (("coco_5k", "recall"), ("coco_1k", "five-fold")):
        report = evaluate_scores(scores, pairs, protocol=protocol, **rules)
        for k in (1, 5, 10):
            found = {side: report[side][f"r{k}"] / 100 for side in ("i2t", "t2i")}
            assert found == pytest.approx(ours.get(f"{name}_r{k}", found), abs=1e-12)
            ours[f"{name}_r{k}"] = found
    assert set(ours) == set(theirs) and len(ours) == 12
    for name, both in theirs.items():
        for side in ("i2t", "t2i"):
            assert ours[name][side] == pytest.approx(float(both[side]), abs=1e-9), (name, side)
            assert 0.001 < ours[name][side] < 0.999, "a figure at its end would agree by accident"
