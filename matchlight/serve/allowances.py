"""How often an address may do something: a few times at once, then once in so many seconds."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MOST_ADDRESSES = 4_096  # remembered; the one unseen for longest is forgotten first


@dataclass
class Left:
    """What one address has left, and when that was counted."""

    times: float
    at: float


class Allowances:
    """What each address has left of `most` times, of which one comes back every `seconds`."""

    def __init__(self, most: int, seconds: float, clock: Callable[[], float] = time.monotonic):
        self.most, self.seconds = most, seconds
        self._clock = clock
        self._of: OrderedDict[str, Left] = OrderedDict()

    def wait(self, address: str) -> float:
        """Seconds until the address may again; 0: now."""
        seen = self._of.get(group(address))
        return 0.0 if seen is None else max(0.0, (1 - self._times(seen)) * self.seconds)

    def take(self, address: str) -> None:
        """The address did it once more."""
        name, now = group(address), self._clock()
        seen = self._of.setdefault(name, Left(self.most, now))
        self._of.move_to_end(name)
        seen.times, seen.at = self._times(seen) - 1, now
        if len(self._of) > MOST_ADDRESSES:
            self._of.popitem(last=False)

    def _times(self, seen: Left) -> float:
        return min(float(self.most), seen.times + (self._clock() - seen.at) / self.seconds)


def group(address: str) -> str:
    """An address, or of IPv6 the /64 that one household or machine has all of."""
    try:
        number = ipaddress.ip_address(address.split("%")[0])
    except ValueError:
        return address
    return str(number) if number.version == 4 else str(ipaddress.ip_network((number, 64), strict=False))
