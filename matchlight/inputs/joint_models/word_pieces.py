"""Captions as a joint model reads them: by its own tokenizer, cut to its length, filled up where that is its rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, cast

from matchlight.core import BadInput
from matchlight.inputs.joint_models.model_files import Source
from matchlight.inputs.joint_models.shapes import Shape

END, BEGIN = "</w>", "▁Ġ"  # how tokenizers mark the end of a word, and the space before one


class Tokenizer(Protocol):
    """What we use of transformers' tokenizers."""

    all_special_ids: list[int]

    def __call__(self, text: list[str], **options: object) -> dict[str, list[list[int]]]:
        """Ids of each text."""

    def get_vocab(self) -> dict[str, int]:
        """Every piece with its id."""


class WordPieces:
    """A joint model's tokenizer."""

    def __init__(self, source: Source, shape: Shape):
        self.shape = shape
        self.tokenizer = _opened(source)

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids with what stands around them. SigLIP's are always as many as it has places, and of lower-case letters."""
        if not texts:
            return []
        fills = self.shape.family != "clip"
        given = [text.lower() for text in texts] if fills else list(texts)
        padding = "max_length" if fills else "do_not_pad"
        return self.tokenizer(given, truncation=True, max_length=self.shape.text.length, padding=padding)["input_ids"]

    def vocabulary(self) -> dict[str, int]:
        """Every piece with its id."""
        return dict(self.tokenizer.get_vocab())

    def shown(self, ids: Sequence[int]) -> list[str]:
        """The letters of each piece; none for those that stand around a text or fill it up."""
        special, names = set(self.tokenizer.all_special_ids), {place: name for name, place in self.vocabulary().items()}
        return ["" if one in special else names.get(one, "").removesuffix(END).strip(BEGIN) for one in ids]


def _opened(source: Source) -> Tokenizer:
    try:
        import transformers
    except (ImportError, RuntimeError):
        raise BadInput(f"{source.name} needs the package transformers: pip install 'matchlight[backbones]'") from None
    clip = getattr(transformers, "CLIPTokenizerFast", None) or transformers.CLIPTokenizer  # two names before version 5
    kind = clip if source.is_open_clip and not _names_another(source) else transformers.AutoTokenizer
    try:
        with _quiet():
            made = kind.from_pretrained(str(source.folder), trust_remote_code=False, local_files_only=True)
        return cast(Tokenizer, made)
    except Exception as problem:  # a file that is missing or broken: each kind of tokenizer has its own exceptions
        why = " ".join(str(problem).split())[:160] or type(problem).__name__
        wanted = "tokenizer.json, or vocab.json and merges.txt, or spiece.model"
        raise BadInput(f"{source.name}: its tokenizer cannot be read ({why}); {wanted} should be there") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's remarks about settings that concern other uses of a model."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _names_another(source: Source) -> bool:
    """Whether an open_clip model says that its captions are not read as CLIP's are."""
    model = source.json("open_clip_config.json").get("model_cfg")
    text = model.get("text_cfg") if isinstance(model, dict) else None
    return isinstance(text, dict) and bool(text.get("hf_tokenizer_name")) and not _is_clip(source.folder)


def _is_clip(folder: Path) -> bool:
    return (folder / "merges.txt").is_file()
