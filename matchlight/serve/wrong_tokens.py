"""Guessing a token is slow: an address may be wrong a few times, then its guesses are not looked at for a while.

A guess that comes too soon is not compared at all, so an answer at once says nothing about it. A wrong token that is
repeated (a page that was left open, with the cookie of an earlier server) is known to be wrong and costs nothing more.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable

from matchlight.serve.allowances import MOST_ADDRESSES, Allowances, group

FREE = 10  # wrong tokens that an address has at once
SECONDS = 6.0  # until it has one more


class WrongTokens:
    """The wrong tokens of each address."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._guesses = Allowances(FREE, SECONDS, clock)
        self._wrong: OrderedDict[str, OrderedDict[bytes, None]] = OrderedDict()  # digests of an address's last ones

    def is_known(self, address: str, token: str) -> bool:
        """Whether the address tried this token before, lately, in vain."""
        return _digest(token) in self._wrong.get(group(address), ())

    def wait(self, address: str) -> float:
        """Seconds until the next guess of an address is looked at; 0: it is."""
        return self._guesses.wait(address)

    def note(self, address: str, token: str) -> None:
        """A guess was wrong."""
        self._guesses.take(address)
        tried = self._wrong.setdefault(group(address), OrderedDict())
        self._wrong.move_to_end(group(address))
        tried[_digest(token)] = None
        if len(tried) > FREE:
            tried.popitem(last=False)
        if len(self._wrong) > MOST_ADDRESSES:
            self._wrong.popitem(last=False)


def _digest(token: str) -> bytes:
    return hashlib.blake2b(token.encode("utf-8", "surrogateescape"), digest_size=16).digest()
