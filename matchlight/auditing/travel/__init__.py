"""Audits that travel: to the tools in which a team looks at data, and decisions back from there.

    send("audits/one", "tasks", to="label-studio")

In reading order:

    audited_rows.py          the findings that go out, with their data
    label_studio_tasks.py    tasks with pre-annotations, and the labelling set-up (decisions come back through
                             data/label_studio_answers.py)
    fiftyone_samples.py      a FiftyOne dataset with tags, scores and suggestions
    hub_table.py             Parquet with pictures, which Hugging Face `datasets` reads
    datalab_issues.py        the tables of issues of cleanlab's Datalab
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from matchlight.auditing.travel.audited_rows import AuditedRows, open_audit
from matchlight.auditing.travel.datalab_issues import write_datalab
from matchlight.auditing.travel.fiftyone_samples import to_fiftyone, write_fiftyone
from matchlight.auditing.travel.hub_table import write_hub_table
from matchlight.auditing.travel.label_studio_tasks import write_tasks
from matchlight.core import BadInput
from matchlight.files import new_folder

__all__ = ["AuditedRows", "TOOLS", "open_audit", "send", "to_fiftyone"]

# What writes the folder, and which rows go there unless others are asked for.
TOOLS: dict[str, tuple[Callable[[AuditedRows, Path], None], str]] = {
    "label-studio": (write_tasks, "suspects"),
    "fiftyone": (write_fiftyone, "all"),
    "parquet": (write_hub_table, "all"),
    "datalab": (write_datalab, "all"),
}


def send(
    audit: str | Path, out: str | Path, *, to: str, rows: str | None = None, data: str | Path | None = None
) -> dict[str, str | int]:
    """Write an audit for another tool into a new folder; `rows` are "suspects" or "all".

    `data` is where the audited data lies now, if it was moved.
    """
    if to not in TOOLS:
        raise BadInput(f"{to!r} is no tool an audit can be sent to; known: {', '.join(TOOLS)}")
    write, usual = TOOLS[to]
    audited = open_audit(audit, data, rows=rows or usual)
    with new_folder(Path(out)) as folder:
        write(audited, folder)
    return {"out": str(out), "tool": to, "pairs": len(audited.findings)}
