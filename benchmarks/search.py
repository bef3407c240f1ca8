"""How fast search is with candidates and without, and how much of the true best ten it finds.

    python benchmarks/search.py [--items 10000,100000,300000] [--each 4] [--dim 256] [--target 0.98] [-o FILE.json]
    python benchmarks/search.py --run RUN --data PATH [--target 0.99] [-o FILE.json]
    python benchmarks/search.py --whole 1000000 [--dim 128] [--folder DIR] [-o FILE.json]

The first draws items: sets of `each` unit vectors around centres, about a hundred items a centre; questions are other
draws from the same centres, compared by smooth-Chamfer similarity as DivE compares. Everything an index does is done
but encoding: sets stored in half precision, an engine of one row a vector, candidates measured, exact re-rank.

The second indexes a data set with a trained run, the last caption of every picture left out, and asks with those of the
test split. The third builds a whole index of so many drawn vectors of pictures and as many of captions, opens it, asks
it, adds and removes items and asks again, each in a fresh process, with the time and memory of each.
OMP_NUM_THREADS=1 before any of them gives the figures of one thread.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from matchlight.files import write_json
from matchlight.indexing.index_speed import time_whole_index
from matchlight.indexing.search_speed import time_drawn_sets, time_run
from matchlight.pairs import Pairs
from matchlight.runs.folder import Run


def lines(given: argparse.Namespace) -> list[dict[str, Any]]:
    """One line a collection, printed as soon as it is there."""
    out = []
    if given.run is not None:
        with tempfile.TemporaryDirectory() as folder:
            run, pairs = Run.load(given.run, device="cpu"), Pairs.read(given.data)
            out.append(time_run(run, pairs, Path(folder), questions=given.questions, target=given.target or 0.99))
            print(json.dumps(out[-1]), flush=True)
        return out
    if given.whole is not None:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            sizes = {"dim": given.dim or 128, "questions": given.questions}
            out.append(time_whole_index(Path(folder), given.whole, **sizes, told=told))
        return out
    for items in given.items.split(","):
        sizes = {"each": given.each, "dim": given.dim or 256, "questions": given.questions}
        out.append(time_drawn_sets(int(items), target=given.target or 0.98, **sizes))
        print(json.dumps(out[-1]), flush=True)
    return out


def told(step: str, measured: object) -> None:
    """A step that is done."""
    print(json.dumps({step: measured}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", default="10000,100000,300000")
    parser.add_argument("--each", type=int, default=4)
    parser.add_argument("--dim", type=int)
    parser.add_argument("--target", type=float)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--whole", type=int)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("-o", "--out", type=Path)
    given = parser.parse_args()
    if (given.run is None) != (given.data is None):
        parser.error("--run and --data go together")
    measured = lines(given)
    if given.out:
        write_json(given.out, measured)


if __name__ == "__main__":
    main()
