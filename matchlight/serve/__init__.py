"""Serve: an index as a REST API and a page: search both ways, why it matched, review of an audit, a map.

    app = create("indexes/one", audit="audits/one")      # any ASGI server can run it; `matchlight serve` does

In the order a request passes: server.py (uvicorn, its time limits), rules.py and guards.py (who may ask, how much, with
which headers), app.py (the routes put together), pages.py, searching.py, reviewing.py and overview.py (the routes),
narrow.py (searching a part), uploads.py (pictures from strangers), originals.py (pictures in full), work.py (how many
at once), holder.py (the index in use, exchanged without dropping a request), queue.py and review.py (an audit and the
decisions about it), card.py (figures with intervals), metrics.py (what went on). answers.py holds the shapes of
answers, site.py what routes share; page/ is what a browser loads.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from matchlight.core import BadInput

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["create", "require"]


def require() -> None:
    """Say which extra is missing before anything slow begins."""
    try:
        import fastapi  # noqa: F401
        import python_multipart  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as missing:
        raise BadInput(f"serving needs {missing.name}; pip install 'matchlight[serve]' brings it") from None


def create(index_path: str | Path, **options: Any) -> FastAPI:
    """The application for an index folder; `options` are those of `matchlight.serve.app.create`."""
    require()
    from matchlight.serve import app

    return app.create(index_path, **options)
