"""Settings that the supplements of DivE and of semantic sharing state are those of presets and defaults."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import matchlight as ml
from matchlight.training.registry import Chosen, find
from tests.tiny import tiny_pairs


def settings(method: str, preset: str = "paper") -> dict[str, object]:
    chosen = Chosen.of(find(method))
    return {**chosen.defaults, **chosen.presets[preset]}


def test_dive_on_resnet_and_gru() -> None:
    wanted = {"epochs": 120, "schedule": "staircase", "decay_every": 10, "freeze_epochs": 50, "finetune": True}
    for preset, rate, slots in (("coco_grid", 1e-3, 0.1), ("f30k_grid", 2e-3, 0.01)):
        made = settings("dive", preset)
        assert made.items() >= {**wanted, "rate": rate, "slot_rate": slots}.items()
        assert "resnet152" in str(made["backbone"]) and made["sentences"] is None


def test_dive_on_regions_and_gru() -> None:
    for preset, slots in (("coco", 0.1), ("f30k", 0.05)):
        made = settings("dive", preset)
        assert (made["slot_rate"], made["drop_regions"], made["drop_words"], made["rate"]) == (slots, 0.2, 0.2, 1e-3)


def test_dive_on_resnext_and_bert() -> None:
    made = settings("dive", "bert")
    wanted = {"batch": 5 * 128, "together": True, "epochs": 50, "rate": 1e-4, "decay_every": 20, "backbone_rate": 0.1}
    wanted |= {
        "freeze_epochs": 1,
        "warm": 1,
        "negatives": "hardest",
        "sentences": "hf:bert-base-uncased",
        "pixels": 512,
    }
    assert made.items() >= wanted.items() and "resnext101" in str(made["backbone"])


def test_semantic_sharing_as_its_supplement_states_it() -> None:
    wanted = {"depth": 6, "heads": 8, "word_dim": 300, "max_words": 150, "batch": 64, "rate": 1e-4, "dropout": 0.1}
    wanted |= {"epochs": 45, "mask_weight": 0.1}
    for preset in ("paper", "flickr25k", "nuswide"):
        assert settings("semantic_sharing", preset).items() >= wanted.items()
    assert settings("semantic_sharing", "coco")["mask_weight"] == 0.01


def test_mrl_with_the_batches_of_its_sets() -> None:
    for preset, batch in (("paper", 50), ("inria", 200), ("nuswide", 500), ("xmedianet", 500)):
        assert (settings("mrl", preset)["batch"], settings("mrl", preset)["epochs"]) == (batch, 100)


def test_dive_trains_in_mixed_precision(tmp_path: Path) -> None:
    tiny = {"preset": "small", "dim": 16, "hidden": 8, "word_dim": 8, "head_dim": 8, "batch": 8, "epochs": 1}
    runs = [
        ml.train("dive", tiny_pairs(), tmp_path / kind, device="cpu", precision=kind, **tiny)
        for kind in ("fp32", "bf16")
    ]
    assert [run.info["precision"] for run in runs] == ["fp32", "bf16"]
    weights = [run.matcher.encoders["image"].fc.weight.detach().numpy() for run in runs]
    assert all(np.isfinite(one).all() and one.dtype == np.float32 for one in weights)
    assert 0 < np.abs(weights[0] - weights[1]).max() < 0.05
