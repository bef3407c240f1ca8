"""What continuous integration runs: a browser is brought where none is, and its tests may not be skipped there."""

from __future__ import annotations

import shutil
import subprocess
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.conftest import pytest_collection_modifyitems

RUN = Path(__file__).parents[1] / ".ci" / "run"
TOOLS = ("bash", "env", "dirname", "id", "chmod")
MAKE = 'echo "make $*, browser $MATCHLIGHT_BROWSER" >>"$LOG"'
WORKS = 'echo "apt-get $*" >>"$LOG"; case "$*" in *install*) echo >"$BIN/chromium"; chmod +x "$BIN/chromium";; esac'
FAILS_ONCE = '[ -e "$BIN/tried" ] || { echo >"$BIN/tried"; exit 100; }; ' + WORKS


def ran(folder: Path, *, apt: str, chromium: bool = False) -> list[str]:
    """What `make` and `apt-get` were called with, in a place where nothing else can be called."""
    tools = folder / "bin"
    tools.mkdir()
    for name in TOOLS:
        (tools / name).symlink_to(shutil.which(name) or pytest.skip(f"no {name} here"))
    for name, text in {"make": MAKE, "apt-get": apt, "sleep": ":"}.items():
        (tools / name).write_text(f"#!{shutil.which('bash')}\n{text}\n")
        (tools / name).chmod(0o755)
    if chromium:
        (tools / "chromium").write_text("")
        (tools / "chromium").chmod(0o755)
    log = folder / "log"
    env = {"PATH": str(tools), "BIN": str(tools), "LOG": str(log), "HOME": str(folder)}
    subprocess.run([str(tools / "bash"), str(RUN)], env=env, check=True, timeout=30, capture_output=True)
    return log.read_text().splitlines()


LAST = "make test, browser required"


def test_a_browser_that_is_there_is_used(tmp_path: Path) -> None:
    assert ran(tmp_path, apt=WORKS, chromium=True) == [LAST]


@pytest.mark.parametrize("apt", [WORKS, FAILS_ONCE])
def test_a_browser_that_is_missing_is_installed_at_the_second_try_if_need_be(tmp_path: Path, apt: str) -> None:
    update, install, last = ran(tmp_path, apt=apt)
    assert update == "apt-get -qq update"
    assert install.startswith("apt-get -qq install -y") and install.endswith(" chromium")
    assert last == LAST


def test_without_a_browser_the_tests_still_run_and_say_so_themselves(tmp_path: Path) -> None:
    assert ran(tmp_path, apt="exit 100") == [LAST]


def shuffled(seed: int | None) -> list[tuple[str, int]]:
    items = [SimpleNamespace(path=file, number=number) for file in "abcd" for number in range(5)]
    pytest_collection_modifyitems(SimpleNamespace(getoption=lambda _: seed), items)
    return [(item.path, item.number) for item in items]


def test_a_seed_is_an_order_of_files_and_of_tests_in_each() -> None:
    plain = shuffled(None)
    assert plain == sorted(plain)
    assert shuffled(1) == shuffled(1) != shuffled(2)
    for order in (shuffled(1), shuffled(2)):
        assert sorted(order) == plain
        files = [file for file, _ in order]
        assert files == sorted(files, key=files.index) and [number for _, number in order[:5]] != [0, 1, 2, 3, 4]


@pytest.fixture(scope="module")
def shared() -> torch.Tensor:
    return torch.rand(1)


@pytest.fixture
def own() -> torch.Tensor:
    return torch.rand(1)


@pytest.mark.parametrize("time", ["first", "again"])
def test_what_is_drawn_depends_on_who_draws_alone(time: str, shared: torch.Tensor, own: torch.Tensor, request) -> None:
    torch.manual_seed(zlib.crc32(b"shared"))
    assert shared == torch.rand(1)
    torch.manual_seed(zlib.crc32(request.node.nodeid.encode()))
    assert own == torch.rand(1)
