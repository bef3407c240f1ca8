"""The compiled pass for CPUs: the scores of plain PyTorch, whatever the sets, the budget and the threads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from matchlight.comparing import speed
from matchlight.scoring import kernels
from matchlight.scoring.all_pairs import score_all
from matchlight.scoring.kernels import cpu_attention, reference, self_check
from matchlight.scoring.kernels.packed import Packed
from matchlight.scoring.kernels.reference import AttentionSettings as How
from tests.reference import cross_attention

numba_there = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")
LENGTHS = torch.tensor([3, 1, 17, 5, 16, 33, 5, 2, 4, 4, 9, 7, 6, 3, 2, 12, 8, 5, 11])


def packed(lengths: Tensor, dim: int) -> Packed:
    draw = torch.Generator().manual_seed(0)
    words = F.normalize(torch.randn(int(lengths.sum()), dim, generator=draw), dim=-1)
    return Packed(words, torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]))


def pictures(count: int, regions: int, dim: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    mask = torch.rand(count, regions, generator=draw) > 0.3
    mask[:, 0] = True
    return F.normalize(torch.randn(count, regions, dim, generator=draw), dim=-1), mask


def both(texts: Packed, regions: Tensor, mask: Tensor | None = None, **how: object) -> tuple[Tensor, Tensor]:
    """Scores by the compiled pass, and plain ones."""
    rest = {name: how.pop(name) for name in ("precision", "budget") if name in how}
    given = (regions, mask, texts, How(**{"temperature": 9.0, **how}))  # type: ignore[arg-type]
    return tuple(score.attended_scores(*given, **rest) for score in (cpu_attention, reference))  # type: ignore[return-value]


def test_queries_stand_side_by_side_the_longest_first() -> None:
    words = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    rows, real = cpu_attention.side_by_side(Packed(words, torch.tensor([0, 1, 4])), torch.tensor([1, 0]))
    assert rows.flatten().tolist() == [2, 1, 3, 0, 4, 0]  # members of caption 1, with those of caption 0 between them
    assert real.tolist() == [1, 1, 1, 0, 1, 0]


def test_a_folded_gram_matrix_gives_the_same_square() -> None:
    context = Packed(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([0, 2, 3]))
    grams = cpu_attention.folded(context)
    assert grams.shape == (2, 4, 4)
    assert grams[0, :2, :2].tolist() == [[5, 0], [22, 25]] and grams[1, 0, 0] == 61
    weights = torch.tensor([2.0, 3.0, 0.0, 0.0])
    assert weights @ grams[0] @ weights == (2 * context.words[0] + 3 * context.words[1]).square().sum()


@numba_there
def test_a_score_worked_by_hand() -> None:
    regions = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    sides = (regions, None, Packed(torch.tensor([[1.0, 0.0]]), torch.tensor([0, 1])))
    # at temperature 0 the word sees both regions alike, at 45 degrees to it
    assert_close(cpu_attention.attended_scores(*sides, How(temperature=0.0)), torch.tensor([[0.5**0.5]]))
    # each region sees the one word, whatever it is: cosines 1 and 0
    assert_close(cpu_attention.attended_scores(*sides, How(direction="i2t", temperature=4.0)), torch.tensor([[0.5]]))


@numba_there
@pytest.mark.parametrize(
    ("direction", "norm", "aggregate"), list(itertools.product(("t2i", "i2t"), reference.NORMS, reference.AGGREGATES))
)
def test_scores_are_those_of_the_loop_over_captions(direction: str, norm: str, aggregate: str) -> None:
    regions, _ = pictures(19, 6, 8)
    texts = packed(LENGTHS, 8)
    how = {"direction": direction, "norm": norm, "aggregate": aggregate, "temperature": 9.0}
    slow = cross_attention.scan(regions, texts.padded()[0], LENGTHS.tolist(), sharpness=6.0, **how)
    quick = cpu_attention.attended_scores(regions, None, texts, How(lse=6.0, **how))  # type: ignore[arg-type]
    assert_close(quick, slow, atol=1e-5, rtol=1e-5)


@numba_there
@pytest.mark.parametrize("gate", ["equal", "prob"])
def test_gates_are_those_of_the_loop_over_captions(gate: str) -> None:
    regions, _ = pictures(19, 6, 8)
    lengths = LENGTHS.clamp(min=2)  # to a word alone all regions are alike, and rounding decides about the gate
    texts = packed(lengths, 8)
    slow = cross_attention.bfan(regions, texts.padded()[0], lengths.tolist(), kind=gate, temperature=5.0)
    both = [How(direction=way, temperature=5.0, gate=gate) for way in ("t2i", "i2t")]
    ways = [cpu_attention.attended_scores(regions, None, texts, how) for how in both]
    assert_close(ways[0] + ways[1], slow, atol=1e-5, rtol=1e-5)


@numba_there
@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=40),
    st.integers(1, 36),
    st.sampled_from(("t2i", "i2t")),
    st.booleans(),
)
def test_any_sets_are_scored_as_plainly(lengths: list[int], regions: int, direction: str, masked: bool) -> None:
    vectors, mask = pictures(17, regions, 8)
    texts = packed(torch.tensor(lengths), 8)
    quick, slow = both(
        Packed(0.7 * texts.words, texts.offsets), vectors, mask if masked else None, direction=direction
    )  # words need not be of unit length
    assert_close(quick, slow, atol=1e-5, rtol=1e-5)


@numba_there
@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_neither_the_budget_nor_the_threads_change_anything(direction: str) -> None:
    regions, mask = pictures(40, 7, 8)
    texts = packed(LENGTHS, 8)
    whole, slow = both(texts, regions, mask, direction=direction)
    assert_close(whole, slow, atol=1e-5, rtol=0)
    before = torch.get_num_threads()
    try:
        for threads, budget in itertools.product((1, 2), (1, 4 * 7 * 200)):
            torch.set_num_threads(threads)
            part, _ = both(texts, regions, mask, direction=direction, budget=budget)
            assert_close(part, whole, atol=1e-6, rtol=0)
    finally:
        torch.set_num_threads(before)


@numba_there
@pytest.mark.parametrize(("norm", "size"), [("clipped_l2norm", 1.0), ("clipped", 20.0), ("no_norm", 20.0)])
def test_the_sharpest_attention_does_not_overflow(norm: str, size: float) -> None:
    regions, _ = pictures(4, 6, 8)
    texts = packed(LENGTHS, 8)
    quick, slow = both(Packed(size * texts.words, texts.offsets), regions, norm=norm, temperature=100.0)
    assert quick.isfinite().all()
    assert_close(quick, slow, atol=1e-4, rtol=0)  # exponents of some hundreds have their last digits before 1e-5


@numba_there
def test_what_is_no_number_stays_with_its_picture() -> None:
    regions, _ = pictures(9, 6, 8)
    clean, _ = both(packed(LENGTHS, 8), regions)
    regions[3, 2, 5] = torch.nan
    found, _ = both(packed(LENGTHS, 8), regions)
    others = torch.arange(9) != 3
    assert found[3].isnan().all()
    assert torch.equal(found[others], clean[others])


@numba_there
def test_half_products_are_near() -> None:
    regions, _ = pictures(20, 36, 64)
    texts = packed(LENGTHS.clamp(min=4), 64)
    half, slow = both(texts, regions, precision="bf16")
    assert 1e-6 < (half - slow).abs().max() < 1e-2


# ---- where it is used -----------------------------------------------------------------------------------------------


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The compiled pass however little there is to do; collects the directions asked of it."""
    asked: list[str] = []
    score = cpu_attention.attended_scores

    def noted(regions: Tensor, mask: Tensor | None, texts: Packed, how: How, **rest: object) -> Tensor:
        asked.append(how.direction)
        return score(regions, mask, texts, how, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(self_check, "LEAST", 0)
    monkeypatch.setattr(cpu_attention, "attended_scores", noted)
    monkeypatch.setattr(self_check, "FAILED", set())
    yield asked


@numba_there
@pytest.mark.parametrize(("name", "ways"), [("scan", {"t2i"}), ("bfan", {"t2i", "i2t"}), ("sgr", set())])
def test_methods_score_with_it_what_they_score_without(
    name: str, ways: set[str], always: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    matcher = speed.built(name, 32).matcher().eval()
    images, texts = speed.sides(20, 40, 32, torch.device("cpu"))
    quick = score_all(matcher, images, texts)
    assert set(always) >= ways and bool(always) == bool(ways)
    monkeypatch.setenv(self_check.SWITCH, "0")
    always.clear()
    slow = score_all(matcher, images, texts)
    assert not always
    assert abs(quick - slow).max() < 1e-5


@numba_there
def test_it_is_not_for_gradients_double_precision_few_queries_or_little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    self_check.numba_passes.cache_clear()
    small, large = torch.zeros(16, 4, 8), torch.zeros(1 << 13, 1 << 10, 1)
    with torch.inference_mode():
        assert not kernels.usable_on_cpu(small, small)  # numba is not loaded for that
        assert kernels.usable_on_cpu(large, small)
        assert kernels.usable_on_cpu(small, small)  # now it is loaded
        assert not kernels.usable_on_cpu(large.double(), small)
        assert not kernels.usable_on_cpu(large, small[:15])
        assert not kernels.usable(large, small, family="vectors")
        monkeypatch.setenv(self_check.SWITCH, "0")
        assert not kernels.usable_on_cpu(large, small)
        monkeypatch.delenv(self_check.SWITCH)
    assert not kernels.usable_on_cpu(large, small)


def test_without_numba_scores_come_from_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    self_check.numba_passes.cache_clear()
    monkeypatch.setattr(self_check.importlib.util, "find_spec", lambda name: None)
    with torch.inference_mode():
        assert not kernels.usable_on_cpu(torch.zeros(1 << 13, 1 << 10, 1), torch.zeros(16, 4, 8))
    self_check.numba_passes.cache_clear()


def test_a_pass_that_does_not_compile_is_left_alone_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*sides: Tensor, **how: object) -> Tensor:
        raise RuntimeError("cannot cache function")

    lines: list[str] = []
    monkeypatch.setattr(self_check, "say", lines.append)
    monkeypatch.setattr(self_check, "FAILED", set())
    monkeypatch.setattr(cpu_attention, "attended_scores", broken)
    monkeypatch.setattr(self_check.importlib.util, "find_spec", lambda name: object())
    self_check.numba_passes.cache_clear()
    sides = torch.zeros(1 << 13, 1 << 10, 1), torch.zeros(16, 4, 8)
    with torch.inference_mode():
        assert [kernels.usable_on_cpu(*sides) for _ in range(3)] == [False] * 3
    self_check.numba_passes.cache_clear()
    assert len(lines) == 1 and "do not run" in lines[0]


def test_a_similarity_says_where_a_kernel_can_score_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    scan, sgr, other = (speed.built(name, 32).matcher().similarity.eval() for name in ("scan", "sgr", "scan"))
    other.norm = "softmax"  # a norm that no kernel knows
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    places = [[similarity.has_kernel(place) for place in (cpu, gpu)] for similarity in (scan, sgr, other)]
    assert places == [[True, True], [False, True], [False, False]]
