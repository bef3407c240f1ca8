"""What semantic sharing may start from: word vectors, a BERT, and captions cut to their first words."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import matchlight as ml
from matchlight.core import IMAGE, TEXT, BadInput, Items
from matchlight.inputs.sentence_encoders import bert_of, sentence_encoder
from matchlight.inputs.text import Vocabulary
from matchlight.inputs.text.word_vectors import length_of_vectors, read_word_vectors
from matchlight.methods.shared_start import BertLayers, PieceTokens
from matchlight.methods.shared_tokens import first_places
from tests.tiny import WORDS, tiny_pairs

SMALL: dict[str, Any] = {"preset": "small", "dim": 16, "depth": 1, "heads": 2, "hidden": 8, "objects": 8, "batch": 8}


# ---- word vectors ----------------------------------------------------------------------------------------------------


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_both_layouts_are_read_and_words_may_hold_spaces(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_words(["cat", "e-mail", "red/blue", "dog"])
    lines = ["cat 1 2", ". . . 9 9", "email 3 4", "red 5 6", "fish 7 8"]
    glove, word2vec = written(tmp_path / "glove.txt", lines), written(tmp_path / "w2v.txt", ["5 2", *lines])
    packed = tmp_path / "glove.txt.gz"
    packed.write_bytes(gzip.compress(glove.read_bytes()))
    for path in (glove, word2vec, packed):
        assert length_of_vectors(path) == 2
        found = read_word_vectors(path, vocabulary, dim=2)
        named = {vocabulary.words[place]: vector.tolist() for place, vector in found.items()}
        assert named == {"cat": [1, 2], "e-mail": [3, 4], "red/blue": [5, 6]}  # without hyphen, before the slash


def test_a_word_itself_goes_before_the_same_without_marks(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_words(["u.s.", "us"])
    for lines in (["u.s. 1 1", "us 2 2"], ["us 2 2", "u.s. 1 1"]):
        found = read_word_vectors(written(tmp_path / "v.txt", lines), vocabulary, dim=2)
        assert [found[vocabulary.ids[word]].tolist() for word in ("u.s.", "us")] == [[1, 1], [2, 2]]


@pytest.mark.parametrize(
    ("lines", "hint"),
    [
        (["cat 1 2", "dog 3 x"], "line 2"),
        (["cat 1 2", "dog nan 3"], "line 2"),
        (["nothing here at all"], "no words with numbers"),
        ([""], "no words with numbers"),
    ],
)
def test_a_broken_file_is_one_clear_line(lines: list[str], hint: str, tmp_path: Path) -> None:
    path = written(tmp_path / "v.txt", lines)
    with pytest.raises(BadInput, match=hint):
        read_word_vectors(path, Vocabulary.from_words(["cat", "dog"]), dim=length_of_vectors(path))


def test_training_starts_from_the_file_and_the_run_opens_without_it(tmp_path: Path) -> None:
    path = written(tmp_path / "v.txt", [f"{word} {k} {-k} 1" for k, word in enumerate(WORDS[:5], 1)])
    settings = SMALL | {"word_dim": 3, "epochs": 1, "rate": 1e-12, "word_vectors": str(path)}
    run = ml.train("semantic_sharing", tiny_pairs(), tmp_path / "run", device="cpu", **settings)
    path.unlink()
    run = ml.Run.load(tmp_path / "run")
    assert run.vocabulary is not None
    table = run.matcher.encoders[TEXT].words.embed.weight
    for k, word in enumerate(WORDS[:5], 1):
        assert table[run.vocabulary.ids[word]].tolist() == pytest.approx([k, -k, 1], abs=1e-4)
    assert table[run.vocabulary.ids[WORDS[6]]].abs().max() <= 0.1  # as it was drawn


@pytest.mark.parametrize(
    ("more", "hint"),
    [
        ({"word_vectors": "none.txt", "word_dim": 3}, "no such file"),
        ({"word_vectors": "three.txt", "word_dim": 5}, "word_dim=3 fits"),
        ({"word_vectors": "three.txt", "sentences": "minilm"}, "one of the two"),
    ],
)
def test_vectors_that_cannot_be_used_are_told_before_the_run_begins(
    more: dict[str, Any], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "three.txt", ["cat 1 2 3"])
    with pytest.raises(BadInput, match=hint):
        ml.train("semantic_sharing", tiny_pairs(), tmp_path / "run", device="cpu", **SMALL, **more)
    assert not (tmp_path / "run" / "recipe.json").exists()


# ---- the first words -------------------------------------------------------------------------------------------------


def test_words_behind_the_last_that_is_read_change_nothing(tmp_path: Path) -> None:
    pairs = tiny_pairs()
    settings = SMALL | {"word_dim": 8, "epochs": 1, "max_words": 4}
    run = ml.train("semantic_sharing", pairs, tmp_path / "run", device="cpu", **settings)
    longer = replace(pairs, captions=[f"{caption} {WORDS[0]} {WORDS[1]}" for caption in pairs.captions])
    same = [ml.evaluate(run, data, protocol="labels")["map"]["mean"] for data in (pairs, longer)]
    assert same[0] == same[1]
    items = Items(
        torch.arange(6)[None], torch.ones(1, 6, dtype=torch.bool), torch.zeros(1), {"length": torch.tensor([6])}
    )
    cut = first_places(items, 4)
    assert cut.x.tolist() == [[0, 1, 2, 3]] and cut.mask.shape == (1, 4) and cut.extra["length"].tolist() == [4]
    assert first_places(items, 6) is items


# ---- a BERT ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A BERT of eight layers with random weights, as the library writes one."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("bert")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "and", "near", "again", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    shape = {"hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 8, "intermediate_size": 20}
    torch.manual_seed(0)
    transformers.BertModel(transformers.BertConfig(vocab_size=len(pieces), **shape)).save_pretrained(folder)
    return f"hf:{folder}"


def test_six_layers_of_a_bert_are_its_sixth_hidden_state(tiny_bert: str) -> None:
    encoder = sentence_encoder(tiny_bert)
    ids, mask = encoder.tokenize(["a dog near a cat", "and"])
    wanted = encoder.model(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True).hidden_states[6]
    bert, _ = bert_of(tiny_bert)
    where = bert.places.weight[: ids.shape[1]]
    found = BertLayers(bert.eval(), 4, depth=6).eval()(bert.pieces(ids) + where + bert.kinds.weight[0], mask)
    torch.testing.assert_close(found[mask], wanted[mask], rtol=1e-4, atol=1e-5)


def test_both_sides_pass_the_layers_of_the_bert_and_learn(tiny_bert: str, tmp_path: Path) -> None:
    settings = SMALL | {"depth": 6, "epochs": 2, "rate": 2e-3, "sentences": tiny_bert}
    run = ml.train("semantic_sharing", tiny_pairs(), tmp_path / "run", device="cpu", **settings)
    shared, texts = run.matcher.shared["both"], run.matcher.encoders[TEXT]
    assert isinstance(shared, BertLayers) and len(shared.layers) == 6 and isinstance(texts, PieceTokens)
    assert run.matcher.encoders[IMAGE].fc.weight.shape[0] == 12  # regions have the BERT's width
    assert run.vocabulary is None and run.info["view"]["sentences"] == tiny_bert
    before, _ = bert_of(tiny_bert)
    moved = (shared.layers[0].query.weight - before.blocks[0].query.weight).abs().max()
    assert 0 < moved < 0.1
    again = ml.Run.load(tmp_path / "run")
    reports = [ml.evaluate(one, tiny_pairs(), protocol="labels") for one in (run, again)]
    assert reports[0] == reports[1] and np.isfinite(reports[0]["map"]["mean"])


def test_hidden_pieces_become_the_mask_piece_and_are_asked_for(tiny_bert: str) -> None:
    from matchlight.methods.shared_start import Start

    start = Start(tiny_bert)
    tokens = PieceTokens(start, share=0.5, longest=4).train()
    ids = torch.tensor([[2, 9, 10, 11, 12, 3]] * 40)
    items = Items(ids, torch.ones_like(ids, dtype=torch.bool), torch.arange(40), {})
    out = tokens(items)
    target = out.extra["target"]
    assert out.vectors.shape == (40, 4, 12) and set(target[:, 0].tolist()) == {-1}  # [CLS] is never hidden
    assert 0.3 < (target[:, 1:] >= 0).float().mean() < 0.7
    mask = start.bert.pieces.weight[4] + start.bert.places.weight[1] + start.bert.kinds.weight[0]
    hidden = int((target[:, 1] >= 0).nonzero()[0])
    torch.testing.assert_close(out.vectors[hidden, 1], mask)


def test_layers_are_taken_from_a_bert_alone(tmp_path: Path, tiny_bert: str) -> None:
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "electra"
    transformers.AutoTokenizer.from_pretrained(tiny_bert[3:]).save_pretrained(folder)
    shape = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8}
    transformers.ElectraModel(transformers.ElectraConfig(vocab_size=30, embedding_size=8, **shape)).save_pretrained(
        folder
    )
    with pytest.raises(BadInput, match="of the kind electra; layers are taken from a BERT"):
        bert_of(f"hf:{folder}")
