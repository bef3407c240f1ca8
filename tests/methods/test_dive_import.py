"""DivE's checkpoints: what their options say is computed so, becomes an argument, or is refused in one line."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from matchlight.core import BadInput
from matchlight.methods.dive_files import read_dive
from matchlight.pairs import Pairs
from matchlight.runs.evaluation import split_scores
from matchlight.runs.folder import Run
from matchlight.runs.importing import import_checkpoints
from matchlight.training.foreign import read_checkpoint


def file_with(parity: Path, *, without: tuple[str, ...] = (), **changed: Any) -> dict[str, Any]:
    """The recorded checkpoint with some of its options changed or left out."""
    file = read_checkpoint(parity / "dive" / "checkpoint.pth.tar")
    args = {**file["args"], **changed}
    return {**file, "args": {name: value for name, value in args.items() if name not in without}}


def run_with(parity: Path, folder: Path, **changed: Any) -> Run:
    """The same, imported as a user would."""
    file = file_with(parity, **changed)
    torch.save({**file, "args": Namespace(**file["args"])}, folder / "changed.pth.tar")
    vocabulary = parity / "dive" / "data" / "vocab.json"
    return import_checkpoints([folder / "changed.pth.tar"], "dive", vocabulary, folder / "run")


# ---- the similarity --------------------------------------------------------------------------------------------------


def match_probability(images: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """(I, T): the mean over all pairs of elements of sigmoid(cosine)."""
    return (1 / (1 + np.exp(-np.einsum("ikd,tld->itkl", images, texts)))).mean((2, 3))


@pytest.mark.parametrize(
    ("word", "key"),
    [("smooth_chamfer", "scores"), ("chamfer", "scores_chamfer"), ("max", "scores_max"), ("mp", None)],
)
def test_every_similarity_a_file_can_name_scores_as_recorded(
    word: str, key: str | None, parity: Path, tmp_path: Path
) -> None:
    run_with(parity, tmp_path, loss=word, eval_similarity="chamfer")
    expected = dict(np.load(parity / "dive" / "expected.npz"))
    wanted = expected[key] if key else match_probability(expected["img_emb"], expected["txt_emb"])
    run = Run.load(tmp_path / "run", device="cpu")
    found = split_scores(run, Pairs.read(parity / "dive" / "data"), "test")
    assert np.abs(found - wanted).max() < 1e-5


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"loss": "max", "eval_similarity": "chamfer"}, "mil"),
        ({"loss": "chamfer", "eval_similarity": None}, "chamfer"),
        ({"loss": None, "eval_similarity": "mp"}, "mp"),
        ({"loss": None, "eval_similarity": None}, "smooth_chamfer"),
    ],
    ids=str,
)
def test_the_loss_names_the_similarity_before_the_one_of_validation(
    options: dict[str, Any], found: str, parity: Path
) -> None:
    assert read_dive(file_with(parity, **options)).arguments["similarity"] == found
    absent = tuple(name for name, value in options.items() if value is None)
    assert read_dive(file_with(parity, without=absent, **options)).arguments["similarity"] == found


@pytest.mark.parametrize("options", [{"loss": "cosine"}, {"loss": None, "eval_similarity": "cosine"}], ids=str)
def test_an_unknown_similarity_is_answered_with_the_known_ones(options: dict[str, Any], parity: Path) -> None:
    with pytest.raises(BadInput, match="=cosine: .*chamfer, max, mp, smooth_chamfer"):
        read_dive(file_with(parity, **options))


def test_what_only_smooth_chamfer_reads_is_no_matter_elsewhere(parity: Path) -> None:
    assert read_dive(file_with(parity, loss="max", denominator=1.0, temperature_txt_scale=2.0))
    assert read_dive(file_with(parity, loss="chamfer", temperature_txt_scale=2.0))
    for change in ({"denominator": 1.0}, {"temperature_txt_scale": 2.0}):
        with pytest.raises(BadInput, match=next(iter(change))):
            read_dive(file_with(parity, **change))


# ---- what cannot be computed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "known"),
    [
        ("arch", "pvse", "slot"),
        ("img_res_pool", "avg", "max"),
        ("img_res_first_pool", True, "False"),
        ("img_res_last_fc", True, "False"),
        ("txt_pooling", "max", "rnn"),
        ("txt_pooling_fc", True, "False"),
        ("txt_attention_input", "rnn", "wemb"),
        ("spm_activation", "relu", "gelu"),
        ("spm_residual", False, "True"),
        ("spm_post_norm", True, "False"),
        ("spm_last_ln", False, "True"),
        ("spm_weight_sharing", False, "True"),
        ("spm_ff_mult", 2.0, "4.0"),
        ("spm_txt_pos_enc_type", "none", "sine"),
        ("spm_img_pos_enc_type", "sine", "none"),
        ("temperature_txt_scale", 2.0, "1.0"),
        ("denominator", 1.0, "2.0"),
        ("gpo_rnn", False, "True"),
        ("query_slot", True, "False"),
        ("use_bert", True, "False"),
    ],
)
def test_an_option_of_another_model_is_named_with_what_can_be_read(
    name: str, value: Any, known: str, parity: Path, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=f"changed.pth.tar: {name}={value}: only {name}={known} can be read") as problem:
        run_with(parity, tmp_path, **{name: value})
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize("name", ["img_res_pool", "spm_activation", "spm_residual", "spm_txt_pos_enc_type"])
def test_what_a_file_does_not_say_is_read_as_in_the_released_models_and_said(
    name: str, parity: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read_dive(file_with(parity, without=(name,)))
    assert f"read as the released models: {name}=" in capsys.readouterr().err


def test_options_that_came_later_or_that_the_weights_show_may_be_missing(parity: Path) -> None:
    missing = ("temperature_txt_scale", "arch", "txt_pooling", "spm_depth", "gpo_rnn", "spm_ff_mult", "use_bert")
    found = read_dive(file_with(parity, without=missing)).arguments
    assert found == read_dive(file_with(parity)).arguments and found["depth"] == 4
    assert read_dive(file_with(parity, without=("temperature",))).arguments["alpha"] == 16.0


def test_a_file_with_bert_is_refused_by_name(parity: Path) -> None:
    file = file_with(parity, use_bert=True)
    own = {key: value for key, value in file["model"].items() if not key.startswith(("txt_enc.embed", "txt_enc.rnn"))}
    with pytest.raises(BadInput, match="use_bert=True"):
        read_dive({**file, "model": {**own, "txt_enc.bert.pooler.dense.bias": torch.zeros(2)}})


def test_sets_of_two_sizes_are_refused(parity: Path) -> None:
    file = file_with(parity)
    file["model"]["txt_enc.spm.agg_block.latents"] = torch.zeros(3, 32)
    with pytest.raises(BadInput, match="img_num_embeds=4, txt_num_embeds=3"):
        read_dive(file)


# ---- training --------------------------------------------------------------------------------------------------------


def test_what_a_file_says_of_its_training_becomes_arguments(parity: Path, tmp_path: Path) -> None:
    options = {"mmd_weight": 0.5, "unif_weight": 0.3, "dropout": 0.4, "butd_drop_prob": 0.5, "caption_drop_prob": 0.1}
    options |= {"margin": 0.3, "lr": 2e-3, "img_pie_lr_scale": 0.05, "weight_decay": 0.0, "grad_clip": 2.0}
    options |= {"num_epochs": 7, "batch_size": 10, "temperature": 8.0}
    found = run_with(parity, tmp_path, **options).info["arguments"]
    wanted = {"mmd": 0.5, "diversity": 0.3, "dropout": 0.4, "drop_regions": 0.5, "drop_words": 0.1, "margin": 0.3}
    wanted |= {"rate": 2e-3, "slot_rate": 0.05, "decay": 0.0, "clip": 2.0, "epochs": 7, "batch": 50, "alpha": 8.0}
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("options", "negatives", "warm"),
    [
        ({}, "hardest", None),
        ({"max_violation": False}, "all", None),
        ({"semi_hard_triplet": True}, "semihard", None),
        ({"max_violation": False, "tri_mean_to_max": True, "warm_epoch": 1}, "hardest", 1),
    ],
    ids=str,
)
def test_negatives_are_those_the_file_was_trained_against(
    options: dict[str, Any], negatives: str, warm: int | None, parity: Path
) -> None:
    found = read_dive(file_with(parity, **options)).arguments
    assert found["negatives"] == negatives and found.get("warm") == warm


def test_diversity_of_whole_elements_is_left_out_and_said(parity: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert read_dive(file_with(parity, unif_residual=False)).arguments["diversity"] == 0.0
    assert "unif_weight=0.01" in capsys.readouterr().err


def test_what_is_not_said_of_training_stays_as_the_recipe_has_it(parity: Path) -> None:
    left_out = ("margin", "mmd_weight", "dropout", "max_violation", "num_epochs", "batch_size")
    found = read_dive(file_with(parity, without=left_out)).arguments
    assert not {"margin", "mmd", "dropout", "negatives", "epochs", "batch"} & found.keys()


def test_cells_of_a_backbone_are_not_left_out_in_training(parity: Path) -> None:
    file = file_with(parity)
    found = read_dive({**file, "model": {**file["model"], "img_enc.cnn.0.weight": torch.zeros(3)}})
    assert found.arguments["drop_regions"] == 0.0
