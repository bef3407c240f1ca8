"""Routes of the audit review: the queue, suggestions for a pair, a decision, undo, and the decisions as a file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from starlette.exceptions import HTTPException

from matchlight.data.findings import Finding
from matchlight.serve import schemas
from matchlight.serve.live_index import Held
from matchlight.serve.review_queue import Queue
from matchlight.serve.search_routes import PROBLEMS, captions_of
from matchlight.serve.site import Site, places, size

FEW = 3  # suggestions of each kind
Row = Annotated[int, Path(ge=0, le=schemas.MOST_ROW, description="a pair's row in the audited data")]


def router(site: Site) -> APIRouter:
    """All of them; without an audit the queue is empty and says so."""
    routes = APIRouter(responses=PROBLEMS)

    @routes.get("/api/review", response_model=schemas.Review)
    async def review(
        offset: Annotated[int, Query(ge=0, le=schemas.MOST_ROW)] = 0,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        below: Annotated[float | None, Query(ge=0, le=1, description="up to this score, flagged or not")] = None,
        state: Literal["all", "left", "done"] = "all",
    ) -> dict[str, Any]:
        """Suspicious pairs, the worst first, with the decisions made so far."""
        if site.queue is None:
            return {"available": False}
        queue = site.queue
        return await site.ask(lambda held: _page(held, queue, offset, limit, below, state))

    @routes.get("/api/review/decisions.csv", response_class=Response, responses={200: {"content": {"text/csv": {}}}})
    async def decisions() -> Response:
        """Every decision that holds: what `matchlight data apply --decisions` reads."""
        name = {"content-disposition": 'attachment; filename="decisions.csv"'}
        return Response(_queue(site).journal.table(), media_type="text/csv; charset=utf-8", headers=name)

    @routes.get("/api/review/{row}", response_model=schemas.Suggestions)
    async def suggest(row: Row) -> dict[str, Any]:
        """Captions and pictures of the collection that may fit better."""
        finding = _finding(_queue(site), row)
        return await site.ask(lambda held: _suggested(site, held, finding))

    _decisions(routes, site)
    return routes


def _decisions(routes: APIRouter, site: Site) -> None:
    @routes.post("/api/review/undo", response_model=schemas.Decided)
    async def undo() -> dict[str, Any]:
        """Take back the last decision that holds; as often as there are any."""
        queue = _queue(site)
        row = await site.work.do(queue.journal.undo)
        if row is None:
            raise HTTPException(404, "no decision is left to take back")
        return _decided(queue, row)

    @routes.post("/api/review/{row}", response_model=schemas.Decided)
    async def decide(row: Row, choice: schemas.Choice) -> dict[str, Any]:
        """Keep, drop or re-match a pair, or take back what was decided about it; saved before this answers."""
        queue = _queue(site)
        finding = _finding(queue, row)
        if choice.decision == "undo":
            if await site.work.do(lambda: queue.journal.undo(row)) is None:
                raise HTTPException(404, f"nothing was decided about row {row}")
            return _decided(queue, row)
        more = await site.ask(lambda held: _rematch(held, queue, finding, choice))
        await site.work.do(lambda: queue.journal.decide(row, choice.decision, **more))
        return _decided(queue, row)


def _queue(site: Site) -> Queue:
    if site.queue is None:
        raise HTTPException(404, "no audit is served; start the server with --audit DIR")
    return site.queue


def _finding(queue: Queue, row: int) -> Finding:
    if row not in queue.findings:
        raise HTTPException(404, f"row {row} is not in this audit")
    return queue.findings[row]


def _page(held: Held, queue: Queue, offset: int, limit: int, below: float | None, state: str) -> dict[str, Any]:
    listed = queue.listed(below=below, state=state)
    done = sum(one.row in queue.journal.state.now for one in listed)
    return {
        "available": True,
        "total": len(listed),
        "done": done,
        "left": len(listed) - done,
        "undoable": len(queue.journal.state.past),
        "counts": queue.counts(),
        "pairs": [_pair(held, queue, one) for one in listed[offset : offset + limit]],
        "offset": offset,
        "summary": {name: value for name, value in queue.summary.items() if name != "data"},
        "histogram": queue.histogram(),
        "version": held.number,
    }


def _pair(held: Held, queue: Queue, one: Finding) -> dict[str, Any]:
    known = places(held)
    place = known.get(one.image)
    width, height = (4, 3) if place is None else size(held.index, place)
    decision = queue.journal.state.now.get(one.row)
    return {
        **vars(one),
        "id": place,
        "better_id": known.get(one.better_image or ""),
        "width": width,
        "height": height,
        "decision": decision.as_json() if decision else None,
    }


def _suggested(site: Site, held: Held, finding: Finding) -> dict[str, Any]:
    """What the audit proposed, then what the index finds; never the pair's own partner."""
    known, said = places(held), rows(held)
    place = known.get(finding.image)
    images = [_suggestion(held, "image", known[finding.better_image])] if finding.better_image in known else []
    if finding.caption.strip():
        hits = held.index.search(finding.caption, top=FEW + 2, find="image").hits
        images += [_suggestion(held, "image", hit.id, score=hit.score) for hit in hits]
    captions = []
    if finding.better_caption_row in said:
        captions.append(_suggestion(held, "caption", *said[finding.better_caption_row], row=finding.better_caption_row))
    captions += [] if place is None else [_caption(held, hit) for hit in held.index.captions(place, top=FEW + 12)]
    others = [] if place is None else _others(held, place, finding)
    return {
        "row": finding.row,
        "images": _few(images, "image", {finding.image}),
        "captions": _few(captions, "caption", {finding.caption, *others}),
        "others": others,
    }


