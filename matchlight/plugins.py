"""Plug-ins: methods, formats, backbones and search engines, ours and other people's, reached the same way.

A package adds one by naming it in its pyproject.toml; nothing of Matchlight is changed:

    [project.entry-points."matchlight.formats"]
    coco = "my_package.coco:Coco"

Our own are listed below in the same "module:attribute" notation. Listing names imports nothing; a plug-in is imported
when it is used. One that cannot be imported is one line and stops only what asked for it by name. What an entry has to
be is written where it is used: `data/formats/base.py`, `inputs/backbones/base.py`, `indexing/engines`, `methods`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import NamedTuple, NoReturn

from matchlight.console import BadInput, say

BUILT_IN: dict[str, dict[str, str]] = {
    "methods": {
        "vse++": "matchlight.methods.vse:METHODS",
        "vse_infty": "matchlight.methods.vse:METHODS",
        "scan": "matchlight.methods.scan:METHODS",
        "bfan": "matchlight.methods.bfan:METHODS",
        "imram": "matchlight.methods.imram:METHODS",
        "sgr": "matchlight.methods.sgraf:METHODS",
        "saf": "matchlight.methods.sgraf:METHODS",
        "sgraf": "matchlight.methods.sgraf:METHODS",
        "vsrn": "matchlight.methods.vsrn:METHODS",
        "pvse": "matchlight.methods.pvse:METHODS",
        "pcme": "matchlight.methods.pcme:METHODS",
        "dive": "matchlight.methods.dive:METHODS",
        "lantern": "matchlight.methods.lantern:METHODS",
        "ncr": "matchlight.methods.ncr:METHODS",
        "ncr+": "matchlight.methods.ncr_plus:METHODS",
        "aoq": "matchlight.methods.aoq:METHODS",
        "mrl": "matchlight.methods.mrl:METHODS",
        "semantic_sharing": "matchlight.methods.semantic_sharing:METHODS",
        "dscmr": "matchlight.methods.dscmr:METHODS",
        "sdml": "matchlight.methods.sdml:METHODS",
        "deep_sm": "matchlight.methods.deep_sm:METHODS",
        "fgcrossnet": "matchlight.methods.fgcrossnet:METHODS",
        "dccae": "matchlight.methods.dccae:METHODS",
        "dual": "matchlight.methods.dual:METHODS",
    },
    "formats": {  # in the order they are asked whether a path is theirs
        "jsonl": "matchlight.data.formats.jsonl:JsonLines",
        "npz": "matchlight.data.formats.pairs_npz:PairsNpz",
        "feature-shards": "matchlight.data.formats.feature_shards:FeatureShards",
        "scan": "matchlight.data.formats.scan_folder:ScanFolder",
        "wikipedia": "matchlight.data.formats.labelled:Wikipedia",
        "roi": "matchlight.data.formats.roi:RegionsAndTags",
        "coco": "matchlight.data.formats.coco:Coco",
        "karpathy": "matchlight.data.formats.karpathy:Karpathy",
        "token": "matchlight.data.formats.token_file:TokenFile",
        "urls": "matchlight.data.formats.url_tables:UrlTables",
        "csv": "matchlight.data.formats.csv_tables:Csv",
        "parquet": "matchlight.data.formats.parquet:Parquet",
        "webdataset": "matchlight.data.formats.webdataset:WebDataset",
        "arrow": "matchlight.data.formats.arrow_folder:ArrowFolder",
        "datasets": "matchlight.data.formats.hub_data:HubFolder",
        "clip-retrieval": "matchlight.data.formats.clip_retrieval:ClipRetrieval",
        "texts": "matchlight.data.formats.text_files:TextFiles",
        "splits": "matchlight.data.formats.split_folders:SplitFolders",
        "labelled": "matchlight.data.formats.labelled:LabelSet",
        "pictures": "matchlight.data.formats.pictures_alone:PicturesAlone",  # after other packages' too
    },
    "backbones": {
        "lite0": "matchlight.inputs.backbones.lite_backbones:Lite0",
        "lite1": "matchlight.inputs.backbones.lite_backbones:Lite1",
        "lite2": "matchlight.inputs.backbones.lite_backbones:Lite2",
        "tinyvit-5m": "matchlight.inputs.backbones.tiny_vit_backbone:TinyVit5M",
        "starter-small": "matchlight.runs.starter_backbone:StarterPictures",
        "timm": "matchlight.inputs.backbones.timm_backbones:TimmBackbone",
        "hf": "matchlight.inputs.backbones.hub_backbones:HubBackbone",
    },
    "engines": {
        "faiss": "matchlight.indexing.engines.faiss:Faiss",
        "milvus": "matchlight.indexing.engines.milvus:Milvus",
    },
}


class PlugIn(NamedTuple):
    """One entry of a group: what it is called, where it is, and who brings it."""

    group: str
    name: str
    address: str  # "module:attribute"
    package: str

    def load(self) -> object:
        """Import it; whatever goes wrong in a stranger's module is one line."""
        try:
            return resolve(self.address)
        except Exception as error:  # a module may raise anything while it is imported
            _refuse(self.failure(error), error)

    def failure(self, error: Exception) -> str:
        """One line: which plug-in of which package, and the error."""
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        whose = f"{self.package} brings {self.name!r} to matchlight.{self.group}"
        return " ".join(f"{whose}, but {self.address} cannot be loaded ({reason})".split())


