"""Arguments of methods: checked by name and type, never evaluated, with the nearest right name in the error."""

from __future__ import annotations

from dataclasses import fields

import pytest

from matchlight.core import BadInput
from matchlight.runs.train_run import TrainOptions
from matchlight.training.registry import find, methods, parse, renamed, settings_of

PLUS = methods()["vse++"]


def test_an_unknown_method_is_told_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"'vse\+\+'"):
        find("vse+++")


def test_a_misspelt_override_is_told_the_nearest() -> None:
    with pytest.raises(BadInput, match="'epochs'"):
        settings_of(PLUS, {"epchs": "1"}, pairs=100, device="cpu")


@pytest.mark.parametrize("word", ["epochs=many", "epochs=2.5", "margin=wide", "finetune=perhaps", "preset=huge"])
def test_a_value_of_the_wrong_type_is_refused(word: str) -> None:
    with pytest.raises(BadInput):
        settings_of(PLUS, dict(parse([word])), pairs=100, device="cpu")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("epochs=0", "at least 1"), ("batch=1", "at least 2"), ("dim=-4", "at least 1"), ("select=worst", "noisy"),
        ("rate=0", "above 0"), ("margin=-0.1", "at least 0"), ("rate=nan", "finite"),
    ],
)  # fmt: skip
def test_a_value_that_nothing_can_be_trained_with_is_refused(word: str, hint: str) -> None:
    with pytest.raises(BadInput, match=hint):
        settings_of(PLUS, dict(parse([word])), pairs=100, device="cpu")


@pytest.mark.parametrize(
    ("word", "hint"),
    [("temperature=0", "above 0"), ("q=2", "at most 1"), ("mmd=-1", "at least 0"), ("crop=2", "at most 1")],
)
def test_numbers_that_mean_nothing_to_sets_are_refused(word: str, hint: str) -> None:
    with pytest.raises(BadInput, match=hint):
        settings_of(methods()["dive"], dict(parse([word])), pairs=100, device="cpu")


@pytest.mark.parametrize("name", ["dscmr", "sdml"])
def test_a_term_that_is_weighed_can_be_left_out(name: str) -> None:
    assert settings_of(methods()[name], {"alpha": "0"}, pairs=100, device="cpu")[0]["alpha"] == 0
    with pytest.raises(BadInput, match="at least 0"):
        settings_of(methods()[name], {"alpha": "-1"}, pairs=100, device="cpu")


def test_a_name_that_two_methods_use_can_be_given_to_either() -> None:
    given, _ = settings_of(methods()["aoq"], {"base": "dive", "dive.alpha": "24"}, pairs=100, device="cuda")
    assert given["alpha"] == 0.3 and given["dive.alpha"] == 24.0
    with pytest.raises(BadInput, match="dive.alpha must be above 0"):
        settings_of(methods()["aoq"], {"base": "dive", "dive.alpha": "-1"}, pairs=100, device="cuda")
    given, _ = settings_of(
        methods()["ncr+"], {"scorer": "pcme", "pcme.measure": "probability"}, pairs=100, device="cuda"
    )
    assert given["measure"] == "auto" and given["pcme.measure"] == "probability"


def test_the_name_of_the_method_below_may_stand_before_any_of_its_arguments() -> None:
    given, _ = settings_of(methods()["ncr"], {"scorer": "scan", "scan.temperature": "4"}, pairs=100, device="cuda")
    assert given["temperature"] == 4.0
    with pytest.raises(BadInput, match="scan.temperature and temperature are one argument of ncr; give it once"):
        settings_of(
            methods()["ncr"],
            {"scorer": "scan", "scan.temperature": "4", "temperature": "5"},
            pairs=100,
            device="cuda",
        )
    with pytest.raises(BadInput, match="ncr takes no argument 'scan.threshold'"):  # that is NCR's own
        settings_of(methods()["ncr"], {"scorer": "scan", "scan.threshold": "0.4"}, pairs=100, device="cuda")
    with pytest.raises(BadInput, match="ncr takes no argument 'saf.temperature'"):
        settings_of(methods()["ncr"], {"scorer": "scan", "saf.temperature": "4"}, pairs=100, device="cuda")


