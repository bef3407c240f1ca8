"""An audit as Label Studio tasks: tasks.json to import, config.xml for the project's labelling interface.

Each task is a pair with the audit's score, reason and better partners; the verdict is a pre-annotation that a person
confirms or changes. Small pictures are inside the file, so that nothing has to be served or uploaded.
"""

from __future__ import annotations

import html
import json
from functools import cache
from pathlib import Path

from matchlight.auditing.report import thumbnail
from matchlight.auditing.travel.audited_rows import AuditedRows
from matchlight.console import VERSION, track
from matchlight.core import Json
from matchlight.data.findings import Finding
from matchlight.data.label_studio_answers import CHOICES, DROP, KEEP, QUESTION, TO_CAPTION, TO_PICTURE

SIDE = 512  # pixels of a picture's longer side, at most
SURE = 0.5  # support from which a better partner is the proposal
NONE = "<p>No better partner was found.</p>"
CONFIG = f"""<View>
  <Header value="Does the caption belong to the picture?"/>
  <Image name="image" value="$image"/>
  <Text name="caption" value="$caption"/>
  <Choices name="{QUESTION}" toName="image" choice="single" required="true" showInline="false">
{chr(10).join(f'    <Choice value="{choice}"/>' for choice in CHOICES)}
  </Choices>
  <Header value="What the audit says"/>
  <Text name="why" value="$why"/>
  <HyperText name="suggestions" value="$suggestions"/>
</View>
"""


def write_tasks(audited: AuditedRows, folder: Path) -> None:
    """tasks.json and config.xml."""
    (folder / "config.xml").write_text(CONFIG, encoding="utf-8")
    picture = cache(lambda place: thumbnail(audited.pairs, place, side=SIDE))
    with open(folder / "tasks.json", "w", encoding="utf-8", newline="\n") as file:
        for number, one in enumerate(track(audited.findings, "writing tasks")):
            better = audited.better_pictures.get(one.row)
            own = picture(int(audited.pairs.picture[one.row]))
            task = _task(one, own, "" if better is None else picture(better), audited.mark)
            file.write(("[\n" if not number else ",\n") + json.dumps(task, ensure_ascii=False))
        file.write("\n]\n")


def _task(one: Finding, image: str, better_image: str, mark: str) -> dict[str, Json]:
    chosen: dict[str, Json] = {"choices": [proposal(one)]}
    result: dict[str, Json] = {"id": f"row{one.row}", "from_name": QUESTION, "to_name": "image", "type": "choices"}
    prediction: dict[str, Json] = {
        "model_version": f"matchlight-{VERSION}",
        "score": round(1 - one.score if one.suspect else one.score, 4),
        "result": [{**result, "value": chosen}],
    }
    data: dict[str, Json] = {
        "row": one.row,
        "image": image,
        "caption": one.caption,
        "image_name": one.image,
        "split": one.split,
        "score": round(one.score, 6),
        "reason": one.reason,
        "why": _why(one),
        "suggestions": _suggestions(one, better_image),
        "better_image_name": one.better_image,
        "better_image_row": one.better_image_row,
        "better_caption": one.better_caption,
        "better_caption_row": one.better_caption_row,
        "audit": mark,
    }
    return {"data": data, "predictions": [prediction]}


def proposal(one: Finding) -> str:
    """What the audit would do: keep what is not suspect, and re-match where it is sure of a better partner."""
    if not one.suspect:
        return KEEP
    picture, caption = one.better_image_support or 0.0, one.better_caption_support or 0.0
    if max(picture, caption) < SURE:
        return DROP
    return TO_PICTURE if picture >= caption else TO_CAPTION


def _why(one: Finding) -> str:
    parts = [one.reason or "nothing to say", f"score {one.score:.3g} (0 = surely wrong, 1 = surely right)"]
    if one.labels is not None and one.labels.side:
        parts.append(f"label {one.labels.label}, more likely {one.labels.likely}")
    return "; ".join(parts)


def _suggestions(one: Finding, better_image: str) -> str:
    parts = []
    if one.better_image is not None:
        shown = f'<br><img src="{better_image}">' if better_image else ""
        parts.append(f"<p>Better picture: {html.escape(one.better_image)}{shown}</p>")
    if one.better_caption is not None:
        parts.append(f"<p>Better caption: {html.escape(one.better_caption)}</p>")
    return "".join(parts) or NONE
