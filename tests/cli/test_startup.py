"""How soon a command begins its work: what it must not import, counted in modules and never in seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from matchlight.indexing import Index
from matchlight.pairs import Pairs
from matchlight.runs.folder import Run
from tests.indexed import pairs, trained

HEAVY = {
    "torch",
    "numpy",
    "scipy",
    "sklearn",
    "pandas",
    "pyarrow",
    "matplotlib",
    "onnxruntime",
    "transformers",
    "faiss",
}


def modules_of(*arguments: str) -> set[str]:
    """Everything a command has imported when it is done."""
    code = (
        "import json, sys\nfrom matchlight.cli import main\n"
        f"assert main({list(arguments)!r}) == 0\n"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_help_imports_little() -> None:
    seen = modules_of("--help")
    assert not (HEAVY | {"importlib.metadata"}) & seen  # installed packages are looked through where one is asked for
    assert len(seen) < 380  # the command line and what it prints with; a number library alone is several hundred


def test_data_is_described_without_what_models_need(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "images" / "a.png")
    (tmp_path / "captions.jsonl").write_text('{"image": "a.png", "captions": ["one"]}\n')
    assert HEAVY & modules_of("data", "info", str(tmp_path), "--json") == {"numpy"}


@pytest.fixture(scope="module")
def small_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("small") / "index"
    Index.build(trained("vse_infty"), pairs(), out).close()
    return out


def test_a_search_imports_torch_and_its_engine_and_nothing_else_that_is_large(small_index: Path) -> None:
    seen = modules_of("search", str(small_index), "a dog", "--json", "--device", "cpu")
    assert HEAVY & seen == {"torch", "numpy", "faiss"}
    assert not {"torch.onnx", "torch._dynamo", "torch._inductor", "sympy", "matchlight.serve"} & seen


def test_a_search_of_a_starters_index_imports_no_torch(tmp_path: Path) -> None:
    pictures = [Image.new("RGB", (32, 32), color) for color in ("red", "green", "blue")]
    words = [["red"], ["green"], ["blue"]]
    Index.build(Run.load("starter-small", device="cpu"), Pairs.of(pictures, words), tmp_path / "index").close()
    assert HEAVY & modules_of("search", str(tmp_path / "index"), "a dog", "--json") == {"numpy", "faiss"}


def test_a_search_reads_its_sentence_encoder_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from matchlight.indexing.query_encoder import QueryEncoder

    run = Run.load("starter-small", device="cpu")
    monkeypatch.setattr("matchlight.inputs.sentence_encoders.sentence_encoder", lambda name: pytest.fail("read again"))
    ids, pieces, _ = QueryEncoder(run).tokens("a dog")
    assert pieces[1:3] == ["a", "dog"] and len(ids) == 4
