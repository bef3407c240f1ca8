"""What a server goes by and what it allows: its names, its token, and how much a request may use."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from matchlight.console import BadInput

SHORTEST = 8  # letters of a token


@dataclass(frozen=True)
class Limits:
    """What one request, and all of them together, may use."""

    upload_bytes: int = 12_000_000
    upload_pixels: int = 40_000_000
    body_bytes: int = 64_000  # of anything but an upload
    body_seconds: float = 20.0  # to send a body
    seconds: float = 60.0  # to wait for an answer
    workers: int = 2  # questions to the model at once
    waiting: int = 256  # questions that may wait for their turn; the next is refused for now
    client_questions: int = 100  # that a client of another machine may ask at once
    client_seconds: float = 0.1  # until it may ask one more


@dataclass(frozen=True)
class Rules:
    """Which names are ours, and the token if there is one."""

    names: frozenset[str]
    any_address: bool = False  # bound to every address: any that is a number is ours
    token: str | None = None
    limits: Limits = Limits()

    @staticmethod
    def of(host: str, token: str | None, more: Iterable[str] = (), limits: Limits | None = None) -> Rules:
        """The rules for a bound address; one that others can reach needs a token."""
        local = is_local(host)
        if not local and not token:
            raise BadInput(
                f"--host {host} can be reached from other machines and needs a token: --token WORD or "
                "MATCHLIGHT_TOKEN=WORD (python -c 'import secrets; print(secrets.token_hex(16))' makes one)"
            )
        if token is not None and (len(token) < SHORTEST or not token.isascii() or not token.isprintable()):
            raise BadInput(f"the token must be at least {SHORTEST} plain letters and digits")
        names = {"localhost", "127.0.0.1", "::1", host.lower(), *(name.lower() for name in more)}
        if not local:
            names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        wild = _number(host) is not None and not local and ipaddress.ip_address(host).is_unspecified
        return Rules(frozenset(names), wild, token, limits or Limits())

    def knows(self, host: str) -> bool:
        """True if a Host header names this server; the port may differ (a tunnel, a proxy)."""
        name = host_name(host)
        return name is not None and (name in self.names or (self.any_address and _number(name) is not None))


def is_local(host: str) -> bool:
    """True for an address that only this machine can reach."""
    number = _number(host)
    return host.lower() == "localhost" if number is None else number.is_loopback


def is_remote(client: str) -> bool:
    """True for a client on another machine; one without a number comes by a socket file, which only this one has."""
    number = _number(client)
    return number is not None and not number.is_loopback


def _number(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def host_name(host: str) -> str | None:
    """The name in a Host header without its port; None for what is no such header."""
    try:
        parts = urlsplit(f"//{host}")
        parts.port  # noqa: B018  (raises on a port that is none)
    except ValueError:
        return None
    plain = parts.hostname and not parts.path and not parts.query and not parts.fragment and parts.username is None
    return parts.hostname.rstrip(".") if plain and parts.hostname else None
