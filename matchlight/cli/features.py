"""`matchlight data features`: what pictures look like to a network, by this process or by many."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from matchlight.cli.data import Out, Source, data, finished
from matchlight.cli.options import ClusterOptions, Json, choice, command_of

if TYPE_CHECKING:
    from matchlight.pairs import Pairs


@dataclass(kw_only=True)
class FeatureOptions(ClusterOptions):
    """The options of `matchlight data features`."""

    path: Source
    out: Out
    backbone: Annotated[
        str,
        typer.Option(
            metavar="auto|lite0|lite1|lite2|tinyvit-5m|dinov2-small|timm:NAME|hf:NAME", help="The picture network."
        ),
    ] = "lite0"
    detector: Annotated[
        str | None, typer.Option(metavar="hf:NAME", help="Regions by a detector (DETR, OWLv2) instead of a grid.")
    ] = None
    regions: Annotated[int, typer.Option(min=1, help="With --detector: regions a picture, the best ones.")] = 36
    kind: Annotated[str, choice("--kind", ("grid", "pooled"), "A vector a grid cell, or one a picture.")] = "grid"
    tokens: Annotated[str, choice("--tokens", ("both", "cells", "class"), "What is read of a vision transformer.")] = (
        "both"
    )
    cells: Annotated[
        str | None, typer.Option(metavar="ROWSxCOLUMNS", help="Average its patches to so many cells at most.")
    ] = None
    device: Annotated[str, choice("--device", ("auto", "cpu", "cuda"), "Where the network runs.")] = "auto"
    runtime: Annotated[
        str, choice("--runtime", ("auto", "torch", "torch-bf16", "onnx", "onnx-int8"), "What computes it on a CPU.")
    ] = "auto"
    as_json: Json = False


@command_of(FeatureOptions)
def features(asked: FeatureOptions) -> None:
    """Compute picture features once and write them with the captions as a data set of their own.

    Rows keep their order. `matchlight data convert --to scan` turns the result into the layout other tools read.

    Example: matchlight data features my_photos -o my_features --kind pooled
    """
    from matchlight.console import BadInput
    from matchlight.data import formats
    from matchlight.files import new_folder
    from matchlight.inputs import features as stores
    from matchlight.inputs.backbones.base import known_runtime
    from matchlight.inputs.backbones.vision_transformer import TokenChoice, known_tokens
    from matchlight.inputs.weights.ordinary_names import settled

    if asked.spread:
        _spread_features(asked)
        return
    pairs = formats.read(asked.path)
    if pairs.features is not None:
        raise BadInput(f"{asked.path}: holds features already; `matchlight data convert` writes them in other formats")
    if asked.detector is not None:
        _regions(pairs, asked)
        return
    choice_of_tokens = TokenChoice.written(known_tokens(asked.tokens), asked.cells)
    with new_folder(asked.out) as folder:  # refuses a folder in use before the network runs
        backbone = settled(asked.backbone, "picture", asked="--backbone")
        network = stores.backbone(backbone, choice=choice_of_tokens)
        network.runtime = known_runtime(asked.runtime)
        store = stores.extract(pairs, backbone=network, kind=asked.kind, device=asked.device)
        formats.write(
            replace(pairs, features=store, pictures=None), folder, to="npz"
        )  # any number of captions, rows in order
    finished({"out": asked.out, "backbone": backbone, "kind": asked.kind, "shape": store.shape}, asked.as_json)


def _spread_features(asked: FeatureOptions) -> None:
    """The same by many processes, as Parquet shards."""
    from matchlight.console import BadInput
    from matchlight.inputs.backbones.vision_transformer import TokenChoice, known_tokens
    from matchlight.inputs.features.spread import FeatureSettings, spread_features
    from matchlight.inputs.weights.ordinary_names import settled

    if asked.detector is not None:
        raise BadInput("--detector: regions are found by one process; leave --engine away")
    choice_of_tokens = TokenChoice.written(known_tokens(asked.tokens), asked.cells)
    device = "cuda" if asked.device == "cuda" else "cpu"
    backbone = settled(asked.backbone, "picture", asked="--backbone")
    settings = FeatureSettings(backbone, asked.kind, choice_of_tokens, asked.runtime, device)
    with asked.on_cluster(device) as workers:
        written = spread_features(workers, asked.path, asked.out, settings)
    finished(written, asked.as_json)


def _regions(pairs: Pairs, asked: FeatureOptions) -> None:
    """Features, boxes and classes of the regions that a detector finds."""
    from matchlight.data import formats
    from matchlight.files import new_folder
    from matchlight.inputs.features.detectors import detect

    with new_folder(asked.out) as folder:
        found = detect(pairs, str(asked.detector), device=asked.device, regions=asked.regions)
        formats.write(found.put_into(pairs), folder, to="npz")
    finished({"out": asked.out, "detector": asked.detector, "shape": found.features.shape}, asked.as_json)


def register(app: typer.Typer) -> None:
    """Add the command to `matchlight data`."""
    data.command()(features)
