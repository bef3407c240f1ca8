"""`matchlight photos`: an index that follows a folder, what a kill leaves behind, and the page over it."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.indexing import Index, photo_folder
from matchlight.indexing.photo_folder import FILE, Change, Look, follow, in_a_sentence, usual_place, watch
from matchlight.serve import create


@pytest.fixture
def folder(collection: tuple[Path, Path], tmp_path: Path) -> Path:
    """Twelve pictures, some in a folder of their own."""
    made = tmp_path / "photos"
    (made / "more").mkdir(parents=True)
    for number, file in enumerate(sorted((collection[1] / "images").iterdir())[:12]):
        shutil.copy(file, made / ("more" if number % 3 else ".") / file.name)
    return made


@pytest.fixture
def look(collection: tuple[Path, Path], folder: Path, tmp_path: Path) -> Callable[[], Look]:
    run = str(collection[0].parent / "run")
    return lambda: follow(folder, run, tmp_path / "index", device="cpu")


def names(index: Path) -> list[str]:
    with Index.load(index, device="cpu") as opened:
        return sorted(opened.item(one)["name"] for one in opened.ids.tolist())


def counts(found: Look) -> tuple[int, ...]:
    return found.pictures, found.added, found.changed, found.removed, found.broken


def test_new_changed_and_removed_files_are_taken_up_and_nothing_else(look, folder: Path, tmp_path: Path) -> None:
    assert counts(look()) == (12, 12, 0, 0, 0)
    before = (tmp_path / "index" / "CURRENT").read_bytes()
    again = look()
    assert counts(again) == (12, 0, 0, 0, 0) and not again.did_something
    assert (tmp_path / "index" / "CURRENT").read_bytes() == before, "nothing changed, and nothing was written"
    every = sorted(path for path in folder.rglob("*") if path.is_file())
    every[0].unlink()
    shutil.copy(every[2], every[1])
    Image.new("RGB", (30, 40), "red").save(folder / "red.png")
    (folder / "half.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    found = look()
    assert counts(found) == (12, 2, 1, 1, 1)
    assert in_a_sentence(found).startswith("12 pictures (2 new, 1 changed, 1 gone; 1 cannot be read)")
    assert names(tmp_path / "index") == sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*.*") if path.name != "half.png"
    )


@pytest.mark.parametrize("killed", ["add", "remove"])
def test_a_look_that_was_killed_is_made_good_by_the_next(
    look, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    look()
    Image.new("RGB", (30, 40), "red").save(folder / "red.png")
    gone = sorted((folder / "more").iterdir())[0]
    gone.unlink()

    class Killed(Exception):
        pass

    def end(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Index, killed, end)
        with pytest.raises(Killed):
            look()
    (folder / "red.png").rename(folder / "other.png")
    assert look().pictures == 12
    found = names(tmp_path / "index")
    assert "other.png" in found and "red.png" not in found and f"more/{gone.name}" not in found


def test_a_folder_that_is_left_without_a_readable_picture_is_one_line(look, folder: Path, tmp_path: Path) -> None:
    look()
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        path.unlink()
    with pytest.raises(BadInput, match="is empty"):
        look()
    (folder / "half.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(BadInput, match="none of the 1 pictures could be read"):
        look()
    Image.new("RGB", (30, 40), "red").save(folder / "red.png")
    assert look().pictures == 1 and names(tmp_path / "index") == ["red.png"]


def test_a_folder_that_is_mostly_new_or_read_by_another_model_is_built_anew() -> None:
    before = {"a": "1", "b": "2"}
    assert Change.between(before, {"a": "1", "b": "3"}) == Change([], ["b"], [], is_large=False)
    assert Change.between(before, {"a": "0", "c": "5"}) == Change(["c"], ["a"], ["b"], is_large=True)


def test_an_index_of_another_folder_is_left_alone(look, collection: tuple[Path, Path], tmp_path: Path) -> None:
    look()
    with pytest.raises(BadInput, match="is the index of .*photos; choose another -o"):
        follow(collection[1] / "images", str(collection[0].parent / "run"), tmp_path / "index", device="cpu")


def test_notes_that_cannot_be_read_cost_a_build_and_no_error(look, tmp_path: Path) -> None:
    look()
    (tmp_path / "index" / FILE).write_text("[")
    assert counts(look()) == (12, 12, 0, 0, 0)


def test_the_usual_place_is_in_the_cache_and_tells_folders_of_one_name_apart(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("MATCHLIGHT_CACHE", str(tmp_path / "cache"))
    one, other = usual_place(tmp_path / "a" / "my photos!"), usual_place(tmp_path / "b" / "my photos!")
    assert one != other and one.parent == tmp_path / "cache" / "photos" and one.name.startswith("my_photos_-")


def test_watching_says_what_is_wrong_once_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Look(Path("index"), "starter", 3, 1, 0, 0, 0, 0.1)
    answers: list[Look | BadInput] = [BadInput("no such disk"), BadInput("no such disk"), look]
    said: list[str] = []
    monkeypatch.setattr(photo_folder, "say", said.append)

    def next_look() -> Look:
        answer = answers.pop(0)
        if isinstance(answer, BadInput):
            raise answer
        return answer

    watch(next_look, stopped=lambda seconds: not answers)
    assert said == ["no such disk", "3 pictures (1 new) in 0.1 s"]


def test_the_command_prints_the_index_and_the_page_shows_new_pictures_in_full(
    collection: tuple[Path, Path], folder: Path, look, tmp_path: Path, capsys
) -> None:
    run = str(collection[0].parent / "run")
    line = ["photos", str(folder), "--model", run, "-o", str(tmp_path / "index"), "--no-serve", "--json"]
    assert main(line) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["index"], told["pictures"], told["added"]) == (str(tmp_path / "index"), 12, 12)
    app = create(tmp_path / "index", data=folder, changing=True, watch=0.05)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        Image.new("RGB", (300, 400), "red").save(folder / "red.png")
        look()
        waited = threading.Event()
        for _ in range(100):
            hits = client.get("/api/search", params={"q": "a red ball", "top": 20}).json()["results"]
            if found := [hit for hit in hits if hit["image"] == "red.png"]:
                break
            waited.wait(0.1)
        page = client.get(f"/images/{found[0]['id']}", params={"size": "full"})
        assert Image.open(BytesIO(page.content)).size == (300, 400)
