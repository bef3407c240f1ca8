"""Every test has its own cache folder and one thread: what a test finds depends on the test alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported, by whatever imports it

import torch  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MATCHLIGHT_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def parity() -> Path:
    """Numbers recorded from the authors' code; tests that need them are skipped where they are not."""
    folder = os.environ.get("MATCHLIGHT_PARITY")
    if not folder or not Path(folder).is_dir():
        pytest.skip("MATCHLIGHT_PARITY does not name a folder of recorded numbers")
    return Path(folder)


@pytest.fixture(scope="session")
def collection(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small real index and the data it was built of, made once; tests that change it take a copy."""
    from serving import build

    folder = tmp_path_factory.mktemp("collection")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MATCHLIGHT_CACHE", str(folder / "cache"))
        return build(folder)
