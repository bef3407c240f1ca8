"""One file from an address: goes on where an earlier try stopped, and counts only with the right size and sha256.

What has come so far lies beside the file as NAME.part, so a killed process loses at most a block.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPSHandler, Request, build_opener

from matchlight.console import download_progress
from matchlight.core import BadInput
from matchlight.files import FULL, is_full

BLOCK = 1 << 20
TRIES = 4  # of a connection that breaks off after some bytes came
PATIENCE = 60.0  # seconds without a byte
LOST = (URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError)


class Unreachable(BadInput):
    """A source that cannot be asked at all: another one may do."""


def sha256_of(path: Path) -> str:
    """A file's sha256."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_sha256(path: Path, wanted: str, *, source: str) -> None:
    """Refuse, and remove, a file that is not the known one."""
    digest = sha256_of(path)
    if digest != wanted:
        path.unlink()
        raise BadInput(
            f"{path.name} of {source}: sha256 {digest[:12]}... is not the known {wanted[:12]}...; it was thrown away"
        )


def download(address: str, path: Path, *, size: int, sha256: str, source: str) -> None:
    """Bring a file of known size and sha256 to `path`; one that is there already is checked, not fetched."""
    if path.is_file() and sha256_of(path) == sha256:
        return
    part = path.with_name(path.name + ".part")
    with written(part):
        resumed = _fetch(address, part, size=size, what=path.name)
        if resumed and sha256_of(part) != sha256:  # an earlier half of something else: once more, from the start
            part.unlink()
            _fetch(address, part, size=size, what=path.name)
        check_sha256(part, sha256, source=source)
        os.replace(part, path)


@contextmanager
def written(path: Path) -> Iterator[None]:
    """A disk without room, in one line."""
    try:
        yield
    except OSError as problem:
        if is_full(problem):
            raise BadInput(f"{path.parent}: {FULL}") from None
        raise


def _fetch(address: str, part: Path, *, size: int, what: str) -> bool:
    """All bytes into `part`; returns whether the first of them were there before."""
    found = _length(part)
    if found > size:
        part.unlink()
    resumed = 0 < found <= size
    for attempt in range(TRIES):
        before = _length(part)
        if before == size:
            return resumed
        try:
            _more(address, part, size=size, what=what)
        except HTTPError as problem:
            raise Unreachable(f"{what}: the registry answers {problem.code} ({problem.reason})") from None
        except LOST as problem:
            if _length(part) == before or attempt == TRIES - 1:
                raise Unreachable(_broken_off(part, size, what, problem)) from None
    if _length(part) != size:
        raise Unreachable(_broken_off(part, size, what, EOFError("it ends too early")))
    return resumed


def _more(address: str, part: Path, *, size: int, what: str) -> None:
    """One connection: append what comes after the bytes that are there, or begin anew where the server cannot."""
    start = _length(part)
    with _open(address, start) as response:
        start = start if response.status == 206 else 0
        with open(part, "r+b" if start else "wb") as file, download_progress(what, total=size, start=start) as bar:
            file.seek(start)
            for block in _blocks(response, size - start, what):
                file.write(block)
                bar(len(block))


def _blocks(response: http.client.HTTPResponse, most: int, what: str) -> Iterator[bytes]:
    while block := response.read(BLOCK):
        most -= len(block)
        if most < 0:
            raise BadInput(f"{what}: more bytes come than it has; it is not the known file")
        yield block


def _open(address: str, start: int) -> http.client.HTTPResponse:
    if urlsplit(address).scheme not in ("http", "https", "file"):
        raise BadInput(f"{address}: not an address that files are fetched from")
    request = Request(address, headers={"Range": f"bytes={start}-"} if start else {})
    opener = build_opener(HTTPSHandler(context=_certificates()))
    response: http.client.HTTPResponse = opener.open(request, timeout=PATIENCE)
    return response


def _certificates() -> ssl.SSLContext:
    """Those of the system, or of the file that pip or requests are told to use."""
    named = os.environ.get("PIP_CERT") or os.environ.get("REQUESTS_CA_BUNDLE")
    return ssl.create_default_context(cafile=named if named and Path(named).is_file() else None)


def _length(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _broken_off(part: Path, size: int, what: str, problem: BaseException) -> str:
    came = f"{_length(part) / 1e6:.0f} of {size / 1e6:.0f} MB came"
    reason = getattr(problem, "reason", None) or str(problem) or type(problem).__name__
    return f"{what}: the connection failed ({reason}); {came}, and the same command goes on from there"
