"""Time and memory of offline mining at a fraction of COCO, and what they come to for all of it.

    python benchmarks/mining.py [--method vsrn|scan|...] [--pictures 2000] [--top 300] [--coarse 3] [--device auto]

Random features of the usual shape (36 x 2048) and random captions of 6 to 40 words go through an untrained model of the
paper's sizes, so that encoding and scoring cost what they would. Encoding grows with the number of items, the search
with the number of pairs; COCO has 113,287 training pictures and 566,435 captions. On a CPU seconds are core-seconds.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from typing import Any

import numpy as np
import torch

from matchlight.core import IMAGE, TEXT, Matcher
from matchlight.devices import pick_device
from matchlight.inputs.batches import Table
from matchlight.inputs.prepare import View, prepare
from matchlight.pairs import Pairs
from matchlight.training.mining import images_for, mine
from matchlight.training.mining.coarse import Rescore, coarse_vectors, proposed
from matchlight.training.mining.search import Ledger, Search, sweep
from matchlight.training.registry import methods

COCO = (113_287, 566_435)


class Made:
    """Features that are made when asked for: a few thousand pictures' would fill a small machine."""

    def __init__(self, count: int, regions: int, dim: int):
        self.shape = (count, regions, dim)
        self.pool = np.random.default_rng(0).standard_normal((64, regions, dim), dtype=np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    def gather(self, index: np.ndarray) -> np.ndarray:
        return self.pool[index % len(self.pool)]

    def stamp(self) -> str:
        return "made"

    def take(self, index: np.ndarray) -> Made:
        return Made(len(index), *self.shape[1:])


def made_pairs(pictures: int, captions: int, *, regions: int = 36, dim: int = 2048, words: int = 8000) -> Pairs:
    """Pictures of random regions, captions of random words with the lengths of COCO's."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.gamma(8.0, 1.3, pictures * captions).astype(int), 4, 38)
    texts = [" ".join(f"w{w}" for w in rng.integers(0, words, n)) for n in lengths]
    return Pairs(
        names=[str(i) for i in range(pictures)],
        captions=texts,
        picture=np.repeat(np.arange(pictures), captions),
        splits=np.full(pictures, "train"),
        features=Made(pictures, regions, dim),  # type: ignore[arg-type]
    )


def peak(device: torch.device) -> float:
    """GiB at the most, on the device or (CPU) of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def clock(device: torch.device) -> float:
    """Seconds of a GPU, once it has done what it was asked to; core-seconds on a CPU, which others may be using too."""
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def ready(method: str, pictures: int, where: torch.device, dim: int | None) -> tuple[Matcher, Table]:
    """An untrained model of the paper's sizes and data for it."""
    inputs = prepare(made_pairs(pictures, 5), View("given"), device=where)
    chosen = methods()[method]
    named = {**chosen.defaults, **({"dim": dim} if dim else {})}
    torch.manual_seed(0)
    return chosen.build(inputs.sizes, **named).matcher().to(where).eval(), inputs.table


@torch.inference_mode()
def measure(matcher: Matcher, table: Table, *, top: int, coarse: int | None, where: torch.device) -> dict[str, Any]:
    """Seconds of encoding and of the search, and the peak of memory."""
    torch.set_float32_matmul_precision("high")
    rows, pictures = np.arange(len(table.pairs)), len(table.pairs.names)
    mine(matcher, table, rows[:500], top=20, images=4, coarse=coarse)  # kernels, caches
    search = Search(matcher, table, rows, memory=None, quiet=False)
    began = clock(where)
    for side in (search.images, search.texts):
        for k in range(len(side)):
            side[k]  # kept where it fits
    encoded = clock(where)
    wanted = (top, images_for(top, pictures, len(rows)))
    seconds = {"encoding_s": encoded - began, **searched(search, wanted, coarse, where)}
    kept = {"all_embeddings_kept": search.texts.all_fit, "units": search.units}
    return {"pictures": pictures, "captions": len(rows), **seconds, **kept, "peak_gib": peak(where)}


def searched(search: Search, wanted: tuple[int, int], coarse: int | None, where: torch.device) -> dict[str, float]:
    """Seconds of comparing everything with everything, and of scoring what was proposed."""
    ledger, began = Ledger(None, {}, search), clock(where)
    if coarse is None:
        sweep(search, search.exact, search.empty(*wanted), ledger, name="exact")
        return {"search_s": clock(where) - began}
    lists = search.empty(coarse * wanted[0], coarse * wanted[1])
    images, texts = (
        coarse_vectors(search.matcher, side, chunks, where)
        for side, chunks in ((IMAGE, search.images), (TEXT, search.texts))
    )
    sweep(search, lambda k, j: proposed(images[k], texts[j]), lists, ledger, name="coarse")
    middle = clock(where)
    search.go("scoring", Rescore(search, lists).unit, start=0, after=lambda done: None)
    return {"search_s": middle - began, "rescoring_s": clock(where) - middle}


def extrapolated(measured: dict[str, Any]) -> dict[str, float]:
    """Hours for COCO: encoding and scoring proposals grow with the items, comparing everything with the pairs."""
    items, pairs = COCO[1] / measured["captions"], COCO[0] * COCO[1] / (measured["pictures"] * measured["captions"])
    growth = {"encoding_s": items, "search_s": pairs, "rescoring_s": items}
    return {name.replace("_s", "_h"): measured[name] * growth[name] / 3600 for name in growth if name in measured}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="vsrn")
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--top", type=int, default=300)
    parser.add_argument("--coarse", type=int)
    parser.add_argument("--dim", type=int)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    where = pick_device(args.device)
    settings = {"method": args.method, "device": str(where), "top": args.top, "coarse": args.coarse}
    model = ready(args.method, args.pictures, where, args.dim)
    measured = measure(*model, top=args.top, coarse=args.coarse, where=where)
    print(json.dumps({**settings, **measured, "coco": extrapolated(measured)}, indent=1))


if __name__ == "__main__":
    main()
