"""SigLIP2's "naflex" pictures: each keeps its shape, in as many patches as fit, laid out one after the other.

All strips have one size, so that they are stored as pixels are. A last patch, which no network sees, holds how many
patches the picture is high and wide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from matchlight.core import BadInput
from matchlight.inputs.preprocessing import Preprocessing, Size

CLOSE = 1e-5  # how near the largest scale that fits is searched for, as SigLIP2's own processor does
MOST = 256  # patches, and pixels a side of one: what a byte can count


@dataclass(frozen=True)
class Strips(Preprocessing):
    """Pictures as strips of patches; `size` is that of a strip."""

    @property
    def patch(self) -> int:
        """Pixels a side of a patch."""
        return self.size[0]

    @property
    def patches(self) -> int:
        """How many there may be."""
        return self.size[1] // self.size[0] - 1

    def pixels(self, image: Image.Image) -> np.ndarray:
        """(3, patch, patch * (patches + 1)) uint8."""
        high, wide = self.sides(image.height, image.width)
        whole = Preprocessing((high * self.patch, wide * self.patch), resample=self.resample, reducing=False)
        cut = whole.pixels(image).reshape(3, high, self.patch, wide, self.patch).transpose(0, 2, 1, 3, 4)
        strip = np.zeros((3, *self.size), np.uint8)
        strip[:, :, : high * wide * self.patch] = cut.reshape(3, self.patch, -1)
        strip[0, 0, -self.patch], strip[1, 0, -self.patch] = high - 1, wide - 1
        return strip

    def sides(self, height: int, width: int) -> Size:
        """How many patches a picture is high and wide: as many as fit, in its own shape."""
        small, large = CLOSE / 10, 100.0
        while large - small >= CLOSE:
            scale = (small + large) / 2
            if math.prod(self._at(scale, height, width)) <= self.patches:
                small = scale
            else:
                large = scale
        return self._at(small, height, width)

    def _at(self, scale: float, height: int, width: int) -> Size:
        return max(1, math.ceil(height * scale / self.patch)), max(1, math.ceil(width * scale / self.patch))


def strips(like: Preprocessing, patch: int, patches: int) -> Strips:
    """Strips of so many patches, resampled and normalised as stated."""
    if not (0 < patch <= MOST and 0 < patches <= MOST):
        raise BadInput(f"{patches} patches of {patch} pixels cannot be read; {MOST} of {MOST} at most")
    plain = replace(like, size=(patch, patch * (patches + 1)), shorter=None)
    return Strips(plain.size, None, plain.resample, plain.mean, plain.std, reducing=False)


def split(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """(N, 3, patch, W) strips -> the same without the last patch, and (N, 2) how many patches are high and wide."""
    patch = pixels.shape[2]
    return pixels[..., :-patch], pixels[:, :2, 0, -patch].round().to(torch.int64) + 1
