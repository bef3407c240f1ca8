"""A whole table through a model: sorted by length so that little is padding, given back in the order asked for."""

from __future__ import annotations

import numpy as np
import torch

from matchlight.console import track
from matchlight.core import IMAGE, TEXT, BadInput, Embeddings, Matcher, concatenate
from matchlight.inputs.batches import Table, ahead


def _order(table: Table, side: str, index: np.ndarray, *, keep: bool) -> np.ndarray:
    """Captions from short to long; a model that depends on padding keeps the file's order."""
    if side != TEXT or table.captions is None or keep:
        return np.arange(len(index))
    return np.argsort(table.captions.lengths[index], kind="stable")


@torch.inference_mode()
def encode(
    matcher: Matcher,
    table: Table,
    side: str,
    index: np.ndarray,
    *,
    batch: int | None = None,
    device: torch.device | str | None = None,
    keep_on_device: bool = False,
    quiet: bool = True,
) -> Embeddings:
    """Embeddings of these places of one side, in this order, in eval mode and full precision."""
    if not len(index):
        raise BadInput(f"{table.pairs.root}: there are no {'captions' if side == TEXT else 'pictures'} to encode")
    batch = batch or matcher.encode_batch
    where = torch.device(device) if device is not None else next(matcher.parameters()).device
    home = where if keep_on_device else torch.device("cpu")
    order = _order(table, side, index, keep=matcher.depends_on_padding)
    if side == IMAGE and table.pixels and where.type == "cuda":  # one size of batch: a GPU plans anew for every other
        order = np.concatenate([order, np.zeros(-len(order) % batch, dtype=order.dtype)])
    starts = range(0, len(order), batch)
    was_training = matcher.training
    matcher.eval()
    parts = []
    loaded = ahead(lambda k: table.items(side, index[order[starts[k] : starts[k] + batch]]), range(len(starts)))
    for items in loaded if quiet else track(loaded, f"encoding {side}s", len(starts)):
        parts.append(matcher.embed(side, items.to(where)).to(home))
    matcher.train(was_training)
    back = np.empty(len(index), dtype=np.int64)
    back[order[::-1]] = np.arange(len(order))[::-1]  # where a place stands first: what filled up a batch stands later
    return concatenate(parts).take(torch.from_numpy(back).to(home))


def encode_both(
    matcher: Matcher,
    table: Table,
    pictures: np.ndarray,
    rows: np.ndarray,
    *,
    batch: int | None = None,
    quiet: bool = True,
) -> tuple[Embeddings, Embeddings]:
    """Pictures and captions of a split, on the model's device where it is a GPU."""
    on_gpu = next(matcher.parameters()).device.type == "cuda"
    images = encode(matcher, table, IMAGE, pictures, batch=batch, keep_on_device=on_gpu, quiet=quiet)
    texts = encode(matcher, table, TEXT, rows, batch=batch, keep_on_device=on_gpu, quiet=quiet)
    return images, texts


@torch.inference_mode()
def predicted(matcher: Matcher, images: Embeddings, texts: Embeddings) -> dict[str, np.ndarray]:
    """(N, classes) label probabilities by side; empty where the method predicts no labels."""
    by_side = {side: matcher.predict(embedding, side) for side, embedding in ((IMAGE, images), (TEXT, texts))}
    return {side: named.float().cpu().numpy() for side, named in by_side.items() if named is not None}
