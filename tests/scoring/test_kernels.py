from __future__ import annotations

import inspect
import itertools
import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from matchlight.scoring import kernels
from matchlight.scoring.kernels import gpu_attention, reference, self_check, vector_scores
from matchlight.scoring.kernels.heads import Filtering, Reasoning
from matchlight.scoring.kernels.packed import Packed, blocks, buckets, pack, same_length
from matchlight.scoring.kernels.reference import AttentionSettings as How
from matchlight.scoring.kernels.vector_scores import Captions, Pictures, VectorLayers
from tests.reference import cross_attention

triton_there = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
LENGTHS = torch.tensor([3, 1, 17, 5, 16, 33, 5])


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels run by Triton's interpreter, on the CPU; how it runs them is settled when they are first imported."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    import matchlight.scoring.kernels.triton_attention as module

    if type(module.words_look).__name__ != "InterpretedFunction":
        pytest.skip("the kernels were imported for a GPU")
    look_once(monkeypatch)


def look_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter looks through the whole language at every call of a function: half of its time, saved here."""
    from triton import language
    from triton.runtime import interpreter

    @cache
    def builtins(package: object) -> list[tuple[str, object]]:
        return [(name, member) for name, member in inspect.getmembers(package) if language.core.is_builtin(member)]

    def patched(package: object, builder: object, scope: object) -> None:
        for name, member in builtins(package):
            if getattr(package, name) is member:
                interpreter._patch_attr(package, name, member, builder, scope)

    if hasattr(interpreter, "_patch_attr"):  # else it works in another way
        monkeypatch.setattr(interpreter, "_patch_builtin", patched)


def packed(lengths: Tensor, dim: int, seed: int = 0) -> Packed:
    draw = torch.Generator().manual_seed(seed)
    words = F.normalize(torch.randn(int(lengths.sum()), dim, generator=draw), dim=-1)
    return Packed(words, torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]))


def pictures(count: int, regions: int, dim: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    mask = torch.rand(count, regions, generator=draw) > 0.3
    mask[:, 0] = True
    return F.normalize(torch.randn(count, regions, dim, generator=draw), dim=-1), mask


# ---- packing ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8))
@settings(deadline=None, max_examples=25)
def test_packing_and_padding_undo_each_other(lengths: list[int]) -> None:
    texts = packed(torch.tensor(lengths), 4)
    words, mask = texts.padded()
    again = pack(words, mask)
    assert_close(again.words, texts.words)
    assert again.offsets.tolist() == texts.offsets.tolist()


@given(st.lists(st.integers(1, 90), min_size=1, max_size=30), st.integers(1, 200), st.integers(1, 9))
@settings(deadline=None, max_examples=40)
def test_every_caption_is_in_one_block_one_bucket_and_one_length(lengths: list[int], words: int, most: int) -> None:
    count = torch.tensor(lengths)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), count.cumsum(0)])
    runs = list(blocks(offsets, words=words, captions=most))
    assert [t for first, last in runs for t in range(first, last)] == list(range(len(lengths)))
    assert all(last - first == 1 or offsets[last] - offsets[first] <= words for first, last in runs)
    assert all(last - first <= most for first, last in runs)
    for deal in (buckets(count), same_length(count)):
        dealt = [(size, t) for size, inside in deal for t in inside.tolist()]
        assert sorted(t for _, t in dealt) == list(range(len(lengths)))
        assert all(lengths[t] <= size for size, t in dealt)


# ---- attended scores -------------------------------------------------------------------------------------------------


def test_a_score_worked_by_hand() -> None:
    regions = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    word = Packed(torch.tensor([[1.0, 0.0]]), torch.tensor([0, 1]))
    # at temperature 0 the word sees both regions alike: (1/2, 1/2), at 45 degrees to it
    score = reference.attended_scores(regions, None, word, How(temperature=0.0))
    assert_close(score, torch.tensor([[0.5**0.5]]))
    # each region sees the one word, whatever it is: cosines 1 and 0
    back = reference.attended_scores(regions, None, word, How(direction="i2t", temperature=4.0))
    assert_close(back, torch.tensor([[0.5]]))


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
@pytest.mark.parametrize("norm", reference.NORMS)
@pytest.mark.parametrize("aggregate", reference.AGGREGATES)
def test_plain_scores_are_those_of_the_loop_over_captions(direction: str, norm: str, aggregate: str) -> None:
    regions, _ = pictures(4, 6, 8)
    texts = packed(LENGTHS, 8)
    words, _ = texts.padded()
    settings = {"direction": direction, "norm": norm, "aggregate": aggregate, "temperature": 9.0}
    slow = cross_attention.scan(regions, words, LENGTHS.tolist(), sharpness=6.0, **settings)
    quick = reference.attended_scores(regions, None, texts, How(lse=6.0, **settings))
    assert_close(quick, slow, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("gate", ["equal", "prob"])
def test_plain_gates_are_those_of_the_loop_over_captions(gate: str) -> None:
    regions, _ = pictures(4, 6, 8)
    texts = packed(LENGTHS, 8)
    words, _ = texts.padded()
    slow = cross_attention.bfan(regions, words, LENGTHS.tolist(), kind=gate, temperature=5.0)
    both = [How(direction=way, temperature=5.0, gate=gate) for way in ("t2i", "i2t")]
    ways = [reference.attended_scores(regions, None, texts, how) for how in both]
    assert_close(ways[0] + ways[1], slow, atol=2e-5, rtol=1e-5)


CASES = [
    ("clipped_l2norm", "mean", "none"),
    ("l2norm", "lse", "none"),
    ("clipped", "max", "equal"),
    ("no_norm", "sum", "none"),
    ("clipped_l2norm", "mean", "prob"),
]


@triton_there
@pytest.mark.parametrize("count", [7, 16, 21])  # less than a tile, one tile, a tile and a small one
@pytest.mark.parametrize(("direction", "case"), list(itertools.product(["t2i", "i2t"], CASES)))
def test_fused_scores_are_the_plain_ones(
    interpreted: None, direction: str, case: tuple[str, str, str], count: int
) -> None:
    regions, mask = pictures(3, count, 8)
    texts = packed(LENGTHS, 8)
    norm, aggregate, gate = case
    longer = Packed(0.7 * texts.words, texts.offsets)  # words need not be of unit length
    how = How(direction=direction, norm=norm, aggregate=aggregate, gate=gate, temperature=9.0)
    quick = gpu_attention.attended_scores(regions, mask, longer, how, precision="fp32")
    assert_close(quick, reference.attended_scores(regions, mask, longer, how), atol=1e-5, rtol=1e-5)


@triton_there
@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_half_precision_is_near_for_unit_vectors(interpreted: None, direction: str) -> None:
    regions, mask = pictures(3, 7, 8)
    texts, how = packed(LENGTHS[LENGTHS > 4], 8), How(direction=direction, temperature=9.0)
    quick = gpu_attention.attended_scores(regions, mask, texts, how, precision="fp16")
    right = reference.attended_scores(regions, mask, texts, how)
    assert not torch.equal(quick, right)
    assert_close(quick, right, atol=2e-3, rtol=0)


@triton_there
@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_the_budget_changes_nothing(interpreted: None, direction: str) -> None:
    regions, _ = pictures(3, 7, 8)
    texts = packed(LENGTHS[:4], 8)
    given = (regions, None, texts, How(direction=direction, temperature=9.0))
    whole = gpu_attention.attended_scores(*given)
    for budget in (1, 4 * 7 * 20 * 2):
        part = gpu_attention.attended_scores(*given, budget=budget)
        assert_close(part, whole, atol=1e-6, rtol=0)
        plainly = reference.attended_scores(*given, budget=budget)
        assert_close(plainly, whole, atol=1e-5, rtol=0)


@triton_there
def test_a_picture_of_nothing_but_padding_scores_nothing_and_spoils_nothing(interpreted: None) -> None:
    regions, mask = pictures(2, 5, 8)
    mask[1] = False
    texts = packed(LENGTHS[:2], 8)
    for run, direction in itertools.product((gpu_attention.attended_scores, reference.attended_scores), ("t2i", "i2t")):
        scores = run(regions, mask, texts, How(direction=direction, temperature=9.0))
        assert scores[0].abs().min() > 0 and scores[1].tolist() == [0, 0]


@pytest.mark.parametrize(("name", "value"), [("norm", "l3"), ("aggregate", "median"), ("gate", "maybe")])
def test_an_unknown_option_is_told_what_would_have_worked(name: str, value: str) -> None:
    regions, _ = pictures(2, 5, 8)
    texts = packed(LENGTHS[:2], 8)
    with pytest.raises(ValueError, match=f"{name} is .* or .*, not '{value}'"):
        kernels.attended_scores(regions, None, texts, How(temperature=9.0, **{name: value}))


# ---- similarity vectors ----------------------------------------------------------------------------------------------


def layer(inside: int, outside: int, seed: int) -> nn.Linear:
    """Weights large enough that scores differ by more than rounding."""
    made = nn.Linear(inside, outside).requires_grad_(False)
    draw = torch.Generator().manual_seed(seed)
    made.weight.copy_(torch.randn(outside, inside, generator=draw) * 2 / inside**0.5)
    made.bias.copy_(torch.randn(outside, generator=draw) / 4)
    return made


def network(head: str, precision: str, quick: bool) -> tuple[VectorLayers, Reasoning | Filtering]:
    layers, evaluate = VectorLayers(layer(20, 16, 0), layer(20, 16, 1)), layer(16, 1, 2)
    if head == "sgr":
        steps = [(layer(16, 16, 3 * k + 3), layer(16, 16, 3 * k + 4), layer(16, 16, 3 * k + 5)) for k in range(3)]
        return layers, Reasoning(steps, evaluate, precision=precision, fused=quick)
    norm = nn.BatchNorm1d(1).requires_grad_(False).eval()
    for tensor, value in ((norm.running_mean, 0.2), (norm.running_var, 0.6), (norm.weight, 1.5), (norm.bias, -0.1)):
        assert tensor is not None
        tensor.fill_(value)
    return layers, Filtering(layer(16, 1, 9), norm, evaluate, fused=quick)


def vectors(head: str, precision: str, quick: bool, *, mask: bool = True, budget: int = 1 << 20) -> Tensor:
    regions, real = pictures(3, 7, 20)
    texts = packed(LENGTHS[:5], 20)
    sides = Pictures(regions, real if mask else None, regions[:, 0]), Captions(texts, texts.words[texts.offsets[:-1]])
    parts = network(head, precision, quick)
    return vector_scores.vector_scores(*sides, *parts, precision=precision, budget=budget, fused=quick)


@pytest.mark.parametrize("head", ["sgr", "saf"])
def test_plain_similarity_vectors_score_as_the_loop_over_captions(head: str) -> None:
    from matchlight.comparing.caption_loop import CaptionLoop
    from matchlight.core import Embedding
    from matchlight.methods.similarity_vectors import Filter, Reason, SimilarityVectors

    torch.manual_seed(0)
    similarity = SimilarityVectors(20, 16, Reason(16) if head == "sgr" else Filter(16)).eval()
    for parameter in similarity.parameters():
        parameter.requires_grad_(False).mul_(3)
    regions, _ = pictures(3, 7, 20)
    texts = packed(LENGTHS, 20)
    words, mask = texts.padded()
    whole = words[:, 0]
    slow = CaptionLoop(similarity, head)(
        Embedding(regions, None, {"global": regions[:, :1]}), Embedding(words, mask, {"global": whole[:, None]})
    )
    sides = (
        Pictures(regions, None, regions[:, 0]),
        Captions(texts, whole),
        VectorLayers(similarity.local, similarity.whole),
    )
    if head == "sgr":
        steps = [(step.query, step.key, step.out) for step in similarity.head.steps]
        quick = kernels.sgr_scores(*sides, steps, similarity.judge)
    else:
        quick = kernels.saf_scores(*sides, similarity.head.gate, similarity.head.norm, similarity.judge)
    assert slow.std() > 0.01
    assert_close(quick, slow, atol=1e-5, rtol=1e-4)


@triton_there
@pytest.mark.parametrize("head", ["sgr", "saf"])
def test_fused_similarity_vectors_score_as_the_plain_ones(interpreted: None, head: str) -> None:
    right = vectors(head, "fp32", False)
    assert right.std() > 0.02
    assert_close(vectors(head, "fp32", True), right, atol=2e-5, rtol=1e-4)
    assert_close(vectors(head, "fp16", True), right, atol=5e-3, rtol=0)


@triton_there
def test_similarity_vectors_do_not_depend_on_the_budget(interpreted: None) -> None:
    whole = vectors("sgr", "fp32", True, mask=False)
    assert_close(vectors("sgr", "fp32", True, mask=False, budget=1), whole, atol=1e-6, rtol=0)
    assert_close(vectors("sgr", "fp32", False, mask=False, budget=1), whole, atol=2e-5, rtol=1e-4)


@triton_there
def test_a_graph_step_keeps_pairs_apart(interpreted: None) -> None:
    draw = torch.Generator().manual_seed(0)
    nodes = torch.randn(11, 6, 16, generator=draw)  # 60 of a tile's 64 rows at a time: pairs never straddle tiles
    weights = [torch.randn(16, 16, generator=draw) / 4, torch.randn(16, generator=draw)]
    step = (*weights, *weights)
    before = vector_scores.reason(nodes, *step)
    assert_close(before, vector_scores.reason_plain(nodes, *step), atol=1e-5, rtol=1e-4)
    nodes[4] += 1
    after = vector_scores.reason(nodes, *step)
    same = [bool((before[k] == after[k]).all()) for k in range(11)]
    assert same == [k != 4 for k in range(11)]


# ---- self-check ------------------------------------------------------------------------------------------------------


def test_tensors_on_the_cpu_are_scored_without_kernels() -> None:
    with torch.inference_mode():
        assert not kernels.usable(torch.zeros(1))


class OnGpu:
    device = torch.device("cuda", 0)


def test_kernels_run_only_where_nothing_learns_and_nobody_switched_them_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "passes", lambda family, device: True)
    assert not kernels.usable(OnGpu())  # type: ignore[arg-type]
    with torch.inference_mode():
        assert kernels.usable(OnGpu())  # type: ignore[arg-type]
        monkeypatch.setenv(self_check.SWITCH, "0")
        assert not kernels.usable(OnGpu())  # type: ignore[arg-type]


@pytest.fixture
def forced(interpreted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are used as on a GPU, TF32 and half precision allowed."""
    for module in (kernels, kernels.scores):  # type: ignore[attr-defined]
        monkeypatch.setattr(
            module, "usable", lambda *tensors, family="attended": os.environ.get(self_check.SWITCH) != "0"
        )
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda name: None)


