"""The page's files, read once at start: a request names one of a short list and never a place on the disk."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Asset:
    """A file as it is sent."""

    body: bytes
    kind: str
    tag: str


def assets() -> dict[str, Asset]:
    """Every file of the page by its name."""
    assets_by_name = {}
    for path in sorted((Path(__file__).parent / "page").iterdir()):
        if path.suffix in KINDS:
            body = path.read_bytes()
            assets_by_name[path.name] = Asset(body, KINDS[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:16]}"')
    return assets_by_name


def router() -> APIRouter:
    """`/` and what it loads."""
    known, routes = assets(), APIRouter()

    def answer(name: str, request: Request) -> Response:
        if name not in known:
            raise HTTPException(404, "no such part of the page")
        asset = known[name]
        headers = {"etag": asset.tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == asset.tag:
            return Response(status_code=304, headers=headers)
        return Response(asset.body, media_type=asset.kind, headers=headers)

    @routes.get("/", include_in_schema=False)
    async def front(request: Request) -> Response:
        return answer("index.html", request)

    @routes.get("/page/{name}", include_in_schema=False)
    async def part(name: str, request: Request) -> Response:
        return answer(name, request)

    @routes.get("/favicon.ico", include_in_schema=False)
    async def icon(request: Request) -> Response:
        return answer("flame.svg", request)

    return routes