def test_presets_of_the_method_below_speak_of_it_alone() -> None:
    asked = {"scorer": "imram", "preset": "coco"}
    given, _ = settings_of(methods()["ncr+"], asked, pairs=100, device="cuda")
    assert given["imram.temperature"] == 11.0 and given["temperature"] == 0.05  # the loss keeps its own
    given, _ = settings_of(methods()["aoq"], {"base": "pcme", "preset": "cub"}, pairs=100, device="cuda")
    assert given["beta"] == 1.5 and given["pcme.beta"] == methods()["pcme"].presets["cub"]["beta"]
    given, _ = settings_of(methods()["aoq"], {"base": "scan", "preset": "f30k"}, pairs=100, device="cuda")
    assert given["first"] == methods()["scan"].presets["f30k"]["epochs"] and given["epochs"] == 20
    given, _ = settings_of(methods()["ncr"], {"scorer": "dive", "preset": "f30k"}, pairs=100, device="cuda")
    assert given["slot_rate"] == methods()["dive"].presets["f30k"]["slot_rate"] and given["epochs"] == 45


def test_auto_counts_the_steps_of_the_batches_that_were_asked_for() -> None:
    given, _ = settings_of(PLUS, {"batch": "32"}, pairs=4000, device="cpu")
    assert given["epochs"] == 4  # 125 steps an epoch, 600 in all


def test_an_override_must_be_name_equals_value() -> None:
    with pytest.raises(BadInput, match="name=value"):
        parse(["epochs"])


def test_values_take_their_declared_types() -> None:
    given, _ = settings_of(
        PLUS, parse(["epochs=3", "margin=0.1", "finetune=yes", "preset=paper"]), pairs=9, device="cpu"
    )
    assert given["epochs"] == 3 and given["margin"] == 0.1 and given["finetune"] is True and given["dim"] == 1024


def test_auto_is_small_on_a_cpu_and_says_so() -> None:
    given, taken = settings_of(PLUS, {}, pairs=4000, device="cpu")
    assert taken == "auto:small" and given["dim"] == PLUS.small["dim"]
    assert given["epochs"] * 4000 / given["batch"] <= 700  # steps that two cores do in minutes
    _, taken = settings_of(PLUS, {}, pairs=30000, device="cuda")
    assert taken == "auto:paper"


@pytest.mark.parametrize("name", sorted(methods()))
def test_every_method_states_paper_needs_and_typed_defaults(name: str) -> None:
    chosen = methods()[name]
    assert chosen.paper and chosen.needs and chosen.name == name
    assert set(chosen.defaults) <= set(chosen.types)
    assert set(chosen.small) <= set(chosen.defaults)
    assert all(set(preset) <= set(chosen.defaults) for preset in chosen.presets.values())


def test_a_weight_nobody_claims_is_an_error() -> None:
    assert renamed({"fc.weight": 1}, {"fc.": "image.fc."}) == {"image.fc.weight": 1}
    with pytest.raises(BadInput, match="other"):
        renamed({"other.weight": 1}, {"fc.": "image.fc."})


@pytest.mark.parametrize("name", sorted(methods()))
def test_no_argument_hides_behind_one_of_train(name: str) -> None:
    taken = {"name", "pairs", "out", *(field.name for field in fields(TrainOptions))}
    assert not taken & set(methods()[name].defaults)


def test_more_pairs_get_eight_epochs_where_the_budget_of_steps_would_leave_four() -> None:
    epochs = [settings_of(PLUS, {}, pairs=count, device="cpu")[0]["epochs"] for count in (4000, 20_000, 400_000)]
    assert epochs == [16, 8, 4]


def test_auto_on_a_cpu_takes_a_loss_that_survives_wrong_pairs_and_paper_keeps_its_own() -> None:
    for name in ("vse++", "vse_infty", "scan", "bfan", "imram", "sgr", "saf", "sgraf", "vsrn", "pvse"):
        auto, paper, small = (
            settings_of(methods()[name], {"preset": preset}, pairs=4000, device="cpu")[0]
            for preset in ("auto", "paper", "small")
        )
        assert (auto["loss"], paper["loss"], small["loss"]) == ("rclog", "hinge", "hinge"), name
        assert settings_of(methods()[name], {}, pairs=40_000, device="cuda")[0]["loss"] == "hinge"
        assert settings_of(methods()[name], {"loss": "hinge"}, pairs=4000, device="cpu")[0]["loss"] == "hinge"
