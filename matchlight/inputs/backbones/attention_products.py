"""Attention in bfloat16 on a CPU as two matrix products and a softmax, a few pictures at a time.

torch's own kernel multiplies bfloat16 at the speed of float32 where the CPU has products in it but no matrix units
(AVX-512 BF16 without AMX). Plain products are over twice as quick there as long as their scores stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

CACHED = 4 << 20  # bytes of scores at once: what a core's cache holds or nearly so


def quick_attention(x: Tensor) -> AbstractContextManager[object]:
    """Where it is quicker for what `x` is, attention inside is computed by plain products."""
    units = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)  # torch's kernel uses those
    quicker = x.device.type == "cpu" and x.dtype == torch.bfloat16 and not torch.is_grad_enabled() and not units()
    return _ByProducts() if quicker else nullcontext()


class _ByProducts(TorchFunctionMode):
    """Any library's layers: they all call `scaled_dot_product_attention`, here without a mask."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[Tensor] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        named = dict(kwargs or {})
        if func is F.scaled_dot_product_attention and len(args) == 3 and args[0].dim() == 4 and _plain(named):
            scale = named.get("scale")
            return attention(*args, scale=scale if isinstance(scale, float) else args[0].shape[3] ** -0.5)
        return func(*args, **named)


def _plain(named: Mapping[str, object]) -> bool:
    more = any(named.get(key) for key in ("dropout_p", "is_causal", "enable_gqa"))
    return named.get("attn_mask") is None and not more


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float) -> Tensor:
    """softmax(q k' scale) v of (N, heads, tokens, dim)."""
    count, heads, tokens, _ = q.shape
    together = max(1, CACHED // (heads * tokens * k.shape[2] * q.element_size()))
    out = torch.empty(count, tokens, heads, v.shape[3], dtype=q.dtype).transpose(1, 2)  # as layers read it next
    nothing = q.new_zeros(1)
    for start in range(0, count, together):
        own, keys, values = (each[start : start + together].flatten(0, 1) for each in (q, k, v))
        weights = torch.baddbmm(nothing, own, keys.transpose(1, 2), beta=0, alpha=scale).softmax(-1)
        out[start : start + together] = torch.bmm(weights, values).unflatten(0, (-1, heads))
    return out
