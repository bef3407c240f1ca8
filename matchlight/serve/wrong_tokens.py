"""Guessing a token is slow: an address may be wrong a few times, then its guesses are not looked at for a while.

A guess that comes too soon is not compared at all, so an answer at once says nothing about it. A wrong token that is
repeated (a page that was left open, with the cookie of an earlier server) is known to be wrong and costs nothing more.
"""

from __future__ import annotations

import hashlib
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

FREE = 10  # wrong tokens that an address has at once
SECONDS = 6.0  # until it has one more
MOST_ADDRESSES = 4_096  # remembered; the one unseen for longest is forgotten first


@dataclass
class Guesses:
    """What one address tried."""

    left: float = FREE
    at: float = 0.0
    wrong: OrderedDict[bytes, None] = field(default_factory=OrderedDict)  # digests of its last wrong tokens


class WrongTokens:
    """The wrong tokens of each address."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._of: OrderedDict[str, Guesses] = OrderedDict()

    def is_known(self, address: str, token: str) -> bool:
        """Whether the address tried this token before, lately, in vain."""
        seen = self._of.get(_group(address))
        return seen is not None and _digest(token) in seen.wrong

    def wait(self, address: str) -> float:
        """Seconds until the next guess of an address is looked at; 0: it is."""
        seen = self._of.get(_group(address))
        return 0.0 if seen is None else max(0.0, (1 - self._left(seen)) * SECONDS)

    def note(self, address: str, token: str) -> None:
        """A guess was wrong."""
        seen = self._of.setdefault(_group(address), Guesses(at=self._clock()))
        self._of.move_to_end(_group(address))
        seen.left, seen.at = self._left(seen) - 1, self._clock()
        seen.wrong[_digest(token)] = None
        if len(seen.wrong) > FREE:
            seen.wrong.popitem(last=False)
        if len(self._of) > MOST_ADDRESSES:
            self._of.popitem(last=False)

    def _left(self, seen: Guesses) -> float:
        return min(float(FREE), seen.left + (self._clock() - seen.at) / SECONDS)


def _group(address: str) -> str:
    """An address, or of IPv6 the /64 that one household or machine has all of."""
    try:
        number = ipaddress.ip_address(address.split("%")[0])
    except ValueError:
        return address
    return str(number) if number.version == 4 else str(ipaddress.ip_network((number, 64), strict=False))


def _digest(token: str) -> bytes:
    return hashlib.blake2b(token.encode("utf-8", "surrogateescape"), digest_size=16).digest()
