"""Every test has its own cache folder and one thread: what a test finds depends on the test alone.

`pytest --shuffle SEED` runs the tests in another order, to show that none depends on what ran before it.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import zlib
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported, by whatever imports it

import torch  # noqa: E402

from matchlight import devices  # noqa: E402

if TYPE_CHECKING:
    from matchlight.cluster.ray_workers import RayWorkers

torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run files, and the tests of each, in a random order")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A file's tests stay together, or its fixtures would be made again and again."""
    seed = config.getoption("shuffle")
    if seed is None:
        return
    chance = random.Random(seed)
    chance.shuffle(items)
    files = list(dict.fromkeys(item.path for item in items))
    items.sort(key=lambda item: files.index(item.path))


def pytest_collection_finish() -> None:
    """What is imported by now stays: the collector need not walk through torch again and again for what tests leave."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What a test draws depends on its name, not on what was drawn before it."""
    devices.seed(zlib.crc32(item.nodeid.encode()))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
    """What a shared fixture draws depends on its name, not on the test that asks for it first."""
    if fixturedef.scope == "function":
        return (yield)
    with torch.random.fork_rng(devices=[]):
        devices.seed(zlib.crc32(fixturedef.argname.encode()))
        return (yield)


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
def workers() -> Iterator[RayWorkers]:
    """A local Ray cluster of two processes, started once."""
    if find_spec("ray") is None:
        pytest.skip("the extra `ray` is not installed")
    from matchlight.cluster.ray_workers import ray_workers

    with ray_workers(cpus=min(2, len(os.sched_getaffinity(0)))) as started:
        yield started


@pytest.fixture(scope="session")
def collection(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small real index and the data it was built of, made once; tests that change it take a copy."""
    from serving import build

    folder = tmp_path_factory.mktemp("collection")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MATCHLIGHT_CACHE", str(folder / "cache"))
        return build(folder)


@pytest.fixture
def install_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Install a tiny package: its name, its module's text, and its entry points as {group: {name: address}}."""
    from matchlight import plugins

    def install(package: str, code: str, entries: dict[str, dict[str, str]]) -> None:
        folder = tmp_path / "installed" / package
        about = folder / f"{package}-1.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        sections = [f"[{group}]\n" + "\n".join(f"{n} = {a}" for n, a in e.items()) for group, e in entries.items()]
        (about / "entry_points.txt").write_text("\n\n".join(sections) + "\n")
        (folder / f"{package}.py").write_text(code)
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(sys.modules, package, raising=False)

    yield install
    plugins.warn_once.cache_clear()  # warnings are given once a process
