"""Routes about the whole: health, metrics, the model card, and the map of the collection."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException

from matchlight.console import VERSION, BadInput
from matchlight.files import Json, read_json
from matchlight.indexing.item_filters import folders
from matchlight.runs.card_figures import figures
from matchlight.serve import schemas
from matchlight.serve.live_index import LoadedIndex
from matchlight.serve.search_routes import PROBLEMS
from matchlight.serve.site import Site

if TYPE_CHECKING:
    from matchlight.indexing import Index

COLOURS = 12  # labels that get a colour of their own on the map; the rest share one
FULL = 65535


def router(site: Site) -> APIRouter:
    """All of them."""
    routes = APIRouter(responses=PROBLEMS)

    @routes.get("/api/health", response_model=schemas.Health)
    async def health() -> schemas.Health:
        """Whether the server answers; a new index that could not be loaded is reported here."""
        with site.live.use() as loaded:
            items = len(loaded.index)
        problem = "the newest index cannot be used; an older one answers" if site.live.problem else None
        return schemas.Health(status="ok", version=VERSION, items=items, problem=problem)

    @routes.get("/api/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Counters in Prometheus' text format."""
        with site.live.use() as loaded:
            items = len(loaded.index)
        text = site.counters.text(items=items, questions_waiting=site.pool.queued)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @routes.get("/api/about", response_model=schemas.About)
    async def about() -> schemas.About:
        """The model card: method, data, measures, versions; and what can be filtered by."""
        return await site.ask(lambda loaded: _about(site, loaded))

    @routes.get("/api/map", response_model=schemas.Map)
    async def map() -> schemas.Map:
        """Every picture as a point."""
        return await site.ask(lambda loaded: _map(site, loaded))

    return routes


def _about(site: Site, loaded: LoadedIndex) -> schemas.About:
    limits, metrics = site.limits, _metrics(loaded.index)
    return schemas.About(
        version=VERSION,
        index=_plain_dict(loaded.index.describe()),
        metrics=metrics,
        figures=[schemas.Figure(**asdict(one)) for one in figures(metrics or {})],
        audit=None if site.queue is None else _audited(site.queue.summary),
        filters=filters(site, loaded),
        review=site.queue is not None,
        map=loaded.index.map is not None,
        originals=site.originals is not None,
        limits={"upload_bytes": limits.upload_bytes, "upload_pixels": limits.upload_pixels},
        number=loaded.number,
    )


def warm(site: Site) -> None:
    """Compute before the first visitor what every visitor asks for; what fails here fails again when asked for."""
    with site.live.use() as loaded, suppress(Exception):
        filters(site, loaded)
        if site.queue is not None:
            _ = loaded.ids_by_name
        if loaded.index.map is not None:
            _map(site, loaded)
        loaded.index.search("a", top=1)


def _metrics(index: Index) -> dict[str, object] | None:
    """metrics.json of the run inside the index, if it has one."""
    try:
        metrics = read_json(index.model.folder / "metrics.json", "a run's metrics")
    except BadInput:
        return None
    return _plain_dict(metrics) if isinstance(metrics, dict) else None


def _audited(summary: dict[str, Json]) -> dict[str, object]:
    """An audit's summary without where its data lies."""
    return {name: value for name, value in _plain_dict(summary).items() if not isinstance(value, dict | list)}


def filters(site: Site, loaded: LoadedIndex) -> dict[str, dict[str, int]]:
    """What the data can be filtered by, and how many pictures each leaves; computed once an index."""
    if loaded.filters is None:
        splits: Counter[str] = Counter()
        labels: Counter[str] = Counter()
        suspects: Counter[str] = Counter()
        cameras: Counter[str] = Counter()
        years: Counter[str] = Counter()
        for id in loaded.index.ids.tolist():
            item = loaded.index.item(id)
            splits[item["split"]] += 1
            labels.update(item["labels"])
            cameras[item["camera"] or ""] += 1
            years[(item["taken"] or "")[:4]] += 1
            suspects["yes" if site.has_suspect_pair(loaded, id) else "no"] += 1
        counted = {"split": dict(splits.most_common()), "label": dict(labels.most_common(200))}
        known = {"camera": dict(cameras.most_common(100)), "year": dict(sorted(years.items()))}
        counted |= {name: {value: count for value, count in values.items() if value} for name, values in known.items()}
        counted["folder"] = folders(loaded.index.catalogue)
        counted |= {"suspect": dict(suspects)} if site.queue is not None else {}
        loaded.filters = {name: values for name, values in counted.items() if set(values) - {""}}
    return loaded.filters


def _map(site: Site, loaded: LoadedIndex) -> schemas.Map:
    if loaded.index.map is None:
        raise HTTPException(404, "this index was built without a map")
    if loaded.map is None:
        points = np.asarray(loaded.index.map, dtype=np.float64)
        low, high = points.min(0), points.max(0)
        wide = np.where(high > low, high - low, 1.0)
        loaded.map = schemas.Map(
            count=len(points),
            ids=_packed(loaded.index.ids.astype("<u4")),
            points=_packed(((points - low) / wide * FULL).round().astype("<u2")),
            colours=_colours(site, loaded),
            version=loaded.number,
            box=[*low.tolist(), *(low + wide).tolist()],
        )
    return loaded.map


def _colours(site: Site, loaded: LoadedIndex) -> dict[str, schemas.Colouring]:
    """For each way to colour: names, and each point's place among them."""
    items = [loaded.index.item(id) for id in loaded.index.ids.tolist()]
    ways: dict[str, list[str]] = {
        "label": [(one["labels"] or [""])[0] for one in items],
        "split": [one["split"] for one in items],
    }
    if site.queue is not None:
        ways["suspect"] = ["suspect" if site.has_suspect_pair(loaded, one["id"]) else "not suspect" for one in items]
    return {way: _coded(values) for way, values in ways.items() if len(set(values)) > 1}


def _coded(values: list[str]) -> schemas.Colouring:
    names = [name for name, _ in Counter(values).most_common(COLOURS)]
    place = {name: number for number, name in enumerate(names)}
    rest = len(names)
    codes = np.array([place.get(value, rest) for value in values], dtype=np.uint8)
    return schemas.Colouring(names=[*names, "other"] if (codes == rest).any() else names, of=_packed(codes))


def _packed(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _plain_dict(values: Mapping[str, object]) -> dict[str, object]:
    return {str(name): plain(value) for name, value in values.items()}


def plain(value: object) -> object:
    """A value that JSON can hold: paths as text, arrays as lists, what is no number as null."""
    if isinstance(value, dict):
        return _plain_dict(value)
    if isinstance(value, list | tuple | set):
        return [plain(one) for one in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)
