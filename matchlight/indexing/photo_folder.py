"""An index that follows a folder: what is new, changed or gone since the last look is added and removed.

Beside the versions of the index, `photos.json` says which folder it is of, which model reads it, and a digest of every
file that was looked at. What the index itself holds is asked of the index: a look that was stopped half way is made
good by the next one, whatever it left undone.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from matchlight import files
from matchlight.console import BadInput, say
from matchlight.data import cache
from matchlight.data.content import stamps
from matchlight.indexing import versions
from matchlight.indexing.index import Index
from matchlight.inputs.preprocessing import UNREADABLE
from matchlight.pairs import Pairs
from matchlight.runs.folder import Run
from matchlight.runs.hub_runs import found
from matchlight.runs.seen import weights_mark
from matchlight.runs.starters import run_folder

FILE = "photos.json"
INDEXES = "photos"  # in the cache folder, untouched by its cap and by `data cache --clear`
MOSTLY = 0.5  # share of the pictures that may change before all of the index is built anew
LOOK_EVERY = 3.0  # seconds between two looks at a folder that is watched


@dataclass(frozen=True)
class Look:
    """What a look at the folder found and did."""

    index: Path
    model: str
    pictures: int  # in the index now
    added: int
    changed: int
    removed: int
    broken: int  # files that cannot be read as pictures
    seconds: float

    @property
    def did_something(self) -> bool:
        """Whether the index is another one now."""
        return bool(self.added or self.changed or self.removed)

    def to_json(self) -> dict[str, object]:
        """As `--json` prints it."""
        return asdict(self)


@dataclass(frozen=True)
class Noted:
    """What `photos.json` says."""

    folder: str
    model: str  # as it was named
    weights: str  # changes when the model does
    seen: dict[str, str]  # name -> digest of picture and captions, of every file that was looked at

    @staticmethod
    def read(root: Path) -> Noted | None:
        """None where nothing usable is there."""
        value = cache.read_json(root / FILE)
        if value is None or not isinstance(value.get("seen"), dict):
            return None
        return Noted(str(value.get("folder")), str(value.get("model")), str(value.get("weights")), value["seen"])

    def write(self, root: Path) -> None:
        """Beside the versions of the index."""
        files.write_json(root / FILE, asdict(self))


@dataclass(frozen=True)
class Change:
    """Names of files that are new, that changed and that are gone; `is_large` where most of the folder is."""

    new: list[str]
    changed: list[str]
    gone: list[str]
    is_large: bool

    @staticmethod
    def between(before: dict[str, str], now: dict[str, str]) -> Change:
        """What happened from one look to the next."""
        new = [name for name in now if name not in before]
        changed = [name for name, digest in now.items() if name in before and before[name] != digest]
        gone = [name for name in before if name not in now]
        return Change(new, changed, gone, is_large=len(new) + len(changed) > MOSTLY * len(now))

    @property
    def names(self) -> list[str]:
        """All of them."""
        return [*self.new, *self.changed, *self.gone]


def usual_place(folder: Path) -> Path:
    """Where the index of a folder is unless another place is named: in the cache, by the folder's name and path."""
    where = folder.resolve()
    mark = hashlib.sha256(str(where).encode("utf-8", "replace")).hexdigest()[:12]
    name = re.sub(r"[^\w.-]+", "_", where.name)[:40] or "folder"
    return cache.folder() / INDEXES / f"{name}-{mark}"


def follow(folder: Path, model: str, out: Path | None = None, *, device: str = "auto") -> Look:
    """Look at a folder and bring its index up to date; the first look builds it."""
    began, root = time.monotonic(), out or usual_place(folder)
    before = Noted.read(root)
    if before is not None and before.folder != str(folder.resolve()):
        raise BadInput(f"{root}: is the index of {before.folder}; choose another -o")
    pairs = Pairs.read(folder)
    now = Noted(str(folder.resolve()), model, weights_mark(run_folder(found(model))), _digests(pairs))
    change = Change.between({} if before is None else before.seen, now.seen)
    anew = before is None or before.weights != now.weights or change.is_large or not versions.is_index(root)
    if anew:
        Index.build(Run.load(model, device=device), pairs, root).close()
    elif change.names:
        _update(root, pairs, now, change, device)
    if anew or change.names:
        now.write(root)
    return _look(root, now, change, time.monotonic() - began)


