"""SGR, SAF and SGRAF: the authors' numbers, the plain loop over captions, and what their parts promise."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, BadInput, Embedding, Ensemble, Items, Matcher, Sizes
from matchlight.methods import sgraf, similarity_vectors
from matchlight.methods.similarity_heads import Filter, GateNorm, GraphStep, Reason
from matchlight.methods.similarity_vectors import SimilarityVectors, by_length, least_padding
from matchlight.methods.whole_vectors import RegionNorm
from matchlight.pairs import Pairs
from matchlight.parts.layers import unit
from matchlight.parts.objectives import Hinge
from matchlight.runs.evaluation import evaluate, split_scores
from matchlight.runs.importing import import_checkpoints
from matchlight.scoring.encode import encode
from matchlight.training.registry import find, settings_of
from matchlight.training.strategies import Plain
from tests.fixtures import imported, loss_value, recorded_batch
from tests.reference import sgraf as slow

SIZES = Sizes(pairs=10, pictures=10, image="regions", image_dim=6, regions=4, vocabulary=12)
TINY: dict[str, Any] = {"dim": 10, "sim_dim": 7, "word_dim": 5, "dropout": 0.0}
KINDS = ("sgr", "saf")


# ---- the authors' numbers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fixture", KINDS)
def test_imported_weights_score_as_the_authors_code_does(fixture: str, parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / fixture, fixture, tmp_path / "run")
    assert np.abs(split_scores(run, pairs, "test") - expected["scores"]).max() < 5e-6
    inputs = run.inputs(pairs)
    for side, key, count in ((IMAGE, "img_emb", 12), (TEXT, "txt_emb", 60)):
        found = encode(run.matcher, inputs.table, side, np.arange(count))
        assert_close(found.vectors, torch.from_numpy(expected[key]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("fixture", KINDS)
def test_losses_and_metrics_are_the_recorded_ones(fixture: str, parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / fixture, fixture, tmp_path / "run")
    batch, scores, embeddings = recorded_batch(run, pairs, expected)
    hardest = loss_value(Hinge(siblings="negatives"), batch, scores, embeddings)
    every = loss_value(Hinge(siblings="negatives", hardest=False), batch, scores, embeddings)
    assert hardest == pytest.approx(float(expected["loss"]), rel=1e-5)
    assert every == pytest.approx(float(expected["loss_sum_over_negatives"]), rel=1e-5)
    report = json.loads((parity / fixture / "expected_metrics.json").read_text())
    found = evaluate(run, pairs, "test")
    assert found["rsum"] == pytest.approx(report["rsum"], abs=1e-3)
    assert found["t2i"]["meanr"] == pytest.approx(report["t2i"]["meanr"], abs=1e-3)


def test_an_sgr_and_a_saf_file_make_an_sgraf_whose_scores_are_their_mean(parity: Path, tmp_path: Path) -> None:
    files = [parity / kind / "checkpoint.pth.tar" for kind in KINDS]
    run = import_checkpoints(files, "sgraf", parity / "sgr" / "data" / "vocab.json", tmp_path / "both")
    pairs = Pairs.read(parity / "sgr" / "data")
    inputs = run.inputs(pairs)
    assert isinstance(run.matcher, Ensemble) and [m["head"] for m in run.info["members"]] == list(KINDS)
    one, two = (
        import_checkpoints([f], "sgraf", parity / "sgr" / "data" / "vocab.json", tmp_path / f.parent.name)
        for f in files
    )
    half = [split_scores(single, pairs, "test") for single in (one, two)]
    np.testing.assert_allclose(split_scores(run, pairs, "test"), (half[0] + half[1]) / 2, atol=1e-6)
    assert inputs.sizes.regions == 36


# ---- the plain loop --------------------------------------------------------------------------------------------------


def head_of(kind: str, dim: int = 7, **options: Any) -> Reason | Filter:
    return Reason(dim) if kind == "sgr" else Filter(dim, **options)


def sets(
    count: int, longest: int, dim: int = 10, *, lengths: list[int] | None = None, seed: int = 0, learn: bool = False
) -> Embedding:
    draw = torch.Generator().manual_seed(seed)
    vectors = unit(torch.randn(count, longest, dim, generator=draw))
    whole = unit(torch.randn(count, 1, dim, generator=draw))
    mask = None if lengths is None else torch.arange(longest)[None] < torch.tensor(lengths)[:, None]
    vectors = vectors if mask is None else vectors * mask[..., None]
    if learn:
        vectors, whole = vectors.requires_grad_(), whole.requires_grad_()
    return Embedding(vectors, mask, {"global": whole})


def shaken(module: nn.Module) -> Any:
    """Weights and averages away from where they begin."""
    draw = torch.Generator().manual_seed(3)
    for name, value in module.state_dict().items():
        if value.is_floating_point():
            value.add_(0.3 * torch.rand(value.shape, generator=draw) if "var" in name else 0.2 * noise(value, draw))
    return module


def noise(like: Tensor, draw: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=draw)


LENGTHS = [5, 2, 9, 9, 3, 6, 2]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_and_gradients_are_those_of_the_loop_over_captions(kind: str, training: bool) -> None:
    fast = shaken(SimilarityVectors(10, 7, head_of(kind))).train(training)
    loop = slow.twin(fast)
    want = torch.randn(6, 7, generator=torch.Generator().manual_seed(1))
    found = []
    for module, how in ((fast, None), (loop, slow.scores)):
        images, texts = sets(6, 4, learn=True), sets(7, 9, lengths=LENGTHS, seed=1, learn=True)
        matrix, norm = (module(images, texts), None) if how is None else how(module, images, texts)
        (matrix * want).sum().backward()
        grads = [images.vectors.grad, images.extra["global"].grad, texts.vectors.grad, texts.extra["global"].grad]
        found.append((matrix, [*grads, *(p.grad for p in module.parameters())], norm))
    assert_close(found[0][0], found[1][0], atol=1e-5, rtol=0)
    for ours, theirs in zip(found[0][1], found[1][1], strict=True):
        assert_close(ours, theirs, atol=1e-4, rtol=1e-3)
    if isinstance(fast.head, Filter):
        assert_close(fast.head.norm.running_mean, found[1][2].running_mean, atol=1e-6, rtol=1e-5)
        assert_close(fast.head.norm.running_var, found[1][2].running_var, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_small_blocks_change_neither_scores_nor_gradients(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh, found = shaken(SimilarityVectors(10, 7, head_of(kind))).train(), []
    for size in (1 << 30, 1):  # bytes: everything at once; one picture at a time, made again in the backward pass
        monkeypatch.setattr(similarity_vectors, "room", lambda *_, size=size: size)
        module = slow.twin(fresh)
        images, texts = sets(5, 4, learn=True), sets(7, 9, lengths=LENGTHS, seed=1, learn=True)
        matrix = module(images, texts)
        matrix.square().sum().backward()
        with torch.no_grad():
            pairs = module.pairs(images.take(slice(0, 3)), texts.take(slice(0, 3)))
        found.append([matrix, images.vectors.grad, *(p.grad for p in module.parameters()), pairs])
    for whole, parts in zip(*found, strict=True):
        assert_close(parts, whole, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_pictures_without_some_regions_score_as_if_those_were_not_there(kind: str) -> None:
    module = shaken(SimilarityVectors(10, 7, head_of(kind))).eval()
    images, texts = sets(3, 6, lengths=[4, 4, 4]), sets(4, 5, lengths=[5, 2, 3, 5], seed=1)
    short = Embedding(images.vectors[:, :4], None, images.extra)
    with torch.no_grad():
        assert_close(module(images, texts), module(short, texts), atol=1e-6, rtol=1e-5)
        assert_close(module.pairs(images, texts.take(slice(0, 3))), module(short, texts)[:, :3].diagonal())


@pytest.mark.parametrize("kind", KINDS)
def test_no_gradient_is_lost_to_padding_or_empty_regions(kind: str) -> None:
    module = shaken(SimilarityVectors(10, 7, head_of(kind))).train()
    images, texts = sets(3, 6, lengths=[4, 6, 0], learn=True), sets(4, 5, lengths=[5, 2, 3, 1], seed=1, learn=True)
    (module(images, texts).sum() + module.pairs(images, texts.take(slice(0, 3))).sum()).backward()
    learned = [images.vectors, texts.vectors, images.extra["global"], *module.parameters()]
    assert all(value.grad is not None and value.grad.isfinite().all() for value in learned)
    assert (texts.vectors.grad[1, 2:] == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_exchanging_pictures_exchanges_rows(kind: str) -> None:
    module = shaken(SimilarityVectors(10, 7, head_of(kind))).train()
    images, texts, order = sets(5, 4), sets(7, 9, lengths=LENGTHS, seed=1), torch.tensor([3, 0, 4, 1, 2])
    with torch.no_grad():
        assert_close(module(images.take(order), texts), module(images, texts)[order], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_products_keep_scores_close(kind: str) -> None:
    module = shaken(SimilarityVectors(64, 32, head_of(kind, 32))).eval()
    images, texts = sets(6, 8, 64), sets(7, 9, 64, lengths=LENGTHS, seed=1)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        rough = module(images, texts)
    assert rough.dtype == torch.float32
    assert (rough - module(images, texts)).abs().max() < 0.01


def test_similarity_vectors_of_one_word_worked_by_hand() -> None:
    module = SimilarityVectors(2, 2, Reason(2))
    for layer in (module.local, module.whole):
        layer.weight.data, layer.bias.data = torch.eye(2), torch.zeros(2)
    east, north = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.0, 1.0]]])
    images, texts = Embedding(east, None, {"global": east}), Embedding(north, None, {"global": east})
    found = module.nodes(images, texts)[0, 0]
    half = 0.5**0.5  # the word sees (1, 0) and is (0, 1): squared difference (1, 1), of unit length (.71, .71)
    assert_close(found, torch.tensor([[0.0, 0.0], [half, half]]))


# ---- heads -----------------------------------------------------------------------------------------------------------


def test_edges_of_each_node_sum_to_one_and_spare_padding() -> None:
    step = shaken(GraphStep(5))
    nodes, real = torch.randn(2, 3, 4, 5), torch.tensor([[4], [2], [3]]) > torch.arange(4)
    weights = step.edges(nodes, nodes, real[None])
    assert_close(weights.sum(-1), torch.ones(2, 3, 4))
    assert (weights[:, 1, :, 2:] == 0).all() and (weights[:, 0] > 0).all()


def test_filter_weights_sum_to_one_and_spare_padding() -> None:
    head = shaken(Filter(5))
    nodes, real = torch.randn(2, 3, 4, 5), torch.tensor([[4], [2], [3]]) > torch.arange(4)
    for measure in (False, True):
        weights, moments = head.weights(nodes, real[None], measure=measure)
        assert_close(weights.sum(-1), torch.ones(2, 3))
        assert (weights[:, 1, 2:] == 0).all() and (moments is None) == (not measure)


def test_a_gate_over_the_whole_batch_is_an_ordinary_batch_norm() -> None:
    ours, plain = GateNorm(over="batch"), nn.BatchNorm1d(1)
    x, real = torch.randn(4, 3, 5), torch.tensor([[5], [2], [4]]) > torch.arange(5)
    found, moments = ours.measured(x, real[None])
    ours.remember(moments)
    kept = real[None].expand_as(x)
    assert_close(found[kept], plain(x[kept][:, None])[:, 0])
    assert_close(ours.running_var, plain.running_var)
    assert int(ours.num_batches_tracked) == 1


def test_saf_trains_on_batch_statistics_when_asked() -> None:
    per_caption = shaken(SimilarityVectors(10, 7, Filter(7))).train()
    together = shaken(SimilarityVectors(10, 7, Filter(7, batch_norm="batch"))).train()
    images, texts = sets(5, 4), sets(7, 9, lengths=LENGTHS, seed=1)
    with torch.no_grad():
        assert (together(images, texts) - per_caption(images, texts)).abs().max() > 1e-4
    assert int(together.head.norm.num_batches_tracked) == 1 and int(per_caption.head.norm.num_batches_tracked) == 7
    with pytest.raises(BadInput):
        sgraf.SAF(batch_norm="never").recipe(SIZES)


def test_running_averages_move_caption_by_caption() -> None:
    norm = GateNorm(over="per_caption")
    norm.remember(torch.tensor([[1.0, 2.0], [3.0, 5.0]]))
    # from 0: .1*1 = .1, then .9*.1 + .1*2 = .29; from 1: .9 + .3 = 1.2, then 1.08 + .5 = 1.58
    assert_close(norm.running_mean, torch.tensor([0.29]))
    assert_close(norm.running_var, torch.tensor([1.58]))


def test_pairs_alone_leave_the_running_averages_as_they_are() -> None:
    module = shaken(SimilarityVectors(10, 7, Filter(7))).train()
    before = module.head.norm.running_mean.clone()
    module.pairs(sets(3, 4), sets(3, 5, lengths=[5, 2, 3], seed=1))
    assert_close(module.head.norm.running_mean, before)


# ---- captions of nearly one length -----------------------------------------------------------------------------------


def test_groups_waste_as_little_as_they_can_on_a_hand_worked_case() -> None:
    assert least_padding(np.array([2, 3, 9, 10]), 2) == [2, 4]  # 3 + 3 + 10 + 10 words, two of them padding
    assert least_padding(np.array([5, 5, 5]), 4) == [3]
    assert least_padding(np.array([1, 9, 9, 9]), 1) == [4]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=9), st.integers(1, 4))
def test_no_other_groups_waste_less(lengths: list[int], most: int) -> None:
    from itertools import combinations

    ascending = sorted(lengths)

    def cost(ends: tuple[int, ...]) -> int:
        starts = (0, *ends)
        return sum((e - s) * ascending[e - 1] for s, e in zip(starts, ends, strict=False))

    options = [(*cut, len(lengths)) for k in range(most) for cut in combinations(range(1, len(lengths)), k)]
    found = least_padding(np.array(ascending), most)
    assert len(found) <= most and cost(tuple(found)) == min(map(cost, options))


def test_groups_hold_all_captions_and_lead_back() -> None:
    texts = sets(7, 9, lengths=LENGTHS, seed=1)
    parts, back = by_length(texts, most=3)
    assert back is not None and sum(len(part) for part in parts) == 7
    assert sum(part.vectors.shape[0] * part.vectors.shape[1] for part in parts) < 7 * 9
    whole = torch.cat([part.extra["global"] for part in parts])[back]
    assert_close(whole, texts.extra["global"])


# ---- encoders --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [False, True])
def test_the_whole_picture_and_the_whole_caption_are_the_loops(training: bool) -> None:
    matcher = shaken(sgraf.SGR(**TINY).recipe(SIZES).matcher()).train(training)
    image, text = matcher.encoders[IMAGE], matcher.encoders[TEXT]
    regions = unit(image.fc(torch.randn(5, 4, 6)))
    want = slow.whole_vector(image.whole, regions)
    assert_close(image.whole(regions, None)[:, 0], want, atol=1e-5, rtol=1e-4)
    tokens = torch.tensor([[1, 5, 2, 0, 0], [1, 7, 8, 4, 2]])
    found = text(Items(tokens, tokens > 0, torch.arange(2), {"length": torch.tensor([3, 5])}))
    for k, n in enumerate((3, 5)):
        assert_close(found.extra["global"][k], slow.whole_vector(text.whole, found.vectors[k : k + 1, :n]))
    assert (found.vectors[0, 3:] == 0).all()


def test_statistics_of_regions_ignore_padding_and_places_nobody_has() -> None:
    norm, plain = RegionNorm(4), nn.BatchNorm1d(3)
    x, mask = torch.randn(5, 4, 6), (torch.arange(4) < 3).expand(5, 4)
    found = norm(x, mask)
    assert_close(found[:, :3], plain(x[:, :3]), atol=1e-5, rtol=1e-4)
    assert_close(norm.running_mean[:3], plain.running_mean)
    assert_close(norm.running_var[:3], plain.running_var)
    assert norm.running_mean[3] == 0 and norm.running_var[3] == 1
    again = RegionNorm(4)
    assert_close(again(x[:, :3]), found[:, :3], atol=1e-5, rtol=1e-4)  # fewer regions than places, none padded


def test_more_regions_than_a_model_knows_are_refused() -> None:
    matcher = sgraf.SGR(**TINY).recipe(SIZES).matcher()
    with pytest.raises(BadInput, match="5 regions"):
        matcher.embed(IMAGE, Items(torch.randn(2, 5, 6), None, torch.arange(2)))


# ---- recipes ---------------------------------------------------------------------------------------------------------


def test_sgraf_is_an_sgr_and_a_saf_with_epochs_and_rates_of_their_own() -> None:
    recipe = sgraf.SGRAF(**TINY).recipe(SIZES)
    assert isinstance(recipe.build("A").similarity.head, Reason) and isinstance(
        recipe.build("B").similarity.head, Filter
    )
    run = Namespace(rows=np.arange(4), networks={})
    assert [[p.network for p in recipe.strategy.phases(run, e)] for e in (0, 29, 30)] == [["A", "B"], ["A", "B"], ["A"]]
    assert recipe.schedule(25, 0, 1) == pytest.approx({"sgr": 1.0, "saf": 0.1})
    names = [recipe.groups(recipe.build(n), recipe.objective())[0]["name"] for n in "AB"]
    assert names == ["sgr", "saf"]


def test_one_half_of_sgraf_can_be_asked_for() -> None:
    recipe = sgraf.SGRAF(**TINY, head="saf").recipe(SIZES)
    assert recipe.strategy.networks == ("A",) and isinstance(recipe.build("A").similarity.head, Filter)
    with pytest.raises(BadInput, match="both, sgr or saf"):
        sgraf.SGRAF(head="neither").recipe(SIZES)


def test_presets_hold_the_papers_epochs() -> None:
    chosen = {
        name: settings_of(find(name), {"preset": "coco"}, pairs=1, device="cpu")[0] for name in ("sgr", "saf", "sgraf")
    }
    assert [(c["epochs"], c["decay_every"]) for c in chosen.values()] == [(20, 10)] * 3
    assert [find(name).defaults["epochs"] for name in ("sgr", "saf")] == [40, 30]
    assert [find(name).defaults["decay_every"] for name in ("sgr", "saf")] == [30, 20]


def test_warm_up_epochs_use_all_negatives() -> None:
    run = Namespace(rows=np.arange(4), networks={})
    for build in (sgraf.SGR, sgraf.SGRAF):
        strategy = build(**TINY, warm=1).recipe(SIZES).strategy
        assert strategy.phases(run, 0)[0].objective.hardest is False and strategy.phases(run, 1)[0].objective is None


def test_hardening_begins_after_the_warm_up_and_ends_at_the_hardest() -> None:
    run = Namespace(rows=np.arange(4), networks={})
    for build in (sgraf.SGR, sgraf.SAF, sgraf.SGRAF):
        for warm in (0, 1):
            strategy = build(**TINY, warm=warm, harden=2).recipe(SIZES).strategy
            phases = [strategy.phases(run, epoch)[-1] for epoch in range(warm + 3)]
            found = [None if phase.hardness is None else phase.hardness(1, 4) for phase in phases]
            assert found == [None] * warm + [0.125, 0.625, None]
            assert [phase.objective is None for phase in phases] == [False] * warm + [True] * 3


def test_without_hardening_no_phase_has_a_hardness() -> None:
    run = Namespace(rows=np.arange(4), networks={})
    for build in (sgraf.SGR, sgraf.SAF, sgraf.SGRAF):
        for warm in (0, 1):
            strategy = build(**TINY, warm=warm).recipe(SIZES).strategy
            assert all(phase.hardness is None for epoch in range(3) for phase in strategy.phases(run, epoch))
    assert type(sgraf.SGR(**TINY).recipe(SIZES).strategy) is Plain


@pytest.mark.parametrize("build", [sgraf.SGR, sgraf.SAF, sgraf.SGRAF])
def test_hardening_towards_no_hardest_negative_is_refused(build: Any) -> None:
    with pytest.raises(BadInput, match="harden=2 .* add hardest=true$"):
        build(**TINY, harden=2, hardest=False).recipe(SIZES)
    with pytest.raises(BadInput, match="harden=2 .* add loss=hinge hardest=true$"):
        build(**TINY, harden=2, hardest=False, loss="rclog").recipe(SIZES)


def test_networks_have_the_published_number_of_parameters_less_the_biases_a_softmax_cancels() -> None:
    sizes = replace(SIZES, image_dim=2048, regions=36, vocabulary=8481)
    with torch.device("meta"):
        networks = [build().recipe(sizes).matcher() for build in (sgraf.SGR, sgraf.SAF)]
    counts = [sum(p.numel() for p in network.parameters()) for network in networks]
    assert counts == [18_109_175 - 3 * 256 - 2, 17_517_306 - 2]


# ---- the authors' files ----------------------------------------------------------------------------------------------


def release(kind: str, *, dim: int = 8, sim: int = 6, words: int = 12, regions: int = 4) -> list[dict[str, Tensor]]:
    """[image, text, similarity] with the names and shapes of the released files."""

    def linear(name: str, outside: int, inside: int) -> dict[str, Tensor]:
        return {f"{name}.weight": torch.randn(outside, inside), f"{name}.bias": torch.randn(outside)}

    def norm(name: str, size: int) -> dict[str, Tensor]:
        parts = {key: torch.rand(size) for key in ("weight", "bias", "running_mean", "running_var")}
        return {f"{name}.{key}": value for key, value in parts.items()}

    gru: dict[str, Tensor] = {}
    for end in ("", "_reverse"):
        gru |= {
            f"cap_rnn.weight_ih_l0{end}": torch.randn(3 * dim, 5),
            f"cap_rnn.weight_hh_l0{end}": torch.randn(3 * dim, dim),
        }
        gru |= {f"cap_rnn.bias_{part}_l0{end}": torch.randn(3 * dim) for part in ("ih", "hh")}
    pair = norm("v_global_w.embedding_local.1", regions) | norm("v_global_w.embedding_global.1", dim)
    for side in "vt":
        pair |= linear(f"{side}_global_w.embedding_local.0", dim, dim) | linear(
            f"{side}_global_w.embedding_global.0", dim, dim
        )
        pair |= linear(f"{side}_global_w.embedding_common.0", 1, dim)
    pair |= linear("sim_tranloc_w", sim, dim) | linear("sim_tranglo_w", sim, dim) | linear("sim_eval_w", 1, sim)
    if kind == "saf":
        pair |= linear("SAF_module.attn_sim_w", 1, sim) | norm("SAF_module.bn", 1)
    else:
        for k in range(2):
            for layer in ("graph_query_w", "graph_key_w", "sim_graph_w"):
                pair |= linear(f"SGR_module.{k}.{layer}", sim, sim)
    return [linear("fc", dim, 6), {"embed.weight": torch.randn(words, 5)} | gru, pair]


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_of_a_released_file_finds_its_place(kind: str) -> None:
    parts = release(kind)
    found = sgraf.read_one({"model": parts, "opt": {"margin": 0.3}}, wanted=kind)
    assert found.sizes == {"image_dim": 6, "regions": 4, "vocabulary": 12}
    build = find(kind)
    sizes = Sizes(pairs=0, pictures=0, image="regions", **found.sizes)
    matcher: Matcher = build.build(sizes, **{**build.defaults, **found.arguments}).matcher()
    odd = matcher.load_state_dict(found.weights, strict=False)
    assert not odd.unexpected_keys and all(key.endswith("num_batches_tracked") for key in odd.missing_keys)
    assert found.arguments["margin"] == 0.3 and found.arguments.get("steps", 2) == 2


def test_a_file_of_the_other_kind_says_which_method_reads_it() -> None:
    with pytest.raises(BadInput, match="holds SAF, not SGR: --method saf"):
        sgraf.read_one({"model": release("saf"), "opt": {}}, wanted="sgr")
    with pytest.raises(BadInput, match="without unit vectors"):
        sgraf.read_either({"model": release("sgr"), "opt": {"no_imgnorm": True}})
    with pytest.raises(BadInput, match="neither"):
        sgraf.read_either({"model": [{}, {}, {"fc.weight": torch.zeros(1)}], "opt": {}})
