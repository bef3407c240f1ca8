"""Reading the authors' files: everything that belongs in a checkpoint or a vocabulary arrives whole."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from matchlight.core import BadInput
from matchlight.training.foreign import read_checkpoint, read_vocabulary_words
from tests.reference.foreign_files import Call, Stored, legacy_file, packed, read_pickle, tensor, zip_file

KINDS = [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


@pytest.fixture(params=[True, False], ids=["zip", "legacy"])
def saved(request, tmp_path):
    """Saves with PyTorch in each of its two containers and reads with ours."""

    def through(thing: Any) -> Any:
        torch.save(thing, tmp_path / "c.pth.tar", _use_new_zipfile_serialization=request.param)
        return read_checkpoint(tmp_path / "c.pth.tar")

    return through


def test_an_authors_checkpoint_arrives_with_lists_options_and_numbers(saved):
    weights = OrderedDict([("fc.weight", torch.arange(6.0).reshape(2, 3)), ("fc.bias", torch.tensor([1.5, -2.0]))])
    opt = argparse.Namespace(margin=0.2, bi_gru=True, data_name="f30k_precomp", sizes=[1, (2, 3)], none=None)
    read = saved({"epoch": 7, "model": [weights, weights], "best_rsum": 431.2, "opt": opt, "Eiters": 10**12})
    assert read["epoch"] == 7 and read["best_rsum"] == 431.2 and read["Eiters"] == 10**12
    assert [list(part) for part in read["model"]] == [["fc.weight", "fc.bias"]] * 2
    assert read["model"][0]["fc.weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert read["opt"] == vars(opt) and read["opt"].margin == 0.2 and read["opt"].get("absent") is None


def test_an_absent_option_is_an_attribute_error_and_a_file_cannot_answer_for_python(saved):
    opt = saved({"opt": argparse.Namespace(**{"__deepcopy__": 3, "margin": 1})})["opt"]
    with pytest.raises(AttributeError, match="seed"):
        _ = opt.seed
    assert not hasattr(opt, "__deepcopy__") and opt["__deepcopy__"] == 3


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_kind_of_number_keeps_its_kind_and_value(saved, kind):
    numbers = torch.tensor([[1, 0, 3], [100, 5, 7]]).to(kind)
    read = saved({"x": numbers, "turned": numbers.T, "row": numbers[1], "one": numbers[1, 0]})
    assert read["x"].dtype == kind and torch.equal(read["x"], numbers)
    assert torch.equal(read["turned"], numbers.T) and torch.equal(read["row"], numbers[1])
    assert read["one"].shape == () and read["one"].item() == 100


def test_truth_values_complex_and_empty_tensors_are_read(saved):
    made = {"b": torch.tensor([True, False]), "c": torch.tensor([1 + 2j]), "e": torch.zeros(0, 4), "f": torch.zeros(0)}
    read = saved(made)
    assert all(read[name].dtype == made[name].dtype and torch.equal(read[name], made[name]) for name in made)


def test_tensors_that_shared_memory_still_do(saved):
    weight = torch.arange(12.0).reshape(3, 4)
    read = saved({"a": weight, "b": weight, "column": weight[:, 1]})
    read["a"][2, 1] = -1
    assert read["b"][2, 1] == -1 and read["column"].tolist() == [1, 5, -1]


def test_parameters_become_plain_tensors(saved):
    read = saved({"p": nn.Parameter(torch.ones(2)), "q": torch.ones(2, requires_grad=True)})
    assert type(read["p"]) is torch.Tensor and not read["p"].requires_grad and not read["q"].requires_grad


def test_a_state_dict_with_metadata_reads_as_a_plain_dictionary_and_loads(saved):
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    state = network.state_dict()
    assert hasattr(state, "_metadata")
    read = saved({"model": state})["model"]
    assert type(read) is dict and list(read) == list(state)
    nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).load_state_dict(read)


def test_prefixes_of_data_parallel_stay(saved):
    read = saved({"model": nn.DataParallel(nn.Linear(2, 1)).state_dict()})
    assert list(read["model"]) == ["module.weight", "module.bias"]


def test_numpy_scalars_and_arrays_are_read_as_numbers(saved):
    table = np.arange(6, dtype=">i4").reshape(2, 3)
    many = {"s": np.float64(1.25), "i": np.int64(-3), "b": np.bool_(True), "t": table, "f": np.asfortranarray(table)}
    read = saved({**many, "again": table})
    assert (read["s"], read["i"], read["b"]) == (1.25, -3, True) and type(read["s"]) is float
    assert np.array_equal(read["t"], table) and np.array_equal(read["f"], table) and read["again"] is read["t"]


def test_numpy_is_known_by_its_old_and_its_new_module_name():
    raw = pickle.dumps({"best": np.float32(0.5), "list": np.array([1.0, 2.0])}, 2)
    names = {raw.replace(b"numpy._core.", b"numpy.core."), raw.replace(b"numpy.core.", b"numpy._core.")}
    assert len(names) == 2
    for one in names:
        assert read_pickle(one)["best"] == 0.5 and read_pickle(one)["list"].tolist() == [1.0, 2.0]


def test_a_hand_made_legacy_file_with_a_part_of_a_storage_is_read(tmp_path):
    raw = struct.pack("<6f", 0, 1, 2, 3, 4, 5)
    part = Stored("7", 6, part=("8", 2, 4))  # numbers 2, 3, 4, 5
    body = packed({"all": tensor(Stored("7", 6), 0, (2, 3), (3, 1)), "part": tensor(part, 1, (2,), (2,))})
    read = read_checkpoint(legacy_file(tmp_path / "c", body, {"7": (6, raw)}))
    assert read["all"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert read["part"].tolist() == [3, 5]  # from place 1 of the part, every second number


def test_the_oldest_way_to_rebuild_a_tensor_is_known(tmp_path):
    old = Call(torch._utils._rebuild_tensor, Stored("0", 2, torch.LongStorage), 0, (2,), (1,))
    read = read_checkpoint(legacy_file(tmp_path / "c", packed({"x": old}), {"0": (2, struct.pack("<2q", 5, -6))}))
    assert read["x"].tolist() == [5, -6]


def test_big_endian_archives_are_turned_round(tmp_path):
    body = packed({"x": tensor(Stored("0", 2), 0, (2,), (1,))}, legacy=False)
    file = zip_file(tmp_path / "c", body, {"0": struct.pack(">2f", 1.5, -8)}, byteorder=b"big")
    assert read_checkpoint(file)["x"].tolist() == [1.5, -8]


def test_truth_values_stored_as_other_bytes_are_true(tmp_path):
    body = packed({"x": tensor(Stored("0", 3, torch.BoolStorage), 0, (3,), (1,))}, legacy=False)
    read = read_checkpoint(zip_file(tmp_path / "c", body, {"0": b"\x00\x07\x01"}))["x"]
    assert read.view(torch.uint8).tolist() == [0, 1, 1]


def test_python_2_pickles_read_with_text_keys():
    # {'epoch': 3, u'caf\xe9': 'caf\xe9'} as Python 2 wrote it, and byte keys as Python 3 writes them
    old = b"\x80\x02}q\x00(U\x05epochq\x01K\x03X\x05\x00\x00\x00caf\xc3\xa9U\x04caf\xe9u."
    assert read_pickle(old) == {"epoch": 3, "café": "café"}
    assert read_pickle(pickle.dumps({b"model": 1}, 4)) == {"model": 1}
    assert read_pickle(b"(dp0\nS'na\\xefve'\np1\nI01\ns.") == {"naïve": True}


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=9)
    | st.binary(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=4)
        | st.sets(st.integers(), max_size=3)
        | st.frozensets(st.text(max_size=3), max_size=3)
    ),
    max_leaves=15,
)


@settings(deadline=None, max_examples=150)
@given(PLAIN, st.integers(0, 5))
def test_plain_values_come_back_from_every_pickle_protocol(thing, protocol):
    assert read_pickle(pickle.dumps(thing, protocol)) == thing


def test_a_list_that_holds_itself_is_read():
    ring: list[Any] = [1]
    ring.append(ring)
    read = read_pickle(pickle.dumps(ring, 2))
    assert read[0] == 1 and read[1] is read


def _parity_files() -> list[Path]:
    folder = os.environ.get("MATCHLIGHT_PARITY")
    return sorted(Path(folder).glob("*/checkpoint.pth.tar")) if folder else []


def _same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, torch.Tensor):
        assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride() and torch.equal(ours, theirs)
    elif isinstance(theirs, (dict, argparse.Namespace)):
        held = theirs if isinstance(theirs, dict) else vars(theirs)
        assert list(ours) == list(held)
        for key, value in held.items():
            _same(ours[key], value)
    elif isinstance(theirs, (list, tuple)):
        assert type(ours) is type(theirs) and len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            _same(one, other)
    else:
        assert ours == theirs


@pytest.mark.skipif(not _parity_files(), reason="MATCHLIGHT_PARITY names no folder of the authors' checkpoints")
@pytest.mark.parametrize("file", _parity_files(), ids=lambda file: file.parent.name)
def test_an_official_checkpoint_equals_what_pytorch_reads(file):
    with torch.serialization.safe_globals([argparse.Namespace]):
        theirs = torch.load(file, weights_only=True, map_location="cpu")
    _same(read_checkpoint(file), theirs)


# --- vocabularies -------------------------------------------------------------------------------------------------

WORDS = {"<pad>": 0, "<start>": 1, "<end>": 2, "<unk>": 3, "dog": 4}
ATTRIBUTES = {"word2idx": WORDS, "idx2word": {i: w for w, i in WORDS.items()}, "idx": 5}


def vocabulary_pickles() -> dict[str, bytes]:
    state = {protocol: pickle.dumps(ATTRIBUTES, protocol) for protocol in (0, 2)}
    inner, old = state[2][2:-1], state[0][:-1]  # without the header and the stop
    return {
        "python 2, protocol 2": b"\x80\x02c__main__\nVocabulary\n)\x81" + inner + b"b.",
        "python 2, protocol 0": b"ccopy_reg\n_reconstructor\n(c__main__\nVocabulary\nc__builtin__\nobject\nNtR"
        + old
        + b"b.",
        "an old-style class": b"(i__main__\nVocabulary\n" + old + b"b.",
        "an old-style class, binary": b"(cvocab\nVocabulary\no" + inner + b"b.",
        "python 3, another module": b"\x80\x04\x8c\x05vocab\x8c\x0aVocabulary\x93)\x81" + inner + b"b.",
        "plain": state[2],
    }


@pytest.mark.parametrize("name", vocabulary_pickles())
def test_a_pickled_vocabulary_gives_its_words(tmp_path, name):
    (tmp_path / "v.pkl").write_bytes(vocabulary_pickles()[name])
    assert read_vocabulary_words(tmp_path / "v.pkl") == WORDS


def test_a_json_vocabulary_gives_its_words_with_or_without_a_byte_order_mark(tmp_path):
    text = json.dumps({**ATTRIBUTES, "word2idx": {**WORDS, "café": 5}}, ensure_ascii=False).encode()
    for raw in (text, b"\xef\xbb\xbf" + text, b"\n  " + text):
        (tmp_path / "v.json").write_bytes(raw)
        assert read_vocabulary_words(tmp_path / "v.json") == {**WORDS, "café": 5}


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "is empty"),
        (b'{"word2idx": {', "is not readable JSON"),
        (b'{"a":' * 100_000, "is not readable JSON"),
        (b'{"\xff": 1}', "is not readable JSON"),
        (b'{"words": []}', "has no `word2idx`"),
        (b'{"word2idx": {}}', "has no `word2idx`"),
        (b'{"word2idx": {"a": 0, "b": 0}}', "a and b share id 0"),
        (b'{"word2idx": {"a": 0, "b": 2}}', "b has id 2; ids run from 0 to 1"),
        (b'{"word2idx": {"a": 0, "b": -1}}', "b has id -1"),
        (b'{"word2idx": {"a": true}}', "a has id True"),
        (b"a plain text file\n", "is no vocabulary"),
        (pickle.dumps([1, 2]), "has no `word2idx`"),
        (vocabulary_pickles()["python 2, protocol 2"][:-40], "is no vocabulary"),
        (pickle.dumps(Call(os.system, "true")), "system, which is refused"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_named_as_such(tmp_path, content, said):
    (tmp_path / "v").write_bytes(content)
    with pytest.raises(BadInput) as caught:
        read_vocabulary_words(tmp_path / "v")
    assert str(tmp_path / "v") in str(caught.value) and said in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_vocabulary_and_a_folder_are_named_as_such(tmp_path):
    for path, said in ((tmp_path / "none", "does not exist"), (tmp_path, "is not a file")):
        with pytest.raises(BadInput, match=said):
            read_vocabulary_words(path)
