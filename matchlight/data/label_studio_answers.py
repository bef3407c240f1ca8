"""What people answered in Label Studio, as decisions: its exports JSON, JSON-MIN and CSV.

The choices are the words of decisions, a re-match saying which partner it means; the partners themselves came with the
task (`travel/label_studio_tasks.py`). Of several answers about one pair the last counts. Skipped tasks decide nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matchlight.console import BadInput

QUESTION = "decision"  # the name of the question in the labelling set-up
KEEP, DROP = "keep", "drop"
TO_PICTURE, TO_CAPTION = "rematch with the better picture", "rematch with the better caption"
CHOICES = (KEEP, DROP, TO_PICTURE, TO_CAPTION)

Entry = Mapping[str, object]


def is_export(entry: object) -> bool:
    """Whether an entry of a JSON list is a task of Label Studio."""
    return isinstance(entry, Mapping) and ("annotations" in entry or "annotation_id" in entry)


def answers(tasks: Sequence[Entry], where: str) -> list[tuple[Entry, str]]:
    """(entry as decisions read it, where it stands) of each answered task, in the order in which they were made."""
    found: list[tuple[str, Entry, str]] = []
    for number, task in enumerate(tasks, 1):
        place = f"{where} task {number}"
        for data, choice, at in _given(task, place):
            found.append((at, _entry(data, choice, at, place), place))
    return [(entry, place) for _, entry, place in sorted(found, key=lambda one: one[0])]


def _given(task: Entry, place: str) -> list[tuple[Entry, str, str]]:
    """(the task's data, the choice, when) of each answer; short exports have both side by side."""
    data, annotations = task.get("data", task), task.get("annotations")
    if not isinstance(data, Mapping):
        raise BadInput(f"{place}: no data; export the tasks that `matchlight data export` made")
    if annotations is None:
        choice = task.get(QUESTION)
        return [(data, str(choice), str(task.get("updated_at", "")))] if choice else []
    out = []
    for one in annotations if isinstance(annotations, list) else ():
        if isinstance(one, Mapping) and not one.get("was_cancelled") and (choice := _choice(one)):
            out.append((data, choice, str(one.get("updated_at") or one.get("created_at") or "")))
    return out


def _choice(annotation: Entry) -> str:
    """The answer to our question; other questions that a team added are no business of ours."""
    result = annotation.get("result")
    for part in result if isinstance(result, list) else ():
        if isinstance(part, Mapping) and part.get("from_name") == QUESTION:
            value = part.get("value")
            chosen = value.get("choices") if isinstance(value, Mapping) else None
            if isinstance(chosen, list) and chosen:
                return str(chosen[0])
    return ""


def _entry(data: Entry, choice: str, at: str, place: str) -> Entry:
    """A decision as every file writes it."""
    if "row" not in data:
        raise BadInput(f"{place}: its data has no row; export the tasks that `matchlight data export` made")
    entry = {"row": data["row"], "decision": choice, "at": at, "audit": data.get("audit")}
    if choice == TO_PICTURE:
        partner = {"image": data.get("better_image_name"), "image_row": data.get("better_image_row")}
    elif choice == TO_CAPTION:
        partner = {"caption_row": data.get("better_caption_row")}
    else:
        return entry
    if next(iter(partner.values())) in (None, ""):
        raise BadInput(f"{place}: {choice!r}, but the audit had found none for row {data['row']}")
    return {**entry, **partner, "decision": "rematch"}
