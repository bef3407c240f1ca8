"""Kernels for training by Triton's interpreter, in a process of its own: they give what plain tensors give."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

CHECK = """
import torch
from matchlight.parts.kernel_check import differences
from matchlight.parts.layers import top_mean
from matchlight.parts.triton_pooling import mean_of_largest
for name, apart in differences(torch.device("cpu"), torch.float16):
    print(name, apart < 4e-3, apart)
draw = torch.Generator().manual_seed(0)
for k, length, dim, masked in ((3, 7, 40, True), (10, 12, 33, False), (10, 6, 32, True)):
    x = torch.randn(4, length, dim, generator=draw).half().float().requires_grad_()
    mask = torch.rand(4, length, generator=draw) < 0.7 if masked else None
    if mask is not None:
        mask[0] = False; mask[0, 2] = True; mask[1] = True
    weight = torch.randn(4, dim, generator=draw)
    plain = top_mean(x, mask, k=k)
    (plain * weight).sum().backward()
    h = x.detach().half().requires_grad_()
    found = mean_of_largest(h, mask, k=k)
    (found * weight.half()).sum().backward()
    torch.testing.assert_close(found.float(), plain, rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(h.grad.float(), x.grad, rtol=4e-3, atol=2e-3)
    print("few", True)
"""


def test_kernels_give_the_values_and_gradients_of_plain_tensors() -> None:
    told = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True, env=told, check=False)
    said = done.stdout.splitlines()
    assert len(said) == 7 and all("True" in line for line in said), done.stdout + done.stderr[-2000:]
