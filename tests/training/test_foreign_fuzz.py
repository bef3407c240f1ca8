"""Damage of every sort: whatever bytes a file holds, it is read or it is refused in one line, soon."""

from __future__ import annotations

import argparse
import functools
import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from matchlight.core import BadInput
from matchlight.training.foreign import read_checkpoint, read_vocabulary_words

Edit = Callable[[bytes], bytes]
FUZZ = settings(
    deadline=timedelta(seconds=10),  # "soon"; a whole file takes a few milliseconds
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@functools.cache
def sound(new: bool) -> bytes:
    """A small whole checkpoint of all that ours may hold."""
    weights = OrderedDict([("w", torch.arange(6.0).reshape(2, 3)), ("n", torch.tensor(3)), ("b", torch.tensor([True]))])
    opt = argparse.Namespace(margin=0.2, name="f30k", sizes=(1, 2))
    extra = {"best": np.float64(0.5), "table": np.arange(3), "p": torch.nn.Parameter(torch.ones(2).half())}
    out = io.BytesIO()
    torch.save({"model": [weights, weights], "opt": opt, **extra}, out, _use_new_zipfile_serialization=new)
    return out.getvalue()


@functools.cache
def inner_pickle() -> bytes:
    with zipfile.ZipFile(io.BytesIO(sound(True))) as archive:
        return archive.read("archive/data.pkl")


def with_pickle(body: bytes) -> bytes:
    """The sound archive with another pickle inside and sums that fit, so that damage gets past the zip."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(sound(True))) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(name, body if name.endswith("data.pkl") else old.read(name))
    return out.getvalue()


def change(at: float, raw: bytes) -> Edit:
    return lambda old: old[: int(at * len(old))] + raw + old[int(at * len(old)) + len(raw) :]


def insert(at: float, raw: bytes) -> Edit:
    return lambda old: old[: int(at * len(old))] + raw + old[int(at * len(old)) :]


def remove(at: float, count: int) -> Edit:
    return lambda old: old[: int(at * len(old))] + old[int(at * len(old)) + count :]


def move(at: float, to: float, count: int) -> Edit:
    return lambda old: insert(to, old[int(at * len(old)) :][:count])(old)


PLACE = st.floats(0, 1, exclude_max=True)
OPCODE = st.sampled_from(
    sorted(value for name, value in vars(pickle).items() if name.isupper() and type(value) is bytes)
)
BYTES = st.binary(min_size=1, max_size=8) | OPCODE | st.sampled_from([b"\xff" * 8, bytes(8), b"\xff\xff\xff\x7f"])
EDITS = st.lists(
    st.builds(change, PLACE, BYTES)
    | st.builds(insert, PLACE, BYTES)
    | st.builds(remove, PLACE, st.integers(1, 40))
    | st.builds(move, PLACE, PLACE, st.integers(1, 60)),
    min_size=1,
    max_size=4,
)


def edited(raw: bytes, edits: list[Edit]) -> bytes:
    for edit in edits:
        raw = edit(raw)
    return raw


def read_or_refuse(path: Path, raw: bytes, read: Callable[[Path], object] = read_checkpoint) -> bool:
    """Whether the file was read; anything but a refusal in one line fails the test."""
    path.write_bytes(raw)
    try:
        read(path)
    except BadInput as refusal:
        assert str(path) in str(refusal) and str(refusal).isprintable()
        return False
    return True


def test_the_files_to_be_damaged_are_sound(tmp_path):
    for raw in (sound(True), sound(False), with_pickle(inner_pickle())):
        assert read_or_refuse(tmp_path / "c", raw)


@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
@FUZZ
@given(edits=EDITS)
def test_a_damaged_container_is_read_or_refused(tmp_path, new, edits):
    read_or_refuse(tmp_path / "c", edited(sound(new), edits))


@FUZZ
@given(edits=EDITS)
def test_a_damaged_pickle_in_a_sound_archive_is_read_or_refused(tmp_path, edits):
    read_or_refuse(tmp_path / "c", with_pickle(edited(inner_pickle(), edits)))


KNOWN_NAMES = [
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch._utils\n_rebuild_parameter\n",
    b"ctorch\nFloatStorage\n",
    b"ctorch.storage\nUntypedStorage\n",
    b"ccollections\nOrderedDict\n",
    b"cargparse\nNamespace\n",
    b"c_codecs\nencode\n",
    b"cnumpy\ndtype\n",
    b"cnumpy\nndarray\n",
    b"cnumpy.core.multiarray\nscalar\n",
    b"cnumpy.core.multiarray\n_reconstruct\n",
    b"c__builtin__\nset\n",
    b"ccopy_reg\n_reconstructor\n",
    b"c__builtin__\nobject\n",
    b"c__main__\nVocabulary\n",
]
VALUES = [
    b"K\x01",
    b"K\x00",
    b"M\xff\xff",
    b"J\xff\xff\xff\xff",
    b"U\x01<",
    b"U\x02f4",
    b"U\x06latin1",
    b"U\x07storage",
]
VALUES += [
    b"X\x01\x00\x00\x000",
    b"C\x04abcd",
    b"N",
    b"\x88",
    b")",
    b"]",
    b"}",
    b"G" + bytes(8),
    b"\x8a\x09" + b"\x7f" * 9,
]
STEPS = [
    b"(",
    b"t",
    b"\x85",
    b"\x86",
    b"\x87",
    b"R",
    b"b",
    b"\x81",
    b"Q",
    b"2",
    b"0",
    b"1",
    b"s",
    b"u",
    b"a",
    b"e",
    b"o",
]
STEPS += [b"q\x00", b"h\x00", b"q\x01", b"h\x01", b"\x93", b"\x94", b"\x90", b"\x91", b"\x8f", b"l", b"d"]
PROGRAMS = st.lists(st.sampled_from(KNOWN_NAMES) | st.sampled_from(VALUES) | st.sampled_from(STEPS), max_size=40)


@FUZZ
@given(program=PROGRAMS)
def test_a_made_up_program_is_read_or_refused(tmp_path, program):
    read_or_refuse(tmp_path / "c", with_pickle(b"\x80\x02" + b"".join(program) + b"."))


def called(name: bytes, args: list[bytes], state: list[bytes] | None) -> bytes:
    """A known name called with arguments, then given a state."""
    after = b"" if state is None else b"(" + b"".join(state) + b"tb"
    return name + b"(" + b"".join(args) + b"tR" + after


def calls(depth: int) -> st.SearchStrategy[bytes]:
    """Calls of known names whose arguments need not fit, and may be such calls themselves."""
    plain = st.sampled_from(VALUES + KNOWN_NAMES)
    inside = st.lists(plain | calls(depth - 1) if depth else plain, max_size=5)
    return st.builds(called, st.sampled_from(KNOWN_NAMES), inside, st.none() | inside)


@FUZZ
@given(value=calls(depth=2))
def test_known_names_with_unfit_arguments_are_read_or_refused(tmp_path, value):
    read_or_refuse(tmp_path / "c", with_pickle(b"\x80\x02}U\x01x" + value + b"s."))


@st.composite
def tensors(draw) -> bytes:
    """A tensor of any shape over a storage that the sound archive holds (6 floats)."""
    number = st.sampled_from([0, 1, 2, 3, 6, 7, 2**31, 2**62, 2**63, -1])
    shape, stride = (tuple(draw(st.lists(number, max_size=4))) for _ in range(2))
    stride = draw(st.sampled_from([stride, (stride + (1,) * 4)[: len(shape)]]))
    storage = b"(U\x07storagectorch\nFloatStorage\nX\x01\x00\x00\x000U\x03cpuK\x06tQ"
    place = [pickle.dumps(part, 2)[2:-1] for part in (draw(number), shape, stride)]
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"".join(place) + b"\x89NtR"


@FUZZ
@given(value=tensors())
def test_a_tensor_of_any_shape_is_refused_or_lies_in_its_storage(tmp_path, value):
    (tmp_path / "c").write_bytes(with_pickle(b"\x80\x02}U\x01x" + value + b"s."))
    try:
        read = read_checkpoint(tmp_path / "c")["x"]
    except BadInput:
        return
    assert read.numel() == 0 or set(read.flatten().tolist()) <= {0.0, 1.0, 2.0, 3.0, 4.0, 5.0}


def test_the_drawn_tensors_are_not_all_refused(tmp_path):
    sound_shape = (
        b"ctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nX\x01\x00\x00\x000U\x03cpuK\x06tQ"
    )
    body = b"\x80\x02}U\x01x" + sound_shape + b"K\x01K\x02\x85K\x03\x85\x89NtRs."
    (tmp_path / "c").write_bytes(with_pickle(body))
    assert read_checkpoint(tmp_path / "c")["x"].tolist() == [1.0, 4.0]


@FUZZ
@given(edits=EDITS, old=st.booleans())
def test_a_damaged_vocabulary_is_read_or_refused(tmp_path, edits, old):
    words = pickle.dumps({"word2idx": {"<pad>": 0, "dog": 1}, "idx": 2}, 0 if old else 2)
    raw = b"(i__main__\nVocabulary\n" + words[:-1] + b"b." if old else words
    read_or_refuse(tmp_path / "v", edited(raw, edits), read_vocabulary_words)


@FUZZ
@given(raw=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path, raw):
    for read in (read_checkpoint, read_vocabulary_words):
        read_or_refuse(tmp_path / "c", raw, read)
