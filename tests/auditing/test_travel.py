"""Audits that travel: Label Studio there and back, FiftyOne, Hugging Face datasets, cleanlab's tables."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from serving import WRONG, audit_of, drawn

from matchlight.auditing.apply import apply
from matchlight.auditing.travel import send
from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.data.decisions import read_decisions
from matchlight.data.findings import Finding, LabelFinding, read_findings, write_findings
from matchlight.data.label_studio_answers import CHOICES, DROP, KEEP, TO_CAPTION, TO_PICTURE
from matchlight.pairs import Pairs

Task = dict[str, object]


@pytest.fixture
def audited(tmp_path: Path) -> Path:
    """Shapes whose rows 4, 12, ... are called wrong, the worst first; each has a better picture and caption."""
    return audit_of(drawn(tmp_path / "shapes"), tmp_path / "audit")


def with_labels(audit: Path) -> Path:
    """The same audit with class labels, one of which is wrong."""
    findings = read_findings(audit / "pairs.csv")
    shape = [Path(one.image).stem.split("_")[1] for one in findings]
    named = [replace(one, labels=_label(one, name)) for one, name in zip(findings, shape, strict=True)]
    write_findings(audit / "pairs.csv", named, labels=True)
    return audit


def _label(one: Finding, name: str) -> LabelFinding:
    wrong = one.row == 4
    return LabelFinding(
        name, "=ring" if wrong else "", "image" if wrong else "", name, name, label_score=0.1 if wrong else 0.9
    )


def tasks_of(audit: Path, out: Path, **options: str) -> list[Task]:
    send(audit, out, to="label-studio", **options)  # type: ignore[arg-type]
    return json.loads((out / "tasks.json").read_text())


def answered(task: Task, choice: str, at: str = "2026-01-01T00:00:00Z", **more: object) -> Task:
    """The task as Label Studio exports it after somebody answered."""
    result = [{"from_name": "decision", "to_name": "image", "type": "choices", "value": {"choices": [choice]}}]
    given = {"id": 1, "was_cancelled": False, "updated_at": at, "result": result, **more}
    earlier = task.get("annotations", [])
    assert isinstance(earlier, list)
    return {"id": 7, **task, "annotations": [*earlier, given]}


# ---- Label Studio ----------------------------------------------------------------------------------------------------


def test_tasks_hold_the_suspects_with_the_verdict_as_a_pre_annotation(audited: Path, tmp_path: Path) -> None:
    tasks = tasks_of(audited, tmp_path / "out")
    assert [task["data"]["row"] for task in tasks] == [4, 12, 20, 28, 36, 44]  # type: ignore[index]
    data, guess = tasks[0]["data"], tasks[0]["predictions"][0]  # type: ignore[index]
    assert data["image"].startswith("data:image/jpeg;base64,")
    assert data["better_image_name"] == "green_bar.png" and "Better picture: green_bar.png" in data["suggestions"]
    assert guess["result"][0]["value"]["choices"] == [TO_PICTURE] and guess["score"] == pytest.approx(1 - data["score"])
    assert len(tasks_of(audited, tmp_path / "all", rows="all")) == 48


def test_an_audit_goes_to_label_studio_and_its_answers_come_back_into_the_cleaned_copy(
    audited: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, pairs = tmp_path / "out", Pairs.read(tmp_path / "shapes")
    assert main(["data", "export", str(audited), "--to", "label-studio", "-o", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"out": str(out), "tool": "label-studio", "pairs": WRONG}
    tasks = json.loads((out / "tasks.json").read_text())
    said = [KEEP, DROP, TO_PICTURE, TO_CAPTION, KEEP]  # and one that nobody answered: the audit's verdict stands
    export = [answered(task, choice) for task, choice in zip(tasks, said, strict=False)] + [
        {**tasks[5], "annotations": []}
    ]
    (tmp_path / "export.json").write_text(json.dumps(export))
    clean = str(tmp_path / "clean")
    assert (
        main(["data", "apply", str(audited), "--decisions", str(tmp_path / "export.json"), "-o", clean, "--json"]) == 0
    )
    counts = json.loads(capsys.readouterr().out)
    assert (counts["kept"], counts["rematched"], counts["dropped"]) == (44, 2, 2)
    cleaned = Pairs.read(clean)
    captions = {name: [] for name in cleaned.names}
    for row, text in enumerate(cleaned.captions):
        captions[cleaned.names[cleaned.picture[row]]].append(text)
    own, moved, taught = (int(pairs.picture[row]) for row in (12, 20, 28))
    assert pairs.captions[4] in captions[pairs.names[pairs.picture[4]]]  # kept
    assert pairs.captions[12] not in captions[pairs.names[own]]  # dropped
    assert pairs.captions[20] in captions[pairs.names[moved + 7]]  # with the better picture
    assert pairs.captions[2 * ((taught + 7) % 24)] in captions[pairs.names[taught]]  # with the better caption


def test_short_exports_say_the_same(audited: Path, tmp_path: Path) -> None:
    tasks = tasks_of(audited, tmp_path / "out")
    flat = [
        {**task["data"], "decision": choice, "id": n, "annotation_id": n}  # type: ignore[dict-item]
        for n, (task, choice) in enumerate(zip(tasks, [KEEP, DROP, TO_PICTURE, TO_CAPTION], strict=False))
    ]
    (tmp_path / "min.json").write_text(json.dumps(flat))
    with open(tmp_path / "export.csv", "w", newline="") as file:
        lines = csv.DictWriter(file, list(flat[0]))
        lines.writeheader()
        lines.writerows(flat)
    counts = [apply(audited, tmp_path / f"to{name}", decisions=tmp_path / name) for name in ("min.json", "export.csv")]
    assert [(one["kept"], one["rematched"], one["dropped"]) for one in counts] == [(43, 2, 3)] * 2


def test_the_last_answer_counts_and_a_skipped_task_decides_nothing(audited: Path, tmp_path: Path) -> None:
    first, second, *_ = tasks_of(audited, tmp_path / "out")
    changed = answered(answered(first, DROP, "2026-02-02T00:00:00Z"), KEEP, "2026-01-01T00:00:00Z")
    skipped = answered(second, KEEP, was_cancelled=True)
    (tmp_path / "export.json").write_text(json.dumps([changed, skipped]))
    assert apply(audited, tmp_path / "clean", decisions=tmp_path / "export.json")["dropped"] == WRONG


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"audit": "0" * 16}, "task 1: decided about other data"),
        ({"row": 99}, "row 99; the data has rows 0 to 47"),
        ({"row": "../4"}, "is no row number"),
        ({"better_image_name": "/etc/passwd"}, "a rematch names either an image or a caption_row of the data"),
        ({"better_image_name": None}, "the audit had found none for row 4"),
    ],
)
def test_answers_about_something_else_are_one_clear_line(
    audited: Path, tmp_path: Path, change: Task, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    task = tasks_of(audited, tmp_path / "out")[0]
    changed = {**task, "data": {**task["data"], **change}}  # type: ignore[dict-item]
    (tmp_path / "export.json").write_text(json.dumps([answered(changed, TO_PICTURE)]))
    ask = ["data", "apply", str(audited), "--decisions", str(tmp_path / "export.json"), "-o", str(tmp_path / "clean")]
    assert main(ask) == 2
    assert says in capsys.readouterr().err and not (tmp_path / "clean").exists()


def test_a_choice_that_is_none_of_ours_is_one_clear_line(audited: Path, tmp_path: Path) -> None:
    task = tasks_of(audited, tmp_path / "out")[0]
    (tmp_path / "export.json").write_text(json.dumps([answered(task, "maybe")]))
    with pytest.raises(BadInput, match="task 1: 'maybe'; keep, drop or rematch"):
        apply(audited, tmp_path / "clean", decisions=tmp_path / "export.json")


def test_a_caption_cannot_put_markup_into_the_suggestions(audited: Path, tmp_path: Path) -> None:
    findings = read_findings(audited / "pairs.csv")
    mean = [replace(one, better_caption="<script>x</script>") if one.row == 4 else one for one in findings]
    write_findings(audited / "pairs.csv", mean, labels=False)
    assert "&lt;script&gt;" in tasks_of(audited, tmp_path / "out")[0]["data"]["suggestions"]  # type: ignore[index]


@pytest.mark.full
def test_label_studio_takes_the_set_up_the_tasks_and_the_pre_annotations(audited: Path, tmp_path: Path) -> None:
    interface = pytest.importorskip("label_studio_sdk.label_interface", reason="label-studio-sdk is not installed")
    tasks = tasks_of(with_labels(audited), tmp_path / "out")
    config = interface.LabelInterface((tmp_path / "out" / "config.xml").read_text())
    config.validate()
    assert set(config.get_tag("decision").labels) == set(CHOICES)
    for task in tasks:
        assert config.validate_task({"data": task["data"]}) and config.validate_prediction(task["predictions"][0])  # type: ignore[index]


@pytest.mark.full
def test_what_label_studio_s_own_converter_exports_is_applied(audited: Path, tmp_path: Path) -> None:
    converter = pytest.importorskip("label_studio_sdk.converter", reason="label-studio-sdk is not installed")
    tasks = tasks_of(audited, tmp_path / "out")
    more = {"created_at": "2026-01-01T00:00:00Z", "lead_time": 1.0, "completed_by": {"id": 1, "email": "a@b.c"}}
    said = [KEEP, DROP, TO_PICTURE, TO_CAPTION]
    export = [answered(task, choice, **more) for task, choice in zip(tasks, said, strict=False)]
    (tmp_path / "export.json").write_text(json.dumps(export))
    tool = converter.Converter((tmp_path / "out" / "config.xml").read_text(), str(tmp_path), download_resources=False)
    tool.convert_to_json_min(str(tmp_path / "export.json"), str(tmp_path / "min"), is_dir=False)
    tool.convert_to_csv(str(tmp_path / "export.json"), str(tmp_path / "csv"), is_dir=False, sep=",", header=True)
    files = [tmp_path / "export.json", *(tmp_path / "min").iterdir(), *(tmp_path / "csv").iterdir()]
    counts = [apply(audited, tmp_path / f"clean{n}", decisions=file) for n, file in enumerate(files)]
    assert [(one["kept"], one["rematched"], one["dropped"]) for one in counts] == [(43, 2, 3)] * 3


def test_a_table_with_large_pictures_in_its_cells_is_read(tmp_path: Path) -> None:
    (tmp_path / "export.csv").write_text(f"row,image,decision,annotation_id\n3,{'x' * 200_000},drop,1\n")
    assert read_decisions(tmp_path / "export.csv", 5)[3].decision == DROP


# ---- cleanlab --------------------------------------------------------------------------------------------------------


def test_label_issues_are_written_in_the_layout_of_datalab(audited: Path, tmp_path: Path) -> None:
    send(with_labels(audited), tmp_path / "out", to="datalab")
    with open(tmp_path / "out" / "issues.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    wrong = [line for line in lines if line["is_label_issue"] == "True"]
    assert [(line["row"], line["label_score"], line["predicted_label"]) for line in wrong] == [("4", "0.1", "'=ring")]
    assert lines[0]["given_label"] == lines[0]["predicted_label"] == "ball"
    assert (tmp_path / "out" / "summary.csv").read_text().splitlines()[0] == "issue_type,score,num_issues"
    assert f"mismatch,{sum(float(line['mismatch_score']) for line in lines) / 48},{WRONG}" in (
        (tmp_path / "out" / "summary.csv").read_text()
    )


def test_an_audit_without_labels_has_issues_of_pairs_alone(audited: Path, tmp_path: Path) -> None:
    send(audited, tmp_path / "out", to="datalab")
    assert (tmp_path / "out" / "issues.csv").read_text().startswith("row,is_mismatch_issue,mismatch_score\n")


@pytest.mark.full
def test_the_layout_is_that_of_the_real_datalab(audited: Path, tmp_path: Path) -> None:
    cleanlab = pytest.importorskip("cleanlab", reason="cleanlab is not installed")
    pytest.importorskip("datasets", reason="datasets is not installed")
    import numpy as np
    import pandas as pd

    labels = ["a", "b"] * 10
    sure = np.where(np.array(labels)[:, None] == np.array(["a", "b"]), 0.9, 0.1)
    sure[3] = [0.95, 0.05]
    lab = cleanlab.Datalab({"label": labels}, label_name="label", verbosity=0)
    lab.find_issues(pred_probs=sure, issue_types={"label": {}})
    send(with_labels(audited), tmp_path / "out", to="datalab")
    ours = pd.read_csv(tmp_path / "out" / "issues.csv", index_col="row")
    theirs = lab.get_issues("label")
    assert list(ours.columns[:4]) == list(theirs.columns)
    assert [ours[name].dtype.kind for name in theirs.columns[:2]] == [
        theirs[name].dtype.kind for name in theirs.columns[:2]
    ]
    assert list(pd.read_csv(tmp_path / "out" / "summary.csv").columns) == list(lab.get_issue_summary().columns)


# ---- Hugging Face datasets -------------------------------------------------------------------------------------------


def test_the_table_for_the_hub_is_a_data_set_of_ours_too(audited: Path, tmp_path: Path) -> None:
    send(with_labels(audited), tmp_path / "out", to="parquet")
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        f"{split}-00000-of-00001.parquet" for split in ("train", "validation", "test")
    }
    again, first = Pairs.read(tmp_path / "out"), Pairs.read(tmp_path / "shapes")
    assert sorted(again.captions) == sorted(first.captions) and set(again.split_names) == set(first.split_names)
    assert again.pictures is not None and again.pictures.open(0).size == (96, 72)


@pytest.mark.full
def test_datasets_opens_the_table_with_pictures_scores_and_suggestions(
    audited: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    send(with_labels(audited), tmp_path / "out", to="parquet")
    found = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert set(found) == {"train", "validation", "test"}
    row = next(one for one in found["train"] if one["row"] == 4)
    assert row["image"].size == (96, 72) and row["suspect"] and row["likely_label"] == "=ring"
    assert row["better_image"] and row["better_caption_support"] == 0.7


# ---- FiftyOne --------------------------------------------------------------------------------------------------------


def test_without_fiftyone_one_line_says_how_to_get_it(
    audited: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fiftyone", None)
    assert main(["data", "export", str(audited), "--to", "fiftyone", "-o", str(tmp_path / "out")]) == 2
    assert "pip install 'matchlight[fiftyone]'" in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.full
def test_fiftyone_opens_what_was_sent_with_tags_scores_and_suggestions(audited: Path, tmp_path: Path) -> None:
    fo = pytest.importorskip("fiftyone", reason="fiftyone is not installed")
    try:
        send(with_labels(audited), tmp_path / "out", to="fiftyone")
    except BadInput as problem:
        pytest.skip(str(problem))  # it needs a MongoDB
    dataset = fo.Dataset.from_dir(str(tmp_path / "out"), dataset_type=fo.types.FiftyOneDataset, progress=False)
    try:
        suspects = dataset.match_tags("suspect").sort_by("score")
        assert (len(dataset), len(suspects), suspects.first().row) == (48, WRONG, 4)
        worst = suspects.first()
        assert worst.reason == "mismatched" and worst.better_caption and worst.likely_label.label == "=ring"
        assert Path(worst.filepath).is_file() and Path(worst.filepath).parent == (tmp_path / "out" / "data")
        assert set(dataset.distinct("tags")) == {"suspect", "train", "val", "test"}
    finally:
        dataset.delete()


def test_a_tool_or_rows_that_do_not_exist_are_one_line(audited: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="known: label-studio, fiftyone, parquet, datalab"):
        send(audited, tmp_path / "out", to="excel")
    with pytest.raises(BadInput, match="suspects or all"):
        send(audited, tmp_path / "out", to="datalab", rows="some")
