"""The REST API on a real index: what each route gives, and what it refuses."""

from __future__ import annotations

import base64
import io
import json
import shutil
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image
from serving import audit_of, picture

pytest.importorskip("fastapi")
from starlette.testclient import TestClient  # noqa: E402

from matchlight.core import BadInput  # noqa: E402
from matchlight.serve import create  # noqa: E402
from matchlight.serve.rules import Limits  # noqa: E402
from matchlight.serve.search_filter import contains  # noqa: E402

AT = "http://127.0.0.1:8000"


@pytest.fixture(scope="module")
def client(collection, tmp_path_factory) -> Iterator[TestClient]:
    index, data = collection
    audit = audit_of(data, tmp_path_factory.mktemp("audit"))
    with TestClient(create(index, audit=audit, limits=Limits(upload_pixels=1_000_000)), base_url=AT) as client:
        yield client


def test_words_find_pictures_with_their_sizes_best_first(client):
    found = client.get("/api/search", params={"q": "a red ball", "top": 5}).json()
    assert [hit["rank"] for hit in found["results"]] == [1, 2, 3, 4, 5]
    scores = [hit["score"] for hit in found["results"]]
    assert scores == sorted(scores, reverse=True) and found["query"] == "a red ball" and found["total"] == 24
    assert all((hit["width"], hit["height"]) == (96, 72) and hit["image"].endswith(".png") for hit in found["results"])


def test_the_answer_is_that_of_the_index(client, collection):
    from matchlight.indexing import Index

    with Index.load(collection[0]) as index:
        direct = index.search("the ring is blue", top=4).hits
    served = client.get("/api/search", params={"q": "the ring is blue", "top": 4}).json()["results"]
    assert [(hit["id"], hit["caption"], hit["row"]) for hit in served] == [(h.id, h.caption, h.row) for h in direct]


def test_a_filter_keeps_only_what_fits_it(client):
    found = client.get("/api/search", params={"q": "blue", "where": ["label=ring", "split=val"], "top": 50}).json()
    assert sorted(hit["image"] for hit in found["results"]) == [
        f"{c}_ring.png" for c in ("blue", "green", "red", "yellow")
    ]
    doubted = client.get("/api/search", params={"q": "blue", "where": "suspect=yes", "top": 50}).json()["results"]
    assert len(doubted) == 6 and all(hit["suspect"] for hit in doubted)


def test_results_have_chances_and_the_answer_says_whether_anything_fits(client):
    found = client.get("/api/search", params={"q": "a red ball", "top": 3}).json()
    assert type(found["nothing_fits"]) is bool and found["chances_from"] == "learnt captions"
    assert all(0 <= hit["chance"] <= 1 and hit["said"] and hit["alike"] == [] for hit in found["results"])


def test_a_picture_and_words_signs_and_captions_are_asked_for_by_parameters(client):
    both = client.get("/api/search", params={"q": "a green box", "like": 0, "top": 5}).json()["results"]
    assert len(both) == 5 and 0 not in [hit["id"] for hit in both] and both[0]["chance"] is None
    assert client.get("/api/search", params={"like": 0, "top": 5, "fold": False}).json()["total"] == 23
    asked = {"q": "a green box", "where": "caption=red", "top": "50"}
    sent = client.post("/api/search/image", data=asked, files={"file": ("a.png", picture())}).json()
    assert sent["find"] == "image" and {hit["image"].split("_")[0] for hit in sent["results"]} == {"red"}
    without = client.get("/api/search", params={"q": "a ball -red", "where": "caption=ball", "top": 50}).json()[
        "results"
    ]
    assert sorted(hit["image"] for hit in without) == ["blue_ball.png", "green_ball.png", "yellow_ball.png"]
    for params, told in (({"q": "-red"}, "look for too"), ({"like": 99}, "no picture 99"), ({}, "q is empty")):
        refused = client.get("/api/search", params=params)
        assert refused.status_code in (400, 404, 422) and told in str(refused.json()["detail"])


def test_a_patch_of_the_map_narrows_a_search_to_the_points_inside(client, collection):
    from matchlight.indexing import Index

    with Index.load(collection[0]) as index:
        middle = float(np.median(index.map[:, 0]))
        expected = set(index.ids[index.map[:, 0] < middle].tolist())
    patch = f"-9,-9;{middle},-9;{middle},9;-9,9"
    found = client.get("/api/search", params={"q": "red", "inside": patch, "top": 50}).json()["results"]
    assert {hit["id"] for hit in found} == expected
    assert {hit["id"] for hit in client.get("/api/items", params={"inside": patch}).json()["results"]} == expected


