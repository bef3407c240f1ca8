"""One command makes the whole table: an oracle, two kinds of noise, rows that begin with rows, workers, and parts."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matchlight.cli import main
from matchlight.comparing import grid as module
from matchlight.comparing import several_devices
from matchlight.comparing.cell_run import Settings, broken
from matchlight.comparing.grid import compare
from matchlight.comparing.merging import merge
from matchlight.comparing.noise_columns import in_order, parse_noise
from matchlight.comparing.results_page import as_html
from matchlight.comparing.results_table import header, panels
from matchlight.comparing.several_devices import compare_on
from matchlight.comparing.variants import Cell, Variant, all_cells, described, parse_variants, part_of
from matchlight.core import BadInput
from matchlight.data.formats import write
from matchlight.training.trainer import Trainer
from tests.tiny import tiny_pairs

TINY = ["dim=8", "word_dim=8", "epochs=2", "batch=8", "preset=small"]
CPU = Settings(device="cpu")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tiny_pairs(), tmp_path / "data", to="npz")
    return tmp_path / "data"


def watched(monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    """The cells that are trained from now on."""
    trained: list[Cell] = []
    original = module.train_cell

    def note(cell: Cell, *args: Any, **more: Any) -> Any:
        trained.append(cell)
        return original(cell, *args, **more)

    monkeypatch.setattr(module, "train_cell", note)
    return trained


# ---- the oracle ------------------------------------------------------------------------------------------------------


def test_an_oracle_learns_from_the_right_pairs_only() -> None:
    pairs = tiny_pairs()
    plain, oracle = parse_variants(["vse++", "vse++", "oracle=true"])
    noisy, truth = broken(pairs, Cell(plain, 0.5, 0), CPU)
    right, same = broken(pairs, Cell(oracle, 0.5, 0), CPU)
    assert same == truth and len(right.rows("train")) == len(pairs.rows("train")) - len(truth.moved)
    own = {(pairs.names[p], caption) for p, caption in zip(pairs.picture, pairs.captions, strict=True)}
    assert all((right.names[p], caption) in own for p, caption in zip(right.picture, right.captions, strict=True))
    assert noisy.captions != pairs.captions


def test_without_noise_the_oracle_is_the_method_itself_and_trained_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = watched(monkeypatch)
    methods = parse_variants([*TINY, "vse++", "oracle=true", "vse++"])
    found = compare(methods, tiny_pairs(), tmp_path / "out", noise=(0.0, 0.5), settings=CPU)
    assert len(trained) == 3 and not any(cell.variant.oracle for cell in trained if cell.noise == 0)
    values = {(cell["method"], cell["noise"]): cell["value"] for cell in found["cells"]}
    oracle, plain = (one.label for one in methods)
    assert len(values) == 4 and values[oracle, 0.0] == values[plain, 0.0]
    assert [line["shown"] for line in found["methods"]] == ["vse++, right pairs only", "vse++"]


def test_an_oracle_of_labels_is_refused() -> None:
    with pytest.raises(BadInput, match="labels"):
        broken(tiny_pairs(), Cell(Variant("deep_sm", oracle=True), 0.5, 0), CPU)


# ---- columns ---------------------------------------------------------------------------------------------------------


def test_whole_pictures_are_a_column_of_their_own(tmp_path: Path) -> None:
    methods = parse_variants([*TINY, "vse++"])
    found = compare(methods, tiny_pairs(), tmp_path / "out", noise=parse_noise("0.5p,0.5,0"), settings=CPU)
    assert found["noise"] == [0.0, 0.5, "0.5p"]
    assert header(found)[2:] == ["0% noise", "50% noise", "50% noise, whole pictures"]
    truths = [json.loads(next(tmp_path.rglob(f"noise{name}-seed0/truth.json")).read_text()) for name in ("0.5", "0.5p")]
    assert [truth["per"] for truth in truths] == ["caption", "picture"]
    titles = {panel.title: [x for x, _, _ in panel.lines[0].points] for panel in panels(found)}
    assert titles == {"rsum on test": [0.0, 0.5], "rsum on test, whole pictures": [0.0, 0.5]}
    page = as_html(found, tmp_path / "out")
    assert "50%, whole pictures" in page and json.loads((tmp_path / "out" / "results.json").read_text()) == found


def test_columns_stand_in_order_and_no_noise_is_of_neither_kind() -> None:
    assert in_order(parse_noise("0.6p, 0.8,0.2,0p,0.2p,0")) == [0.0, 0.2, 0.8, "0.2p", "0.6p"]


def test_whole_pictures_need_several_captions_a_picture() -> None:
    with pytest.raises(BadInput, match="one noise"):
        broken(tiny_pairs(captions=1), Cell(Variant("vse++"), "0.5p", 0), CPU)
    with pytest.raises(BadInput, match="labels"):
        broken(tiny_pairs(), Cell(Variant("deep_sm"), "0.5p", 0), CPU)


# ---- rows that begin with rows ---------------------------------------------------------------------------------------


def test_a_row_begins_with_the_run_of_another_row_of_the_same_noise_and_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: dict[str, Path | None] = {}
    original = module.train_cell

    def note(cell: Cell, *args: Any, start: Path | None = None) -> Any:
        begun[cell.folder] = start
        return original(cell, *args, start=start)

    monkeypatch.setattr(module, "train_cell", note)
    methods = parse_variants([*TINY, "vse++", "as=first", "vse++", "from=first", "as=second", "margin=0.1"])
    backwards = list(reversed(methods))  # the order of the rows is not that of the training
    found = compare(backwards, tiny_pairs(), tmp_path / "out", noise=(0.0, 0.5), settings=CPU)
    assert [line["shown"] for line in found["methods"]] == ["second", "first"] and len(found["cells"]) == 4
    first, second = (Cell(one, 0.5, 0).folder for one in methods)
    assert begun[first] is None and begun[second] == tmp_path / "out" / "cells" / first / "run"
    recipe = json.loads((tmp_path / "out" / "cells" / second / "run" / "recipe.json").read_text())
    assert recipe["start"]["name"] == "vse++"


def test_a_row_whose_beginning_fails_is_reported_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: Any, **more: Any) -> Any:
        raise BadInput("a loss of nan")

    monkeypatch.setattr(module, "train_cell", fails)
    methods = parse_variants([*TINY, "vse++", "as=bad", "vse++", "from=bad", "margin=0.1"])
    found = compare(methods, tiny_pairs(), tmp_path / "out", noise=(0.0,), settings=CPU)
    assert len(found["failed"]) == 2 and "begins with failed" in found["failed"][1]["why"]


@pytest.mark.parametrize(
    "words",
    [
        ["vse++", "from=nobody"],
        ["vse++", "scan", "vse++", "dim=8", "bfan", "from=vse++"],
        ["vse++", "as=a", "scan", "as=a"],
        ["vse++", "oracle=perhaps"],
        ["vse++", "as=a", "vse++", "as=b"],
    ],
)
def test_words_of_the_table_that_mean_nothing_are_refused(words: list[str]) -> None:
    with pytest.raises(BadInput):
        parse_variants(words)


def test_the_words_of_the_table_are_no_arguments_of_the_method() -> None:
    first, second = parse_variants(["scan", "as=one", "epochs=2", "scan", "from=one", "oracle=true"])
    assert first.arguments == (("epochs", "2"),) and second.arguments == () and second.begin == first
    assert first.label == "scan epochs=2"  # another name is no other row
    assert [line["shown"] for line in described([first, second])] == ["one", "scan from=one, right pairs only"]


# ---- workers ---------------------------------------------------------------------------------------------------------


def test_workers_side_by_side_make_the_same_table(data: Path, tmp_path: Path) -> None:
    methods = parse_variants([*TINY, "vse++", "as=a", "vse++", "oracle=true", "vse++", "from=a", "margin=0.1"])
    options: dict[str, Any] = {"noise": (0.0, "0.5p"), "seeds": 1}
    both = compare_on(["cpu"], methods, data, tmp_path / "both", settings=Settings(device="cpu", jobs=2), **options)
    alone = compare_on(["cpu"], methods, data, tmp_path / "alone", settings=CPU, **options)
    assert len(alone["cells"]) == 6 and not both["failed"]
    assert [cell["report"] for cell in both["cells"]] == [cell["report"] for cell in alone["cells"]]
    assert (tmp_path / "both" / "workers" / "0.txt").stat().st_size


def killed(*args: Any) -> None:
    """What a system does to a worker when the memory is full."""
    os.kill(os.getpid(), signal.SIGKILL)


def dying_work(*args: Any) -> None:
    """A worker that is killed at one cell and fails at another in a way nobody foresaw."""
    original = several_devices.fill

    def fill(cell: Cell, *more: Any) -> Any:
        if cell.noise == 0.2:
            killed()
        if cell.noise == 0.4:
            raise RuntimeError("a device-side assert")
        return original(cell, *more)

    several_devices.fill = fill
    several_devices._work(*args)


def test_a_worker_that_dies_costs_its_cell_only(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several_devices, "START", dying_work)
    methods, options = parse_variants([*TINY, "vse++"]), {"noise": (0.0, 0.2, 0.4, 0.5), "seeds": 1}
    two = Settings(device="cpu", jobs=2)
    found = compare_on(["cpu"], methods, data, tmp_path / "out", settings=two, **options)
    why = {bad["noise"]: bad["why"] for bad in found["failed"]}
    assert set(why) == {0.2, 0.4} and "signal 9" in why[0.2] and "device-side assert" in why[0.4]
    assert [cell["noise"] for cell in found["cells"]] == [0.0, 0.5]
    assert not compare_on(["cpu"], methods, data, tmp_path / "out", settings=CPU, **options)["failed"]  # tried again


# ---- what is kept ----------------------------------------------------------------------------------------------------


def test_reports_alone_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[int] = []
    original = Trainer.save
    monkeypatch.setattr(Trainer, "save", lambda self: (saved.append(self.epoch), original(self))[1])
    methods = parse_variants([*TINY, "vse++", "as=a", "vse++", "from=a", "margin=0.1"])
    light = Settings(device="cpu", keep="reports")
    found = compare(methods, tiny_pairs(), tmp_path / "light", noise=(0.5,), settings=light)
    assert not saved  # a run of seconds is not saved in between
    places = [tmp_path / "light" / "cells" / Cell(one, 0.5, 0).folder for one in methods]
    assert [(place / "run" / "model.safetensors").exists() for place in places] == [True, False]
    assert all((place / "run" / "log.jsonl").exists() and not (place / "run" / "state").exists() for place in places)
    heavy = compare(methods, tiny_pairs(), tmp_path / "heavy", noise=(0.5,), settings=CPU)
    assert saved and [cell["report"] for cell in heavy["cells"]] == [cell["report"] for cell in found["cells"]]
    again = compare(methods, tiny_pairs(), tmp_path / "light", noise=(0.5,), settings=light)
    assert again["cells"] == found["cells"]


# ---- machines --------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_table_are_the_table_and_keep_rows_with_what_they_begin_with() -> None:
    methods = parse_variants(["vse++", "as=a", "vse++", "from=a", "dim=8", "vse++", "oracle=true", "scan"])
    cells = all_cells(methods, (0.0, 0.4), 2)
    parts = [part_of(cells, (k, 3)) for k in (1, 2, 3)]
    assert sorted(map(str, sum(parts, []))) == sorted(map(str, cells))
    for part in parts:
        assert {cell.root for cell in part} <= {cell.trained for cell in part}


def test_machines_that_share_nothing_make_one_table(data: Path, tmp_path: Path) -> None:
    command = ["compare", *TINY, "vse++", "vse++", "margin=0.1", "--data", str(data), "--noise", "0,0.5"]
    command += ["--device", "cpu", "--keep", "reports", "-o"]
    one, two, both = (tmp_path / name for name in ("one", "two", "both"))
    assert main([*command, str(one), "--share", "1/2"]) == 0
    assert main([*command, str(two), "--share", "2/2"]) == 0
    results = [json.loads((folder / "results.json").read_text())["cells"] for folder in (one, two)]
    assert [len(cells) for cells in results] == [2, 2]
    assert main([*command, str(both), "--merge", str(one), "--merge", str(two), "--json"]) == 0
    merged = json.loads((both / "results.json").read_text())
    assert len(merged["cells"]) == 4 and all(cell in merged["cells"] for cells in results for cell in cells)
    assert merged["tests"] and np.load(next(both.rglob("shares.npy"))).size


def test_another_comparison_is_not_merged(tmp_path: Path) -> None:
    cells = all_cells(parse_variants(["vse++"]), (0.0,), 1)
    module.agree(tmp_path / "other", tiny_pairs(seed=1), CPU)
    with pytest.raises(BadInput, match="another comparison"):
        merge([tmp_path / "other"], tmp_path / "out", cells, tiny_pairs(), CPU)
    with pytest.raises(BadInput, match="no comparison"):
        merge([tmp_path / "none"], tmp_path / "out", cells, tiny_pairs(), CPU)


@pytest.mark.parametrize("share", ["0/2", "3/2", "1", "a/b", "-1/2"])
def test_a_part_that_is_none_is_refused(share: str, data: Path, tmp_path: Path) -> None:
    command = ["compare", "vse++", "--data", str(data), "-o", str(tmp_path / "out"), f"--share={share}"]
    assert main(command) == 2
