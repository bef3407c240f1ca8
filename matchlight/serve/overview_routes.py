"""Routes about the whole: health, metrics, the model card, and the map of the collection."""

from __future__ import annotations

import base64
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException

from matchlight.console import VERSION
from matchlight.core import BadInput
from matchlight.files import read_json
from matchlight.serve import schemas
from matchlight.serve.live_index import Held
from matchlight.serve.model_card import figures
from matchlight.serve.search_routes import PROBLEMS
from matchlight.serve.site import Site, ids, places

COLOURS = 12  # labels that get a colour of their own on the map; the rest share one
FULL = 65535


def router(site: Site) -> APIRouter:
    """All of them."""
    routes = APIRouter(responses=PROBLEMS)

    @routes.get("/api/health", response_model=schemas.Health)
    async def health() -> dict[str, Any]:
        """Whether the server answers; a new index that could not be loaded is told here."""
        with site.holder.use() as held:
            items = len(held.index)
        problem = "the newest index cannot be used; an older one answers" if site.holder.problem else None
        return {"status": "ok", "version": VERSION, "items": items, "problem": problem}

    @routes.get("/api/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Counters in Prometheus' text format."""
        with site.holder.use() as held:
            items = len(held.index)
        text = site.metrics.text(items=items, questions_waiting=site.work.queued)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @routes.get("/api/about", response_model=schemas.About)
    async def about() -> dict[str, Any]:
        """The model card: method, data, measures, versions; and what can be filtered by."""
        return await site.ask(lambda held: _about(site, held))

    @routes.get("/api/map", response_model=schemas.Map)
    async def map() -> dict[str, Any]:
        """Every picture as a point."""
        return await site.ask(lambda held: _map(site, held))

    return routes


def _about(site: Site, held: Held) -> dict[str, Any]:
    limits, metrics = site.limits, _metrics(held.index)
    return {
        "version": VERSION,
        "index": plain(held.index.describe()),
        "metrics": metrics,
        "figures": figures(metrics or {}),
        "audit": None if site.queue is None else _audited(site.queue.summary),
        "filters": filters(site, held),
        "review": site.queue is not None,
        "map": held.index.map is not None,
        "originals": site.originals is not None,
        "limits": {"upload_bytes": limits.upload_bytes, "upload_pixels": limits.upload_pixels},
        "number": held.number,
    }


def warm(site: Site) -> None:
    """Work out before the first visitor what every visitor asks for; what fails here is told when it is asked for."""
    with site.holder.use() as held, suppress(Exception):
        filters(site, held)
        if site.queue is not None:
            places(held)
        if held.index.map is not None:
            _map(site, held)
        held.index.search("a", top=1)


def _metrics(index: Any) -> dict[str, Any] | None:
    """metrics.json of the run inside the index, if it has one."""
    try:
        found = read_json(Path(index.run.folder) / "metrics.json", "a run's metrics")
    except BadInput:
        return None
    return plain(found) if isinstance(found, dict) else None


def _audited(summary: dict[str, Any]) -> dict[str, Any]:
    """An audit's summary without where its data lies."""
    return {name: value for name, value in plain(summary).items() if not isinstance(value, dict | list)}


def filters(site: Site, held: Held) -> dict[str, dict[str, int]]:
    """What the data can be filtered by, and how many pictures each leaves; worked out once an index."""
    if "filters" not in held.about:
        splits: Counter[str] = Counter()
        labels: Counter[str] = Counter()
        doubts: Counter[str] = Counter()
        for place in ids(held.index).tolist():
            found = held.index.item(place)
            splits[str(found.get("split") or "")] += 1
            labels.update(str(label) for label in found.get("labels") or [])
            doubts["yes" if site.suspect(str(found["name"])) else "no"] += 1
        counted = {"split": dict(splits.most_common()), "label": dict(labels.most_common(200))}
        counted |= {"suspect": dict(doubts)} if site.queue is not None else {}
        held.about["filters"] = {name: values for name, values in counted.items() if set(values) - {""}}
    found_filters: dict[str, dict[str, int]] = held.about["filters"]
    return found_filters


def _map(site: Site, held: Held) -> dict[str, Any]:
    if held.index.map is None:
        raise HTTPException(404, "this index was built without a map")
    if "map" not in held.about:
        points = np.asarray(held.index.map, dtype=np.float64)
        low, high = points.min(0), points.max(0)
        wide = np.where(high > low, high - low, 1.0)
        held.about["map"] = {
            "count": len(points),
            "ids": _packed(ids(held.index).astype("<u4")),
            "points": _packed(((points - low) / wide * FULL).round().astype("<u2")),
            "colours": _colours(site, held),
            "version": held.number,
            "box": [*low.tolist(), *(low + wide).tolist()],
        }
    found: dict[str, Any] = held.about["map"]
    return found


def _colours(site: Site, held: Held) -> dict[str, dict[str, Any]]:
    """For each way to colour: names, and each point's place among them."""
    items = [held.index.item(place) for place in ids(held.index).tolist()]
    ways: dict[str, list[str]] = {
        "label": [str((one.get("labels") or [""])[0]) for one in items],
        "split": [str(one.get("split") or "") for one in items],
    }
    if site.queue is not None:
        ways["suspect"] = ["suspect" if site.suspect(str(one["name"])) else "not suspect" for one in items]
    return {way: _coded(values) for way, values in ways.items() if len(set(values)) > 1}


def _coded(values: list[str]) -> dict[str, Any]:
    names = [name for name, _ in Counter(values).most_common(COLOURS)]
    place = {name: number for number, name in enumerate(names)}
    rest = len(names)
    codes = np.array([place.get(value, rest) for value in values], dtype=np.uint8)
    return {"names": [*names, "other"] if (codes == rest).any() else names, "of": _packed(codes)}


def _packed(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()


def plain(value: Any) -> Any:
    """A value JSON can say: paths as text, arrays as lists, what is no number as nothing."""
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(one) for one in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)