def _others(held: Held, place: int, finding: Finding) -> list[str]:
    """What else is said of the picture: often that settles it."""
    return [str(text) for row, text in captions_of(held.index.item(place)) if int(row) != finding.row]


def _caption(held: Held, hit: Any) -> dict[str, Any]:
    return _suggestion(held, "caption", hit.id, str(hit.caption), row=int(hit.row), score=hit.score)


def _suggestion(
    held: Held, kind: str, id: int, caption: str | None = None, *, row: int = -1, score: float | None = None
) -> dict[str, Any]:
    item, (width, height) = held.index.item(id), size(held.index, id)
    first_row, first = next(iter(captions_of(item)), (-1, ""))
    said = {"caption": first, "row": first_row} if caption is None else {"caption": caption, "row": row}
    more = {"score": score, "width": width, "height": height}
    return {"kind": kind, "id": int(id), "image": str(item["name"]), **said, **more}


def _few(suggestions: list[dict[str, Any]], name: str, own: set[str]) -> list[dict[str, Any]]:
    """The first few that differ from each other and from what the pair has already."""
    distinct = {one[name]: one for one in reversed(suggestions) if one[name] not in own}
    return list(distinct.values())[::-1][:FEW]


def _rematch(held: Held, queue: Queue, finding: Finding, choice: schemas.Choice) -> dict[str, Any]:
    """The partner a re-match names, once it is known to be there."""
    if choice.decision != "rematch":
        if choice.image is not None or choice.caption_row is not None:
            raise HTTPException(422, f"{choice.decision} takes no image and no caption_row; rematch does")
        return {}
    if (choice.image is None) == (choice.caption_row is None):
        raise HTTPException(422, "rematch names an image (for the caption) or a caption_row (for the picture)")
    if choice.image is not None and choice.image not in places(held):
        raise HTTPException(422, "rematch: no such image in the index")
    if (
        choice.caption_row is not None
        and choice.caption_row not in rows(held)
        and choice.caption_row not in queue.findings
    ):
        raise HTTPException(422, "rematch: no such caption_row in the index")
    if choice.image == finding.image or choice.caption_row == finding.row:
        raise HTTPException(422, "rematch: that is the pair as it is; keep says so")
    return {"image": choice.image, "caption_row": choice.caption_row}


def rows(held: Held) -> dict[int, tuple[int, str]]:
    """Row -> (picture, caption) of every caption the index holds, worked out once an index."""
    if "rows" not in held.about:
        every = ((place, captions_of(held.index.item(place))) for place in places(held).values())
        held.about["rows"] = {int(row): (place, str(text)) for place, captions in every for row, text in captions}
    found: dict[int, tuple[int, str]] = held.about["rows"]
    return found


def _decided(queue: Queue, row: int) -> dict[str, Any]:
    listed = queue.listed()
    done = sum(one.row in queue.journal.state.now for one in listed)
    decision = queue.journal.state.now.get(row)
    return {
        "row": row,
        "decision": decision.as_json() if decision else None,
        "done": done,
        "left": len(listed) - done,
        "undoable": len(queue.journal.state.past),
        "counts": queue.counts(),
    }
