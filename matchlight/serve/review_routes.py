"""Routes of the audit review: the queue, suggestions for a pair, a decision, undo, and the decisions as a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

from fastapi import APIRouter, Path, Query, Response
from starlette.exceptions import HTTPException

from matchlight.data.decisions import REMATCH, Decision
from matchlight.data.findings import Finding
from matchlight.indexing.origins import Origin
from matchlight.serve import schemas
from matchlight.serve.live_index import LoadedIndex, captions_of
from matchlight.serve.review_queue import Queue
from matchlight.serve.search_routes import PROBLEMS
from matchlight.serve.site import FLAT, Site, part_of_audit, size

T = TypeVar("T")
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
    ) -> schemas.Review:
        """Suspects, the worst first, with the decisions made so far."""
        if site.queue is None:
            return schemas.Review(available=False)
        queue = site.queue
        return await site.ask(lambda loaded: _page(loaded, queue, offset, limit, below, state))

    @routes.get("/api/review/decisions.csv", response_class=Response, responses={200: {"content": {"text/csv": {}}}})
    async def decisions() -> Response:
        """Every decision that holds: what `matchlight data apply --decisions` reads."""
        name = {"content-disposition": 'attachment; filename="decisions.csv"'}
        return Response(_queue(site).journal.table(), media_type="text/csv; charset=utf-8", headers=name)

    @routes.get("/api/review/{row}", response_model=schemas.Suggestions)
    async def suggest(row: Row) -> schemas.Suggestions:
        """Captions and pictures of the collection that may fit better."""
        queue = _queue(site)
        finding = _finding(queue, row)
        found = await site.ask(lambda loaded: _suggested(loaded, finding, part_of_audit(loaded.index, queue)))
        return found.model_copy(update={"decision": _decision(queue, row)})

    _decisions(routes, site)
    return routes


def _decisions(routes: APIRouter, site: Site) -> None:
    @routes.post("/api/review/undo", response_model=schemas.Decided)
    async def undo(who: schemas.Undo | None = None) -> schemas.Decided:
        """Take back the last decision that holds, or a reviewer's last; as often as there are any."""
        queue, reviewer = _queue(site), who.reviewer if who else ""
        row = await _saved(site, lambda: queue.journal.undo(reviewer=reviewer))
        if row is None:
            raise HTTPException(404, "no decision is left to take back")
        return _decided(queue, row)

    @routes.post("/api/review/{row}", response_model=schemas.Decided)
    async def decide(row: Row, choice: schemas.Choice) -> schemas.Decided:
        """Keep, drop or re-match a pair, or take back what was decided about it; saved before this answers."""
        queue = _queue(site)
        finding = _finding(queue, row)
        if choice.decision == "undo":
            if await _saved(site, lambda: queue.journal.undo(row)) is None:
                raise HTTPException(404, f"nothing was decided about row {row}")
            return _decided(queue, row)
        await site.ask(lambda loaded: _check_partner(loaded, queue, finding, choice))
        before = await _saved(site, lambda: queue.journal.decide(row, **choice.model_dump()))
        other = before if before is not None and before.reviewer != choice.reviewer else None
        return _decided(queue, row, other)


async def _saved(site: Site, change: Callable[[], T]) -> T:
    """A change of the journal; what cannot be written, on a full disk, is refused and does not hold."""
    try:
        return await site.pool.run(change)
    except OSError as problem:
        raise HTTPException(503, f"not saved: {problem.strerror or problem}; the decision does not hold") from None


def _queue(site: Site) -> Queue:
    if site.queue is None:
        raise HTTPException(404, "no audit is served; start the server with --audit DIR")
    return site.queue


def _finding(queue: Queue, row: int) -> Finding:
    if row not in queue.findings:
        raise HTTPException(404, f"row {row} is not in this audit")
    return queue.findings[row]


def _page(
    loaded: LoadedIndex, queue: Queue, offset: int, limit: int, below: float | None, state: str
) -> schemas.Review:
    listed = queue.listed(below=below, state=state)
    done = sum(one.row in queue.journal.state.now for one in listed)
    return schemas.Review(
        available=True,
        total=len(listed),
        done=done,
        left=len(listed) - done,
        undoable=len(queue.journal.state.past),
        counts=queue.counts(),
        pairs=[_pair(loaded, queue, one) for one in listed[offset : offset + limit]],
        offset=offset,
        summary={name: value for name, value in queue.summary.items() if name != "data"},
        histogram=queue.histogram(),
        version=loaded.number,
    )


def _pair(loaded: LoadedIndex, queue: Queue, one: Finding) -> schemas.Pair:
    origin = part_of_audit(loaded.index, queue)
    id = loaded.picture_of(one.image, one.row, origin)
    width, height = FLAT if id is None else size(loaded.index, id)
    return schemas.Pair(
        row=one.row,
        id=id,
        image=one.image,
        caption=one.caption,
        score=one.score,
        suspect=one.suspect,
        reason=one.reason,
        split=one.split,
        width=width,
        height=height,
        better_image=one.better_image,
        better_id=loaded.picture_of(one.better_image, one.better_image_row, origin),
        better_caption=one.better_caption,
        better_caption_row=one.better_caption_row,
        decision=_decision(queue, one.row),
    )


def _decision(queue: Queue, row: int) -> dict[str, str | int] | None:
    decision = queue.journal.state.now.get(row)
    return decision.as_json() if decision else None


