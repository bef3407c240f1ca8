from __future__ import annotations

import json

import pytest
import torch

from matchlight.cli import main
from matchlight.comparing import speed
from matchlight.comparing.caption_loop import CaptionLoop
from matchlight.core import BadInput

KEYS = {"method", "device", "ours_seconds", "naive_seconds", "ratio", "largest_difference"}


@pytest.fixture(autouse=True)
def few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "REGIONS", 5)
    monkeypatch.setattr(speed.seconds, "__kwdefaults__", {"runs": 1})


def test_captions_have_6_to_40_words_and_about_13_on_average() -> None:
    lengths = speed.caption_lengths(5000)
    assert lengths.min() == 6 and lengths.max() <= 40
    assert 12.5 < lengths.float().mean() < 14
    assert torch.equal(lengths, speed.caption_lengths(5000))


def test_random_sides_are_unit_vectors_with_zeros_behind_the_words() -> None:
    images, texts = speed.sides(3, 4, 16, torch.device("cpu"))
    assert texts.mask is not None
    torch.testing.assert_close(images.vectors.norm(dim=-1), torch.ones(3, 5))
    torch.testing.assert_close(texts.vectors.norm(dim=-1), texts.mask.float())


@pytest.mark.parametrize("name", speed.METHODS)
def test_the_plain_loop_scores_what_we_score(name: str) -> None:
    line = speed.score(name, device="cpu", pictures=6, captions=9, dim=16)
    assert line.keys() >= KEYS and line["method"] == name and line["device"] == "cpu"
    assert line["largest_difference"] < 1e-5
    assert line["ratio"] == line["naive_seconds"] / line["ours_seconds"]


def test_a_sample_of_captions_stands_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "SAMPLE", 3)
    monkeypatch.setattr(speed, "seconds", lambda work, device, what: 2.0)
    line = speed.score("scan", device="cpu", pictures=3, captions=9, dim=16)
    assert (line["naive_captions"], line["naive_seconds"], line["ratio"]) == (3, 6.0, 3.0)


def test_the_median_of_the_runs_after_a_warm_up_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0, 100, 101, 110, 113, 120, 122])  # warming up, then runs of 1, 3 and 2 seconds
    monkeypatch.setattr(speed, "_now", lambda device: next(ticks))
    assert speed.seconds(lambda: None, torch.device("cpu"), "", runs=3) == 2


@pytest.mark.parametrize("name", speed.METHODS)
def test_a_training_step_moves_both_networks_alike(name: str) -> None:
    """One step of ours and one of the loop, from the same weights, on the same batch."""
    from matchlight.training.network import Network

    data = speed.random_batch(6, 16, torch.device("cpu"))
    recipe = speed.built(name, 16, **({"dropout": 0.0} if name in ("sgr", "saf") else {}))
    ours, plain = (Network(recipe, seed=0, device=torch.device("cpu")) for _ in range(2))
    plain.matcher.similarity = CaptionLoop(plain.matcher.similarity, name)
    for network in (ours, plain):
        speed.step(network, data)
    torch.testing.assert_close(speed.batch_scores(ours, data), speed.batch_scores(plain, data), atol=2e-4, rtol=1e-3)


def test_json_is_one_object_with_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["bench", "score", "--pictures", "4", "--captions", "5", "--dim", "16", "--device", "cpu", "--json"]) == 0
    )
    assert json.loads(capsys.readouterr().out).keys() >= KEYS
    assert main(["bench", "train", "--batch", "4", "--dim", "16", "--device", "cpu", "--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert line.keys() >= KEYS and (line["batch"], line["precision"]) == (4, "fp32")


def test_the_table_says_how_many_times_faster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "score", "--pictures", "4", "--captions", "5", "--dim", "16", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "scan" in out and "times faster" in out


def test_what_bench_cannot_do_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "score", "--method", "sgrr"]) == 2
    assert "sgr" in capsys.readouterr().err
    assert main(["bench", "score", "--device", "gpu"]) == 2
    assert "auto, cpu or cuda" in capsys.readouterr().err
    with pytest.raises(BadInput, match="bench knows"):
        speed.built("vse++", 16)
