"""What an audit may be asked for, and the folder that belongs to one audit alone."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

import numpy as np

from matchlight import files
from matchlight.auditing.cca_inputs import AUTO, OWN, picture_names, sized
from matchlight.auditing.item_vectors import caption_names
from matchlight.cluster.jobs import Workers
from matchlight.core import BadInput, Json
from matchlight.data.content import Extent, content_mark, digests
from matchlight.data.fingerprints import CONTENT, differing, fingerprint
from matchlight.data.formats.memory_pictures import Picture
from matchlight.inputs.given_vectors import Given, GivenVectors
from matchlight.pairs import Pairs
from matchlight.runs.folder import Run
from matchlight.runs.seen import weights_mark
from matchlight.training.arguments import Value

MANY = 400  # pictures that are enough for ten folds


@dataclass(frozen=True)
class Options:
    """How much work an audit may do."""

    split: str = "train"
    quick: bool = False  # train quick models as well: twenty times the work, for little or nothing
    folds: int | None = None  # each scored by models that did not see it; None: 5, and 10 without quick models
    models: int = 1  # quick models a fold, averaged
    seed: int = 0
    device: str = "auto"
    overrides: dict[str, Value] | None = None  # arguments of the quick recipe
    captions: str = "auto"  # compared by words and sentence encoders joined by "+"; auto: minilm if installed
    pictures: str = "auto"  # compared by own, or backbones joined by "+"; auto: own and lite0-2
    vectors: Given | None = None  # vectors of all pictures and captions that somebody made already
    also: Sequence[Run] = ()  # further runs to ask, none of them trained on these pairs
    notes: Sequence[str] = ()  # what the summary should say of the data
    workers: Workers | None = None  # many processes that share the work; None: this one alone

    def check_spread(self, run: Run | None) -> None:
        """One line where what is asked for is for one process."""
        asked = {"a run": run is not None, "further runs": bool(self.also), "quick models": self.quick}
        for what, given in (asked | {"given vectors": self.vectors is not None}).items():
            if self.workers is not None and given:
                raise BadInput(f"an audit with {what} is for one process; leave --engine away")


def fold_count(pairs: Pairs, rows: np.ndarray, options: Options) -> int:
    """Five; ten where a fit takes seconds and pictures are many enough: each then learns from nine tenths of them."""
    many = len(np.unique(pairs.picture[rows])) >= MANY
    return options.folds or (10 if many and not options.quick else 5)


class OptionArguments(TypedDict, total=False):
    """The same as keyword arguments of `audit`, which takes the split by itself."""

    quick: bool
    folds: int | None
    models: int
    seed: int
    device: str
    overrides: dict[str, Value] | None
    pictures: str
    vectors: Given | None
    also: Sequence[Run]
    notes: Sequence[str]
    workers: Workers | None


class AuditArguments(OptionArguments, total=False):
    """And the data in lists, in place of `pairs`: `captions` then are captions, else which encoders compare them."""

    images: Sequence[Picture] | None
    captions: str | Sequence[str | Sequence[str]]
    labels: Sequence[str] | None  # a class for each image


def as_seen(pairs: Pairs, vectors: GivenVectors | None, options: Options) -> Pairs:
    """The data as the audit's own models see them: given vectors in place of pictures, unless networks are named."""
    if vectors is None:
        return pairs
    seen = vectors.seen_by_vectors(pairs)
    return replace(seen, pictures=None) if picture_names(options.pictures) in ([AUTO], [OWN]) else seen


def settings(run: Run | None, pairs: Pairs, options: Options, vectors: GivenVectors | None = None) -> dict[str, Json]:
    """What an audit's folder belongs to."""
    overrides: dict[str, Json] | None = None if options.overrides is None else {**options.overrides}
    quick: dict[str, Json] = {"models": options.models, "overrides": overrides}
    return {
        "data": fingerprint(pairs),
        CONTENT: content_mark(pairs),
        "split": options.split,
        "seed": options.seed,
        "folds": options.folds,
        "captions": "+".join(caption_names(options.captions)),
        "pictures": "+".join(picture_names(options.pictures)),
        "encoders": _encoder_marks(options),
        "vectors": None if vectors is None else vectors.mark(),
        "quick": quick if options.quick else None,
        "run": None if run is None else _named(run),
        "also": [_named(one) for one in options.also] or None,
    }


def _encoder_marks(options: Options) -> dict[str, Json] | None:
    """What the folders of encoders hold that are named by their place: other weights there are another encoder."""
    names = [*(sized(name)[0] for name in picture_names(options.pictures)), *caption_names(options.captions)]
    folders = {name: Path(name[3:]) for name in names if name.startswith("hf:") and Path(name[3:]).is_dir()}
    marks: dict[str, Json] = {}
    for name, folder in folders.items():
        places = [Extent(str(file.resolve())) for file in sorted(folder.glob("*")) if file.is_file()]
        marks[name] = " ".join(str(one)[:12] for one in digests(str(folder.resolve()), places))
    return marks or None


def _named(run: Run) -> dict[str, Json]:
    """Which run is used; two of the same method, data and seed may still differ in epochs, or be trained further."""
    known = {name: run.info.get(name) for name in ("name", "data", "seed", "arguments")}
    return known | {"model": weights_mark(run.folder)}


def claim(folder: Path, settings: dict[str, Json]) -> bool:
    """A folder holds one audit: with other data or settings its finished parts must not be taken for this one's.

    True where the folder was free. Drafts that a killed process left in it go.
    """
    files.remove_leftovers(folder)
    path = folder / "settings.json"
    if path.exists():
        old = files.read_json(path, "an audit's settings")
        if not isinstance(old, dict):
            raise BadInput(f"{path}: no audit's settings; choose another -o")
        if differs := differing(old, settings):
            raise BadInput(f"{folder} holds another audit ({', '.join(differs)} differ); choose another -o")
        return False
    if not files.is_free(folder):
        raise BadInput(f"{folder}: not empty and not an audit; choose another -o")
    try:
        files.write_json(path, settings)
    except OSError as problem:
        raise BadInput(f"{folder}: cannot write there: {problem.strerror}") from None
    return True


def release(folder: Path, *, there: bool) -> None:
    """Take a claim back, and the folder with it unless it was `there` before."""
    shutil.rmtree(folder / "work", ignore_errors=True)
    (folder / "settings.json").unlink(missing_ok=True)
    if not there and not any(folder.iterdir()):
        folder.rmdir()