def _suggested(loaded: LoadedIndex, finding: Finding, origin: Origin) -> schemas.Suggestions:
    """What the audit proposed, then what the index finds in the audited data; never the pair's own partner."""
    id = loaded.picture_of(finding.image, finding.row, origin)
    others = [] if id is None else _others(loaded, id, origin.rows.start + finding.row)
    images = [one for one in _images(loaded, finding, origin) if one.id != id]
    texts = _captions(loaded, finding, origin, id)
    return schemas.Suggestions(
        row=finding.row,
        images=[_of_data(one, origin) for one in _first_distinct(images, lambda one: str(one.id), set())],
        captions=[
            _of_data(one, origin) for one in _first_distinct(texts, lambda one: one.caption, {finding.caption, *others})
        ],
        others=others,
    )


def _images(loaded: LoadedIndex, finding: Finding, origin: Origin) -> list[schemas.Suggestion]:
    better = loaded.picture_of(finding.better_image, finding.better_image_row, origin)
    images = [] if better is None else [_image(loaded, better)]
    if finding.caption.strip():
        hits = loaded.index.search(finding.caption, top=FEW + 2, find="image").hits
        images += [_image(loaded, hit.id, hit.score) for hit in hits if hit.id in origin.ids]
    return images


def _captions(loaded: LoadedIndex, finding: Finding, origin: Origin, id: int | None) -> list[schemas.Suggestion]:
    texts, captions = loaded.captions_by_row, []
    row = -1 if finding.better_caption_row is None else origin.rows.start + finding.better_caption_row
    if row in texts:
        captions.append(_caption(loaded, *texts[row], row))
    if id is not None:
        hits = loaded.index.captions(id, top=FEW + 12)
        captions += [
            _caption(loaded, hit.id, hit.caption, hit.row, hit.score) for hit in hits if hit.row in origin.rows
        ]
    return captions


def _of_data(one: schemas.Suggestion, origin: Origin) -> schemas.Suggestion:
    """With its row in the audited data instead of the index, as decisions name it."""
    return one.model_copy(update={"row": one.row - origin.rows.start if one.row >= 0 else one.row})


def _others(loaded: LoadedIndex, id: int, own: int) -> list[str]:
    """The picture's other captions: often they settle it."""
    return [text for row, text in captions_of(loaded.index.item(id)) if row != own]


def _image(loaded: LoadedIndex, id: int, score: float | None = None) -> schemas.Suggestion:
    """A picture with its first caption."""
    row, caption = next(iter(captions_of(loaded.index.item(id))), (-1, ""))
    return _suggestion(loaded, "image", id, caption, row, score)


def _caption(loaded: LoadedIndex, id: int, caption: str, row: int, score: float | None = None) -> schemas.Suggestion:
    return _suggestion(loaded, "caption", id, caption, row, score)


def _suggestion(
    loaded: LoadedIndex, kind: Literal["image", "caption"], id: int, caption: str, row: int, score: float | None
) -> schemas.Suggestion:
    width, height = size(loaded.index, id)
    image = loaded.index.item(id)["name"]
    return schemas.Suggestion(
        kind=kind, id=id, image=image, caption=caption, row=row, score=score, width=width, height=height
    )


def _first_distinct(
    suggestions: list[schemas.Suggestion], key: Callable[[schemas.Suggestion], str], own: set[str]
) -> list[schemas.Suggestion]:
    """The first few that differ from each other and from what the pair has already."""
    distinct = {key(one): one for one in reversed(suggestions) if key(one) not in own}
    return list(distinct.values())[::-1][:FEW]


def _check_partner(loaded: LoadedIndex, queue: Queue, finding: Finding, choice: schemas.Choice) -> None:
    """Refuse a re-match without a partner that is there, and a partner without a re-match."""
    image, row = choice.image, choice.caption_row
    if choice.decision != REMATCH:
        if (image, row, choice.image_row) != (None, None, None):
            raise HTTPException(422, f"{choice.decision} takes no image and no caption_row; rematch does")
        return
    if (image is None) == (row is None) or (image is None and choice.image_row is not None):
        raise HTTPException(422, "rematch names an image (for the caption) or a caption_row (for the picture)")
    origin = part_of_audit(loaded.index, queue)
    if image is not None:
        _check_image(loaded, finding, choice, origin)
    if row is not None and origin.rows.start + row not in loaded.captions_by_row and row not in queue.findings:
        raise HTTPException(422, "rematch: no such caption_row in the index")
    if row == finding.row:
        raise HTTPException(422, "rematch: that is the pair as it is; keep says so")


def _check_image(loaded: LoadedIndex, finding: Finding, choice: schemas.Choice, origin: Origin) -> None:
    """Refuse a picture that is not there, that its name alone does not tell, or that the caption has already."""
    named = loaded.ids_by_name.get(choice.image or "", [])
    if not named:
        raise HTTPException(422, "rematch: no such image in the index")
    if len(named) > 1 and choice.image_row is None:
        raise HTTPException(422, f"rematch: {len(named)} images are called so; image_row, a row of it, says which")
    chosen = loaded.picture_of(choice.image, choice.image_row, origin)
    if chosen not in named:
        raise HTTPException(422, "rematch: image_row is no row of that image")
    if chosen == loaded.picture_of(finding.image, finding.row, origin):
        raise HTTPException(422, "rematch: that is the pair as it is; keep says so")


def _decided(queue: Queue, row: int, replaced: Decision | None = None) -> schemas.Decided:
    listed = queue.listed()
    done = sum(one.row in queue.journal.state.now for one in listed)
    return schemas.Decided(
        row=row,
        decision=_decision(queue, row),
        done=done,
        left=len(listed) - done,
        undoable=len(queue.journal.state.past),
        counts=queue.counts(),
        replaced=replaced.as_json() if replaced else None,
    )
