"""Files that mean harm or are broken: nothing in them runs, none takes more than its size, each is told in one line."""

from __future__ import annotations

import argparse
import builtins
import copyreg
import functools
import io
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from matchlight.training.foreign import Options, read_checkpoint
from tests.reference.foreign_files import (
    BOXES,
    MAGIC,
    Call,
    Stored,
    legacy_file,
    packed,
    read_pickle,
    refusal,
    tensor,
    zip_file,
)

# --- nothing in a file ever runs ----------------------------------------------------------------------------------


def evil_things(mark: Path) -> dict[str, Any]:
    shell = f"touch {mark}"
    return {
        "posix.system": Call(os.system, shell),
        "eval": Call(eval, f"open({str(mark)!r}, 'w')"),
        "exec": Call(exec, f"open({str(mark)!r}, 'w')"),
        "open": Call(open, str(mark), "w"),
        "getattr": Call(getattr, Call(builtins.__import__, "os"), "system"),
        "functools.partial": Call(functools.partial, os.system, shell),
        "copyreg": Call(copyreg._reconstructor, io.FileIO, object, None),
        "torch.load": Call(torch.load, str(mark)),
        "torch.hub": Call(torch.hub.load, "a/b", "c"),
        "in options": Call(argparse.Namespace, state={"margin": 1, "deep": [{"x": Call(os.system, shell)}]}),
        "in an ordered dictionary": Call(OrderedDict, [("a", Call(os.system, shell))]),
        "a known function by attribute": Call(np.load, str(mark), None, True),
    }


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("name", evil_things(Path("x")))
def test_a_pickle_that_calls_other_things_is_refused_by_name(tmp_path, box, name):
    mark = tmp_path / "owned"
    body = packed({"model": evil_things(mark)[name]})
    message = refusal(BOXES[box](tmp_path / "c.pth.tar", body))
    assert "asks for" in message and "refused" in message and not mark.exists()


def test_a_bare_pickle_that_asks_for_a_shell_is_refused_by_name(tmp_path):
    (tmp_path / "c").write_bytes(pickle.dumps({"model": Call(os.system, f"touch {tmp_path / 'owned'}")}))
    assert "system, which is refused" in refusal(tmp_path / "c") and not (tmp_path / "owned").exists()


RAW = {  # instructions written by hand, each trying another door
    "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
    "old instance": b"(S'true'\nios\nsystem\n.",
    "old object": b"(cos\nsystem\nS'true'\no.",
    "new object": b"\x80\x02cos\nsystem\nU\x04true\x85\x81.",
    "extension 1": b"\x80\x02\x82\x01.",
    "extension 4": b"\x80\x02\x84\x01\x00\x00\x00.",
    "new object with keywords": b"\x80\x04cargparse\nNamespace\n)}\x92.",
    "text persistent id": b"P7\n.",
    "outside buffer": b"\x80\x05\x97.",
    "reconstructor of a list": b"ccopy_reg\n_reconstructor\n(cnumpy\nndarray\nc__builtin__\nobject\nNtR.",
    "reconstructor with state": b"ccopy_reg\n_reconstructor\n(c__main__\nVocabulary\nc__builtin__\nobject\nK\x01tR.",
    "calling a number": b"\x80\x02K\x01)R.",
    "calling a class marker": b"cnumpy\nndarray\n(K\x01tR.",
    "calling a storage": b"ctorch\nFloatStorage\n(K\x05tR.",
    "state on a list": b"\x80\x02]}U\x01aK\x01sb.",
    "state on a function": b"\x80\x02c_codecs\nencode\n}U\x08__name__K\x01sb.",
    "a name with dots": b"\x80\x04\x8c\x08argparse\x8c\x16Namespace.__init__.__g\x93.",
    "vocabulary with arguments": b"\x80\x02c__main__\nVocabulary\nK\x01\x85\x81.",
    "another encoding": b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.",
    "an object array": pickle.dumps(np.array([{}], dtype=object), 2),
    "structured numbers": pickle.dumps(np.zeros(1, [("a", "f4")]), 2),
}


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("name", RAW)
def test_every_other_door_is_shut(tmp_path, box, name):
    assert "refused" in refusal(BOXES[box](tmp_path / "c", RAW[name]))


def test_options_cannot_replace_methods_or_reach_the_class():
    state = {"items": 1, "__class__": 2, "__dict__": 3, "keys": 4}
    read = read_pickle(packed(Call(argparse.Namespace, state=state)))
    assert type(read) is Options and dict(read.items()) == state and Options.keys is dict.keys


