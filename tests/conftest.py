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
