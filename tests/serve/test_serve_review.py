"""Review: decisions are on the disk when they are answered, survive restarts and crashes, and undo to any depth."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import WRONG, audit_of

pytest.importorskip("fastapi")
from starlette.testclient import TestClient  # noqa: E402

from matchlight.core import BadInput  # noqa: E402
from matchlight.data.decisions import read_decisions  # noqa: E402
from matchlight.data.findings import TABLE, read_findings  # noqa: E402
from matchlight.serve import create  # noqa: E402
from matchlight.serve.review_journal import FILE, Journal, State  # noqa: E402
from matchlight.serve.review_queue import Queue  # noqa: E402

AT = "http://localhost"


@pytest.fixture
def audit(collection, tmp_path) -> Path:
    return audit_of(collection[1], tmp_path / "audit")


def serve(collection, audit: Path) -> TestClient:
    return TestClient(create(collection[0], audit=audit), base_url=AT)


def test_the_queue_begins_with_the_worst_and_knows_its_pictures(collection, audit):
    with serve(collection, audit) as client:
        found = client.get("/api/review").json()
        scores = [pair["score"] for pair in found["pairs"]]
        assert scores == sorted(scores) and found["total"] == found["left"] == WRONG and found["done"] == 0
        first = found["pairs"][0]
        assert first["row"] == 4 and client.get(f"/api/items/{first['id']}").json()["image"] == first["image"]
        assert abs(sum(found["histogram"]["wrong"]) - (42 * 0.1 + sum(1 - score for score in scores))) < 0.1
        assert sum(found["histogram"]["counts"]) == 48 and "path" not in json.dumps(found["summary"])
        assert client.get("/api/review", params={"below": 1.0, "limit": 5}).json()["total"] == 48
        assert len(client.get("/api/review", params={"offset": 4}).json()["pairs"]) == WRONG - 4


def test_a_decision_is_on_the_disk_when_it_is_answered_and_there_after_a_restart(collection, audit):
    with serve(collection, audit) as client:
        answer = client.post("/api/review/4", json={"decision": "drop"}).json()
        assert (answer["done"], answer["left"], answer["counts"]["drop"]) == (1, WRONG - 1, 1)
        last = json.loads((audit / FILE).read_text().splitlines()[-1])
        assert (last["row"], last["decision"]) == (4, "drop")
    with serve(collection, audit) as client:
        found = client.get("/api/review").json()
        assert found["pairs"][0]["decision"]["decision"] == "drop" and found["undoable"] == 1
        assert [pair["row"] for pair in client.get("/api/review", params={"state": "done"}).json()["pairs"]] == [4]
        assert 4 not in [pair["row"] for pair in client.get("/api/review", params={"state": "left"}).json()["pairs"]]


def test_undo_goes_back_to_any_depth_and_then_says_so(collection, audit):
    with serve(collection, audit) as client:
        for row, word in ((4, "drop"), (12, "keep"), (4, "keep")):
            client.post(f"/api/review/{row}", json={"decision": word})
        undone = [client.post("/api/review/undo").json() for _ in range(3)]
        assert [one["row"] for one in undone] == [4, 12, 4]
        assert undone[0]["decision"]["decision"] == "drop" and undone[2]["decision"] is None
        assert client.post("/api/review/undo").status_code == 404


def test_a_rows_own_decision_can_be_taken_back_out_of_turn(collection, audit):
    with serve(collection, audit) as client:
        for row in (4, 12):
            client.post(f"/api/review/{row}", json={"decision": "drop"})
        assert client.post("/api/review/4", json={"decision": "undo"}).json()["decision"] is None
        assert client.post("/api/review/4", json={"decision": "undo"}).status_code == 404
        assert client.post("/api/review/undo").json()["row"] == 12


def test_decisions_carry_the_reviewers_name_into_the_journal_and_the_export(collection, audit, tmp_path):
    with serve(collection, audit) as client:
        client.post("/api/review/4", json={"decision": "drop", "reviewer": "=Anna"})
        assert client.get("/api/review").json()["pairs"][0]["decision"]["reviewer"] == "=Anna"
        assert client.get("/api/review/4").json()["decision"]["decision"] == "drop"
        table = client.get("/api/review/decisions.csv").text
    assert json.loads((audit / FILE).read_text().splitlines()[-1])["reviewer"] == "=Anna"
    assert "'=Anna" in table  # no spreadsheet takes it for a formula
    (tmp_path / "decisions.csv").write_text(table)
    assert read_decisions(tmp_path / "decisions.csv", 48)[4].reviewer == "=Anna"


@pytest.mark.parametrize("name", ["a" * 61, "two\nlines", "bell\x07"])
def test_a_name_that_is_none_is_refused(collection, audit, name):
    with serve(collection, audit) as client:
        assert client.post("/api/review/4", json={"decision": "drop", "reviewer": name}).status_code == 422
        assert client.post("/api/review/undo", json={"reviewer": name}).status_code == 422


def test_a_reviewer_is_told_whose_decision_was_replaced_and_takes_back_only_their_own(collection, audit):
    with serve(collection, audit) as client:

        def say(row: int, word: str, who: str) -> dict:
            return client.post(f"/api/review/{row}", json={"decision": word, "reviewer": who}).json()

        assert say(4, "drop", "Anna")["replaced"] is None and say(12, "drop", "Anna")["replaced"] is None
        assert say(4, "keep", "Anna")["replaced"] is None  # changing one's own mind is no news
        assert say(4, "drop", "Ben")["replaced"]["reviewer"] == "Anna"
        undone = client.post("/api/review/undo", json={"reviewer": "Anna"}).json()
        assert undone["row"] == 12 and undone["decision"] is None  # row 4 is Ben's by now
        assert client.post("/api/review/undo", json={"reviewer": "Anna"}).status_code == 404
        assert client.post("/api/review/undo", json={"reviewer": "Ben"}).json()["decision"]["reviewer"] == "Anna"
        held = client.get("/api/review/decisions.csv").text
    with serve(collection, audit) as client:
        assert client.get("/api/review/decisions.csv").text == held


def test_decisions_of_reviewers_who_work_at_once_are_all_there_after_a_crash(collection, audit):
    rows = [one.row for one in read_findings(audit / TABLE)]
    with serve(collection, audit) as client, ThreadPoolExecutor(6) as people:

        def decide(row: int) -> int:
            return client.post(f"/api/review/{row}", json={"decision": "drop", "reviewer": f"p{row % 6}"}).status_code

        assert set(people.map(decide, rows)) == {200}
        copy = audit.parent / "after"  # what a process that dies now leaves behind
        shutil.copytree(audit, copy)
    journal = Queue(copy).journal
    assert {row: one.reviewer for row, one in journal.state.now.items()} == {row: f"p{row % 6}" for row in rows}
    journal.close()


def test_a_rematch_names_a_picture_or_a_caption_that_exists(collection, audit):
    with serve(collection, audit) as client:

        def say(**choice):
            return client.post("/api/review/4", json={"decision": "rematch", **choice})

        assert say(image="blue_box.png").json()["decision"]["image"] == "blue_box.png"
        assert say(caption_row=7).json()["decision"]["caption_row"] == 7
        own = client.get("/api/review").json()["pairs"][0]["image"]
        for wrong in (
            {},
            {"image": "no.png"},
            {"caption_row": 48},
            {"image": "a", "caption_row": 1},
            {"caption_row": 4},
            {"image": own},
        ):
            assert say(**wrong).status_code == 422, wrong
        assert client.post("/api/review/4", json={"decision": "keep", "image": "blue_box.png"}).status_code == 422
        assert client.post("/api/review/4", json={"decision": "burn"}).status_code == 422
        assert client.post("/api/review/999", json={"decision": "keep"}).status_code == 404


def test_suggestions_begin_with_the_audits_own_and_never_repeat_the_pair(collection, audit):
    with serve(collection, audit) as client:
        pair = client.get("/api/review").json()["pairs"][0]
        found = client.get(f"/api/review/{pair['row']}").json()
        assert 1 <= len(found["captions"]) <= 3 and 1 <= len(found["images"]) <= 3
        assert found["images"][0]["image"] == pair["better_image"]
        assert found["captions"][0]["row"] == pair["better_caption_row"]
        assert pair["image"] not in [one["image"] for one in found["images"]]
        assert pair["caption"] not in [one["caption"] for one in found["captions"]]


def test_exported_decisions_clean_a_copy_of_the_data(collection, audit, tmp_path):
    from matchlight.auditing.apply import apply
    from matchlight.data.fingerprints import fingerprint
    from matchlight.pairs import Pairs

    pairs = Pairs.read(collection[1])
    summary = json.loads((audit / "summary.json").read_text())
    summary["data"]["fingerprint"] = fingerprint(pairs)
    (audit / "summary.json").write_text(json.dumps(summary))
    with serve(collection, audit) as client:
        client.post("/api/review/4", json={"decision": "keep"})
        client.post("/api/review/12", json={"decision": "rematch", "image": "blue_box.png"})
        client.post("/api/review/20", json={"decision": "rematch", "caption_row": 1})
        table = client.get("/api/review/decisions.csv")
        assert table.headers["content-type"].startswith("text/csv")
    file = tmp_path / "decisions.csv"
    file.write_text(table.text)
    done = apply(audit, tmp_path / "clean", decisions=file)
    assert done["dropped"] == WRONG - 3 and done["rematched"] == 2
    clean = Pairs.read(tmp_path / "clean")
    said = {
        name: [clean.captions[row] for row in range(len(clean)) if clean.names[clean.picture[row]] == name]
        for name in clean.names
    }
    assert pairs.captions[4] in said[pairs.names[pairs.picture[4]]]
    assert pairs.captions[12] in said["blue_box.png"]
    own = pairs.names[pairs.picture[20]]
    assert pairs.captions[1] in said[own] and pairs.captions[20] not in said[own]


def test_without_an_audit_the_queue_says_so(collection):
    with TestClient(create(collection[0]), base_url=AT) as client:
        assert client.get("/api/review").json()["available"] is False
        assert client.post("/api/review/4", json={"decision": "keep"}).status_code == 404
        assert client.get("/api/review/decisions.csv").status_code == 404


def test_a_line_that_a_crash_cut_short_is_dropped_and_the_next_one_is_whole(tmp_path):
    journal = Journal(tmp_path, "k")
    journal.decide(3, "keep")
    journal.close()
    with open(tmp_path / FILE, "ab") as file:
        file.write(b'{"row": 9, "deci')
    again = Journal(tmp_path, "k")
    assert set(again.state.now) == {3}
    again.decide(5, "drop")
    again.close()
    assert [json.loads(line).get("row") for line in (tmp_path / FILE).read_text().splitlines()] == [None, 3, 5]


class FullDisk:
    """A file whose disk takes `room` bytes more, or that is written but never reaches the disk."""

    def __init__(self, file, room: int):
        self.file, self.room = file, room

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data: bytes) -> int:
        if not self.room:
            raise OSError(28, "No space left on device")
        written = self.file.write(bytes(data[: self.room]))
        self.file.flush()
        self.room -= written
        return written


@pytest.mark.parametrize("room", [0, 7])
def test_a_decision_that_was_refused_on_a_full_disk_is_not_there_after_a_restart(collection, audit, room):
    with serve(collection, audit) as client:
        client.post("/api/review/4", json={"decision": "keep"})
        journal = client.app.state.site.queue.journal
        before, journal._file = journal._file, FullDisk(journal._file, room)
        refused = client.post("/api/review/12", json={"decision": "drop"})
        assert refused.status_code == 503 and "No space left" in refused.json()["detail"]
        assert client.post("/api/review/undo").status_code == 503
        journal._file = before
        client.post("/api/review/20", json={"decision": "drop"})
        held = {row: one.decision for row, one in journal.state.now.items()}
    again = Queue(audit).journal
    assert {row: one.decision for row, one in again.state.now.items()} == held == {4: "keep", 20: "drop"}
    again.close()


@pytest.mark.parametrize("change", [lambda journal: journal.decide(5, "drop"), Journal.undo])
def test_a_change_that_never_reached_the_disk_is_not_there_after_a_restart(tmp_path, monkeypatch, change):
    journal = Journal(tmp_path, "k")
    journal.decide(3, "keep")

    def fails(place: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken, pytest.raises(OSError, match="No space"):
        broken.setattr("os.fsync", fails)
        change(journal)
    journal.close()
    again = Journal(tmp_path, "k")
    assert set(again.state.now) == {3}
    again.close()


def test_one_server_at_a_time_writes_a_journal(tmp_path):
    journal = Journal(tmp_path, "k")
    with pytest.raises(BadInput, match="another server"):
        Journal(tmp_path, "k")
    journal.close()
    Journal(tmp_path, "k").close()


@pytest.mark.parametrize(
    "text", ['{"audit": "other"}\n', '{"row": "x", "decision": "keep"}\n', "[1]\n", '{"row": 1, "decision": "burn"}\n']
)
def test_a_journal_of_other_data_or_of_no_decisions_is_refused_and_kept(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(BadInput, match="move the file away"):
        Journal(tmp_path, "k")
    assert (tmp_path / FILE).read_text() == text


def test_cells_that_were_quoted_for_spreadsheets_are_read_as_they_were(audit, collection):
    table = (
        (audit / "pairs.csv").read_text().replace("a red ball on white", "'=1+1").replace("the ball is red", "'tis red")
    )
    (audit / "pairs.csv").write_text(table)
    queue = Queue(audit)
    assert queue.findings[0].caption == "=1+1" and queue.findings[1].caption == "'tis red"
    queue.journal.close()


@pytest.mark.parametrize("change", [("row,", "line,"), (",0.9,", ",nan,"), (",0.9,", ",high,"), ("\n0,", "\nzero,")])
def test_a_table_that_is_no_audit_is_one_line(audit, change):
    (audit / "pairs.csv").write_text((audit / "pairs.csv").read_text().replace(*change))
    with pytest.raises(BadInput, match="pairs.csv"):
        Queue(audit)


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.one_of(st.tuples(st.integers(0, 4), st.sampled_from(["keep", "drop"])), st.none(), st.integers(0, 4)))
)
def test_undo_is_the_history_without_the_undone(actions):
    """Against the plainest reading: keep the list of decisions, remove the last (of a row), the last a row wins."""
    from matchlight.data.decisions import Decision

    state, history = State(), []
    for action in actions:
        if isinstance(action, tuple):
            state.decide(Decision(*action))
            history.append(action)
        else:
            places = [k for k, (row, _) in enumerate(history) if action is None or row == action]
            assert (state.undo(action) is None) == (not places)
            if places:
                history.pop(places[-1])
    assert {row: one.decision for row, one in state.now.items()} == dict(history)
