"""Vectors for tests: pictures and captions of tiny data as a joint model might have made them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from matchlight.pairs import Pairs


def joint_vectors(pairs: Pairs, *, dim: int = 16, blur: float = 0.35, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(pictures, dim) and (captions, dim): the words of a picture's first caption, and of each caption, with noise."""
    rng = np.random.default_rng(seed)
    words = sorted({word for caption in pairs.captions for word in caption.split()})
    look = dict(zip(words, rng.normal(size=(len(words), dim)), strict=True))
    texts = np.stack([sum(look[word] for word in caption.split()) for caption in pairs.captions])
    texts /= np.linalg.norm(texts, axis=1, keepdims=True)
    first = np.unique(pairs.picture, return_index=True)[1]
    noise = blur * rng.normal(size=(2, *texts.shape)) / dim**0.5
    return (texts + noise[0])[first].astype(np.float32), (texts + noise[1]).astype(np.float32)


def clip_retrieval_folder(folder: Path, pairs: Pairs, images: np.ndarray, texts: np.ndarray, *, parts: int = 2) -> Path:
    """What `clip-retrieval inference` writes: a row a caption, in several files."""
    for kind in ("img_emb", "text_emb", "metadata"):
        (folder / kind).mkdir(parents=True)
    for number, rows in enumerate(np.array_split(np.arange(len(pairs)), parts)):
        np.save(folder / "img_emb" / f"img_emb_{number}.npy", images[pairs.picture[rows]].astype(np.float16))
        np.save(folder / "text_emb" / f"text_emb_{number}.npy", texts[rows].astype(np.float16))
        names = [f"/photos/{pairs.names[pairs.picture[row]]}.jpg" for row in rows]
        said = pa.table({"image_path": names, "caption": [pairs.captions[row] for row in rows]})
        pq.write_table(said, folder / "metadata" / f"metadata_{number}.parquet")
    return folder
