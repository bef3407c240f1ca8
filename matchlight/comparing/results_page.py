"""report.html of a comparison: one file with the table, the curves, the tests, and how every run got there."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from matchlight.comparing.curves import Line, Panel, draw
from matchlight.comparing.noise_columns import Noise, heading, is_per_picture, key
from matchlight.comparing.noise_columns import shown as shown_noise
from matchlight.comparing.results_table import ACROSS, Entry, Measurement, Results, Row, entries, header, panels, remark
from matchlight.console import VERSION
from matchlight.measuring import significance
from matchlight.measuring.onepage import one_page, page_part
from matchlight.measuring.protocols import figure

PAGE = Path(__file__).parent / "page"
RECALLS = [(side, f"r{k}") for side in ("i2t", "t2i") for k in (1, 5, 10)]
SHOWN = {"i2t": "image to text", "t2i": "text to image"}


def as_html(results: Results, folder: Path) -> str:
    """The whole page."""
    parts = [_table_of_results(results), _details(results), _tests(results), _training(results, folder), _runs(results)]
    return one_page(
        title=f"Methods under noise on {results['data'] or 'a data set'}",
        lead=_in_words(results),
        facts=_facts(results),
        main="\n".join(part for part in parts if part),
        made=f"{remark(results)}. Made by matchlight {VERSION}.",
        style=page_part(PAGE / "results.css"),
    )


def _in_words(results: Results) -> str:
    """The comparison in a sentence or two."""
    done, shares = len(results["cells"]), results["noise"]
    asked = len(results["methods"]) * len(shares) * results["seeds"]
    start = "" if done == asked else f"{done} of {asked} entries are trained so far. "
    said = []
    for share in (shares[0], shares[-1]) if len(shares) > 1 else shares:
        for line, own in entries(results):
            one = own[shares.index(share)]
            if one.best:
                level = _level(results, line["measure"], share)
                said.append(f"{line['shown']} leads at {heading(share)} ({line['measure']} {one.text}{level})")
    return start + ("; ".join(said) + "." if said else "")


def _level(results: Results, measure: str, share: Noise) -> str:
    """Which methods the best of a column is not surely ahead of."""
    shown = {one["label"]: one["shown"] for one in results["methods"]}
    same = [t for t in results.get("tests", ()) if (t["measure"], t["noise"]) == (measure, share) and not t["mark"]]
    return f", not surely ahead of {', '.join(shown.get(t['method'], t['method']) for t in same)}" if same else ""


def _facts(results: Results) -> dict[str, str]:
    seconds = sum(cell["seconds"] for cell in results["cells"])
    facts = {
        "methods": str(len(results["methods"])),
        "shares of noise": "; ".join(shown_noise(share) for share in results["noise"]),
        "seed" if results["seeds"] == 1 else "seeds": str(results["seeds"]),
        "of training and measuring": f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h",
    }
    return facts | ({"failed": str(len(results["failed"]))} if results["failed"] else {})


# ---- pieces of HTML --------------------------------------------------------------------------------------------------


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1, first: Sequence[int] = ()) -> str:
    """A table of HTML cells; the first `texts` columns are words, the rest numbers; some rows begin a group."""
    kinds = ["" if k < texts else ' class="n"' for k in range(len(columns))]
    head = "".join(f'<th{kind} scope="col">{html.escape(name)}</th>' for name, kind in zip(columns, kinds, strict=True))
    body = []
    for number, row in enumerate(rows):
        cells = "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row, kinds, strict=True))
        body.append(f'<tr class="first">{cells}</tr>' if number in first else f"<tr>{cells}</tr>")
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def _section(title: str, *inside: str) -> str:
    return f"<section>\n<h2>{html.escape(title)}</h2>\n" + "\n".join(inside) + "\n</section>"


def _note(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def _chart(results: Results, shown: list[Panel], across: str, *, percent: bool = True) -> str:
    """Curves in which a method has the same colour wherever it is shown."""
    names = [one["shown"] for one in results["methods"]]
    return f'<div class="scroll">{draw(shown, across=across, percent=percent, inline=True, names=names)}</div>'


def _entry(one: Entry) -> str:
    text = html.escape(one.text)
    return f"<b>{text}</b>" if one.best else text + html.escape(one.mark)


# ---- sections --------------------------------------------------------------------------------------------------------


def _table_of_results(results: Results) -> str:
    rows = []
    for line, own in entries(results):
        rows.append([html.escape(line["shown"]), line["measure"], *map(_entry, own), _lost(line, results["noise"])])
    columns = [*header(results), "lost to noise"]
    notes = [_note(significance.NOTE)] if results.get("tests") else []
    return _section("Results", _table(columns, rows, texts=2), *notes, _chart(results, panels(results), ACROSS))


def _lost(line: Row, noises: Sequence[Noise]) -> str:
    """How much of its value without noise a method loses at the largest share."""
    shares = [noise for noise in noises if not is_per_picture(noise) and key(noise) in line["noise"]]
    if len(shares) < 2:
        return ""
    least, most = (line["noise"][key(shares[place])]["mean"] for place in (0, -1))
    if not least:
        return ""
    return f"{100 * (least - most) / least:.0f}%"


def _details(results: Results) -> str:
    """R@K both ways, or MAP both ways, as means over seeds."""
    recalls, maps = [], []
    for line, share, cells in _groups(results):
        name = [html.escape(line["shown"]), shown_noise(share)]
        if line["measure"] == "rsum":
            recalls.append([*name, *(f"{_mean(cells, *path):.1f}" for path in RECALLS)])
        elif "map" in cells[0]["report"]:
            maps.append([*name, *(f"{_mean(cells, 'map', side):.3f}" for side in SHOWN)])
    out = []
    if recalls:
        names = [f"{side} R@{name[1:]}" for side, name in RECALLS]
        out.append(_table(["method", "noise", *names], recalls, first=_starts(recalls)))
    if maps:
        out.append(_table(["method", "noise", *(f"MAP {way}" for way in SHOWN.values())], maps, first=_starts(maps)))
    note = "i2t: a picture asks for its captions; t2i: a caption asks for its picture. Means over seeds."
    return _section("Both ways", _note(note), *out) if out else ""


def _groups(results: Results) -> Iterable[tuple[Row, Noise, list[Measurement]]]:
    for line, _ in entries(results):
        for share in results["noise"]:
            same = [c for c in results["cells"] if (c["method"], c["noise"]) == (line["method"], share)]
            if same:
                yield line, share, same


def _starts(rows: Sequence[Sequence[str]]) -> list[int]:
    return [k for k in range(1, len(rows)) if rows[k][0] != rows[k - 1][0]]


def _mean(cells: list[Measurement], *path: str) -> float:
    """The mean of one figure of the cells' reports; not a number where one of them lacks it."""
    try:
        return float(np.mean([figure(cell["report"], *path) for cell in cells]))
    except KeyError:
        return math.nan


