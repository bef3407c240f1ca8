"""The application on an address: uvicorn with time limits for connections, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from functools import cache
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from matchlight.console import BadInput

HEAD_SECONDS = 10.0  # to send a request's head; a connection that dawdles is closed
READ_SECONDS = 30.0  # for a client that reads nothing of its answer
MOST_CONNECTIONS = 500  # at a time, where the system allows twice as many open files
END_SECONDS = 10  # given to requests under way when the server is told to stop


class Clock:
    """Calls `late` after so many seconds, unless stopped; starting one that runs changes nothing."""

    def __init__(self, seconds: float, late: Callable[[], None]):
        self.seconds, self.late = seconds, late
        self._running: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Let it run."""
        if self._running is None:
            self._running = asyncio.get_running_loop().call_later(self.seconds, self.late)

    def stop(self) -> None:
        """Stop it."""
        if self._running is not None:
            self._running.cancel()
            self._running = None


class Patient(H11Protocol):
    """HTTP that waits only so long for the head of a request, for a client to read, and for room among the others.

    uvicorn closes a connection that stays silent after an answer, but forgets that clock at the first byte of the next
    request; from there on ours runs, and more bytes do not wind it up again.
    """

    limit = HEAD_SECONDS
    patience = READ_SECONDS
    most = 0  # connections at a time; 0: what the system's limit of open files leaves room for

    def connection_made(self, transport: Any) -> None:
        """Start the clock; where there are too many connections, the one that has waited longest makes room."""
        super().connection_made(transport)
        self.waits_since = self.loop.time()
        self.clock = Clock(self.limit, self.drop)
        self.reading = Clock(self.patience, self.drop)  # runs while the client takes nothing of an answer
        self.clock.start()
        if len(self.connections) > (self.most or most_connections()):
            waiting = [one for one in self.connections if isinstance(one, Patient) and one.is_waiting()]
            min(waiting, key=lambda one: one.waits_since).drop()

    def is_waiting(self) -> bool:
        """Whether no answer is under way, and the connection is not being closed already."""
        return (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing()

    def drop(self) -> None:
        """Close it at once, whatever is still to be sent."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Bytes of a request: the first of its head start the clock, its last stop it."""
        super().data_received(data)
        if not self.is_waiting():
            self.clock.stop()
        elif self.timeout_keep_alive_task is None:
            self.clock.start()

    def on_response_complete(self) -> None:
        """An answer is out: from now on the connection waits."""
        self.waits_since = self.loop.time()
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Silent for too long; a client that does not even read the last answer is not waited for."""
        if self.transport.get_write_buffer_size():
            self.drop()
        super().timeout_keep_alive_handler()

    def pause_writing(self) -> None:
        """The client does not read as fast as we write: it has so many seconds to catch up."""
        super().pause_writing()
        self.reading.start()

    def resume_writing(self) -> None:
        """It did."""
        super().resume_writing()
        self.reading.stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        self.clock.stop()
        self.reading.stop()
        super().connection_lost(exc)


@cache
def most_connections() -> int:
    """Connections at a time: half of the files this process may open, as pictures and the index need some too."""
    try:
        import resource
    except ImportError:  # Windows
        return MOST_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(8, min(MOST_CONNECTIONS, soft // 2))


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


def bound_here(port: int) -> socket.socket:
    """A socket of this machine alone, on any free port if this one is taken."""
    try:
        return bound("127.0.0.1", port)
    except BadInput:
        return bound("127.0.0.1", 0)


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
