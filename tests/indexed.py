"""What the tests of indexes share: tiny trained runs, made once, and a Milvus server of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import matchlight as ml
from matchlight.pairs import Pairs
from matchlight.runs.folder import Run
from matchlight.training.registry import methods
from tests.tiny import tiny_pairs, tiny_settings

PICTURES = 40
HAS_MILVUS = find_spec("pymilvus") is not None and find_spec("milvus_lite") is not None
needs_milvus = pytest.mark.skipif(not HAS_MILVUS, reason="pymilvus and milvus-lite are not installed")


@cache
def pairs() -> Pairs:
    return tiny_pairs(PICTURES, 2)


@cache
def trained(name: str, **more: object) -> Run:
    """A run of two tiny epochs, trained once for all tests of a process."""
    settings = {**tiny_settings(methods()[name].defaults), "epochs": 1, **more}
    return ml.train(name, pairs(), None, device="cpu", **settings)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def milvus_server(folder: Path) -> Iterator[str]:
    """A real `milvus-lite server` on this machine alone, ended by its own handle."""
    port = free_port()
    program = Path(sys.executable).with_name("milvus-lite")
    if not program.exists():
        pytest.skip("no milvus-lite program beside this Python")
    command = [str(program), "server", "--data-dir", str(folder), "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ})
    try:
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if process.poll() is not None:
                    pytest.fail(f"milvus-lite server ended with {process.returncode}")
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def clustered(items: int, each: int, dim: int, *, seed: int = 0) -> np.ndarray:
    """(items, each, dim) unit vectors around a few centres."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(max(4, items // 20), dim))
    found = centres[rng.integers(0, len(centres), items)][:, None] + 0.7 * rng.normal(size=(items, each, dim))
    return (found / np.linalg.norm(found, axis=-1, keepdims=True)).astype(np.float32)
