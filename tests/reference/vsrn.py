"""VSRN the authors' way, from their state dicts: one picture, one caption, one word at a time. In eval mode."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

State = dict[str, Tensor]


def _gru(inside: int, hidden: int, name: str = "rnn.") -> State:
    return {f"{name}{key}": value for key, value in nn.GRU(inside, hidden).state_dict().items()}


def _dense(name: str, out: int, inside: int, *more: int) -> State:
    return {f"{name}.weight": torch.randn(out, inside, *more) / inside**0.5, f"{name}.bias": 0.1 * torch.randn(out)}


def _norm(name: str, dim: int) -> State:
    return {
        f"{name}.weight": torch.rand(dim) + 0.5,
        f"{name}.bias": 0.1 * torch.randn(dim),
        f"{name}.running_mean": 0.1 * torch.randn(dim),
        f"{name}.running_var": torch.rand(dim) + 0.5,
    }


def random_picture_state(*, inside: int, dim: int, f30k: bool) -> State:
    """Weights of a picture encoder under the authors' names."""
    state = _dense("fc", dim, inside) | _gru(dim, dim, "img_rnn.")
    for k in range(1, 5):
        for part in ("g", "theta", "phi", "W.0"):
            state |= _dense(f"Rs_GCN_{k}.{part}", dim, dim, 1)
        state |= _norm(f"Rs_GCN_{k}.W.1", dim)
    return state | (_norm("bn", dim) if f30k else {})


def random_text_state(*, vocabulary: int, word_dim: int, dim: int) -> State:
    return {"embed.weight": torch.randn(vocabulary, word_dim)} | _gru(word_dim, dim)


def random_caption_state(*, vocabulary: int, word_dim: int, dim: int, hidden: int) -> State:
    """Weights of the captioning branch under the authors' names."""
    return {
        **_dense("encoder.vid2hid", hidden, dim),
        **_gru(hidden, hidden, "encoder.rnn."),
        "decoder.embedding.weight": torch.randn(vocabulary, word_dim),
        **_dense("decoder.attention.linear1", hidden, 2 * hidden),
        "decoder.attention.linear2.weight": torch.randn(1, hidden),
        **_gru(word_dim + hidden, hidden, "decoder.rnn."),
        **_dense("decoder.out", vocabulary, hidden),
    }


def _normalise(state: State, name: str, x: Tensor) -> Tensor:
    return F.batch_norm(x, *(state[f"{name}.{key}"] for key in ("running_mean", "running_var", "weight", "bias")))


def _steps(state: State, name: str, words: Tensor) -> list[Tensor]:
    """States of a GRU over (L, inside), written out."""
    h = torch.zeros(state[f"{name}weight_hh_l0"].shape[1])
    out = []
    for word in words:
        h = _step(state, name, word, h)
        out.append(h)
    return out


def _step(state: State, name: str, word: Tensor, h: Tensor) -> Tensor:
    given = state[f"{name}weight_ih_l0"] @ word + state[f"{name}bias_ih_l0"]
    known = state[f"{name}weight_hh_l0"] @ h + state[f"{name}bias_hh_l0"]
    (ir, iz, inew), (hr, hz, hnew) = given.chunk(3), known.chunk(3)
    reset, keep = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
    return (1 - keep) * torch.tanh(inew + reset * hnew) + keep * h


def picture(state: State, regions: Tensor) -> tuple[Tensor, Tensor]:
    """(R, inside) regions -> the embedding (D,) and the related regions (R, D)."""
    f30k = "bn.weight" in state
    x = regions @ state["fc.weight"].T + state["fc.bias"]
    x = x if f30k else x / x.square().sum(0).sqrt()
    v = x.T[None]  # (1, D, R), as convolutions want it
    for k in range(1, 5):
        g, theta, phi = (
            F.conv1d(v, state[f"Rs_GCN_{k}.{part}.weight"], state[f"Rs_GCN_{k}.{part}.bias"])
            for part in ("g", "theta", "phi")
        )
        relation = theta[0].T @ phi[0] / len(regions)
        y = (relation @ g[0].T).T[None]
        told = F.conv1d(y, state[f"Rs_GCN_{k}.W.0.weight"], state[f"Rs_GCN_{k}.W.0.bias"])
        v = v + _normalise(state, f"Rs_GCN_{k}.W.1", told)
    related = v[0].T
    related = related / related.square().sum(0).sqrt()
    last = _steps(state, "img_rnn.", related)[-1]
    last = _normalise(state, "bn", last[None])[0] if f30k else last
    return last / last.square().sum().sqrt(), related


def caption(state: State, ids: list[int]) -> Tensor:
    """(D,) embedding of one caption."""
    last = _steps(state, "rnn.", state["embed.weight"][torch.tensor(ids)])[-1]
    return last / last.square().sum().sqrt()


def scores(image: State, text: State, pictures: list[Tensor], captions: list[list[int]]) -> Tensor:
    """(I, T): a loop over captions, each against all pictures."""
    images = torch.stack([picture(image, regions)[0] for regions in pictures])
    return torch.stack([images @ caption(text, ids) for ids in captions], 1)


def label_and_mask(ids: list[int], max_len: int, end: int) -> tuple[list[int], list[int]]:
    """What the decoder is given and graded on: `max_len + 1` places."""
    kept = list(ids)
    if len(kept) > max_len - 1:
        kept = kept[:max_len]
        kept[-1] = end
    label = kept + [0] * (max_len + 1 - len(kept))
    return label, [int(place <= label.index(0)) for place in range(max_len + 1)]


def caption_loss(state: State, related: Tensor, ids: list[int], *, max_len: int, end: int) -> Tensor:
    """Minus log probability of one caption given one picture's related regions (R, D), word by word."""
    label, mask = label_and_mask(ids, max_len, end)
    seen = torch.stack(
        _steps(state, "encoder.rnn.", related @ state["encoder.vid2hid.weight"].T + state["encoder.vid2hid.bias"])
    )
    h, loss = seen[-1], torch.zeros(())
    for t in range(max_len - 1):
        looks = [_look(state, region, h) for region in seen]
        context = (torch.stack(looks).softmax(0)[:, None] * seen).sum(0)
        h = _step(state, "decoder.rnn.", torch.cat([state["decoder.embedding.weight"][label[t]], context]), h)
        likely = (state["decoder.out.weight"] @ h + state["decoder.out.bias"]).log_softmax(0)
        loss = loss - mask[t + 1] * likely[label[t + 1]]
    return loss


def _look(state: State, region: Tensor, h: Tensor) -> Tensor:
    name = "decoder.attention.linear"
    inner = torch.tanh(state[f"{name}1.weight"] @ torch.cat([region, h]) + state[f"{name}1.bias"])
    return state[f"{name}2.weight"][0] @ inner