def test_a_refused_name_is_shown_on_one_short_line(tmp_path):
    body = b"\x80\x04\x8c\x08\x1b[31mred\n\x8c\xc8" + b"n" * 200 + b"\x93."
    message = refusal(zip_file(tmp_path / "c", body))
    assert "\x1b" not in message and message.isprintable() and len(message) < 250 + len(str(tmp_path))


def test_a_pickled_network_is_refused_with_the_name_of_its_class(tmp_path):
    torch.save({"model": nn.Linear(2, 2)}, tmp_path / "c")
    assert "torch.nn.modules.linear.Linear, which is refused" in refusal(tmp_path / "c")


# --- no file takes more memory or time than its size deserves -----------------------------------------------------


@pytest.mark.parametrize(
    "offset, size, stride",
    [(0, (7,), (1,)), (1, (6,), (1,)), (0, (2, 3), (4, 1)), (6, (), ()), (7, (0,), (1,)), (0, (2,), (2**62,))],
)
@pytest.mark.parametrize("box", BOXES)
def test_a_tensor_beyond_its_storage_is_refused(tmp_path, box, offset, size, stride):
    body = packed({"x": tensor(Stored("0", 6), offset, size, stride)}, legacy=box == "legacy")
    held: Any = {"0": (6, bytes(24))} if box == "legacy" else {"0": bytes(24)}
    assert "beyond its storage" in refusal(BOXES[box](tmp_path / "c", body, held))


@pytest.mark.parametrize(
    "offset, size, stride",
    [
        (-1, (2,), (1,)),
        (0, (-2,), (1,)),
        (0, (2,), (-1,)),
        (0, (2,), ()),
        (0, (True,), (1,)),
        (0, (1,) * 65, (1,) * 65),
    ],
)
def test_a_shape_that_makes_no_sense_is_refused(tmp_path, offset, size, stride):
    body = packed({"x": tensor(Stored("0", 6), offset, size, stride)}, legacy=False)
    assert "makes no sense" in refusal(zip_file(tmp_path / "c", body, {"0": bytes(24)}))


def test_an_expanded_tensor_is_read_and_a_boundless_one_refused(tmp_path):
    for size, fine in ((1000, True), (10**12, False)):
        body = packed({"x": tensor(Stored("0", 1), 0, (size,), (0,))}, legacy=False)
        file = zip_file(tmp_path / "c", body, {"0": struct.pack("<f", 3)})
        if fine:
            assert read_checkpoint(file)["x"].tolist() == [3.0] * 1000
        else:
            assert "repeats its numbers" in refusal(file)


def test_a_huge_storage_in_a_tiny_file_is_refused_before_memory_is_taken(tmp_path):
    whole = {"x": tensor(Stored("0", 10**12), 0, (10**12,), (1,))}
    assert "too small for storage 0" in refusal(legacy_file(tmp_path / "a", packed(whole), {"0": (10**12, b"")}))
    body = packed(whole, legacy=False)
    assert "storage 0 is missing or not as long" in refusal(zip_file(tmp_path / "b", body, {"0": b"1234"}))


def test_many_storages_that_together_exceed_the_file_are_refused(tmp_path):
    body = packed([tensor(Stored(str(i), 100), 0, (100,), (1,)) for i in range(50)])
    assert "too small for storage" in refusal(legacy_file(tmp_path / "c", body))


def test_a_compressed_archive_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "c", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}" + b"N0" * 10**6 + b".")
    assert (tmp_path / "c").stat().st_size < 10**4
    assert "compressed" in refusal(tmp_path / "c")


def test_entries_that_overlap_cannot_multiply_the_file(tmp_path):
    file = zip_file(tmp_path / "c", packed({"x": 1}), {"0": bytes(4000)})
    with zipfile.ZipFile(file, "a") as archive:
        first = archive.NameToInfo["archive/data/0"]
        for i in range(3):  # the central directory names the same bytes again
            again = zipfile.ZipInfo(f"archive/data/{i + 1}")
            again.file_size = again.compress_size = first.file_size
            again.CRC, again.header_offset = first.CRC, first.header_offset
            archive.filelist.append(again)
        archive._didModify = True
    assert "longer than the file" in refusal(file)


def test_a_memo_place_far_away_takes_no_memory():
    assert read_pickle(b"\x80\x02}r\xff\xff\xff\xff.") == {}


