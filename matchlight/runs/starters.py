"""Starters: two trained runs that come with the package, so that any folder of pictures can be searched at once.

Their names are taken wherever a run is (`matchlight index starter-small --data my_photos -o index`), unless a run
folder of that name is here. Only what was learnt is shipped, in half precision: the sentence encoder comes with its own
package, save its last blocks, and the picture network of `starter` from `matchlight weights get dinov2-small`.
`starter-small` holds its whole picture network. `benchmarks/starter` made them; `docs/guides/photos.md` says of what,
and how good they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from matchlight.core import BadInput
from matchlight.inputs.weights import weight_store
from matchlight.inputs.weights.known_weights import CATALOGUE

SHIPPED = Path(__file__).with_name("shipped")
LICENCE = "weights Apache-2.0 (TinyViT: MIT); learnt from Flickr8k and COCO, whose photos are for research"
READER = "minilm"


@dataclass(frozen=True)
class Starter:
    """A run of the package."""

    name: str
    what: str
    backbone: str  # the picture network that it reads pictures with and that has to be fetched; none: it is in the file
    packages: tuple[str, ...]  # that have to be installed to read with it

    @property
    def folder(self) -> Path:
        """Where it is."""
        return SHIPPED / self.name

    @property
    def size(self) -> int:
        """Bytes of its weights."""
        return (self.folder / "model.safetensors").stat().st_size

    def lacks(self) -> str | None:
        """What it cannot do without and that is not on this machine: the name of weights, or of a package of pip."""
        wanted = [name for name in (self.backbone, READER) if name]
        absent = [name for name in wanted if weight_store.here(CATALOGUE[name]) is None]
        packages = [name for name in self.packages if find_spec(name) is None]
        return next(iter([*absent, *packages]), None)

    @property
    def fix(self) -> str:
        """The command that brings what it lacks."""
        lacks = self.lacks()
        fetched = f"matchlight weights get {lacks}"
        return fetched if lacks in CATALOGUE else f"pip install {lacks}"


LARGE = Starter("starter", "DINOv2-S and MiniLM, joined by heads", "dinov2-small", ("transformers", "tokenizers"))
SMALL = Starter("starter-small", "TinyViT taught by starter, and MiniLM", "", ("tokenizers",))
STARTERS = {starter.name: starter for starter in (LARGE, SMALL)}  # the better one first


def run_folder(named: str | Path) -> Path:
    """The folder that a run is named by: a starter's where the name is one and no run of that name is here."""
    folder = Path(named)
    starter = STARTERS.get(str(named))
    return folder if starter is None or (folder / "recipe.json").is_file() else starter.folder


def best_starter() -> Starter:
    """The best one that this machine has everything for."""
    ready = [starter for starter in STARTERS.values() if starter.lacks() is None]
    if not ready:
        raise BadInput(f"{SMALL.name} needs {SMALL.lacks()}, which is not here: `{SMALL.fix}`")
    return ready[0]
