"""What went on, as counters that Prometheus (or a person) can read; nothing in them says what was asked."""

from __future__ import annotations

import threading
import time
from collections import Counter

from starlette.types import Scope

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH")


class Counters:
    """Requests by route and status, how long they took, how many are under way."""

    def __init__(self) -> None:
        self.began = time.time()
        self.in_flight = 0
        self.reloads: Counter[str] = Counter(done=0, failed=0)
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """One request is over."""
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in METHODS else "other"
        with self._lock:
            self._requests[method, route, status] += 1
            buckets = self._buckets.setdefault(route, [0] * (len(BOUNDS) + 1))
            buckets[sum(seconds > bound for bound in BOUNDS)] += 1
            self._seconds[route] += seconds  # type: ignore[assignment]

    @property
    def requests(self) -> int:
        """How many were answered."""
        return sum(self._requests.values())

    def text(self, **gauges: float) -> str:
        """Prometheus' text format."""
        now = {"uptime_seconds": time.time() - self.began, "requests_in_flight": self.in_flight, **gauges}
        with self._lock:
            lines = [f"# TYPE matchlight_{name} gauge\nmatchlight_{name} {value:g}" for name, value in now.items()]
            lines.append("# TYPE matchlight_reloads_total counter")
            lines += [f'matchlight_reloads_total{{result="{name}"}} {n}' for name, n in sorted(self.reloads.items())]
            lines.append("# TYPE matchlight_requests_total counter")
            for (method, route, status), n in sorted(self._requests.items()):
                labels = f'method="{method}",route="{route}",status="{status}"'
                lines.append(f"matchlight_requests_total{{{labels}}} {n}")
            lines.append("# TYPE matchlight_request_seconds histogram")
            for route in sorted(self._buckets):
                lines += self._histogram(route)
        return "\n".join(lines) + "\n"

    def _histogram(self, route: str) -> list[str]:
        name, total, lines = "matchlight_request_seconds", 0, []
        for bound, n in zip((*map(str, BOUNDS), "+Inf"), self._buckets[route], strict=True):
            total += n
            lines.append(f'{name}_bucket{{route="{route}",le="{bound}"}} {total}')
        ends = (f'{name}_sum{{route="{route}"}} {self._seconds[route]:.6f}', f'{name}_count{{route="{route}"}} {total}')
        return [*lines, *ends]
