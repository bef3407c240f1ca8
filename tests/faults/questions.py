"""Requests to the page's API that nobody means: in process by the thousand, and by raw sockets as no library sends.

Every answer is below 500 and tells nothing of the machine; decisions that were refused are not in the journal; after
all of it the server still answers, and says nothing on stderr.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from tests.faults import children
from tests.faults.damage import ESCAPE, ODD_VALUES, OUTSIDE, SECRET, replaced
from tests.faults.ledger import Case, Outcome
from tests.faults.stages import World

BATCHES, IN_PROCESS = 24, 500  # of requests in process
SOCKETS, RAW = 13, 100
AT = "http://127.0.0.1:8000"
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH")
WORDS = (
    "a red ball",
    "",
    " ",
    "%",
    "x" * 3_000,
    ESCAPE,
    "\ud800",
    "ред",
    "' OR 1=1 --",
    "{{7*7}}",
    "<script>",
    "🦊" * 40,
)
NUMBERS = ("", " 1", *"0 3 -1 1e9 nan inf 99999999999999999999999 0x10 1.5 null [] ٣ 1;2".split())
PLACES = """/ /api/health /api/metrics /api/about /api/map /api/search /api/search /api/search/image /api/items
    /api/items/{n} /api/items/{n}/explain /api/items/{n}/neighbours /api/items/{n}/captions /images/{n} /api/review
    /api/review/decisions.csv /api/review/{n} /api/review/undo /page/{w} /openapi.json /{w}""".split()
ASKED = "q top find where inside count seed limit offset below state size exact token x".split()
FILTERS = """1,1;2,2;3,1 nan,1;1,1;2,2 inf,inf;1,1;2,2 split=test label=ball name=../ __class__=1
    image small full open""".split()
TYPES = ("application/json", "text/plain", "multipart/form-data", "multipart/form-data; boundary=b", "x; charset=utf-7")
HEADERS = {
    "host": ("evil.example", "127.0.0.1:99999", "", "localhost@evil", "127.0.0.1:8000"),
    "origin": ("http://evil.example", "null", "file://", AT),
    "content-type": TYPES,
    "authorization": ("Bearer x", "Bearer", "Basic eDp5", "Bearer " + "x" * 2_000),
    "x-forwarded-for": ("1.2.3.4", "x" * 200),
    "range": ("bytes=0-0,5-1", "bytes=-1"),
    "if-none-match": ("*", '"x"'),
}
DECISION = {"decision": "keep", "note": "", "row": 4, "version": 1}


def requests(world: World, *, batches: int = BATCHES, sockets: int = SOCKETS) -> Iterator[Case]:
    """Batches of them, each to a server of its own."""
    for number in range(batches):
        yield Case("requests", "in process", "odd requests", number, partial(_asked, world, number))
    for number in range(sockets):
        yield Case("requests", "raw sockets", "odd bytes", number, partial(_sent, world, number))


def _collection(world: World, folder: Path) -> tuple[Path, Path, Path]:
    """An index, its data, and an audit of it that reviewers may write to."""
    base = world.has("collection", _build)
    audit = Path(shutil.copytree(base / "audit", folder / "audit"))
    return base / "index", base / "shapes", audit


def _build(path: Path) -> None:
    from tests.serving import audit_of, build

    path.mkdir()
    build(path)
    audit_of(path / "shapes", path / "audit")


# ---- in process ------------------------------------------------------------------------------------------------------


def _asked(world: World, seed: int, folder: Path) -> Outcome:
    index, data, audit = _collection(world, folder)
    (folder / "secret.txt").write_text(SECRET)
    work = partial(_ask_many, index, data, audit, seed, folder / "found.json")
    ended = children.Child(["--version"], cache=folder / "cache", before=work).wait()
    if ended.code or "Traceback" in ended.err:
        return Outcome(False, "ended", ended.err[-600:], ended.peak, IN_PROCESS)
    found = json.loads((folder / "found.json").read_text())
    if found["wrong"]:
        return Outcome(False, "answered wrongly", str(found["wrong"][:3])[:600], ended.peak, IN_PROCESS)
    return Outcome(True, "answered below 500", json.dumps(found["codes"]), ended.peak, sum(found["codes"].values()))


def _ask_many(index: Path, data: Path, audit: Path, seed: int, out: Path) -> None:
    from starlette.testclient import TestClient

    from matchlight.serve import create
    from matchlight.serve.rules import Limits

    limits = Limits(upload_bytes=300_000, upload_pixels=1_000_000, body_bytes=8_000, body_seconds=5)
    app = create(index, audit=audit, data=data, limits=limits)
    chance, codes, wrong = np.random.default_rng(seed), Counter[int](), []
    with TestClient(app, base_url=AT, raise_server_exceptions=False) as client:
        while codes.total() < IN_PROCESS:
            try:
                asked = client.build_request(**_request(chance))
            except Exception:  # the client's library does not send such a one
                continue
            answer = client.send(asked)
            codes[answer.status_code] += 1
            if answer.status_code >= 500 or any(word in answer.text for word in ("Traceback", SECRET, "root:")):
                wrong.append([asked.method, str(asked.url), answer.status_code, answer.text[:200]])
        if client.get("/api/health").status_code != 200:
            wrong.append(["the server does not answer any more"])
    out.write_text(json.dumps({"codes": codes, "wrong": wrong}))


def _one(chance: np.random.Generator, some: Sequence[str]) -> str:
    return some[chance.integers(len(some))]


def _request(chance: np.random.Generator) -> dict[str, object]:
    """The parts of one request, drawn at random; about a third of them are in order but for one thing."""
    place = _one(chance, PLACES).format(n=_one(chance, NUMBERS), w=_one(chance, (*OUTSIDE, *WORDS, "main.js")))
    asked = {
        _one(chance, ASKED): _one(chance, (*WORDS, *NUMBERS, *FILTERS, *OUTSIDE)) for _ in range(chance.integers(5))
    }
    if "search" in place and chance.random() < 0.7:
        asked |= {"q": _one(chance, WORDS)}
    headers = {name: _one(chance, values) for name, values in HEADERS.items() if chance.random() < 0.08}
    sent = place.endswith(("image", "undo")) or (place.startswith("/api/review/") and chance.random() < 0.5)
    method = _one(chance, METHODS) if chance.random() < 0.2 else "POST" if sent else "GET"
    whole: dict[str, object] = {"method": method, "url": place, "params": asked, "headers": headers}
    return whole | _body(chance, place) if method in ("POST", "PUT", "PATCH") else whole


def _body(chance: np.random.Generator, place: str) -> dict[str, object]:
    if place.endswith("image") or chance.random() < 0.2:
        return {"files": {_one(chance, ("file", "image", "")): (_one(chance, ("a.png", *OUTSIDE)), _picture(chance))}}
    if chance.random() < 0.6:
        return {"content": json.dumps(replaced(DECISION, chance)).encode("utf-8", "surrogatepass")}
    junk = (b"", b"[" * 5_000, b"\xff\xfe", b"1e999", b'"\\ud800"', bytes(9_000), json.dumps(ODD_VALUES[:8]).encode())
    return {"content": junk[chance.integers(len(junk))]}


def _picture(chance: np.random.Generator) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    kind = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")[chance.integers(6)]
    Image.new("RGB", (24, 18), (200, 120, 40)).save(file, kind)
    raw = bytearray(file.getvalue())
    for _ in range(int(chance.integers(0, 9))):
        raw[chance.integers(len(raw))] = chance.integers(256)
    return bytes(raw[: int(chance.integers(1, len(raw)))]) if chance.random() < 0.3 else bytes(raw)


# ---- raw sockets -----------------------------------------------------------------------------------------------------


def _sent(world: World, seed: int, folder: Path) -> Outcome:
    index, _, audit = _collection(world, folder)
    child = children.Child(["serve", index, "--audit", audit, "--port", 0], cache=folder / "cache")
    chance, codes = np.random.default_rng(1000 + seed), Counter[str]()
    try:
        port = _port(child)
        for _ in range(RAW):
            codes[_exchange(port, _raw_bytes(chance))] += 1
        healthy = _exchange(port, _head("GET /api/health HTTP/1.1", HOST, "Connection: close"))
    finally:
        os.kill(child.pid, signal.SIGTERM)
        ended = child.wait()
    bad = [code for code in codes if code.startswith("5")]
    if ended.code or "Traceback" in ended.err or healthy != "200" or bad:
        note = f"health {healthy}, {dict(codes)}, exit {ended.code}: {ended.err[-300:]}"
        return Outcome(False, "server", note, ended.peak, RAW)
    return Outcome(True, "answered or closed", json.dumps(codes), ended.peak, RAW)


def _port(child: children.Child) -> int:
    """The port that the server printed, once it listens there."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        said = os.pread(child.out.fileno(), 200, 0).decode()
        if said.startswith("http://") and "\n" in said:
            port = int(said.split("/")[2].split(":")[1])
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=10).close()
                return port
        time.sleep(0.02)
    raise TimeoutError("the server does not listen")


