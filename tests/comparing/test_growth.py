"""Costs that grow as powers of a size are told by their slope and predicted for larger sizes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from matchlight.comparing.growth import Growth, slope


def test_the_slope_of_a_square_is_two() -> None:
    assert slope([10, 40, 160], [1.0, 16.0, 256.0]) == pytest.approx(2.0)


def test_fixed_work_hides_in_a_slope_and_not_in_a_prediction() -> None:
    sizes = [100, 400, 1600]
    costs = [5 + 0.001 * size for size in sizes]
    assert slope(sizes, costs) < 0.2
    grown = Growth.fit(sizes, costs, powers=(0, 1))
    assert grown.weights == pytest.approx((5, 0.001))
    assert grown.at(1e9) == pytest.approx(1e6, rel=1e-4)


def test_a_linear_and_a_quadratic_part_are_told_apart() -> None:
    sizes = [1000, 4000, 16000]
    grown = Growth.fit(sizes, [2e-3 * size + 1e-7 * size**2 for size in sizes], powers=(0, 1, 2))
    assert grown.weights == pytest.approx((0, 2e-3, 1e-7), abs=1e-9)


def test_no_term_is_negative_where_costs_fall_from_a_line() -> None:
    grown = Growth.fit([1, 4, 16], [1.0, 3.9, 12.0], powers=(0, 1, 2))
    assert min(grown.weights) >= 0


def test_the_script_measures_each_size_once_and_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = Path(__file__).parents[2] / "benchmarks" / "scaling.py"
    spec = importlib.util.spec_from_file_location("scaling", where)
    assert spec is not None and spec.loader is not None
    scaling = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scaling)
    done: list[int] = []

    def work(size: int, folder: Path) -> float:
        if len(done) == 2:
            done.append(0)
            raise KeyboardInterrupt
        done.append(size)
        return size / 100

    monkeypatch.setattr(scaling, "STAGES", {"training": (10, (0, 1), work)})
    with pytest.raises(KeyboardInterrupt):
        scaling.measured(tmp_path)
    found = scaling.measured(tmp_path)
    assert done == [10, 40, 0, 160]
    assert found == {"training": {10: 0.1, 40: 0.4, 160: 1.6}}
    assert scaling.fits(found)["training"].at(1_000_000) == pytest.approx(10_000)
    assert "training       160      1.60" in capsys.readouterr().out
