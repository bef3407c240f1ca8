"""Stored states of captions: what the frozen encoder says, whatever the batch, found again in any order of captions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import matchlight as ml
from matchlight.core import TEXT
from matchlight.files import read_json
from matchlight.inputs import caption_states as module
from matchlight.inputs.caption_states import CaptionStates, caption_states
from matchlight.inputs.prepare import View, prepare, view_of
from matchlight.inputs.sentence_encoders import SentenceEncoder, sentence_encoder
from matchlight.inputs.text import Captions
from tests.tiny import tiny_bert, tiny_pairs

pytest.importorskip("transformers")
SMALL = {"dim": 12, "hidden": 8, "batch": 16, "epochs": 2, "rate": 1e-3, "warm": 0, "sentences_rate": 0.0}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture
def encoder(bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SentenceEncoder:
    monkeypatch.setenv("MATCHLIGHT_CACHE", str(tmp_path / "cache"))
    return sentence_encoder(bert, frozen=True)


def stored(encoder: SentenceEncoder, captions: list[str], bert: str) -> CaptionStates:
    return caption_states(Captions.from_tokens(encoder.token_ids(captions)), encoder, name=bert)


def test_stored_states_are_those_of_the_encoder(encoder: SentenceEncoder, bert: str) -> None:
    captions = tiny_pairs(20).captions
    chosen = np.array([3, 3, 17, 0])
    states = stored(encoder, captions, bert).batch(chosen)
    ids, mask = encoder.tokenize([captions[place] for place in chosen])
    with torch.no_grad():
        alive = encoder(ids, mask)
    assert_close(torch.from_numpy(states), alive * mask[..., None], atol=2e-3, rtol=1e-3)


def test_states_in_bfloat16_are_close_and_kept_apart(encoder: SentenceEncoder, bert: str) -> None:
    captions = Captions.from_tokens(encoder.token_ids(["a dog", "two dogs run on a beach"]))
    plain, quick = (caption_states(captions, encoder, name=bert, precision=kind) for kind in ("fp32", "bf16"))
    one, other = (states.batch(np.arange(2)) for states in (plain, quick))
    assert plain.store.stamp() != quick.store.stamp() and np.abs(one - other).max() > 0
    assert (one * other).sum() / np.linalg.norm(one) / np.linalg.norm(other) > 0.999


def test_the_same_captions_in_another_order_are_not_read_again(
    encoder: SentenceEncoder, bert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    captions = tiny_pairs(20).captions
    first = stored(encoder, captions, bert)
    monkeypatch.setattr(type(encoder), "forward", lambda *given: pytest.fail("read again"))
    turned = stored(encoder, captions[::-1], bert)
    assert np.array_equal(first.batch(np.array([2])), turned.batch(np.array([len(captions) - 3])))


def test_reading_that_was_stopped_goes_on(encoder: SentenceEncoder, bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 4)
    monkeypatch.setattr("matchlight.inputs.features.fill.MARK_EVERY", 0.0)
    captions, read, count = tiny_pairs(20).captions, type(encoder).forward, []

    def broken(self: SentenceEncoder, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        count.append(len(ids))
        if len(count) == 3:
            raise KeyboardInterrupt
        return read(self, ids, mask)

    monkeypatch.setattr(type(encoder), "forward", broken)
    with pytest.raises(KeyboardInterrupt):
        stored(encoder, captions, bert)
    again = stored(encoder, captions, bert)
    assert sum(count) - 4 == len(set(captions))  # what was done before the third batch was not read twice
    monkeypatch.setattr(type(encoder), "forward", read)
    ids, mask = encoder.tokenize(captions)
    with torch.no_grad():
        alive = encoder(ids, mask) * mask[..., None]
    assert_close(torch.from_numpy(again.batch(np.arange(len(captions)))), alive, atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize(("rate", "dropped", "stores"), [(0.0, 0.0, True), (0.1, 0.0, False), (0.0, 0.2, False)])
def test_only_what_is_read_the_same_every_time_is_stored(bert: str, rate: float, dropped: float, stores: bool) -> None:
    pairs = tiny_pairs(20)
    view = view_of({"sentences": bert, "sentences_rate": rate, "drop_words": dropped}, pooled=False, pairs=pairs)
    assert view.read_once is stores and View.from_json(view.to_json()).read_once is False


def test_captions_that_would_fill_the_disk_are_read_anew(bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    pairs = tiny_pairs(20)
    table = prepare(pairs, View("given", sentences=bert, read_once=True), device=torch.device("cpu")).table
    assert table.states is None and not table.items(TEXT, np.arange(3)).x.is_floating_point()


def test_a_run_trained_on_stored_states_reads_captions_by_itself(bert: str, tmp_path: Path) -> None:
    """What it learned from states it finds again from words: the same validation figures but for rounding."""
    pairs = tiny_pairs(60, held=10)
    run = ml.train("vse_infty", pairs, tmp_path / "run", sentences=bert, drop_words=0.0, loss="rclog", **SMALL)
    trained = read_json(run.folder / "metrics.json", "metrics")["val"]["rsum"]
    assert trained > 100 and ml.evaluate(run, pairs, split="val")["rsum"] == pytest.approx(trained, abs=10)