def watch(look: Callable[[], Look], *, stopped: Callable[[float], bool]) -> None:
    """Look every few seconds until `stopped`, which waits so long, is true; what goes wrong is said and tried again."""
    problem = ""
    while not stopped(LOOK_EVERY):
        try:
            found, problem = look(), ""
        except (BadInput, OSError) as error:  # a folder on a disk that was taken out, a file half written
            if str(error) != problem:
                problem = str(error)
                say(problem)
            continue
        if found.did_something:
            say(in_a_sentence(found))


def in_a_sentence(look: Look) -> str:
    """What a look did, for a person."""
    done = [(look.added, "new"), (look.changed, "changed"), (look.removed, "gone")]
    said = ", ".join(f"{count:,} {word}" for count, word in done if count) or "nothing new"
    lost = f"; {look.broken:,} cannot be read" if look.broken else ""
    return f"{look.pictures:,} pictures ({said}{lost}) in {look.seconds:.1f} s"


def _digests(pairs: Pairs) -> dict[str, str]:
    """Name -> what tells this picture and its captions from any other."""
    if pairs.pictures is None:
        raise BadInput(f"{pairs.root}: has features and no pictures; `matchlight index` takes those")
    said: list[list[str]] = [[] for _ in pairs.names]
    for row, picture in enumerate(pairs.picture.tolist()):
        said[picture].append(pairs.captions[row])
    marks = zip(pairs.names, stamps(pairs.pictures), said, strict=True)
    return {str(name): _with_captions(stamp, captions) for name, stamp, captions in marks}


def _with_captions(stamp: str, captions: list[str]) -> str:
    if not captions:
        return stamp
    text = "\0".join(captions).encode("utf-8", "replace")
    return f"{stamp}+{hashlib.blake2b(text, digest_size=8).hexdigest()}"


def _update(root: Path, pairs: Pairs, now: Noted, change: Change, device: str) -> None:
    """Add first and remove then, so that a picture which is there before and after is found all the while.

    What is about to change is noted as unknown, so that a look after a kill does it again.
    """
    replace(now, seen={**now.seen, **dict.fromkeys(change.names, "")}).write(root)
    with Index.load(root, device=device, verify=False) as index:
        known: dict[str, list[int]] = {}
        for one in index.ids.tolist():
            known.setdefault(index.item(one)["name"], []).append(one)
        fresh = _readable(pairs, {*change.new, *change.changed})
        if len(fresh):
            index.add(pairs.select(fresh, np.flatnonzero(np.isin(pairs.picture, fresh))))
        if old := [one for name in change.names for one in known.get(name, ())]:
            index.remove(old)


def _readable(pairs: Pairs, names: set[str]) -> np.ndarray:
    """Places of the pictures of these names that can be opened: a file half copied must not stop the others."""
    assert pairs.pictures is not None
    places = []
    for place in (place for place, name in enumerate(pairs.names) if str(name) in names):
        with suppress(*UNREADABLE):
            pairs.pictures.open(place)
            places.append(place)
    return np.array(places, dtype=np.int64)


def _look(root: Path, now: Noted, change: Change, seconds: float) -> Look:
    folder, _ = versions.current(root, verify=False)
    pictures = int(files.read_json(folder / "index.json", "an index")["pictures"])
    return Look(
        index=root,
        model=now.model,
        pictures=pictures,
        added=len(change.new),
        changed=len(change.changed),
        removed=len(change.gone),
        broken=len(now.seen) - pictures,
        seconds=seconds,
    )
