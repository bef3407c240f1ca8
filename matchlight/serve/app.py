"""The application: an index, perhaps an audit, and the routes about them behind the guards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import JSONResponse, Response

from matchlight.console import VERSION, BadInput
from matchlight.serve import overview_routes, page_routes, review_routes, search_routes
from matchlight.serve.counters import Counters
from matchlight.serve.guards import Guard
from matchlight.serve.live_index import LiveIndex
from matchlight.serve.originals import FollowedOriginals, Originals
from matchlight.serve.review_queue import Queue
from matchlight.serve.rules import Limits, Rules
from matchlight.serve.site import Site, part_of_audit
from matchlight.serve.thread_pool import ThreadPool

if TYPE_CHECKING:
    from matchlight.indexing import Index

WATCH = 2.0  # seconds between looks for a new index


class CreateOptions(TypedDict, total=False):
    """What may be said about a server beside its index."""

    audit: str | Path | None  # adds the review
    data: str | Path | None  # the indexed data: pictures in full
    changing: bool  # the data is a folder that the index follows
    token: str | None
    host: str  # the address it will be bound to
    allow_hosts: Iterable[str]  # other names it goes by
    limits: Limits | None
    watch: float  # seconds between looks for a new index
    address: str | None  # of the database that holds the index's rows, if it has one
    load: Callable[[Path], Index] | None  # how an index is opened


def create(index_path: str | Path, **options: Unpack[CreateOptions]) -> FastAPI:
    """The application for an index folder."""
    limits = options.get("limits") or Limits()
    host, token = options.get("host", "127.0.0.1"), options.get("token")
    rules = Rules.of(host, token, options.get("allow_hosts", ()), limits)
    site = _site(Path(index_path), limits, options)
    app = FastAPI(
        title="Matchlight",
        version=VERSION,
        description="Search pictures by words and words by pictures; see why; review an audit.",
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        lifespan=_lifespan(site, options.get("watch", WATCH)),
    )
    routes = search_routes.router(site), review_routes.router(site), overview_routes.router(site), page_routes.router()
    for part in routes:
        app.include_router(part)
    app.add_exception_handler(BadInput, _bad_input)
    app.add_exception_handler(RequestValidationError, _bad_request)
    app.add_middleware(Guard, rules=rules, counters=site.counters)  # type: ignore[arg-type]
    app.state.site = site
    return app


def _site(index_path: Path, limits: Limits, options: CreateOptions) -> Site:
    data, audit, counters = options.get("data"), options.get("audit"), Counters()
    kind = FollowedOriginals if options.get("changing") else Originals
    originals = kind(data, max_pixels=limits.upload_pixels) if data is not None else None
    queue = Queue(audit) if audit is not None else None
    try:
        load = options.get("load") or partial(_load, address=options.get("address"))
        live = LiveIndex(index_path, partial(_load_for, load, queue, originals), counters)
    except BaseException:
        if queue is not None:
            queue.journal.close()
        raise
    pool = ThreadPool(workers=limits.workers, waiting=limits.waiting, seconds=limits.seconds)
    return Site(live, pool, counters, limits, queue, originals)


def _load(path: Path, *, address: str | None) -> Index:
    from matchlight.indexing import Index

    return Index.load(path, address=address)


def _load_for(load: Callable[[Path], Index], queue: Queue | None, originals: Originals | None, path: Path) -> Index:
    """An index of the data that was audited and whose pictures are shown; one of other data is refused."""
    index = load(path)
    try:
        if queue is not None:
            part_of_audit(index, queue)
        if originals is not None:
            originals.part_of(index)
    except BadInput:
        index.close()
        raise
    return index


def _lifespan(site: Site, watch: float) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(site.live.watch(watch, partial(overview_routes.warm, site)))
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            await asyncio.to_thread(site.pool.close)
            site.live.close()
            if site.queue is not None:
                site.queue.journal.close()

    return life


async def _bad_input(request: Request, problem: Exception) -> Response:
    return JSONResponse({"detail": str(problem)}, 400)


async def _bad_request(request: Request, problem: Exception) -> Response:
    """What was wrong and where, without repeating the input (which may be anything, and large)."""
    assert isinstance(problem, RequestValidationError)
    errors = [{"where": [str(part) for part in one["loc"]], "message": str(one["msg"])} for one in problem.errors()]
    return JSONResponse({"detail": errors[:10]}, 422)