def resolve(address: str) -> object:
    """What "module:attribute" names, imported now: the way to reach a higher layer without importing it at the top."""
    module, _, attribute = address.partition(":")
    value: object = import_module(module)
    for part in attribute.split("."):
        value = getattr(value, part)
    return value


def names(group: str) -> list[str]:
    """What there is in a group, ours first; nothing is imported."""
    return list(found(group))


def added(group: str) -> list[str]:
    """What other packages add to a group; nothing is imported."""
    return [name for name in found(group) if name not in BUILT_IN[group]]


def load(group: str, name: str) -> object:
    """One entry by name, imported; an unknown name says which are known."""
    known = found(group)
    if name not in known:
        _refuse(f"{name!r} is not among matchlight.{group}; known: {', '.join(known) or 'none'}")
    return known[name].load()


def working(group: str, *, built_in: bool = True) -> Iterator[tuple[str, object]]:
    """Name and value of each entry, imported one by one; one that cannot be imported is a line on stderr."""
    for name, plug_in in found(group).items():
        ours = name in BUILT_IN[group]
        if ours:
            if built_in:
                yield name, plug_in.load()
            continue
        try:
            value = resolve(plug_in.address)
        except Exception as error:
            warn_once(plug_in.failure(error))
        else:
            yield name, value


def found(group: str) -> dict[str, PlugIn]:
    """Every entry of a group by name: ours in their order, then those of installed packages."""
    return _found(group, tuple(sys.path))


@cache
def _found(group: str, path: tuple[str, ...]) -> dict[str, PlugIn]:
    """Looking through the installed packages takes tens of milliseconds; `path` is where they were looked for."""
    from importlib.metadata import entry_points  # not needed by `--help`

    known = {name: PlugIn(group, name, address, "matchlight") for name, address in BUILT_IN[group].items()}
    for entry in entry_points(group=f"matchlight.{group}"):
        package = entry.dist.name if entry.dist else "an unnamed package"
        plug_in = PlugIn(group, entry.name, entry.value, package)
        holder = known.setdefault(entry.name, plug_in)
        if (holder.package, holder.address) != (plug_in.package, plug_in.address):  # a package may be listed twice
            warn_once(
                f"{package} brings {entry.name!r} to matchlight.{group}, a name {holder.package} has already; "
                f"{holder.package}'s is used"
            )
    return known


@cache
def warn_once(line: str) -> None:
    """Say it once."""
    say(line)


def _refuse(line: str, cause: Exception | None = None) -> NoReturn:
    raise BadInput(line) from cause