def test_a_length_far_beyond_the_file_is_cut_short_not_allocated():
    for body in (
        b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7f.",
        b"\x80\x04B\xff\xff\xff\xffab",
        b"\x80\x02T\xff\xff\xff\xff.",
    ):
        with pytest.raises(Exception, match="cut short|damaged"):
            read_pickle(body)


@pytest.mark.parametrize("key", [b")" + b"\x85" * 300_000, b")" + b"2\x86" * 60, b"]", b"}"])
def test_keys_that_are_dear_to_hash_are_refused_unhashed(tmp_path, key):
    """Hashing the second one would take 2**60 steps, and the first one overflow the stack."""
    assert "as a key" in refusal(zip_file(tmp_path / "c", b"\x80\x02}" + key + b"K\x01s."))


def test_copying_one_long_text_many_times_is_refused(tmp_path):
    text = b"X" + struct.pack("<I", 200_000) + b"a" * 200_000
    body = b"\x80\x02]c_codecs\nencode\nq\x01" + text + b"X\x06\x00\x00\x00latin1\x86q\x020(" + b"h\x01h\x02R" * 999
    assert "far more than it holds" in refusal(zip_file(tmp_path / "c", body + b"e."))


def test_deep_nesting_is_no_trouble():
    read = read_pickle(b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".")
    depth = 0
    while read:
        read, depth = read[0], depth + 1
    assert depth == 99_999


# --- what is wrong is said in one line ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html><html>Quota exceeded</html>", "is not a PyTorch checkpoint"),
        (b"hello\n" * 9, "is not a PyTorch checkpoint"),
        (pickle.dumps({"model": 1}), "is not a PyTorch checkpoint"),
        (pickle.dumps(np.zeros(3), 2), "is not a PyTorch checkpoint"),
        (pickle.dumps(MAGIC, 2) + pickle.dumps(1, 2), "unknown version"),
        (b"PK\x03\x04" + bytes(60), "cut short or damaged"),
        (b"\0" * 257 + b"ustar" + b"\0" * 250, "is a tar archive"),
    ],
)
def test_a_file_that_is_no_checkpoint_is_named_as_such(tmp_path, content, said):
    (tmp_path / "c.pth.tar").write_bytes(content)
    assert said in refusal(tmp_path / "c.pth.tar")


def test_missing_files_and_folders_are_named_as_such(tmp_path):
    assert "does not exist" in refusal(tmp_path / "none")
    assert "is not a file; name one inside" in refusal(tmp_path)


@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
def test_a_checkpoint_cut_anywhere_is_cut_short_or_damaged(tmp_path, new):
    torch.save({"x": torch.arange(50.0), "n": 3}, tmp_path / "whole", _use_new_zipfile_serialization=new)
    whole = (tmp_path / "whole").read_bytes()
    for length in range(8, len(whole), 37):
        (tmp_path / "part").write_bytes(whole[:length])
        assert any(word in refusal(tmp_path / "part") for word in ("cut short", "damaged", "is not a PyTorch"))


@pytest.mark.parametrize("keys", [[], ["1"], ["0", 5], ["0", []], "0", {"0": 1}, None])
def test_a_list_of_storages_that_does_not_fit_is_refused(tmp_path, keys):
    file = legacy_file(tmp_path / "c", packed({"x": tensor(Stored("0", 1), 0, (1,), (1,))}), {"0": (1, bytes(4))})
    assert read_checkpoint(file)["x"].tolist() == [0]
    file.write_bytes(file.read_bytes().replace(pickle.dumps(["0"], 2), pickle.dumps(keys, 2)) + bytes(64))
    assert "list of storages" in refusal(file)


def test_a_changed_weight_in_an_archive_is_noticed(tmp_path):
    torch.save({"x": torch.full((100,), 1.5)}, tmp_path / "c")
    raw = bytearray((tmp_path / "c").read_bytes())
    raw[raw.index(struct.pack("<3f", 1.5, 1.5, 1.5)) + 5] ^= 1
    (tmp_path / "c").write_bytes(raw)
    assert "damaged" in refusal(tmp_path / "c")


def test_a_zip_that_is_no_checkpoint_is_named_as_such(tmp_path):
    np.savez(tmp_path / "c.npz", a=np.zeros(3))
    assert "no PyTorch checkpoint" in refusal(tmp_path / "c.npz")


def test_a_checkpoint_that_holds_no_dictionary_is_refused(tmp_path):
    torch.save([torch.zeros(2)], tmp_path / "c")
    assert "holds a list, not a dictionary" in refusal(tmp_path / "c")
