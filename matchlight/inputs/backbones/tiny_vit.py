"""TinyViT: a small picture network of four stages, convolutions first, attention within windows after.

Wu et al., ECCV 2022, arXiv:2207.10666. The 5 million weights of the smallest one, distilled on ImageNet-22k. Norms of
convolutions are folded into them, as in the file that the weights come from. A picture of any size is taken: a map that
its windows do not fill is padded. 224 pixels give 7 x 7 cells of 320 numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HEAD = 32  # numbers a head of attention has
STRIDE = 32


@dataclass(frozen=True)
class Plan:
    """What one network of the family has of its own: a number for each of the four stages."""

    channels: tuple[int, ...] = (64, 128, 160, 320)
    blocks: tuple[int, ...] = (2, 2, 6, 2)
    windows: tuple[int, ...] = (0, 7, 14, 7)  # sides, in cells; the first stage has convolutions only


FIVE_MILLION = Plan()


def conv(wide: int, out: int, *, kernel: int = 1, stride: int = 1, alone: bool = False) -> nn.Conv2d:
    """A convolution that keeps the borders; `alone`: each channel by itself."""
    return nn.Conv2d(wide, out, kernel, stride, kernel // 2, groups=out if alone else 1)


class Patches(nn.Module):
    """Two convolutions: a cell for each 4 x 4 pixels."""

    def __init__(self, out: int):
        super().__init__()
        self.conv1 = conv(3, out // 2, kernel=3, stride=2)
        self.conv2 = conv(out // 2, out, kernel=3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, h, w) -> (N, out, h / 4, w / 4)."""
        return self.conv2(F.gelu(self.conv1(x)))


class ConvBlock(nn.Module):
    """Four times as many channels inside, each looked at by itself, around a shortcut."""

    def __init__(self, wide: int):
        super().__init__()
        self.conv1 = conv(wide, 4 * wide)
        self.conv2 = conv(4 * wide, 4 * wide, kernel=3, alone=True)
        self.conv3 = conv(4 * wide, wide)

    def forward(self, x: Tensor) -> Tensor:
        """(N, wide, h, w), the same shape."""
        return F.gelu(x + self.conv3(F.gelu(self.conv2(F.gelu(self.conv1(x))))))


class Merging(nn.Module):
    """2 x 2 cells become one of more channels."""

    def __init__(self, wide: int, out: int):
        super().__init__()
        self.conv1 = conv(wide, out)
        self.conv2 = conv(out, out, kernel=3, stride=2, alone=True)
        self.conv3 = conv(out, out)

    def forward(self, x: Tensor) -> Tensor:
        """(N, wide, h, w) -> (N, out, h / 2, w / 2)."""
        return self.conv3(F.gelu(self.conv2(F.gelu(self.conv1(x)))))


class WindowAttention(nn.Module):
    """Attention among the cells of a window; how far two cells are apart has a bias of its own in each head."""

    def __init__(self, wide: int, window: int):
        super().__init__()
        self.heads = wide // HEAD
        self.norm = nn.LayerNorm(wide)
        self.qkv = nn.Linear(wide, 3 * wide)
        self.proj = nn.Linear(wide, wide)
        self.attention_biases = nn.Parameter(torch.zeros(self.heads, window * window))
        place = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij"), -1).flatten(0, 1)
        apart = (place[:, None] - place[None]).abs()
        self.register_buffer("apart", apart[..., 0] * window + apart[..., 1], persistent=False)
        self.apart: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """(windows, cells, wide), the same shape."""
        split = self.qkv(self.norm(x)).unflatten(2, (self.heads, 3, HEAD)).permute(3, 0, 2, 1, 4)
        bias = self.attention_biases[:, self.apart].to(split.dtype)
        out = F.scaled_dot_product_attention(split[0], split[1], split[2], attn_mask=bias)
        return self.proj(out.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """Four times as wide inside."""

    def __init__(self, wide: int):
        super().__init__()
        self.norm = nn.LayerNorm(wide)
        self.fc1 = nn.Linear(wide, 4 * wide)
        self.fc2 = nn.Linear(4 * wide, wide)

    def forward(self, x: Tensor) -> Tensor:
        """(..., wide), the same shape."""
        return self.fc2(F.gelu(self.fc1(self.norm(x))))


class WindowBlock(nn.Module):
    """Attention within windows, a convolution that looks beyond them, an MLP."""

    def __init__(self, wide: int, window: int):
        super().__init__()
        self.window = window
        self.attn = WindowAttention(wide, window)
        self.local_conv = conv(wide, wide, kernel=3, alone=True)
        self.mlp = Mlp(wide)

    def forward(self, x: Tensor) -> Tensor:
        """(N, wide, h, w), the same shape."""
        cells = x.permute(0, 2, 3, 1)
        cells = cells + self.attended(cells)
        cells = self.local_conv(cells.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return (cells + self.mlp(cells)).permute(0, 3, 1, 2)

    def attended(self, cells: Tensor) -> Tensor:
        """(N, h, w, wide): what attention adds, window by window; the map is padded to whole windows."""
        side, (_, height, width, _) = self.window, cells.shape
        padded = F.pad(cells, (0, 0, 0, -width % side, 0, -height % side))
        split = padded.unflatten(2, (-1, side)).unflatten(1, (-1, side)).transpose(2, 3)  # N, rows, columns, side, side
        attended = self.attn(split.flatten(3, 4).flatten(0, 2))
        # the number of pictures is left open: an exported network keeps every number that stands here
        out = attended.unflatten(0, (-1, split.shape[1], split.shape[2])).unflatten(3, (side, side))
        return out.transpose(2, 3).flatten(3, 4).flatten(1, 2)[:, :height, :width]


class Stage(nn.Module):
    """Coarser cells, then blocks."""

    def __init__(self, before: int | None, wide: int, *, blocks: int, window: int):
        super().__init__()
        self.downsample = nn.Identity() if before is None else Merging(before, wide)
        self.blocks = nn.ModuleList(WindowBlock(wide, window) if window else ConvBlock(wide) for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        """(N, before, h, w) -> (N, wide, h / 2, w / 2)."""
        x = self.downsample(x)
        for block in self.blocks:
            x = block(x)
        return x


class TinyVit(nn.Module):
    """The network up to the map before its classifier."""

    def __init__(self, plan: Plan = FIVE_MILLION):
        super().__init__()
        self.dim = plan.channels[-1]
        self.patch_embed = Patches(plan.channels[0])
        before = (None, *plan.channels[:-1])
        stages = zip(before, plan.channels, plan.blocks, plan.windows, strict=True)
        self.stages = nn.ModuleList(
            Stage(one, wide, blocks=blocks, window=window) for one, wide, blocks, window in stages
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, h, w) -> (N, dim, h / 32, w / 32)."""
        x = self.patch_embed(x)
        for stage in self.stages:
            x = stage(x)
        return x
