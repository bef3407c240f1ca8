"""What can be done to a file of a valid data set, run or index: to its bytes, text, JSON, arrays and place.

`WAYS` names each way: a function of the file and a random generator that changes it in place, or says (False) that the
way is none for such a file.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

Chance = np.random.Generator
Way = Callable[[Path, Chance], bool]
SECRET = "the secret of another folder"
TEXT = {".json", ".jsonl", ".csv", ".tsv", ".txt", ".token", ".list"}
ESCAPE = "\x1b]0;owned\x07\x1b[31mred\x9b2J\u202eback\x00"
OUTSIDE = (
    "../../../secret.txt",
    "/etc/passwd",
    "..\\..\\secret.txt",
    "images/../../../secret.txt",
    "~/secret",
    "file:///etc/passwd",
)
ODD_VALUES: tuple[object, ...] = (
    None, True, -1, 2**63, 1e308, float("nan"), float("inf"), "", "x" * 100_000, ESCAPE, *OUTSIDE,
    [], {}, [[]], [None], {"": None},
)  # fmt: skip
DEEP = 60_000
HUGE = (b"\xff\xff\xff\xff", b"\xff" * 8, b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", bytes(4))


class Bomb:
    """An object whose unpickling makes a file: code that a loader must not run."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.mark),)


def owned(folder: Path) -> Path:
    """What a `Bomb` in this folder makes."""
    return folder / "owned"


# ---- bytes -----------------------------------------------------------------------------------------------------------


def _bytes(change: Callable[[bytes, Chance], bytes]) -> Way:
    def way(path: Path, chance: Chance) -> bool:
        raw = path.read_bytes()
        path.write_bytes(change(raw, chance))
        return bool(raw)

    return way


def _place(raw: bytes, chance: Chance) -> int:
    """Headers and ends are hit as often as all the rest."""
    near = int(chance.integers(0, min(64, len(raw)) or 1))
    return (near, len(raw) - 1 - near, int(chance.integers(0, len(raw) or 1)))[chance.integers(3)]


def _cut(raw: bytes, chance: Chance) -> bytes:
    return raw[: _place(raw, chance)]


def _flip(raw: bytes, chance: Chance) -> bytes:
    out = bytearray(raw)
    for _ in range(int(chance.integers(1, 9))):
        out[_place(raw, chance)] ^= 1 << int(chance.integers(8))
    return bytes(out)


def _huge_count(raw: bytes, chance: Chance) -> bytes:
    at, number = _place(raw, chance), HUGE[chance.integers(len(HUGE))]
    return raw[:at] + number + raw[at + len(number) :]


def _insert(raw: bytes, chance: Chance) -> bytes:
    at = _place(raw, chance)
    return raw[:at] + chance.bytes(int(chance.integers(1, 40))) + raw[at:]


def _zeros(raw: bytes, chance: Chance) -> bytes:
    at = _place(raw, chance)
    return raw[:at] + bytes(len(raw[at : at + 64])) + raw[at + 64 :]


# ---- text ------------------------------------------------------------------------------------------------------------


def _text(change: Callable[[str, Chance], str | bytes]) -> Way:
    def way(path: Path, chance: Chance) -> bool:
        if path.suffix not in TEXT:
            return False
        changed = change(path.read_text(encoding="utf-8", errors="replace"), chance)
        path.write_bytes(changed if isinstance(changed, bytes) else changed.encode("utf-8", "surrogatepass"))
        return True

    return way


def _lines(text: str, chance: Chance, change: Callable[[str], str]) -> str:
    lines = text.split("\n")
    some = int(chance.integers(len(lines)))
    lines[some] = change(lines[some])
    return "\n".join(lines)


def _with_word(text: str, chance: Chance, new: str) -> str:
    """Some word of the text replaced: a name, a caption, a number, a key."""
    words = [word for word in text.replace('"', " ").replace(",", " ").split() if word.isalnum() or "." in word]
    return text.replace(words[chance.integers(len(words))], new, 3) if words else text + new


def _quoted(path_or_text: str) -> str:
    return json.dumps(path_or_text)[1:-1]


# ---- JSON ------------------------------------------------------------------------------------------------------------


def _json(path: Path, chance: Chance) -> bool:
    """One value anywhere in the file replaced by one of another kind, or left out."""
    if path.suffix not in (".json", ".jsonl"):
        return False
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    some = int(chance.integers(len(lines)))
    lines[some] = json.dumps(replaced(json.loads(lines[some]), chance))
    path.write_text("\n".join(lines) + "\n")
    return True


