"""A comparison trains each entry once, goes on where it was killed, and writes one table of it all."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matchlight.cli import main
from matchlight.cli.compare import LONGEST, as_lines
from matchlight.comparing import grid as module
from matchlight.comparing.curves import Line, Panel, draw, ticks
from matchlight.comparing.grid import Settings, compare, failures
from matchlight.comparing.results_files import as_csv, as_latex, as_markdown, as_svg
from matchlight.comparing.results_page import as_html, validation
from matchlight.comparing.results_table import summary, wide
from matchlight.comparing.several_devices import compare_on
from matchlight.comparing.variants import Cell, Variant, described, parse_variants
from matchlight.core import BadInput
from matchlight.data.formats import write
from matchlight.data.noise import Truth
from matchlight.files import try_lock
from matchlight.measuring import significance
from matchlight.training.trainer import Trainer
from tests.tiny import tiny_pairs

TINY = (("dim", "8"), ("word_dim", "8"), ("epochs", "2"), ("batch", "8"), ("preset", "small"))
ONE, TWO = Variant("vse++", TINY), Variant("vse++", (*TINY, ("margin", "0.1")))
CPU = Settings(device="cpu")
SVG = "{http://www.w3.org/2000/svg}"


def results(cells: list[tuple[str, float, int, float]], measure: str = "rsum", **more: Any) -> dict[str, Any]:
    """Results as a comparison gives them, made up."""
    reported = {"rsum": lambda v: {"rsum": v, "i2t": {"r1": v / 10}}, "MAP": lambda v: {"map": {"mean": v}}}[measure]
    return {
        "data": "tiny",
        "split": "test",
        "noise": sorted({noise for _, noise, _, _ in cells}),
        "seeds": len({seed for _, _, seed, _ in cells}),
        "methods": [{"label": name, "shown": name} for name in dict.fromkeys(name for name, _, _, _ in cells)],
        "cells": [
            {"method": name, "noise": noise, "seed": seed, "measure": measure, "value": value, "seconds": 1.0}
            | {"report": reported(value)}
            for name, noise, seed, value in cells
        ],
        "failed": [],
        **more,
    }


# ---- what is asked for -----------------------------------------------------------------------------------------------


def test_an_override_belongs_to_the_method_before_it_or_to_all() -> None:
    found = parse_variants(["epochs=5", "scan", "direction=i2t", "scan", "bfan", "epochs=9"])
    assert [one.label for one in found] == ["scan epochs=5 direction=i2t", "scan epochs=5", "bfan epochs=9"]


@pytest.mark.parametrize("words", [[], ["epochs=3"], ["scan", "scan"], ["scan", "=3"]])
def test_a_request_that_makes_no_table_is_refused(words: list[str]) -> None:
    with pytest.raises(BadInput):
        parse_variants(words)


def test_cells_that_differ_never_share_a_folder() -> None:
    labels = [
        Variant("scan"),
        Variant("scan", (("a", "b/c"),)),
        Variant("scan", (("a", "b-c"),)),
        Variant("scan", (("x", ".."),)),
    ]
    folders = {Cell(one, noise, seed).folder for one in labels for noise in (0.0, 0.2) for seed in (0, 1)}
    assert len(folders) == 16
    assert not any(".." in Path(folder).parts for folder in folders)


def test_arguments_that_all_methods_share_are_not_repeated_in_the_table() -> None:
    found = described(parse_variants(["epochs=5", "scan", "direction=i2t", "scan", "bfan"]))
    assert [line["shown"] for line in found] == ["scan direction=i2t", "scan", "bfan"]
    assert found[2]["label"] == "bfan epochs=5"
    assert described([ONE])[0]["shown"] == "vse++"


def test_labels_are_flipped_for_methods_that_learn_from_them_and_pairs_mismatched_for_the_others() -> None:
    pairs = tiny_pairs()
    noisy, truth = module.broken(pairs, Cell(Variant("vse++"), 0.5, 0), Settings())
    assert truth.kind == "mismatch" and noisy.captions != pairs.captions
    noisy, truth = module.broken(pairs, Cell(Variant("deep_sm"), 0.5, 0), Settings())
    assert truth.kind == "labels" and noisy.captions == pairs.captions
    per_picture = module.broken(pairs, Cell(Variant("vse++"), 0.5, 0), Settings(per="picture"))[1]
    assert per_picture.per == "picture"


# ---- training --------------------------------------------------------------------------------------------------------


def test_every_cell_is_trained_measured_and_written(tmp_path: Path) -> None:
    found = compare([ONE, TWO], tiny_pairs(), tmp_path / "out", noise=(0.5, 0.0), seeds=2, settings=CPU)
    assert [(c["method"], c["noise"], c["seed"]) for c in found["cells"]] == [
        (one.label, noise, seed) for seed in (0, 1) for noise in (0.0, 0.5) for one in (ONE, TWO)
    ]
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == found
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "table.csv").read_text())))
    assert len(rows) == 8 and {"method", "noise", "seed", "value", "i2t_r1", "t2i_r10", "rsum"} <= set(rows[0])
    assert (tmp_path / "out" / "table.md").read_text().count("±") == 4 + 1  # four entries and the remark
    assert (tmp_path / "out" / "table.tex").read_text().count(r"$\pm$") == 4
    ET.fromstring((tmp_path / "out" / "curves.svg").read_text())
    assert found["tests"] and all(0 < test["p"] <= 1 for test in found["tests"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Validation by epoch" in page and "<script" not in page
    assert "http:" not in page.replace(SVG[1:-1], "") and "https:" not in page  # loads nothing
    place = tmp_path / "out" / "cells" / Cell(ONE, 0.5, 1).folder
    assert len(Truth.load(place / "truth.json").moved) == 12  # half of the 24 training pairs
    assert (place / "run" / "model.safetensors").exists()
    assert np.load(place / "shares.npy").sum() == pytest.approx(found["cells"][6]["value"])


def test_a_finished_cell_is_not_trained_again_and_more_can_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []
    original = module.train_cell

    def watched(cell: Cell, *args: Any) -> dict[str, Any]:
        trained.append(str(cell))
        return original(cell, *args)

    monkeypatch.setattr(module, "train_cell", watched)
    first = compare([ONE], tiny_pairs(), tmp_path / "out", noise=(0.0,), settings=CPU)
    more = compare([ONE, TWO], tiny_pairs(), tmp_path / "out", noise=(0.0, 0.5), settings=CPU)
    assert len(trained) == 4 and len(set(trained)) == 4
    assert more["cells"][0] == first["cells"][0]


def test_a_killed_cell_goes_on_to_the_same_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = compare([ONE], tiny_pairs(), tmp_path / "whole", noise=(0.5,), settings=CPU)
    original, left = Trainer._step, [4]

    def dies(self: Trainer, *args: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        original(self, *args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "_step", dies)
        often = Settings(device="cpu", save_minutes=0.0)
        compare([ONE], tiny_pairs(), tmp_path / "cut", noise=(0.5,), settings=often)
    again = compare([ONE], tiny_pairs(), tmp_path / "cut", noise=(0.5,), settings=CPU)
    assert again["cells"][0]["report"] == whole["cells"][0]["report"]
    place = tmp_path / "cut" / "cells" / Cell(ONE, 0.5, 0).folder / "run" / "log.jsonl"
    assert [json.loads(line).get("resumed_from_step") for line in place.read_text().splitlines()].count(4) == 1


def test_one_method_that_fails_leaves_the_others_standing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = module.train_cell

    def sometimes(cell: Cell, *args: Any) -> dict[str, Any]:
        if cell.variant is TWO:
            raise BadInput("a loss of nan")
        return original(cell, *args)

    monkeypatch.setattr(module, "train_cell", sometimes)
    found = compare([TWO, ONE], tiny_pairs(), tmp_path / "out", noise=(0.0,), settings=CPU)
    assert [cell["method"] for cell in found["cells"]] == [ONE.label]
    assert "a loss of nan" in (tmp_path / "out" / "table.md").read_text()
    with pytest.raises(BadInput, match="1 of 2 entries failed"):
        failures(found)
    monkeypatch.setattr(module, "train_cell", original)
    assert not compare([TWO, ONE], tiny_pairs(), tmp_path / "out", noise=(0.0,), settings=CPU)["failed"]


def test_a_method_of_sets_tells_in_the_table_how_far_apart_they_are(tmp_path: Path) -> None:
    sizes = {"preset": "small", "dim": 8, "hidden": 8, "word_dim": 8, "head_dim": 4, "epochs": 1, "batch": 8}
    sets = Variant("dive", tuple((name, str(value)) for name, value in sizes.items()))
    found = compare([sets, ONE], tiny_pairs(), tmp_path / "out", noise=(0.0,), settings=CPU)["cells"]
    assert all(0 < found[0]["report"]["spread"][side] < 1 for side in ("image", "text"))
    assert "spread" not in found[1]["report"]
    one, other = csv.DictReader(io.StringIO((tmp_path / "out" / "table.csv").read_text()))
    assert float(one["spread_image"]) == found[0]["report"]["spread"]["image"] and other["spread_image"] == ""


def test_methods_of_labels_are_compared_by_map(tmp_path: Path) -> None:
    quick = Variant("deep_sm", (("epochs", "1"), ("preset", "small")))
    found = compare([quick, ONE], tiny_pairs(), tmp_path / "out", noise=(0.0,), settings=CPU)
    assert [line["measure"] for line in found["table"]] == ["MAP", "rsum"]
    assert 0 < found["cells"][0]["value"] <= 1


@pytest.mark.parametrize(
    ("asked", "noise", "settings"),
    [
        (Variant("vse++", (("epoch", "3"),)), 0.0, CPU),
        (Variant("nonesuch"), 0.0, CPU),
        (ONE, 1.5, CPU),
        (ONE, 0.0, Settings(device="cpu", split="testall")),
    ],
)
def test_what_cannot_work_is_told_before_anything_is_written(
    asked: Variant, noise: float, settings: Settings, tmp_path: Path
) -> None:
    with pytest.raises(BadInput):
        compare([ONE, asked], tiny_pairs(), tmp_path / "out", noise=(0.0, noise), settings=settings)
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "one.txt").write_text("dear")
    with pytest.raises(BadInput, match="not a comparison"):
        compare([ONE], tiny_pairs(), tmp_path / "letters", noise=(0.0,), settings=CPU)
    module.agree(tmp_path / "out", tiny_pairs(), CPU)
    with pytest.raises(BadInput, match="data"):
        module.agree(tmp_path / "out", tiny_pairs(seed=1), CPU)
    with pytest.raises(BadInput, match="per"):
        module.agree(tmp_path / "out", tiny_pairs(), Settings(per="picture"))


# ---- the table and the curves ----------------------------------------------------------------------------------------


def test_rows_of_the_growing_table_are_told_apart_however_long_their_names_are() -> None:
    begin = "lantern " + "name=value " * 8
    names = ["ncr+", f"{begin}slots=1", f"{begin}slots=2"]
    header, *rows = as_lines(["method", "rsum"], [[name, "12.5"] for name in names])
    assert len({len(line) for line in (header, *rows)}) == 1 and len(header) == LONGEST + 2 + 14
    assert rows[0].split() == ["ncr+", "12.5"]
    assert rows[1].split()[0] == "lantern" and rows[1].split()[-2:] == ["slots=1", "12.5"]
    assert rows[1] != rows[2]


def test_seeds_are_averaged_by_hand() -> None:
    found = results([("a", 0.0, 0, 100.0), ("a", 0.0, 1, 104.0), ("a", 0.4, 0, 50.0), ("b", 0.0, 0, 7.0)])
    first, second = summary(found)
    assert first["noise"]["0"]["mean"] == 102 and first["noise"]["0"]["std"] == pytest.approx(8**0.5)
    assert first["noise"]["0.4"]["std"] == 0 and list(second["noise"]) == ["0"]
    header, rows = wide(found)
    assert header == ["method", "measure", "0% noise", "40% noise"]
    assert rows == [["a", "rsum", "102.0 ± 2.8", "50.0"], ["b", "rsum", "7.0", "-"]]


def test_the_files_of_an_empty_table_are_still_files() -> None:
    empty = results([])
    assert as_csv(empty).startswith("method,")
    assert "| method | measure |" in as_markdown(empty)
    ET.fromstring(as_svg(empty))


def test_curves_are_one_svg_without_anything_from_elsewhere() -> None:
    both = results([("a <b> & c", 0.0, 0, 300.0), ("a <b> & c", 0.5, 0, 100.0)])
    both["cells"] += results([("labels", 0.0, 0, 0.4)], "MAP")["cells"]
    both["methods"].append({"label": "labels", "shown": "labels"})
    text = as_svg(both)
    tree = ET.fromstring(text)
    shown = ["".join(node.itertext()) for node in tree.iter(f"{SVG}text")]
    assert "a <b> & c" in shown and "labels" in shown and "50%" in shown
    assert "href" not in text and text.count("http") == 1  # the namespace
    lines = list(tree.iter(f"{SVG}polyline"))
    assert len(lines) == 2


def test_a_legend_of_many_lines_stays_on_the_page() -> None:
    many = [Line(f"m{k}", [(0.0, k, 0.0), (1.0, k, 0.5)]) for k in range(30)]
    tree = ET.fromstring(draw([Panel("p", many)], across="x"))
    lowest = max(float(node.attrib.get("y", 0)) for node in tree.iter(f"{SVG}text"))
    assert lowest + 34 < float(tree.attrib["height"])
    styles = {(n.attrib["stroke"], n.attrib.get("stroke-dasharray")) for n in tree.iter(f"{SVG}polyline")}
    assert len(styles) == 21  # seven colours, three dashes


def test_higher_is_higher_on_the_page() -> None:
    tree = ET.fromstring(draw([Panel("p", [Line("a", [(0.0, 10.0, 0.0), (1.0, 30.0, 1.0)])])], across="x"))
    places = next(tree.iter(f"{SVG}polyline")).attrib["points"].split()
    (x0, y0), (x1, y1) = (tuple(map(float, place.split(","))) for place in places)
    assert x1 > x0 and y1 < y0


@pytest.mark.parametrize(("low", "high"), [(0, 450), (0, 0.37), (-3, 12), (0, 0), (5, 5), (0, 1e-6)])
def test_ticks_are_round_and_span_the_values(low: float, high: float) -> None:
    found = ticks(low, high)
    assert found[0] <= low and found[-1] >= high and 2 <= len(found) <= 12
    assert np.allclose(np.diff(found), found[1] - found[0])


# ---- marks of significance -------------------------------------------------------------------------------------------


def kept(shares: dict[tuple[str, int], np.ndarray]) -> Any:
    return lambda cell: shares.get((cell["method"], cell["seed"]))


def with_tests(pictures: int = 200) -> dict[str, Any]:
    """Three methods on the same pictures: the best, one hardly behind, one far behind."""
    rng = np.random.default_rng(0)
    best = rng.random(pictures)
    values = {"best": best, "close": best + rng.normal(0, 0.2, pictures) - 0.001, "far": best - rng.random(pictures)}
    shares = {(name, seed): each for name, each in values.items() for seed in (0, 1)}
    found = results([(name, 0.4, seed, float(each.sum())) for (name, seed), each in shares.items()])
    found["tests"] = significance.tests(found["cells"], found["noise"], kept(shares))
    return found


def test_a_method_far_behind_has_stars_and_one_hardly_behind_has_none() -> None:
    found = with_tests()
    marks = {test["method"]: test for test in found["tests"]}
    assert set(marks) == {"close", "far"} and all(test["best"] == "best" for test in found["tests"])
    assert marks["far"]["mark"] == "***" and marks["close"]["mark"] == "" and marks["far"]["seeds"] == 2
    assert marks["far"]["p_corrected"] == pytest.approx(2 * marks["far"]["p"])
    lines = as_markdown(found)
    assert lines.count("**") == 2 and r"\*\*\*" in lines.split("| far |")[1].splitlines()[0]
    assert "Holm" in lines and r"\textbf{" in as_latex(found) and "$^{***}$" in as_latex(found)


def test_seeds_that_one_method_lacks_and_shares_of_other_pictures_make_no_test() -> None:
    found = results([("a", 0.0, 0, 3.0), ("b", 0.0, 1, 2.0)])
    assert significance.tests(found["cells"], found["noise"], kept({("a", 0): np.ones(3), ("b", 1): np.ones(3)})) == []
    found = results([("a", 0.0, 0, 3.0), ("b", 0.0, 0, 2.0)])
    assert significance.tests(found["cells"], found["noise"], kept({("a", 0): np.ones(3), ("b", 0): np.ones(4)})) == []
    assert significance.tests(found["cells"], found["noise"], lambda cell: None) == []
    assert (
        len(
            significance.tests(
                found["cells"], found["noise"], kept({("a", 0): np.ones(3), ("b", 0): np.full(3, 2 / 3)})
            )
        )
        == 1
    )


@pytest.mark.parametrize(("p", "mark"), [(0.0009, "***"), (0.001, "**"), (0.01, "*"), (0.05, ""), (1.0, "")])
def test_stars_begin_below_their_limit(p: float, mark: str) -> None:
    assert significance.stars(p) == mark


def test_latex_keeps_names_that_mean_something_to_it() -> None:
    found = results([("vse_infty a=50%&$x^2", 0.0, 0, 1.0)])
    lines = as_latex(found).splitlines()
    assert r"vse\_infty a=50\%\&\$x\textasciicircum{}2" in lines[5]
    assert lines[1] == r"\begin{tabular}{llr}" and lines[3] == r"method & measure & 0\% noise \\"


def test_a_page_shows_what_failed_and_nothing_of_it_is_markup(tmp_path: Path) -> None:
    found = with_tests()
    found["failed"] = [{"method": "<b>bad</b>", "noise": 0.4, "seed": 0, "why": "<script>alert(1)</script>"}]
    found["data"] = "<img src=x>"
    text = as_html(found, tmp_path)
    assert "<script" not in text and "<img" not in text and "&lt;script&gt;" in text
    assert "<b>" + f"{found['cells'][0]['value']:.1f}" in text  # the best is bold
    assert text.count("***") >= 2  # in the table and in the note


def test_the_page_of_nothing_and_of_half_a_table_is_still_a_page(tmp_path: Path) -> None:
    assert "<h2>Results</h2>" in as_html(results([]) | {"noise": [0.0]}, tmp_path)
    half = results([("a", 0.0, 0, 3.0)]) | {"noise": [0.0, 0.4]}
    assert "1 of 2 entries are trained so far" in as_html(half, tmp_path)


def test_the_log_of_a_run_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"epoch": 0, "val": {"rsum": 5}}\n{"epoch": 1, "val": {"rsum": 7}}\n{"epoch": 2, "va')
    assert validation(log, "rsum") == [(1.0, 5.0), (2.0, 7.0)]
    assert validation(tmp_path / "none.jsonl", "rsum") == []


# ---- several processes -----------------------------------------------------------------------------------------------


def test_a_folder_is_claimed_once_and_free_again_afterwards(tmp_path: Path) -> None:
    with try_lock(tmp_path / "cell") as mine, try_lock(tmp_path / "cell") as second:
        assert mine and not second
    with try_lock(tmp_path / "cell") as again:
        assert again


def test_a_cell_that_another_process_trains_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, held = module.train_cell, []
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    other = try_lock(tmp_path / "out" / "cells" / Cell(ONE, 0.0, 0).folder)

    def watched(cell: Cell, *args: Any) -> dict[str, Any]:
        found = original(cell, *args)
        held.append(cell.variant)
        if cell.variant == TWO:  # by now the other process has died with its cell half done
            other.__exit__(None, None, None)
        return found

    module.agree(tmp_path / "out", tiny_pairs(), CPU)
    assert other.__enter__()
    monkeypatch.setattr(module, "train_cell", watched)
    found = compare([ONE, TWO], tiny_pairs(), tmp_path / "out", noise=(0.0,), settings=CPU)
    assert held == [TWO, ONE] and [cell["method"] for cell in found["cells"]] == [ONE.label, TWO.label]


def test_two_devices_share_the_cells_of_one_folder(data: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"noise": (0.0, 0.5), "seeds": 1, "settings": CPU}
    both = compare_on(["cpu", "cpu"], [ONE, TWO], data, tmp_path / "both", **options)
    alone = compare_on(["cpu"], [ONE, TWO], data, tmp_path / "alone", **options)
    assert [cell["report"] for cell in both["cells"]] == [cell["report"] for cell in alone["cells"]]
    with pytest.raises(BadInput, match="gpu7"):
        compare_on(["cpu", "gpu7"], [ONE], data, tmp_path / "none", **options)


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tiny_pairs(), tmp_path / "data", to="npz")
    return tmp_path / "data"


def test_the_command_prints_the_table_or_one_json_object(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = [f"{name}={value}" for name, value in TINY]
    command = ["compare", *tiny, "vse++", "--data", str(data), "--noise", "0,0.5", "-o", str(tmp_path / "out")]
    assert main([*command, "--device", "cpu"]) == 0
    shown = capsys.readouterr()
    assert "50% noise" in shown.out and "rsum" in shown.out and "cell 1 of 2" in shown.err
    assert main([*command, "--device", "cpu", "--json"]) == 0
    shown = capsys.readouterr()
    assert [cell["noise"] for cell in json.loads(shown.out)["cells"]] == [0.0, 0.5]
    assert "cell 1" not in shown.err  # nothing was left to do


@pytest.mark.parametrize("noise", ["0,often", "1.5", "nan", "", "-0.1"])
def test_shares_that_are_none_are_refused(
    noise: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "vse++", "--data", str(data), "--noise", noise, "-o", str(tmp_path / "out")]) == 2
    assert "0,0.2,0.4" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
