"""Routes that ask the index: search by words or by picture, a picture's page, why it matched, what resembles it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict, Unpack

import numpy as np
from fastapi import APIRouter, File, Form, Path, Query, Response, UploadFile
from PIL import Image
from starlette.exceptions import HTTPException

from matchlight.console import BadInput
from matchlight.serve import schemas, uploads
from matchlight.serve.live_index import LoadedIndex, captions_of
from matchlight.serve.search_filter import SearchFilter, members
from matchlight.serve.site import Site, item, size

PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": schemas.Problem} for code in (400, 401, 403, 404, 405, 408, 413, 415, 421, 422, 429, 503)
}
Id = Annotated[int, Path(ge=0, le=schemas.MOST_ROW, description="a picture's place in the index")]
Words = Annotated[str, Query(min_length=1, max_length=1000, description="what to look for")]
Top = Annotated[int, Query(ge=1, le=500, description="how many results")]
Side = Literal["image", "text"]
WHERE = "name=value, such as label=dog or from=2024-05; names: split, label, folder, camera, from, to, caption, suspect"
Where = Annotated[list[str] | None, Query(max_length=16, description=WHERE)]
Fold = Annotated[bool, Query(description="show near-duplicates as one result")]
Like = Annotated[int | None, Query(ge=0, le=schemas.MOST_ROW, description="a picture of the index: like it, but ...")]
Asked = Annotated[str, Query(max_length=1000, description='what to look for; +more -less "a caption says this"')]
Inside = Annotated[str | None, Query(max_length=4000, description="a polygon on the map: x,y;x,y;x,y")]


class SearchArguments(TypedDict):
    """What a search of the index takes."""

    words: NotRequired[str]
    image: NotRequired[Image.Image]
    like: NotRequired[int]
    top: int
    find: str
    exact: bool
    fold: bool


def router(site: Site) -> APIRouter:
    """All of them."""
    routes = APIRouter(responses=PROBLEMS)
    _search(routes, site)
    _items(routes, site)
    _around(routes, site)
    return routes


def _search(routes: APIRouter, site: Site) -> None:
    @routes.get("/api/search", response_model=schemas.SearchResults)
    async def search(
        q: Asked = "",
        top: Top = 24,
        find: Side = "image",
        exact: bool = False,
        where: Where = None,
        inside: Inside = None,
        like: Like = None,
        fold: Fold = True,
    ) -> schemas.SearchResults:
        """Search by words: pictures, or captions that say alike. With `like`: pictures like one, and the words."""
        if not q.strip() and like is None:
            raise HTTPException(422, "say what to look for: q is empty")
        narrow = SearchFilter.of(where, inside)
        asked: SearchArguments = {"top": top, "find": find, "exact": exact, "fold": fold}
        if q.strip():
            asked["words"] = q
        if like is not None:
            asked["like"] = like
        return await site.ask(lambda loaded: _found(site, loaded, narrow, q, **asked))

    @routes.post("/api/search/image", response_model=schemas.SearchResults)
    async def search_by_picture(
        file: Annotated[UploadFile, File(description="a picture file")],
        top: Annotated[int, Form(ge=1, le=500)] = 24,
        find: Annotated[Side, Form()] = "text",
        q: Annotated[str, Form(max_length=1000, description="like the picture, but ...")] = "",
        where: Annotated[list[str] | None, Form(max_length=16, description=WHERE)] = None,
        fold: Annotated[bool, Form()] = True,
    ) -> schemas.SearchResults:
        """Search by a picture: captions that fit it, or pictures that resemble it; with words: like it, but ..."""
        narrow = SearchFilter.of(where, None)
        blob = await uploads.read(file, site.limits)
        asked: SearchArguments = {"top": top, "find": "image" if q.strip() else find, "exact": False, "fold": fold}
        if q.strip():
            asked["words"] = q

        def look(loaded: LoadedIndex) -> schemas.SearchResults:
            asked["image"] = uploads.picture(blob, site.limits)
            return _found(site, loaded, narrow, q or None, **asked)

        return await site.ask(look)


def _found(
    site: Site, loaded: LoadedIndex, narrow: SearchFilter, query: str | None, **asked: Unpack[SearchArguments]
) -> schemas.SearchResults:
    results = loaded.index.search(where=narrow.where_of_index(site, loaded), **asked)
    return schemas.SearchResults(
        query=query,
        find=asked["find"],
        results=[site.hit(loaded, hit) for hit in results.hits],
        milliseconds=round(results.milliseconds, 3),
        total=results.total,
        scored=results.scored,
        unknown=results.unknown,
        exact=results.exact,
        nothing_fits=results.nothing_fits,
        chances_from=results.chances_from,
        version=loaded.number,
    )


def _items(routes: APIRouter, site: Site) -> None:
    @routes.get("/api/items", response_model=schemas.Browsed)
    async def browse(
        count: Annotated[int, Query(ge=1, le=200)] = 24,
        seed: Annotated[int, Query(ge=0, le=schemas.MOST_ROW)] = 0,
        where: Where = None,
        inside: Inside = None,
    ) -> schemas.Browsed:
        """Some pictures of the collection, picked at random."""
        narrow = SearchFilter.of(where, inside)
        return await site.ask(lambda loaded: _browsed(site, loaded, narrow, count, seed))

    @routes.get("/api/items/{id}", response_model=schemas.Item)
    async def one(id: Id) -> schemas.Item:
        """A picture: its name, captions, labels, split and size."""
        return await site.ask(lambda loaded: _item(site, loaded, id))

    @routes.get("/api/items/{id}/explain", response_model=schemas.Explanation)
    async def explain(id: Id, q: Words) -> schemas.Explanation:
        """Which region of the picture answered which word."""
        if not q.strip():
            raise HTTPException(422, "say which words to explain: q is empty")
        return await site.ask(lambda loaded: _explained(loaded, id, q))


def _around(routes: APIRouter, site: Site) -> None:
    @routes.get("/api/items/{id}/neighbours", response_model=schemas.Neighbours)
    async def neighbours(id: Id, top: Top = 12) -> schemas.Neighbours:
        """Pictures that resemble this one."""

        def look(loaded: LoadedIndex) -> schemas.Neighbours:
            item(loaded.index, id)
            hits = loaded.index.neighbours(id, top=top)
            return schemas.Neighbours(results=[site.hit(loaded, hit) for hit in hits], version=loaded.number)

        return await site.ask(look)

    @routes.get("/api/items/{id}/captions", response_model=schemas.Neighbours)
    async def captions(id: Id, top: Top = 8) -> schemas.Neighbours:
        """Captions of the whole collection that fit this picture best, its own among them."""

        def look(loaded: LoadedIndex) -> schemas.Neighbours:
            item(loaded.index, id)
            hits = [site.hit(loaded, hit) for hit in loaded.index.captions(id, top=top)]
            return schemas.Neighbours(results=hits, version=loaded.number)

        return await site.ask(look)

    @routes.get("/images/{id}", response_class=Response, responses={200: {"content": {"image/jpeg": {}}}})
    async def image(id: Id, size: Annotated[Literal["small", "full"], Query()] = "small") -> Response:
        """A picture as JPEG: its thumbnail, or in full where the server was given the data."""

        def look(loaded: LoadedIndex) -> bytes:
            picture = item(loaded.index, id)
            if size == "full" and site.originals is not None:
                original = site.originals.jpeg(picture, site.originals.part_of(loaded.index))
                if original is not None:
                    return original
            try:
                return loaded.index.thumbnail(id)
            except BadInput as problem:
                raise HTTPException(404, str(problem)) from None

        body = await site.ask(look)
        return Response(body, media_type="image/jpeg", headers={"cache-control": "private, max-age=86400"})


def _browsed(site: Site, loaded: LoadedIndex, narrow: SearchFilter, count: int, seed: int) -> schemas.Browsed:
    every = members(site, loaded, narrow)
    picked = np.sort(np.random.default_rng(seed).permutation(len(every))[:count])
    cards = [_card(_item(site, loaded, id)) for id in every[picked].tolist()]
    return schemas.Browsed(find="image", results=cards, total=len(every), version=loaded.number)


def _card(one: schemas.Item) -> schemas.Card:
    return schemas.Card(
        id=one.id,
        image=one.image,
        caption=one.captions[0].text if one.captions else "",
        width=one.width,
        height=one.height,
        suspect=one.suspect,
    )


def _item(site: Site, loaded: LoadedIndex, id: int) -> schemas.Item:
    picture = item(loaded.index, id)
    width, height = size(loaded.index, id)
    return schemas.Item(
        id=id,
        image=picture["name"],
        captions=[schemas.Caption(row=row, text=text) for row, text in captions_of(picture)],
        labels=picture["labels"],
        split=picture["split"],
        width=width,
        height=height,
        suspect=site.has_suspect_pair(loaded, id),
        taken=picture["taken"],
        camera=picture["camera"],
        version=loaded.number,
    )


def _explained(loaded: LoadedIndex, id: int, words: str) -> schemas.Explanation:
    item(loaded.index, id)
    explanation = loaded.index.explain(id, words)
    return schemas.Explanation(
        words=explanation["words"],
        regions=explanation["regions"],
        weights=explanation["weights"],
        seen=[max(row, default=0.0) for row in explanation["weights"]],
        score=explanation["score"],
        slots=explanation["slots"],
        nearest=[schemas.Nearest(**one) for one in explanation["nearest"]],
        kind=explanation["kind"],
        unknown=explanation["unknown"],
    )
