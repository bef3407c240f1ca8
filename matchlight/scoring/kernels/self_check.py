"""The self-check before a kernel is used: Triton is there, the GPU is new enough, a small random case comes out right.

On a CPU: numba is there, and there is enough to do. The case is scored once in a process and a device, when a kernel is
first wanted. If the kernel does not compile or differs from plain PyTorch, one line says so and scoring goes on without
it. `MATCHLIGHT_KERNELS=0` turns all of them off.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from matchlight.console import say
from matchlight.scoring.kernels import cpu_attention, gpu_attention, reference, vector_scores
from matchlight.scoring.kernels.heads import Reasoning
from matchlight.scoring.kernels.packed import Packed
from matchlight.scoring.kernels.reference import AttentionSettings
from matchlight.scoring.kernels.vector_scores import Captions, Pictures, VectorLayers

SWITCH = "MATCHLIGHT_KERNELS"
CAPABILITY = (8, 0)  # the oldest GPU with TF32 and bf16 matrix units
FAILED: set[str] = set()
LEAST = 1 << 26  # products below which a CPU is done before numba is loaded (a second)
NEAR = 1e-3  # how far a kernel may be from plain PyTorch before it fails its self-check


def usable(*tensors: Tensor, family: str = "attended") -> bool:
    """Whether the kernels of a family ("attended" | "vectors") may score these tensors; never with gradients on."""
    if torch.is_grad_enabled() or os.environ.get(SWITCH, "1") == "0":
        return False
    if not all(tensor.device.type == "cuda" for tensor in tensors):
        return family == "attended" and usable_on_cpu(*tensors)
    return family not in FAILED and passes(family, tensors[0].device.index or 0)


def usable_on_cpu(*tensors: Tensor) -> bool:
    """Whether numba's pass may score these sets: float32, on a CPU, enough queries, and many products to make."""
    if torch.is_grad_enabled() or os.environ.get(SWITCH, "1") == "0" or "compiled" in FAILED:
        return False
    if not all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in tensors):
        return False
    loaded = numba_passes.cache_info().currsize > 0
    enough = loaded or math.prod(math.prod(tensor.shape[:-1]) for tensor in tensors) >= LEAST
    return enough and min(map(len, tensors)) >= cpu_attention.QUERIES and numba_passes()


def give_up(family: str, error: Exception) -> None:
    """Do without a family from now on: at its real size a kernel may want more of a GPU than in the small case."""
    FAILED.add(family)
    say(f"the {family} kernels do not run here ({type(error).__name__}); scoring goes on without them")


@cache
def passes(family: str, device: int) -> bool:
    """Whether Triton is here, the GPU is new enough, and a small random case comes out right; looked at once."""
    if importlib.util.find_spec("triton") is None or torch.cuda.get_device_capability(device) < CAPABILITY:
        return False
    check = {"attended": check_attended, "vectors": check_vectors}[family]

    def there() -> float:
        with torch.cuda.device(device):
            return check(torch.device("cuda", device))

    return _comes_out_right(family, there)


@cache
def numba_passes() -> bool:
    """Whether numba is here and a small random case comes out right; looked at once."""
    if importlib.util.find_spec("numba") is None:
        return False
    return _comes_out_right("compiled", lambda: check_attended(torch.device("cpu"), cpu_attention.attended_scores))


def _comes_out_right(family: str, check: Callable[[], float]) -> bool:
    """Whether the check runs and finds almost no difference; one line says so if not."""
    try:
        with torch.inference_mode():
            off = check()
    except Exception as error:  # whatever a compiler or driver can throw: scoring must go on
        give_up(family, error)
        return False
    if not off < NEAR:
        say(f"the {family} kernels are off by {off:.1g} here; scoring goes on without them")
    return off < NEAR


def small_case(device: torch.device, *, dim: int = 64) -> tuple[Tensor, Tensor, Packed]:
    """Random unit regions (5, 36, dim), a mask, and 7 captions of 4 to 20 words: what a kernel is checked on.

    No shorter ones: normalised over one word, a product is 1 or -1, and rounding decides which where it is almost 0.
    """
    draw = torch.Generator().manual_seed(0)
    lengths = torch.tensor([4, 5, 20, 16, 7, 20, 12])
    regions = nn.functional.normalize(torch.randn(5, 36, dim, generator=draw), dim=-1)
    mask = torch.rand(5, 36, generator=draw) > 0.2
    words = nn.functional.normalize(torch.randn(int(lengths.sum()), dim, generator=draw), dim=-1)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    return regions.to(device), mask.to(device), Packed(words.to(device), offsets)


def check_attended(device: torch.device, score: Callable[..., Tensor] = gpu_attention.attended_scores) -> float:
    """The largest difference of these scores from plain ones, both directions, on a small case, in half precision."""
    regions, mask, texts = small_case(device)
    off = []
    for direction in ("t2i", "i2t"):
        given = (regions, mask, texts, AttentionSettings(temperature=9.0, direction=direction))
        off.append((score(*given, precision="fp16") - reference.attended_scores(*given)).abs().max())
    return float(torch.stack(off).max())


def check_vectors(device: torch.device) -> float:
    """The largest difference of fused from plain scores of a small SGR on a small case."""
    regions, mask, texts = small_case(device)
    draw = torch.Generator().manual_seed(1)

    def layer(out: int) -> nn.Linear:
        made = nn.Linear(64, out, device=device)
        made.weight.copy_(torch.randn(out, 64, generator=draw) / 4)
        made.bias.fill_(0.05)
        return made

    layers, evaluate = VectorLayers(layer(64), layer(64)), layer(1)
    steps = [(layer(64), layer(64), layer(64)) for _ in range(2)]  # the first is the kernel's, the last is one node's
    whole = (regions[:, 0], texts.words[texts.offsets[:-1].to(device)])
    sides = (Pictures(regions, mask, whole[0]), Captions(texts, whole[1]))
    out = []
    for quick, precision in ((True, "fp16"), (False, "fp32")):
        head = Reasoning(steps, evaluate, precision=precision, fused=quick)
        out.append(vector_scores.vector_scores(*sides, layers, head, precision=precision, fused=quick))
    return float((out[0] - out[1]).abs().max())
