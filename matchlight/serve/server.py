"""The application on an address: uvicorn with time limits for connections, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from matchlight.core import BadInput

HEAD_SECONDS = 10.0  # to send a request's head; a connection that dawdles is closed
END_SECONDS = 10  # given to requests under way when the server is told to stop


class Patient(H11Protocol):
    """HTTP that waits only so long for the first request of a connection; uvicorn times the later ones itself."""

    limit = HEAD_SECONDS

    def connection_made(self, transport: Any) -> None:
        """Start the clock."""
        super().connection_made(transport)
        self.clock: asyncio.TimerHandle | None = self.loop.call_later(self.limit, self._late)

    def _late(self) -> None:
        if self.cycle is None and self.transport is not None and not self.transport.is_closing():
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop it."""
        if self.clock is not None:
            self.clock.cancel()
            self.clock = None
        super().connection_lost(exc)


def bound(host: str, port: int) -> socket.socket:
    """A socket on the address; one that is taken is one clear line."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except (OSError, OverflowError) as problem:
        sock.close()
        reason = getattr(problem, "strerror", None) or str(problem)
        raise BadInput(
            f"{host}:{port}: cannot listen there ({reason}); --port chooses another, 0 any free one"
        ) from None
    return sock


def address(sock: socket.socket, token: str | None = None) -> str:
    """What to open in a browser."""
    host, port = sock.getsockname()[:2]
    shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    name = f"[{shown}]" if ":" in shown else shown
    return f"http://{name}:{port}/" + (f"?token={token}" if token else "")


def run(app: FastAPI, sock: socket.socket) -> None:
    """Serve until Ctrl-C or a termination signal; requests under way are answered first."""
    config = uvicorn.Config(
        app,
        http=Patient,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,  # addresses may hold a token, and what people look for is theirs
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=END_SECONDS,
        h11_max_incomplete_event_size=32_768,
        backlog=256,
    )
    # Once everything has ended uvicorn raises the signal again, for whoever handled it before: nobody needs to.
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        uvicorn.Server(config).run(sockets=[sock])
    finally:
        sock.close()
        for number, handler in before.items():
            signal.signal(number, handler)
