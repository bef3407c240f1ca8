"""report.html: one file that shows the worst pairs with their pictures, lets a person decide, and needs no network."""

from __future__ import annotations

import base64
import html
import io
import json
from functools import cache, partial
from pathlib import Path
from typing import NotRequired, TypedDict

import numpy as np

from matchlight.auditing.reasons import Findings
from matchlight.console import track
from matchlight.data.findings import Finding, Summary
from matchlight.files import write_text
from matchlight.measuring.onepage import one_page, page_part, page_template
from matchlight.pairs import BadPicture, Pairs

PAGE = Path(__file__).parent / "page"
WITH_PICTURES = 400  # pairs shown as cards; all of them are in the table below
FEWEST = 40  # cards; where fewer pairs are suspect, the worst of the others fill the page up
WIDTH = 176  # pixels of a thumbnail
QUALITY = 70


def write_report(
    path: Path, pairs: Pairs, findings: Findings, summary: Summary, chart: str, *, cards: int = WITH_PICTURES
) -> None:
    """The whole page, atomically."""
    reasons = ["", *findings.counts()]
    splits = sorted(set(pairs.splits[pairs.picture[findings.row]].tolist()))
    places = findings.to_review(fewest=min(cards, FEWEST), most=cards)
    data = {
        "key": summary["data"]["fingerprint"],
        "pairs": _cards(pairs, findings, places),
        **_rows(pairs, findings, reasons, splits),
    }
    main = page_template(PAGE / "main.html").substitute(
        legend=html.escape(LEGEND),
        chart=chart,
        cut=_cut(int(findings.suspect[places].sum()), int(findings.suspect.sum())),
        reasons=_options(reasons, "all"),
        splits=_options(["", *splits], "all"),
    )
    ending = page_template(PAGE / "ending.html")
    page = one_page(
        title=f"Audit of {pairs.root.name or 'a data set'}",
        lead=in_a_sentence(summary),
        facts=_facts(summary),
        main=main,
        made=f"Signals: {', '.join(summary['signals'])}. Made by matchlight {summary['version']}.",
        style=page_part(PAGE / "report.css"),
        ending=ending.substitute(data=safe_json(data), script=page_part(PAGE / "report.js")),
    )
    write_text(path, page)


LEGEND = (
    "Bars: how many pairs have this much evidence of being right (to the right) or wrong (to the left), as log odds. "
    "Lines: how many of them are thought wrong (amber) and right (green)."
)


def in_a_sentence(summary: Summary) -> str:
    """The audit in a sentence."""
    start = f"{summary['flagged']:,} of {summary['pairs']:,} pairs of {summary['split']!r} are suspect"
    if not summary.get("can_tell", True):
        return f"{start}; {summary['notes'][0]}."
    low, high = summary["estimated_noise_interval"]
    share = f"an estimated {summary['estimated_noise']:.1%} ({low:.1%} to {high:.1%}) are wrong"
    if "estimated_label_noise" in summary:  # labels beside pairs; where labels alone were judged, the share is theirs
        share += f", and {summary['estimated_label_noise']:.1%} of the labels"
    alarms = f"about {summary['expected_false_alarms']:.0f} of the suspects are expected to be false alarms"
    return f"{start}; {share}; {alarms}."


def safe_json(value: object) -> str:
    """JSON that cannot end the script block it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return (
        text.replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("&", "\\u0026")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )


def _cut(shown: int, all_of_them: int) -> str:
    """What a reader must know where not every suspect is shown."""
    if shown == all_of_them:
        return ""
    part = (
        f"Of {all_of_them:,} suspects {shown:,} are shown: the worst {shown // 2:,}, and the others evenly, down to the"
    )
    return f"<p>{part} least suspect. <code>matchlight serve INDEX --audit AUDIT</code> reviews them all.</p>"


def _facts(summary: Summary) -> dict[str, str]:
    counts = {"pairs": summary["pairs"], "suspect": summary["flagged"], **summary["reasons"]}
    share = f"{summary['estimated_noise']:.1%}" if summary.get("can_tell", True) else "cannot be told"
    return {name: f"{value:,}" for name, value in counts.items()} | {"estimated wrong": share}


def _options(names: list[str], blank: str) -> str:
    return "".join(f'<option value="{html.escape(name)}">{html.escape(name or blank)}</option>' for name in names)


class Better(TypedDict):
    """A partner that fits better: a picture (name, src) or a caption (row, text)."""

    support: float
    name: NotRequired[str]
    src: NotRequired[str]
    row: NotRequired[int]
    text: NotRequired[str]


class Card(TypedDict):
    """A pair as the page's script shows it."""

    row: int
    name: str
    text: str
    score: float
    reason: str
    split: str
    src: str
    image: NotRequired[Better]
    caption: NotRequired[Better]
    labels: NotRequired[str]


def _cards(pairs: Pairs, findings: Findings, places: np.ndarray) -> list[Card]:
    """The pairs shown with their pictures; each thumbnail is made once."""
    picture = cache(partial(thumbnail, pairs))
    records = zip(places.tolist(), findings.records(pairs, places), strict=True)
    cards = []
    for k, one in track(records, "drawing the report", len(places)):
        card = _card(one, picture(int(pairs.picture[one.row])))
        if one.better_image is not None and one.better_image_support is not None:
            source = picture(int(findings.picture[k]))
            card["image"] = {"name": one.better_image, "src": source, "support": _short(one.better_image_support)}
        if findings.labels is not None and (labels := findings.labels.sentence(k)):
            card["labels"] = labels
        cards.append(card)
    return cards


def _card(one: Finding, source: str) -> Card:
    card: Card = {
        "row": one.row,
        "name": one.image,
        "text": one.caption,
        "score": _short(one.score),
        "reason": one.reason,
        "split": one.split,
        "src": source,
    }
    if one.better_caption_row is not None and one.better_caption_support is not None:
        support = _short(one.better_caption_support)
        card["caption"] = {"row": one.better_caption_row, "text": one.better_caption or "", "support": support}
    return card


class AllRows(TypedDict):
    """Every pair as a short list: row, picture, caption, score, reason, split."""

    rows: list[tuple[int, int, str, float, int, int]]
    names: list[str]
    reasons: list[str]
    splits: list[str]


def _rows(pairs: Pairs, findings: Findings, reasons: list[str], splits: list[str]) -> AllRows:
    order = np.argsort(findings.score, kind="stable")
    pictures, place = np.unique(pairs.picture[findings.row], return_inverse=True)
    which = {reason: number for number, reason in enumerate(reasons)}
    part = {split: number for number, split in enumerate(splits)}
    rows = []
    for k in order.tolist():
        row = int(findings.row[k])
        split = part[str(pairs.splits[pairs.picture[row]])]
        number = which.get(str(findings.reason[k]), 0)
        rows.append((row, int(place[k]), pairs.captions[row], _short(findings.score[k]), number, split))
    return {"rows": rows, "names": [str(pairs.names[i]) for i in pictures], "reasons": reasons, "splits": splits}


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def thumbnail(pairs: Pairs, place: int, *, side: int | None = None) -> str:
    """A small JPEG as a data address, `side` pixels long at most; "" for a picture that cannot be shown."""
    if pairs.pictures is None:
        return ""
    try:
        image = pairs.pictures.open(place)
    except BadPicture:
        return ""
    image.thumbnail((WIDTH, 2 * WIDTH) if side is None else (side, side))
    file = io.BytesIO()
    image.convert("RGB").save(file, "JPEG", quality=QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