def _exchange(port: int, raw: bytes) -> str:
    """The status of the first answer; `closed` or `waits` where none comes."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        try:
            sock.sendall(raw)
            sock.shutdown(socket.SHUT_WR)
            sock.settimeout(5)
            answer = sock.recv(64)
        except TimeoutError:
            return "waits"
        except OSError:
            return "closed"
    return answer.split(b" ")[1].decode("ascii", "replace") if answer.startswith(b"HTTP/1.") else "closed"


HOST = "Host: 127.0.0.1"


def _head(first: str, *lines: str, body: bytes = b"") -> bytes:
    return "\r\n".join([first, *lines, "", ""]).encode("latin-1") + body


def _post(*lines: str, body: bytes = b"hello", to: str = "/api/review/4") -> bytes:
    return _head(f"POST {to} HTTP/1.1", HOST, *lines, body=body)


TARGETS = ("/", "/" + "a" * 70_000, "/images/..%2fetc%2fpasswd", "/%ff%00", "http://evil/", "/api/search?q=\xff", "*")
FIRSTS = (
    "GET / HTTP/9.9",
    "GET /",
    "G\0T / HTTP/1.1",
    "PRI * HTTP/2.0",
    "OPTIONS * HTTP/1.1",
    "CONNECT evil:443 HTTP/1.1",
)
HEADS = (
    *(_head(f"GET {target} HTTP/1.1", HOST) for target in TARGETS),
    *(_head(first, HOST) for first in FIRSTS),
    _head("GET / HTTP/1.1"),
    _head("GET / HTTP/1.1", "Host: a", "Host: b"),
    _head("GET / HTTP/1.1", HOST, *["X: y"] * 5_000),
    _head("GET / HTTP/1.1", HOST, "X: a", " b"),
    _head("GET / HTTP/1.1", HOST, "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: eA=="),
    b"GET / HTTP/1.1\nHost: 127.0.0.1\n\n",
    b"\x16\x03\x01\x02\x00\x01",
    b"\r\n\r\n\r\n",
    _post("Content-Length: 5", "Content-Length: 50"),
    _post("Content-Length: -5"),
    _post("Content-Length: 99999999999999"),
    _post("Transfer-Encoding: chunked", body=b"ffffffffffffffff\r\nx"),
    _post("Transfer-Encoding: chunked", "Content-Length: 4", body=b"0\r\n\r\n"),
    _post(f"Content-Type: {TYPES[3]}", "Content-Length: 9", body=b"--b\r\n\r\n--", to="/api/search/image"),
)


def _raw_bytes(chance: np.random.Generator) -> bytes:
    """A head, perhaps cut, perhaps with a few bytes changed, perhaps with another behind it."""
    raw = bytearray(HEADS[chance.integers(len(HEADS))])
    for _ in range(int(chance.integers(0, 6))):
        raw[chance.integers(len(raw))] = chance.integers(256)
    if chance.random() < 0.2:
        raw = raw[: int(chance.integers(1, len(raw)))]
    return bytes(raw) + (HEADS[chance.integers(len(HEADS))] if chance.random() < 0.2 else b"")
