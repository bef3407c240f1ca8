"""The two towers of a joint model, and the one number (or two) that scores are made of.

Pictures: patches through a transformer; CLIP takes the state of a class token, SigLIP pools by attention. Captions:
word pieces; CLIP reads them one after the other and takes the state at the end of the text, SigLIP reads all places of
a text that is always filled up, and takes the last. Radford et al. 2021, arXiv:2103.00020; Zhai et al. 2023,
arXiv:2303.15343; Tschannen et al. 2025, arXiv:2502.14786 (SigLIP2). Written anew, so that a run opens with any version
of any library; tests compare with transformers and open_clip.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchlight.inputs.joint_models.shapes import Blocks, PictureTower, Shape, TextTower


def activated(kind: str, x: Tensor) -> Tensor:
    """The activation of that name."""
    if kind == "quick_gelu":
        return x * torch.sigmoid(1.702 * x)
    return F.gelu(x, approximate="tanh" if kind == "gelu_pytorch_tanh" else "none")


class Attention(nn.Module):
    """Every place looks at those it may see."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.mixed = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, seen: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """(N, L, D) that look, (N, S, D) that are seen, (N, S) mask of those that are -> (N, L, D)."""
        parts = ((self.query, x), (self.key, seen), (self.value, seen))
        q, k, v = (part(given).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part, given in parts)
        real = None if mask is None else mask[:, None, None]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=real, is_causal=causal)
        mixed: Tensor = self.mixed(out.transpose(1, 2).flatten(2))
        return mixed


class Thought(nn.Module):
    """Two layers for each place by itself."""

    def __init__(self, shape: Blocks):
        super().__init__()
        self.wide, self.narrow = nn.Linear(shape.width, shape.hidden), nn.Linear(shape.hidden, shape.width)
        self.activation = shape.activation

    def forward(self, x: Tensor) -> Tensor:
        """(N, L, D) -> (N, L, D)."""
        out: Tensor = self.narrow(activated(self.activation, self.wide(x)))
        return out


class Block(nn.Module):
    """Attention and thought, each on what was normalised before, and added on."""

    def __init__(self, shape: Blocks):
        super().__init__()
        self.attention, self.thought = Attention(shape.width, shape.heads), Thought(shape)
        self.norm, self.norm_thought = (nn.LayerNorm(shape.width, eps=shape.eps) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor | None, *, causal: bool) -> Tensor:
        """(N, L, D) -> (N, L, D)."""
        given = self.norm(x)
        x = x + self.attention(given, given, mask, causal=causal)
        out: Tensor = x + self.thought(self.norm_thought(x))
        return out


class AttentionPooling(nn.Module):
    """SigLIP's head: a learned question that looks at all places once."""

    def __init__(self, shape: Blocks):
        super().__init__()
        self.question = nn.Parameter(0.02 * torch.randn(1, 1, shape.width))
        self.attention, self.thought = Attention(shape.width, shape.heads), Thought(shape)
        self.norm = nn.LayerNorm(shape.width, eps=shape.eps)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(N, L, D) -> (N, D)."""
        answer = self.attention(self.question.expand(x.shape[0], -1, -1), x, mask)
        out: Tensor = (answer + self.thought(self.norm(answer)))[:, 0]
        return out


class Pictures(nn.Module):
    """Normalised pixels -> states and the vector of the picture."""

    def __init__(self, shape: PictureTower, *, pools: bool):
        super().__init__()
        self.shape = shape
        width, eps, places = shape.blocks.width, shape.blocks.eps, shape.places**2
        self.patches = nn.Linear(3 * shape.patch**2, width, bias=pools)
        self.class_token = None if pools else nn.Parameter(0.02 * torch.randn(width))
        self.places = nn.Parameter(0.02 * torch.randn(places + (not pools), width))
        self.norm_before = None if pools else nn.LayerNorm(width, eps=eps)
        self.blocks = nn.ModuleList(Block(shape.blocks) for _ in range(shape.blocks.layers))
        self.norm = nn.LayerNorm(width, eps=eps)
        self.pool = AttentionPooling(shape.blocks) if pools else None
        self.project = None if pools else nn.Linear(width, shape.out, bias=False)

    def forward(self, pixels: Tensor, sides: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """(N, 3, H, W) -> (N, L, width) states, (N, out) vectors, (N, L) mask.

        A flexible tower gets a strip of patches one after the other, (N, 3, patch, places * patch), and `sides` (N, 2):
        how many patches each picture is high and wide.
        """
        x, mask = self.patches(self._cut(pixels)), None
        if sides is None:
            x = self._placed(x)
        else:
            x = x + self._resized(sides, x.shape[1])
            mask = torch.arange(x.shape[1], device=x.device)[None] < sides.prod(1, keepdim=True)
        for block in self.blocks:
            x = block(x, mask, causal=False)
        return self._ended(x, mask)

    def _cut(self, pixels: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, patches, 3 * patch * patch), row after row."""
        return F.unfold(pixels, self.shape.patch, stride=self.shape.patch).transpose(1, 2)

    def _placed(self, x: Tensor) -> Tensor:
        if self.class_token is not None:
            x = torch.cat([self.class_token.expand(x.shape[0], 1, -1).to(x.dtype), x], 1)
        x = x + self.places
        return x if self.norm_before is None else self.norm_before(x)

    def _resized(self, sides: Tensor, count: int) -> Tensor:
        """(N, count, width): the position table drawn to each picture's own shape."""
        square = self.places.unflatten(0, (self.shape.places, -1)).permute(2, 0, 1)[None]
        out = []
        for high, wide in sides.tolist():
            drawn = F.interpolate(square.float(), (high, wide), mode="bilinear", align_corners=False, antialias=True)
            out.append(F.pad(drawn[0].flatten(1).T, (0, 0, 0, count - high * wide)))
        return torch.stack(out)

    def _ended(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        states = self.norm(x)
        if self.pool is not None:
            return states, self.pool(states, mask), mask
        assert self.project is not None
        return states, self.project(states[:, 0]), mask


class Texts(nn.Module):
    """Word pieces -> states and the vector of the text."""

    def __init__(self, shape: TextTower, *, ends: bool):
        super().__init__()
        self.shape, self.ends = shape, ends
        width = shape.blocks.width
        self.pieces = nn.Embedding(shape.vocabulary, width)
        self.places = nn.Parameter(0.02 * torch.randn(shape.length, width))
        self.blocks = nn.ModuleList(Block(shape.blocks) for _ in range(shape.blocks.layers))
        self.norm = nn.LayerNorm(width, eps=shape.blocks.eps)
        self.project = nn.Linear(width, shape.out, bias=not ends)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(N, L) ids and mask -> (N, L, width) states, (N, out) vectors, (N, L) mask.

        CLIP: what follows the end of a text is never seen, so no mask is needed. SigLIP was trained on texts that are
        filled up to its full length, and must be asked so.
        """
        ids, mask = self._filled(ids, mask)
        x = self.pieces(ids) + self.places[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, None, causal=self.ends)
        states = self.norm(x)
        last = self._end(ids) if self.ends else torch.full_like(ids[:, 0], ids.shape[1] - 1)
        return states, self.project(states[torch.arange(ids.shape[0], device=ids.device), last]), mask

    def _filled(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Ids that fit; SigLIP's tokenizer fills texts up, and what is missing all the same is more of the last."""
        length = self.shape.length
        ids, mask = ids[:, :length], mask[:, :length]
        if self.ends:
            return ids.masked_fill(~mask, 0), mask
        last = ids.gather(1, mask.sum(1, keepdim=True).clamp(min=1) - 1)
        room = (0, length - ids.shape[1])
        ids, mask = F.pad(ids, room), F.pad(mask, room, value=False)
        return torch.where(mask, ids, last), mask

    def _end(self, ids: Tensor) -> Tensor:
        """(N,) where each text ends: at the first piece that says so."""
        return (ids if self.shape.end is None else (ids == self.shape.end).int()).argmax(1)


class Towers(nn.Module):
    """Both towers with the logarithm of the scale, and the bias, of their scores."""

    def __init__(self, shape: Shape):
        super().__init__()
        pools = shape.family != "clip"
        self.shape = shape
        self.pictures = Pictures(shape.picture, pools=pools)
        self.texts = Texts(shape.text, ends=not pools)
        self.scale = nn.Parameter(torch.tensor(2.6592 if not pools else 2.3026))
        self.bias = nn.Parameter(torch.tensor(-10.0)) if shape.has_bias else None