def replaced(value: object, chance: Chance) -> object:
    """The same value with one node, drawn at random, made odd."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if not keys or chance.random() < 0.15:
        return ODD_VALUES[chance.integers(len(ODD_VALUES))]
    key = keys[chance.integers(len(keys))]
    changed = dict(value) if isinstance(value, dict) else list(value)  # type: ignore[call-overload]
    if chance.random() < 0.1:
        del changed[key]
    else:
        changed[key] = replaced(changed[key], chance)
    return changed


# ---- arrays ----------------------------------------------------------------------------------------------------------


def _array(path: Path, chance: Chance) -> bool:
    """An array of another shape or type; one of objects would run code when it is loaded."""
    if path.suffix == ".npy":
        path.write_bytes(odd_array(np.load(path), chance, owned(path.parent)))
        return True
    if path.suffix != ".npz":
        return False
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = list(members)[chance.integers(len(members))]
    members[name] = odd_array(np.load(io.BytesIO(members[name])), chance, owned(path.parent))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, raw in members.items():
            archive.writestr(each, raw)
    return True


SHAPES = "() (-2,-3) (0,) (0,3,4) (1000000000000,4) (True,4) (2,3,4,5) (1,) (4294967297,)".split()
TYPES = ("<f8", "<i8", "|b1", "<U5", "|S3", "<c16", "<M8[s]", ">f4", "<f2", "|V8", "<i1")


def odd_array(array: np.ndarray, chance: Chance, mark: Path) -> bytes:
    """The bytes of a .npy file that is not what it was."""
    kind = chance.integers(5)
    if kind == 0:
        return npy("|O", f"({len(array) if array.ndim else 1},)", pickle.dumps([Bomb(mark)]))
    if kind == 1:
        return npy(array.dtype.str, SHAPES[chance.integers(len(SHAPES))], array.tobytes())
    if kind == 2:
        return npy(TYPES[chance.integers(len(TYPES))], str(array.shape), array.tobytes())
    if kind == 3 and array.dtype.kind == "f":
        return _saved(np.where(chance.random(array.shape) < 0.3, [np.nan, np.inf, -1e38][chance.integers(3)], array))
    return _saved(array[: len(array) // 2] if array.ndim and chance.random() < 0.5 else -array.astype(np.float64) * 1e6)


def npy(descr: str, shape: str, body: bytes) -> bytes:
    """A .npy file whose header says anything."""
    head = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + body


def _saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


# ---- places ----------------------------------------------------------------------------------------------------------


def _pipe(path: Path, chance: Chance) -> bool:
    path.unlink()
    os.mkfifo(path)
    return True


def _folder(path: Path, chance: Chance) -> bool:
    path.unlink()
    path.mkdir()
    return True


def _link_out(path: Path, chance: Chance) -> bool:
    path.unlink()
    path.symlink_to(("../../../secret.txt", "/etc/passwd", path.name, "/dev/zero")[chance.integers(4)])
    return True


def _gone(path: Path, chance: Chance) -> bool:
    path.unlink()
    return True


def _renamed(path: Path, chance: Chance) -> bool:
    path.rename(path.with_name(f"\x1b]0;owned\x07\n{path.name}"))
    return True


def _as_other(path: Path, chance: Chance) -> bool:
    """Another file of the folder under this one's name."""
    others = [one for one in path.parent.iterdir() if one.is_file() and one != path]
    if others:
        shutil.copyfile(others[chance.integers(len(others))], path)
    return bool(others)


WAYS: dict[str, Way] = {
    "cut": _bytes(_cut),
    "bits flipped": _bytes(_flip),
    "huge count": _bytes(_huge_count),
    "bytes inserted": _bytes(_insert),
    "zeros": _bytes(_zeros),
    "empty": _bytes(lambda raw, _: b""),
    "twice": _bytes(lambda raw, _: raw + raw),
    "noise": _bytes(lambda raw, chance: chance.bytes(len(raw))),
    "pickle": _bytes(lambda raw, _: pickle.dumps(Bomb(Path(os.devnull) / "owned"))),
    "wrong value": _json,
    "wrong array": _array,
    "UTF-16": _text(lambda text, _: text.encode("utf-16-le", "surrogatepass")),
    "Latin-1 bytes": _text(lambda text, chance: _with_word(text, chance, "caf\xe9").encode("latin-1", "replace")),
    "control characters": _text(lambda text, chance: _with_word(text, chance, _quoted(ESCAPE))),
    "raw controls": _text(lambda text, chance: _with_word(text, chance, ESCAPE)),
    "names that leave": _text(lambda text, chance: _with_word(text, chance, _quoted(str(chance.choice(OUTSIDE))))),
    "a stray quote": _text(lambda text, chance: _lines(text, chance, lambda line: line[:5] + '"' + line[5:])),
    "a long line": _text(lambda text, chance: _lines(text, chance, lambda line: line + " word" * 400_000)),
    "deep nesting": _text(lambda text, chance: _lines(text, chance, lambda _: "[" * DEEP + "]" * DEEP)),
    "huge number": _text(lambda text, chance: _with_word(text, chance, "9" * 5_000)),
    "a named pipe": _pipe,
    "a folder": _folder,
    "a link that leaves": _link_out,
    "gone": _gone,
    "a hostile name": _renamed,
    "another file": _as_other,
}


def damaged(folder: Path, way: str, chance: Chance) -> str:
    """One file below a folder damaged in a way; its name, or nothing where no file there can be."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    small = [path for path in files if path.suffix in TEXT | {".npy", ".npz"}]
    for path in chance.permutation(np.array(small + files, dtype=object)):  # what says things is hit more often
        if path.exists() and WAYS[way](path, chance):
            return path.relative_to(folder).as_posix()
    return ""
