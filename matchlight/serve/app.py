"""The application: an index, perhaps an audit, and the routes about them behind the guards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import JSONResponse, Response

from matchlight.console import VERSION
from matchlight.core import BadInput
from matchlight.serve import overview_routes, page_routes, review_routes, search_routes
from matchlight.serve.counters import Metrics
from matchlight.serve.guards import Guard
from matchlight.serve.live_index import Holder
from matchlight.serve.originals import Originals
from matchlight.serve.review_queue import Queue
from matchlight.serve.rules import Limits, Rules
from matchlight.serve.site import Site
from matchlight.serve.thread_pool import Work

WATCH = 2.0  # seconds between looks for a new index


def create(
    index_path: str | Path,
    *,
    audit: str | Path | None = None,
    data: str | Path | None = None,
    token: str | None = None,
    host: str = "127.0.0.1",
    allow_hosts: Iterable[str] = (),
    limits: Limits | None = None,
    watch: float = WATCH,
    load: Callable[[Path], Any] | None = None,
) -> FastAPI:
    """The application for an index folder; `audit` adds the review, `data` pictures in full.

    `host` is the address it will be bound to.
    """
    limits = limits or Limits()
    rules = Rules.of(host, token, allow_hosts, limits)
    metrics = Metrics()
    originals = Originals(data, max_pixels=limits.upload_pixels) if data is not None else None
    queue = Queue(audit) if audit is not None else None
    try:
        holder = Holder(Path(index_path), load or _load, metrics)
    except BaseException:
        if queue is not None:
            queue.journal.close()
        raise
    work = Work(workers=limits.workers, waiting=limits.waiting, seconds=limits.seconds)
    site = Site(holder, work, metrics, limits, queue, originals)
    app = FastAPI(
        title="Matchlight",
        version=VERSION,
        description="Search pictures by words and words by pictures; see why; review an audit.",
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        lifespan=_lifespan(site, watch),
    )
    for part in (
        search_routes.router(site),
        review_routes.router(site),
        overview_routes.router(site),
        page_routes.router(),
    ):
        app.include_router(part)
    app.add_exception_handler(BadInput, _bad_input)
    app.add_exception_handler(RequestValidationError, _bad_request)
    app.add_middleware(Guard, rules=rules, metrics=metrics)  # type: ignore[arg-type]
    app.state.site = site
    return app


def _load(path: Path) -> Any:
    from matchlight.indexing import Index

    return Index.load(path)


def _lifespan(site: Site, watch: float) -> Callable[[FastAPI], Any]:
    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(site.holder.watch(watch, partial(overview_routes.warm, site)))
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            await asyncio.to_thread(site.work.close)
            site.holder.close()
            if site.queue is not None:
                site.queue.journal.close()

    return life


async def _bad_input(request: Request, problem: Exception) -> Response:
    return JSONResponse({"detail": str(problem)}, 400)


async def _bad_request(request: Request, problem: Exception) -> Response:
    """What was wrong and where, without repeating the input (which may be anything, and large)."""
    assert isinstance(problem, RequestValidationError)
    told = [{"where": [str(part) for part in one["loc"]], "message": str(one["msg"])} for one in problem.errors()]
    return JSONResponse({"detail": told[:10]}, 422)
