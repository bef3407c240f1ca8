"""Routes that ask the index: search by words or by picture, a picture's page, why it matched, what resembles it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, File, Form, Path, Query, Response, UploadFile
from starlette.exceptions import HTTPException

from matchlight.core import BadInput
from matchlight.serve import schemas, uploads
from matchlight.serve.live_index import Held
from matchlight.serve.search_filter import Narrow, members
from matchlight.serve.site import Site, item, size

PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": schemas.Problem} for code in (400, 401, 403, 404, 405, 408, 413, 415, 421, 422, 429, 503)
}
Id = Annotated[int, Path(ge=0, le=schemas.MOST_ROW, description="a picture's place in the index")]
Words = Annotated[str, Query(min_length=1, max_length=1000, description="what to look for")]
Top = Annotated[int, Query(ge=1, le=500, description="how many results")]
Side = Literal["image", "text"]
Where = Annotated[list[str] | None, Query(max_length=16, description="name=value, such as split=test or label=dog")]
Inside = Annotated[str | None, Query(max_length=4000, description="a polygon on the map: x,y;x,y;x,y")]


def router(site: Site) -> APIRouter:
    """All of them."""
    routes = APIRouter(responses=PROBLEMS)
    _search(routes, site)
    _items(routes, site)
    _around(routes, site)
    return routes


def _search(routes: APIRouter, site: Site) -> None:
    @routes.get("/api/search", response_model=schemas.Found)
    async def search(
        q: Words, top: Top = 24, find: Side = "image", exact: bool = False, where: Where = None, inside: Inside = None
    ) -> dict[str, Any]:
        """Search by words: pictures, or captions that say alike."""
        if not q.strip():
            raise HTTPException(422, "say what to look for: q is empty")
        narrow = Narrow.of(where, inside)
        return await site.ask(lambda held: _found(site, held, narrow, q, words=q, top=top, find=find, exact=exact))

    @routes.post("/api/search/image", response_model=schemas.Found)
    async def search_by_picture(
        file: Annotated[UploadFile, File(description="a picture file")],
        top: Annotated[int, Form(ge=1, le=500)] = 24,
        find: Annotated[Side, Form()] = "text",
    ) -> dict[str, Any]:
        """Search by a picture: captions that fit it, or pictures that resemble it."""
        blob = await uploads.read(file, site.limits)

        def look(held: Held) -> dict[str, Any]:
            image = uploads.picture(blob, site.limits)
            return _found(site, held, Narrow(), None, image=image, top=top, find=find, exact=False)

        return await site.ask(look)


def _found(site: Site, held: Held, narrow: Narrow, query: str | None, **asked: Any) -> dict[str, Any]:
    found = held.index.search(where=narrow.filter(site, held), **asked)
    return {
        "query": query,
        "find": asked["find"],
        "results": [site.hit(held, hit) for hit in found.hits],
        "milliseconds": round(float(found.milliseconds), 3),
        "total": int(found.total),
        "scored": int(found.scored),
        "unknown": [str(word) for word in found.unknown],
        "exact": bool(found.exact),
        "version": held.number,
    }


def _items(routes: APIRouter, site: Site) -> None:
    @routes.get("/api/items", response_model=schemas.Browsed)
    async def browse(
        count: Annotated[int, Query(ge=1, le=200)] = 24,
        seed: Annotated[int, Query(ge=0, le=schemas.MOST_ROW)] = 0,
        where: Where = None,
        inside: Inside = None,
    ) -> dict[str, Any]:
        """Some pictures of the collection, picked at random."""
        narrow = Narrow.of(where, inside)
        return await site.ask(lambda held: _browsed(site, held, narrow, count, seed))

    @routes.get("/api/items/{id}", response_model=schemas.Item)
    async def one(id: Id) -> dict[str, Any]:
        """A picture: its name, captions, labels, split and size."""
        return await site.ask(lambda held: _item(site, held, id))

    @routes.get("/api/items/{id}/explain", response_model=schemas.Explanation)
    async def explain(id: Id, q: Words) -> dict[str, Any]:
        """Which region of the picture answered which word."""
        if not q.strip():
            raise HTTPException(422, "say which words to explain: q is empty")
        return await site.ask(lambda held: _explained(held, id, q))


def _around(routes: APIRouter, site: Site) -> None:
    @routes.get("/api/items/{id}/neighbours", response_model=schemas.Neighbours)
    async def neighbours(id: Id, top: Top = 12) -> dict[str, Any]:
        """Pictures that resemble this one."""

        def look(held: Held) -> dict[str, Any]:
            item(held.index, id)
            hits = held.index.neighbours(id, top=top)
            return {"results": [site.hit(held, hit) for hit in hits], "version": held.number}

        return await site.ask(look)

    @routes.get("/api/items/{id}/captions", response_model=schemas.Neighbours)
    async def captions(id: Id, top: Top = 8) -> dict[str, Any]:
        """Captions of the whole collection that fit this picture best, its own among them."""

        def look(held: Held) -> dict[str, Any]:
            item(held.index, id)
            hits = [site.hit(held, hit) for hit in held.index.captions(id, top=top)]
            return {"results": hits, "version": held.number}

        return await site.ask(look)

    @routes.get("/images/{id}", response_class=Response, responses={200: {"content": {"image/jpeg": {}}}})
    async def image(id: Id, size: Annotated[Literal["small", "full"], Query()] = "small") -> Response:
        """A picture as JPEG: its thumbnail, or in full where the server was given the data."""

        def look(held: Held) -> bytes:
            found = item(held.index, id)
            if size == "full" and site.originals is not None:
                whole = site.originals.jpeg(str(found["name"]), tuple(found["size"]))
                if whole is not None:
                    return whole
            try:
                small: bytes = held.index.thumbnail(id)
            except BadInput as problem:
                raise HTTPException(404, str(problem)) from None
            return small

        body = await site.ask(look)
        return Response(body, media_type="image/jpeg", headers={"cache-control": "private, max-age=86400"})


def _browsed(site: Site, held: Held, narrow: Narrow, count: int, seed: int) -> dict[str, Any]:
    every = members(site, held, narrow)
    picked = np.sort(np.random.default_rng(seed).permutation(len(every))[:count])
    found = [_card(site, held, id) for id in every[picked].tolist()]
    return {"find": "image", "results": found, "total": len(every), "version": held.number}


def _card(site: Site, held: Held, id: int) -> dict[str, Any]:
    one = _item(site, held, id)
    first = (one["captions"] or [{"text": ""}])[0]["text"]
    return {name: one[name] for name in ("id", "image", "width", "height", "suspect")} | {"caption": first}


def _item(site: Site, held: Held, id: int) -> dict[str, Any]:
    found = item(held.index, id)
    width, height = size(held.index, id)
    return {
        "id": id,
        "image": str(found["name"]),
        "captions": [{"row": int(row), "text": str(text)} for row, text in captions_of(found)],
        "labels": [str(label) for label in found.get("labels") or []],
        "split": str(found.get("split") or ""),
        "width": width,
        "height": height,
        "suspect": site.suspect(str(found["name"])),
        "version": held.number,
    }


def captions_of(found: dict[str, Any]) -> list[tuple[int, str]]:
    """(row, caption) of an item."""
    return [(one["row"], one["caption"]) for one in found["captions"]]


def _explained(held: Held, id: int, words: str) -> dict[str, Any]:
    item(held.index, id)
    found = held.index.explain(id, words)
    weights = [[float(value) for value in row] for row in found["weights"]]
    return {
        "words": [str(word) for word in found["words"]],
        "regions": [[float(edge) for edge in box] for box in found["regions"]],
        "weights": weights,
        "seen": [max(row, default=0.0) for row in weights],
        "score": float(found["score"]),
        "slots": [[float(value) for value in row] for row in found["slots"]],
        "nearest": found["nearest"],
        "kind": str(found["kind"]),
        "unknown": [str(word) for word in found["unknown"]],
    }
