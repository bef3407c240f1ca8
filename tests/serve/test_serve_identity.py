"""The picture shown is the picture meant: by its row and its place, whatever it is called, and of the same data."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageChops, ImageStat
from serving import audit_of, drawn

pytest.importorskip("fastapi")
from starlette.testclient import TestClient  # noqa: E402

from matchlight.core import BadInput  # noqa: E402
from matchlight.data.decisions import named_partners, read_decisions  # noqa: E402
from matchlight.indexing import Index, origins  # noqa: E402
from matchlight.pairs import Pairs  # noqa: E402
from matchlight.runs.folder import Run  # noqa: E402
from matchlight.serve import create  # noqa: E402

AT = "http://localhost"
HALF = 12  # pictures a shard


@pytest.fixture(scope="module")
def twins(collection, tmp_path_factory) -> tuple[Path, Path]:
    """(index, data): two Parquet shards whose pictures are called 0.png to 11.png in both."""
    folder = tmp_path_factory.mktemp("twins")
    whole = Pairs.read(collection[1])
    assert whole.pictures is not None
    (folder / "data").mkdir()
    for shard in range(2):
        places = range(HALF * shard, HALF * shard + HALF)
        image = [{"bytes": whole.pictures.read(place), "path": f"{place % HALF}.png"} for place in places]
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        said = {f"caption_{k}": [whole.captions[2 * place + k] for place in places] for k in range(2)}
        table = pa.table({"image": pa.array(image, kind), **said})
        pq.write_table(table, folder / "data" / f"train-{shard:05d}-of-00002.parquet")
    Index.build(Run.load(collection[0].parent / "run"), Pairs.read(folder / "data"), folder / "index").close()
    return folder / "index", folder / "data"


def apart(jpeg: bytes, picture: bytes) -> float:
    """How far two pictures differ, from 0 to 255."""
    one, other = (Image.open(io.BytesIO(blob)).convert("RGB") for blob in (jpeg, picture))
    return sum(ImageStat.Stat(ImageChops.difference(one, other.resize(one.size))).mean) / 3


def test_review_and_full_size_show_the_pictures_own_where_names_repeat(twins, tmp_path):
    index, data = twins
    pairs = Pairs.read(data)
    assert pairs.pictures is not None and len(pairs.names) == 2 * HALF and len(set(pairs.names)) == HALF
    with TestClient(create(index, audit=audit_of(data, tmp_path / "audit"), data=data), base_url=AT) as client:
        shown = client.get("/api/review", params={"below": 1, "limit": 200}).json()["pairs"]
        assert {one["row"]: one["id"] for one in shown} == dict(enumerate(pairs.picture.tolist()))
        suspects = [one for one in shown if one["suspect"]]
        assert suspects and all(one["better_id"] == (one["id"] + 7) % (2 * HALF) for one in suspects)
        for id in range(2 * HALF):
            full = client.get(f"/images/{id}", params={"size": "full"}).content
            assert apart(full, pairs.pictures.read(id)) < 6 < apart(full, pairs.pictures.read((id + HALF) % (2 * HALF)))
            assert client.get(f"/api/items/{id}").json()["suspect"] == (id in {one["id"] for one in suspects})


def test_a_rematch_says_which_of_the_pictures_of_one_name(twins, tmp_path):
    index, data = twins
    with TestClient(create(index, audit=audit_of(data, tmp_path / "audit")), base_url=AT) as client:
        offered = client.get("/api/review/4").json()["images"][0]
        assert offered["id"] == 9 and offered["row"] == 18
        choice = {"decision": "rematch", "image": offered["image"]}
        assert client.post("/api/review/4", json=choice).status_code == 422  # two are called so
        assert client.post("/api/review/4", json={**choice, "image_row": 16}).status_code == 422  # of another picture
        assert client.post("/api/review/4", json={**choice, "image_row": 42}).status_code == 200  # its namesake
        (tmp_path / "decisions.csv").write_text(client.get("/api/review/decisions.csv").text)
    with TestClient(create(index, audit=tmp_path / "audit"), base_url=AT) as client:
        assert client.get("/api/review").json()["pairs"][0]["decision"]["image_row"] == 42
    pairs = Pairs.read(data)
    assert named_partners(read_decisions(tmp_path / "decisions.csv", len(pairs)), pairs) == ({4: 21}, {})


def test_an_audit_or_data_of_another_data_set_is_refused(collection, twins, tmp_path):
    other = audit_of(twins[1], tmp_path / "other")
    with pytest.raises(BadInput, match="an audit of other data than .*; index the data that was audited"):
        create(collection[0], audit=other)
    with pytest.raises(BadInput, match="not the data that .* was built from"):
        create(collection[0], data=twins[1])
    create(twins[0], audit=other, data=twins[1]).state.site.queue.journal.close()  # and nothing was left locked


def test_a_new_index_of_other_data_does_not_take_over_from_the_audited_one(collection, twins, tmp_path):
    shutil.copytree(collection[0], tmp_path / "index")
    app = create(tmp_path / "index", audit=audit_of(collection[1], tmp_path / "audit"))
    shutil.rmtree(tmp_path / "index")
    shutil.copytree(twins[0], tmp_path / "index")
    with TestClient(app, base_url=AT) as client:
        assert app.state.site.live.reload() is False and client.get("/api/health").json()["problem"]
        assert client.get("/api/items/0").json()["image"].endswith("red_ball.png")


def test_data_that_was_added_is_known_by_its_own_numbers(collection, tmp_path):
    shutil.copytree(collection[0], tmp_path / "index")
    more = drawn(tmp_path / "more")
    lines = (more / "captions.jsonl").read_text().splitlines()[:5]
    (more / "captions.jsonl").write_text("\n".join(lines) + "\n")
    with Index.load(tmp_path / "index") as index:
        index.add(Pairs.read(more))
        index.remove([1])
    with TestClient(
        create(tmp_path / "index", audit=audit_of(more, tmp_path / "audit"), data=more), base_url=AT
    ) as one:
        pair = one.get("/api/review").json()["pairs"][0]
        assert (pair["row"], pair["id"]) == (4, 26)  # 24 pictures were there before
        assert all(offer["row"] < 10 for offer in one.get("/api/review/4").json()["captions"])
        assert one.get("/images/26", params={"size": "full"}).status_code == 200
    with TestClient(create(tmp_path / "index", audit=audit_of(collection[1], tmp_path / "first")), base_url=AT) as one:
        assert [pair["id"] for pair in one.get("/api/review").json()["pairs"]] == [2, 6, 10, 14, 18, 22]


def test_an_index_of_old_is_served_with_any_audit_and_believes_only_names_that_are_unique(twins, tmp_path, monkeypatch):
    index, data = twins
    monkeypatch.setattr(origins, "FILE", "none.json")  # as if it had not been written
    audit = audit_of(data, tmp_path / "audit")
    summary = json.loads((audit / "summary.json").read_text())
    summary["data"]["fingerprint"] = "another"
    (audit / "summary.json").write_text(json.dumps(summary))
    with TestClient(create(index, audit=audit, data=data), base_url=AT) as client:
        assert [pair["id"] for pair in client.get("/api/review").json()["pairs"]] == [2, 6, 10, 14, 18, 22]
        small, full = (client.get("/images/3", params={"size": size}).content for size in ("small", "full"))
        assert small == full  # the thumbnail stands in
