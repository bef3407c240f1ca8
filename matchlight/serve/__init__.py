"""Serve: an index as a REST API and a page: search both ways, why it matched, review of an audit, a map.

    app = create("indexes/one", audit="audits/one")      # any ASGI server can run it; `matchlight serve` does

Files in the order a request passes:

    server.py           uvicorn and its time limits
    rules.py guards.py  who may ask, how much, with which headers
    allowances.py       how often an address may ask, and guess the token (wrong_tokens.py)
    app.py              the routes put together
    site.py             what the routes share
    search_routes.py    search, pictures, explanations, neighbours
    search_filter.py    searching a part of the collection
    uploads.py          pictures that clients send
    originals.py        pictures in full
    review_routes.py    the review of an audit: its queue (review_queue.py) and decisions (review_journal.py)
    overview_routes.py  health, counters (counters.py), the model card, the map
    page_routes.py      the files in page/, which a browser loads
    thread_pool.py      how many requests the model works on at once
    live_index.py       the index in use, exchanged without dropping a request
    schemas.py          the shapes of requests and answers, from which the OpenAPI description is made
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from matchlight.console import BadInput

if TYPE_CHECKING:
    from fastapi import FastAPI

    from matchlight.serve.app import CreateOptions

__all__ = ["create", "require"]


def require() -> None:
    """Say which extra is missing before anything slow begins."""
    try:
        import fastapi  # noqa: F401
        import python_multipart  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as missing:
        raise BadInput(f"serving needs {missing.name}; pip install 'matchlight[serve]' brings it") from None


def create(index_path: str | Path, **options: Unpack[CreateOptions]) -> FastAPI:
    """The application for an index folder; `options` are those of `matchlight.serve.app.create`."""
    require()
    from matchlight.serve import app

    return app.create(index_path, **options)
