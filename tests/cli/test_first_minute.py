"""The first minute: `matchlight` alone, the line that says what to do next, and errors that name what would help."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import typer

from matchlight.cli import app, main
from tests.data.layouts import photos, split_csv


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main([str(one) for one in arguments])
    said = capsys.readouterr()
    return code, said.out, " ".join(said.err.split())


def test_matchlight_alone_shows_three_commands_that_exist(capsys) -> None:
    code, out, err = told(capsys)
    commands = [line.strip() for line in out.splitlines() if line.startswith("  matchlight ")]
    assert (code, err, len(commands)) == (0, "", 3) and "matchlight --help" in out
    known = typer.main.get_command(app).commands
    assert all(shlex.split(command)[1] in known for command in commands)


def test_help_shows_all_commands(capsys) -> None:
    code, out, _ = told(capsys, "--help")
    assert code == 0 and all(name in out for name in typer.main.get_command(app).commands)


def test_info_ends_with_what_to_do_next(tmp_path: Path, capsys) -> None:
    (tmp_path / "my photos").mkdir()
    (tmp_path / "captioned").mkdir()
    bare, captioned = photos(tmp_path / "my photos"), split_csv(tmp_path / "captioned")
    assert told(capsys, "data", "info", captioned)[2].endswith(f"next: matchlight train --data {captioned} -o run")
    err = told(capsys, "data", "info", bare)[2]
    assert f"next: matchlight photos '{bare}'" in err and "no captions" in err
    assert "next:" not in told(capsys, "data", "info", bare, "--json")[2]
    copy = tmp_path / "copy"
    assert f"next: matchlight data info {copy}" in told(capsys, "data", "convert", captioned, "-o", copy)[2]


def test_index_and_search_end_with_what_to_do_next(collection: tuple[Path, Path], capsys) -> None:
    index, _ = collection
    assert f"next: matchlight serve {index}" in told(capsys, "search", index, "a red ball", "--top", "2")[2]


@pytest.mark.parametrize("command", ["train", "evaluate", "audit", "noise", "convert", "mine", "compare"])
def test_commands_that_learn_from_captions_refuse_pictures_alone_in_one_line(
    collection: tuple[Path, Path], tmp_path: Path, capsys, command: str
) -> None:
    folder, run = photos(tmp_path), collection[0].parent / "run"
    out = ["-o", tmp_path / "out"]
    line = {
        "train": ["train", "vse_infty", "--data", folder, *out],
        "evaluate": ["evaluate", run, "--data", folder],
        "audit": ["audit", "--data", folder, *out],
        "noise": ["data", "noise", folder, "--mismatch", "0.5", *out],
        "convert": ["data", "convert", folder, *out],
        "mine": ["mine", run, "--data", folder, *out],
        "compare": ["compare", "vse++", "--data", folder, *out],
    }[command]
    code, output, err = told(capsys, *line)
    assert (code, output) == (2, "")
    assert f"matchlight: {folder}: 5 pictures without captions;" in err and "put a.txt beside a.jpg" in err


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        (["search", "{folder}", "dog"], "`matchlight index RUN --data PATH -o"),
        (["serve", "{folder}"], "`matchlight index RUN --data PATH -o"),
        (["index", "{folder}", "--data", "{folder}", "-o", "{folder}/i"], "`matchlight train` and `import` make them"),
        (["data", "info", "{folder}/nowhere"], "no such file or folder"),
        (["data", "apply", "{folder}", "-o", "{folder}/out"], "`matchlight audit"),
        (["train", "vse_infinity", "--data", "{folder}", "-o", "{folder}/run"], "vse_infty"),
        (["serach", "x"], "did you mean search?"),
    ],
)
def test_an_error_names_what_would_have_worked(tmp_path: Path, capsys, line: list[str], fix: str) -> None:
    code, _, err = told(capsys, *(word.format(folder=tmp_path) for word in line))
    assert code == 2 and fix in err
