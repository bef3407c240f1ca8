"""Which model an index has: the one that builds it, and the one that lies in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from matchlight import files
from matchlight.console import BadInput
from matchlight.indexing.given_model import GivenModel
from matchlight.indexing.index_model import WORDS, IndexModel, Info
from matchlight.indexing.onnx_model import OnnxModel
from matchlight.indexing.scorers import DotProduct
from matchlight.indexing.words_model import WordsModel
from matchlight.inputs.numpy_captions import NumpyCaptions
from matchlight.inputs.onnx_files import is_installed
from matchlight.inputs.onnx_towers import OnnxTowers
from matchlight.runs.given_recipe import VECTORS
from matchlight.runs.onnx_recipe import ONNX

if TYPE_CHECKING:
    from matchlight.runs.folder import Run


def model_of(run: Run | OnnxTowers) -> IndexModel:
    """A run, or an exported one, as what builds an index; torch is needed for a run alone."""
    if isinstance(run, OnnxTowers):
        return OnnxModel(run)
    if run.view.onnx:
        return OnnxModel(run.view.onnx_towers)
    from matchlight.indexing.run_model import RunModel

    return RunModel(run)


def open_model(folder: Path, device: str) -> IndexModel:
    """The model in an index; an exported one and given vectors are computed on the CPU, whatever the device."""
    info: Info = files.read_json(folder / "recipe.json", "a run's recipe")
    name = info.get("name") if isinstance(info, dict) else None
    if name == ONNX:
        files.check_version(info.get("version"), folder)
        towers = OnnxTowers.open(folder / Path(str(info["view"]["onnx"])).name)
        towers.check_dual()
        return OnnxModel(towers, info)
    if name == VECTORS:
        files.check_version(info.get("version"), folder)
        return GivenModel(info, folder)
    return _by_words(folder, info, device) or _open_run(folder, name, device)


def _by_words(folder: Path, info: Info, device: str) -> WordsModel | None:
    """A run whose words are read without torch, where no GPU is asked for."""
    if device not in ("auto", "cpu"):
        return None

    def opened() -> IndexModel:
        return _open_run(folder, info.get("name"), device)

    if (folder / WORDS).is_file() and is_installed():
        towers = OnnxTowers.open(folder / WORDS)
        return WordsModel(towers, info, opened, DotProduct(towers.info["scale"], towers.info["bias"]))
    captions = NumpyCaptions.of(folder, info)
    return None if captions is None else WordsModel(captions, info, opened, DotProduct())


def _open_run(folder: Path, name: object, device: str) -> IndexModel:
    """A run, by torch."""
    try:
        from matchlight.indexing.run_model import RunModel
    except ImportError as missing:
        if (missing.name or "").split(".")[0] != "torch":
            raise
        raise BadInput(
            f"{folder}: a model of {name} needs torch, which is not installed; "
            "only an index of an exported dual encoder (`matchlight export`) is searched without"
        ) from None
    return RunModel.open(folder, device)
