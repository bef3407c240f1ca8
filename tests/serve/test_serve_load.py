"""Fifty people at once for a minute: no error, and the rates on this machine. Only `make full` runs it."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections import Counter

import pytest
from serving import COLOURS, SHAPES, audit_of, running

pytest.importorskip("fastapi")
CLIENTS, SECONDS = 50, 60.0


def person(number: int, host: str, port: int, until: float, seen: Counter, times: list[float]) -> None:
    """Someone who searches, looks at pictures, opens one; one connection, as a browser keeps it."""
    choose = random.Random(number)
    connection = http.client.HTTPConnection(host, port, timeout=60)
    while time.monotonic() < until:
        words = f"a+{choose.choice(list(COLOURS))}+{choose.choice(SHAPES)}"
        id = choose.randrange(24)
        for path in (
            f"/api/search?q={words}&top=12",
            f"/images/{id}",
            f"/api/items/{id}",
            f"/api/items/{id}/neighbours",
        ):
            began = time.monotonic()
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                answer.read()
                seen[answer.status] += 1
            except (OSError, http.client.HTTPException) as problem:
                seen[type(problem).__name__] += 1
                connection.close()
            times.append(time.monotonic() - began)
    connection.close()


@pytest.mark.full
def test_fifty_clients_for_a_minute_see_no_error(collection, tmp_path, capsys):
    seen: Counter = Counter()
    times: list[float] = []
    with running(str(collection[0]), "--audit", str(audit_of(collection[1], tmp_path))) as (_, address):
        host, port = address.split("/")[2].split(":")
        until = time.monotonic() + SECONDS
        people = [
            threading.Thread(target=person, args=(number, host, int(port), until, seen, times))
            for number in range(CLIENTS)
        ]
        for one in people:
            one.start()
        for one in people:
            one.join()
    times.sort()
    p50, p95 = (1000 * times[int(share * len(times))] for share in (0.5, 0.95))
    with capsys.disabled():
        rate = f"{len(times) / SECONDS:.0f} requests/s, p50 {p50:.0f} ms, p95 {p95:.0f} ms"
        print(f"\n{CLIENTS} clients, {SECONDS:.0f} s: {rate}, answers {dict(seen)}")
    assert set(seen) == {200}