def test_points_inside_a_hand_drawn_patch():
    patch = np.array([[0, 0], [4, 0], [4, 4], [2, 1], [0, 4]])  # a valley between two peaks
    points = np.array([[1, 1], [2, 3], [3.5, 2], [5, 1], [2, 0.5]])
    assert contains(patch, points).tolist() == [True, False, True, False, True]


def test_a_picture_finds_captions_or_pictures(client):
    file = {"file": ("mine.png", picture(), "image/png")}
    texts = client.post("/api/search/image", files=file, data={"top": "3"}).json()
    assert texts["find"] == "text" and len(texts["results"]) == 3 and texts["query"] is None
    images = client.post("/api/search/image", files=file, data={"top": "3", "find": "image"}).json()
    assert images["find"] == "image" and len({hit["id"] for hit in images["results"]}) == 3


def test_an_item_has_its_captions_labels_split_and_size(client):
    item = client.get("/api/items/0").json()
    assert item["image"] == "red_ball.png" and item["labels"] == ["ball"] and item["split"] == "train"
    assert item["captions"][0] == {"row": 0, "text": "a red ball on white"}


def test_a_picture_is_sent_as_a_jpeg_that_may_be_kept(client):
    answer = client.get("/images/3")
    assert answer.headers["content-type"] == "image/jpeg" and "max-age" in answer.headers["cache-control"]
    assert Image.open(io.BytesIO(answer.content)).size == (96, 72)


def test_a_picture_in_full_comes_from_the_data_and_nowhere_else(collection, tmp_path):
    index, data = collection
    mine = tmp_path / "data"
    shutil.copytree(data, mine)
    Image.new("RGB", (96, 72), (9, 9, 9)).save(mine / "images" / "red_box.png")  # the same size: the file of today
    Image.new("RGB", (50, 50)).save(mine / "images" / "red_roof.png")  # another size: not what was indexed
    (mine / "images" / "red_bar.png").write_bytes(b"no picture")
    with TestClient(create(index, data=mine), base_url=AT) as client:
        assert client.get("/api/about").json()["originals"] is True
        shown = {id: client.get(f"/images/{id}", params={"size": "full"}) for id in range(4)}
        small = {id: client.get(f"/images/{id}") for id in range(4)}
        assert all(answer.headers["content-type"] == "image/jpeg" for answer in shown.values())
        assert Image.open(io.BytesIO(shown[1].content)).getpixel((5, 5)) == (9, 9, 9)
        assert [shown[id].content == small[id].content for id in (2, 3)] == [True, True]  # the thumbnail stands in
        assert client.get("/images/24", params={"size": "full"}).status_code == 404
        assert client.get("/images/0", params={"size": "../../etc/passwd"}).status_code == 422


def test_a_large_picture_is_sent_smaller_and_without_its_metadata(tmp_path):
    from matchlight.indexing.index import ItemInfo
    from matchlight.indexing.origins import UNKNOWN
    from matchlight.serve.originals import LONGEST, Originals

    (tmp_path / "images").mkdir()
    exif = Image.Exif()
    exif[0x010E] = "where I live"
    Image.new("RGB", (3200, 100)).save(tmp_path / "images" / "a.jpg", exif=exif)
    line = {"image": "a.jpg", "captions": ["x"], "split": "train"}
    (tmp_path / "captions.jsonl").write_text(json.dumps(line) + "\n")
    originals = Originals(tmp_path, max_pixels=1_000_000)
    item: ItemInfo = {"id": 0, "name": "a.jpg", "captions": [], "labels": [], "split": "train", "size": [3200, 100]}
    blob = originals.jpeg(item, UNKNOWN)
    assert blob is not None and b"where I live" not in blob
    assert Image.open(io.BytesIO(blob)).size == (LONGEST, 50)
    assert originals.jpeg(item, UNKNOWN) is blob  # kept
    assert originals.jpeg({**item, "name": "b.jpg"}, UNKNOWN) is None
    assert Originals(tmp_path, max_pixels=1000).jpeg(item, UNKNOWN) is None


