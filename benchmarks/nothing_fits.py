"""How well a search knows that nothing fits: questions and pictures whose answers are there, and others.

    python benchmarks/nothing_fits.py --run RUN --data DATA [--split test] [--other DATA] [--questions 200]

Builds an index of a split that the run did not learn from and prints what building measured (right pictures taken out).
Then asks through `Index.search`: captions of the split (their own row is in the index: the easy half), captions of
`--other`, a collection of another kind, and pictures of both (which find captions).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

import matchlight as ml
from matchlight.indexing import Index
from matchlight.pairs import Pairs


def told(index: Index, pairs: Pairs, split: str, questions: int, *, pictures: bool) -> dict[str, float]:
    """The share of questions that are told that nothing fits, and the mean chance of the best hit."""
    draw = np.random.default_rng(0)
    places = pairs.pictures_of(split) if pictures else pairs.rows(split)
    some = draw.permutation(places)[:questions].tolist()
    assert pairs.pictures is not None
    asked = [{"image": pairs.pictures.open(one)} if pictures else {"words": pairs.captions[one]} for one in some]
    found = [index.search(**one) for one in asked]  # type: ignore[arg-type]
    best = [max(hit.chance or 0.0 for hit in one.hits) for one in found]
    return {
        "asked": len(found),
        "told": float(np.mean([one.nothing_fits for one in found])),
        "chance": float(np.mean(best)),
    }


def main() -> None:
    """The figures as JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--other", type=Path)
    parser.add_argument("--other-split", default="test")
    parser.add_argument("--questions", type=int, default=200)
    args = parser.parse_args()
    pairs = Pairs.read(args.data)
    with (
        tempfile.TemporaryDirectory() as folder,
        ml.Index.build(ml.Run.load(args.run), pairs, Path(folder) / "index", split=args.split, map=False) as index,
    ):
        print(json.dumps({"measured at build": index.describe()["chances"]}))
        sets = {"own": (pairs, args.split)}
        if args.other:
            sets["other"] = (Pairs.read(args.other), args.other_split)
        for name, (data, split) in sets.items():
            for pictures in (False, True):
                what = f"{name} {'pictures' if pictures else 'captions'}"
                print(json.dumps({what: told(index, data, split, args.questions, pictures=pictures)}), flush=True)


if __name__ == "__main__":
    main()
