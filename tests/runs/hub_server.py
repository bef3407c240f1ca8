"""A small HTTP server that speaks what the Hugging Face hub's client asks for when it uploads and downloads a model."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@dataclass
class FakeHub:
    """Repositories by name, each a table of files; what was asked for."""

    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    refuse: int = 0  # answer every write with this code
    address: str = ""

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and content."""
        self.asked.append((method, path))
        if self.refuse and method == "POST":
            return self.refuse, {}, b"{}"
        if path == "/api/repos/create":
            about = json.loads(body)
            name = f"{about['organization']}/{about['name']}"
            self.repositories.setdefault(name, {})
            return 200, {}, json.dumps({"url": f"{self.address}/{name}"}).encode()
        if path.startswith("/api/models/"):
            return self._about(path, body)
        if "/resolve/" in path:
            name, _, rest = path[1:].partition("/resolve/")
            return self._file(name, rest.partition("/")[2])
        return 200, {}, b"{}"  # the check of a card's head, which the real hub makes too

    def _about(self, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        name = "/".join(path.split("/")[3:5])
        if name not in self.repositories:
            return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
        files = self.repositories[name]
        if "/preupload/" in path:
            asked = [one["path"] for one in json.loads(body)["files"]]
            wanted = [{"path": one, "uploadMode": "regular", "shouldIgnore": False} for one in asked]
            return 200, {}, json.dumps({"files": wanted}).encode()
        if "/commit/" in path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            made = {"commitUrl": f"{self.address}/{name}/commit/{self._mark(name)}", "commitOid": self._mark(name)}
            return 200, {}, json.dumps(made).encode()
        if "/tree/" in path:
            rows = [
                {"type": "file", "path": one, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for one, content in files.items()
            ]
            return 200, {}, json.dumps(rows).encode()
        about = {"id": name, "sha": self._mark(name), "siblings": [{"rfilename": one} for one in files]}
        return 200, {}, json.dumps(about | {"private": False, "tags": []}).encode()

    def _file(self, name: str, file: str) -> tuple[int, dict[str, str], bytes]:
        content = self.repositories.get(name, {}).get(file)
        if content is None:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        mark = hashlib.sha256(content).hexdigest()
        return 200, {"ETag": f'"{mark}"', "X-Repo-Commit": self._mark(name)}, content

    def _mark(self, name: str) -> str:
        """What a commit is called: changes with the files."""
        files = self.repositories[name]
        return hashlib.sha1(b"".join(one.encode() + files[one] for one in sorted(files))).hexdigest()


@contextmanager
def serving(patch: pytest.MonkeyPatch, cache: str) -> Iterator[FakeHub]:
    """A hub that this process' client talks to, with a cache of its own."""
    hub = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            code, headers, content = hub.answer(self.command, self.path.partition("?")[0], body)
            self.send_response(code)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_POST = do_HEAD = _answer  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    for name in ("HF_HUB_OFFLINE", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        patch.delenv(name, raising=False)
    patch.setenv("HF_ENDPOINT", hub.address)
    patch.setenv("HF_TOKEN", "hf_nobody")
    patch.setenv("HF_HUB_CACHE", cache)
    patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", cache)
    patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