@triton_there
@pytest.mark.parametrize("name", ["scan t2i", "scan i2t", "bfan", "sgr", "saf"])
def test_methods_score_by_kernels_what_they_score_without(
    name: str, forced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matchlight.comparing import speed

    name, _, direction = name.partition(" ")
    options = {"direction": direction} if direction else {}
    torch.manual_seed(0)
    similarity = speed.built(name, 32, **options).matcher().similarity.eval()
    images, texts = speed.sides(2, 4, 32, torch.device("cpu"))
    with torch.inference_mode():
        quick = similarity(images, texts)
        monkeypatch.setenv(self_check.SWITCH, "0")
        slow = similarity(images, texts)
    assert not torch.equal(quick, slow)  # else the kernels were not asked
    assert_close(quick, slow, atol=1e-3 if name in ("sgr", "saf") else 1e-5, rtol=0)


@triton_there
def test_the_self_check_passes_on_the_interpreter(interpreted: None) -> None:
    with torch.inference_mode():
        assert self_check.check_attended(torch.device("cpu")) < self_check.NEAR
        assert self_check.check_vectors(torch.device("cpu")) < self_check.NEAR


def wrong(device: torch.device) -> float:
    return 0.5


def broken(device: torch.device) -> float:
    raise RuntimeError("no such instruction")


@pytest.mark.parametrize(("check", "said"), [(wrong, "off by 0.5"), (broken, "do not run"), (None, "")])
def test_a_kernel_that_fails_its_check_is_left_alone_with_one_line(
    check: object, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(self_check, "say", lines.append)
    monkeypatch.setattr(self_check, "check_attended", check or (lambda device: 1e-5))
    monkeypatch.setattr(self_check.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.inference_mode())
    monkeypatch.setattr(self_check, "FAILED", set())
    self_check.passes.cache_clear()
    assert [self_check.passes("attended", 0) for _ in range(3)] == [check is None] * 3
    self_check.passes.cache_clear()
    assert len(lines) == bool(said) and all(said in line for line in lines)


def test_a_kernel_that_fails_at_full_size_is_left_alone_and_the_scores_come_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_large(*sides: object, **settings: object) -> Tensor:
        raise RuntimeError("out of resource: shared memory")

    lines: list[str] = []
    monkeypatch.setattr(self_check, "say", lines.append)
    monkeypatch.setattr(self_check, "FAILED", set())
    monkeypatch.setattr(gpu_attention, "attended_scores", too_large)
    monkeypatch.setattr(kernels.scores, "usable", lambda *tensors: "attended" not in self_check.FAILED)  # type: ignore[attr-defined]
    regions, _ = pictures(2, 5, 8)
    texts = packed(LENGTHS[:3], 8)
    for _ in range(2):
        scores = kernels.attended_scores(regions, None, texts, How(temperature=9.0))
        assert_close(scores, reference.attended_scores(regions, None, texts, How(temperature=9.0)))
    assert len(lines) == 1 and "do not run" in lines[0]


COMPILE = """
import sys
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import triton
from matchlight.scoring.kernels import triton_attention, triton_vectors
from matchlight.scoring.kernels.vector_scores import SHORT

pointers = {"s": "*fp32", "gram": "*fp32", "real": "*i8", "size": "*fp32", "captions": "*i32", "starts": "*i32",
    "counts": "*i32", "scale": "*fp32", "bias": "*fp32", "shift": "*fp32", "temperature": "fp32", "lse": "fp32"}
halves = dict.fromkeys(("weights", "regions", "texts", "layer", "x", "mix", "asked"), "*fp16")
tile = {"R": 36, "HEAD": 32, "TAIL": 16, "L": 16, "NORM": "clipped_l2norm", "MASKED": False, "DOT": "fp16"}
cosine = {"AGGREGATE": "lse", "GATE": "prob", "TURNS": 8}
rows, chunk, warps, stages = SHORT
cases = [
    (triton_attention.words_look, {**tile, **cosine, "C": 4}, "*fp32", 8, 3),
    (triton_attention.regions_look, {**tile, **cosine, "P": 4, "TAIL": 4}, "*fp32", 8, 3),
    (triton_vectors.attend, {**tile, "C": 4}, "*fp32", 8, 3),
    (triton_vectors.compare,
     {"R": 36, "RP": 64, "D": 1024, "S": 256, "SP": 256, "M": rows, "B": chunk, "DOT": "tf32x3"},
     "*fp16", warps, stages),
    (triton_vectors.gather, {"S": 256, "NP": 16, "GATE": False}, "*fp16", 2, 3),
    (triton_vectors.reason, {"S": 256, "M": rows, "B": chunk, "DOT": "tf32x3"}, "*fp16", warps, 2),
]
for kernel, fixed, out, warps, stages in cases:
    kinds = {**pointers, **halves, "out": out}
    signature = {name: "constexpr" if name in fixed else kinds.get(name, "i32") for name in kernel.arg_names}
    source = ASTSource(kernel, signature=signature, constexprs=fixed)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps, "num_stages": stages})
    assert made.metadata.shared <= 227 << 10, (kernel, made.metadata.shared)
    has_product = kernel is not triton_vectors.gather
    assert not has_product or "wgmma.mma_async" in made.asm["ptx"] or "mma.sync" in made.asm["ptx"], kernel
"""


@triton_there
@pytest.mark.full
def test_every_kernel_compiles_to_matrix_instructions_without_a_gpu(tmp_path: Path) -> None:
    hidden = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    place = {**hidden, "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True, env=place, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
