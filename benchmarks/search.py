"""How search grows: time to build, memory, disk, and questions a second, with and without candidates.

    python benchmarks/search.py [--items 10000,100000,300000] [--each 4] [--dim 256] [--target 0.98] [-o FILE.json]

Items are sets of `each` unit vectors around centres, about a hundred items a centre; questions are other
draws from the same centres, compared by smooth-Chamfer similarity as DivE compares. Everything an index does is done
but encoding: sets stored in half precision, an engine of one row a vector, candidates measured, exact re-rank.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from matchlight.checkpoints import write_json
from matchlight.indexing.bench import grown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", default="10000,100000,300000")
    parser.add_argument("--each", type=int, default=4)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--target", type=float, default=0.98)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("-o", "--out", type=Path)
    given = parser.parse_args()
    lines = []
    for items in given.items.split(","):
        line = grown(int(items), each=given.each, dim=given.dim, target=given.target, questions=given.questions)
        print(json.dumps(line), flush=True)
        lines.append(line)
    if given.out:
        write_json(given.out, lines)


if __name__ == "__main__":
    main()