def test_an_explanation_weighs_every_region_for_every_word(client):
    why = client.get("/api/items/0/explain", params={"q": "a red ball"}).json()
    assert why["words"] == ["a", "red", "ball"] and len(why["weights"]) == 3 == len(why["seen"])
    assert all(len(row) == len(why["regions"]) for row in why["weights"])
    assert all(0 <= value <= 1 for row in why["weights"] for value in row)
    assert all(0 <= x0 < x1 <= 1 and 0 <= y0 < y1 <= 1 for x0, y0, x1, y1 in why["regions"])


def test_neighbours_and_other_captions_leave_nothing_unsaid(client):
    near = client.get("/api/items/0/neighbours", params={"top": 4}).json()["results"]
    assert len(near) == 4 and 0 not in {hit["id"] for hit in near}
    fits = client.get("/api/items/0/captions", params={"top": 6}).json()
    assert len(fits["results"]) == 6 == len({hit["row"] for hit in fits["results"]})


def test_browsing_gives_the_same_pictures_for_the_same_seed(client):
    one, again, other = (
        client.get("/api/items", params={"count": 5, "seed": seed}).json()["results"] for seed in (1, 1, 2)
    )
    assert one == again != other and len(one) == 5


def test_the_map_holds_a_point_and_a_colour_for_every_picture(client):
    found = client.get("/api/map").json()
    ids = np.frombuffer(base64.b64decode(found["ids"]), "<u4")
    points = np.frombuffer(base64.b64decode(found["points"]), "<u2").reshape(-1, 2)
    assert found["count"] == len(ids) == len(points) == 24 and points.min() == 0 and points.max() == 65535
    label = found["colours"]["label"]
    codes = np.frombuffer(base64.b64decode(label["of"]), np.uint8)
    assert label["names"][codes[0]] == "ball" and sorted(found["colours"]) == ["label", "split", "suspect"]


def test_what_is_not_there_is_404_and_what_is_no_number_422(client):
    for path in (
        "/api/items/24",
        "/api/items/9007199254740991",
        "/images/999",
        "/api/items/99/neighbours",
        "/page/no.js",
    ):
        assert client.get(path).status_code == 404, path
    for path in ("/api/items/x", "/api/items/-1", "/images/1e3", f"/images/{'9' * 400}", "/api/search?q=a&top=0"):
        assert client.get(path).status_code == 422, path
    for asked in (
        {"q": ""},
        {"q": " "},
        {"q": "x" * 1001},
        {"q": "a", "where": "split"},
        {"q": "a", "inside": "1,2;3"},
    ):
        assert client.get("/api/search", params=asked).status_code == 422, asked


def test_a_filter_value_that_no_picture_has_is_told(client):
    answer = client.get("/api/search", params={"q": "a", "where": "label=unicorn"})
    assert answer.status_code == 400 and "ball" in answer.json()["detail"]


def test_health_and_metrics_count_what_was_asked(client):
    assert client.get("/api/health").json() == {"status": "ok", "version": "0.1.0", "items": 24, "problem": None}
    client.get("/api/items/1")
    text = client.get("/api/metrics").text
    assert 'matchlight_requests_total{method="GET",route="/api/items/{id}",status="200"}' in text
    assert "matchlight_items 24" in text and "red" not in text


def test_the_page_and_its_parts_come_with_their_kinds_and_are_not_sent_twice(client):
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html") and "/page/main.js" in page.text
    assert client.get("/page/main.js").headers["content-type"].startswith("text/javascript")
    assert client.get("/", headers={"if-none-match": page.headers["etag"]}).status_code == 304


def test_the_page_loads_nothing_from_elsewhere_and_writes_no_html():
    from matchlight.serve.page_routes import assets

    for name, asset in assets().items():
        text = asset.body.decode()
        outside = [part for part in text.split("http")[1:] if not part.startswith("://www.w3.org/2000/svg")]
        assert not outside, name
        assert not any(
            word in text for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "document.write")
        )


def test_the_description_of_the_api_names_every_route_of_the_contract(client):
    paths = client.get("/openapi.json").json()["paths"]
    promised = "/api/search /api/search/image /api/items/{id} /api/items/{id}/explain /api/items/{id}/neighbours"
    promised += " /api/review /api/review/{row} /api/health /api/metrics /images/{id}"
    assert set(promised.split()) <= set(paths) and {"get", "post"} <= set(paths["/api/review/{row}"])


def test_an_index_that_is_none_is_one_line(tmp_path):
    with pytest.raises(BadInput, match="not an index"):
        create(tmp_path)