def _tests(results: Results) -> str:
    shown = {one["label"]: one["shown"] for one in results["methods"]}
    rows, order = [], results.get("tests", [])
    for one in order:
        digits = 1 if one["measure"] == "rsum" else 3
        low, high = one["interval"]
        rows.append(
            [
                shown_noise(one["noise"]),
                html.escape(shown.get(one["method"], one["method"])),
                html.escape(shown.get(one["best"], one["best"])),
                f"{one['difference']:+.{digits}f}",
                f"{low:+.{digits}f} to {high:+.{digits}f}",
                f"{one['p_corrected']:.4f}",
                str(one["seeds"]),
            ]
        )
    if not rows:
        return ""
    columns = ["noise", "method", "against the best", "difference", "95% interval", "p (Holm)", "seeds"]
    note = (
        "What each test picture, with its captions, adds to the measure is compared between two methods, averaged over "
        "seeds. p speaks of other test pictures, not of other training runs: those are what the seeds show."
    )
    return _section("Which differences are sure?", _note(note), _table(columns, rows, texts=3, first=_starts(rows)))


def _training(results: Results, folder: Path) -> str:
    """The measure on the validation split by epoch, seed 0, a panel a share of noise."""
    by_share: dict[Noise, Panel] = {}
    for line, share, cells in _groups(results):
        cell = min(cells, key=lambda one: int(one["seed"]))
        points = validation(folder / str(cell.get("folder", "")) / "run" / "log.jsonl", line["measure"])
        if len(points) > 1:
            panel = by_share.setdefault(share, Panel(f"{line['measure']} on val, {heading(share)}"))
            panel.lines.append(Line(line["shown"], [(epoch, value, 0.0) for epoch, value in points]))
    if not by_share:
        return ""
    note = "One seed. A curve that rises and then falls has begun to memorise the wrong pairs."
    chart = _chart(results, list(by_share.values()), "epoch", percent=False)
    return _section("Validation by epoch", _note(note), chart)


def validation(log: Path, measure: str) -> list[tuple[float, float]]:
    """(epoch from 1, value on val) from a run's log, as far as it can be read."""
    points: dict[float, float] = {}
    try:
        lines = log.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    for text in lines:
        try:
            line = json.loads(text)
            val = line["val"]
            value = val["rsum"] if measure == "rsum" else val["map"]["mean"]
            points[float(line["epoch"]) + 1] = float(value)
        except (ValueError, KeyError, TypeError):
            continue
    return sorted(points.items())


def _runs(results: Results) -> str:
    shown = {one["label"]: one["shown"] for one in results["methods"]}
    rows = [
        [
            html.escape(shown.get(cell["method"], cell["method"])),
            f"<code>{html.escape(str(cell.get('folder', '')))}</code>",
            shown_noise(cell["noise"]),
            str(cell["seed"]),
            f"{cell['value']:.4g}",
            f"{cell['seconds']:.0f} s",
        ]
        for cell in results["cells"]
    ]
    failed = [
        [html.escape(bad["method"]), shown_noise(bad["noise"]), str(bad["seed"]), html.escape(bad["why"])]
        for bad in results["failed"]
    ]
    out = [_table(["method", "folder", "noise", "seed", "value", "time"], rows, texts=2)] if rows else []
    if failed:
        out += [_note("Not trained:"), _table(["method", "noise", "seed", "why"], failed, texts=4)]
    return _section("Every run", *out) if out else ""
