"""What a folder holds, times left out: two of them are equal if a person could not tell which one was interrupted.

How long something took, and when, differs between any two runs of a command: the fields TIMES of JSON and CSV files,
elapsed time in a report, the dates inside a zip, the log inside a training state, where a run went on. An index's
manifest holds checksums of files with such fields; it is compared by the names in it, and those files by themselves.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import zipfile
from pathlib import Path

TIMES = {"seconds", "built", "resumed_from_step", "last_used", "milliseconds"}
LEFT_OUT = {".lock", "verified.json"}
VERSION = re.compile(r"^v\d{4}/")  # an index that is built once more is the next version
IN_WORDS = re.compile(r"\b\d[\d,.]* (?:s|ms|min|seconds|minutes)\b|<td[^>]*>\d+(?:\.\d+)? s</td>")


def contents(folder: Path) -> dict[str, str]:
    """Path -> a digest of what is in it, for every file below a folder, or for the one file."""
    if folder.is_file():
        return {folder.name: _digest(folder)}
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in LEFT_OUT)
    return {VERSION.sub("version/", path.relative_to(folder).as_posix()): _digest(path) for path in found}


def differences(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """The paths that are in one alone, or not the same."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _digest(path: Path) -> str:
    return hashlib.sha256(_without_times(path)).hexdigest()[:16]


def _without_times(path: Path) -> bytes:
    raw = path.read_bytes()
    if path.name == "manifest.json":
        return "\n".join(sorted(json.loads(raw)["files"])).encode()
    if path.name == "CURRENT":
        return b""  # a version's number, and the checksum of its manifest
    if path.suffix == ".json":
        return json.dumps(_pruned(json.loads(raw))).encode()
    if path.suffix == ".jsonl":
        return "\n".join(json.dumps(_pruned(json.loads(line))) for line in raw.splitlines()).encode()
    if path.suffix == ".csv":
        return _columns(raw.decode())
    if path.suffix == ".html":
        return IN_WORDS.sub("", raw.decode()).encode()
    if path.suffix == ".safetensors":
        return _state(raw)
    if path.suffix == ".npz":
        with zipfile.ZipFile(path) as archive:
            return b"".join(name.encode() + archive.read(name) for name in sorted(archive.namelist()))
    return raw


def _pruned(value: object) -> object:
    if isinstance(value, dict):
        return {name: _pruned(one) for name, one in value.items() if name not in TIMES}
    return [_pruned(one) for one in value] if isinstance(value, list) else value


def _state(raw: bytes) -> bytes:
    """A safetensors file; the tree that a training state keeps in its header is a dict of packed pairs."""
    end = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:end])
    tree = json.loads(header.get("__metadata__", {}).get("tree", "null"))
    header["__metadata__"] = _unpacked(tree)
    return json.dumps(header, sort_keys=True).encode() + raw[end:]


def _unpacked(value: object) -> object:
    if isinstance(value, dict) and isinstance(value.get("dict"), list):
        return [[name, _unpacked(one)] for name, one in value["dict"] if name not in TIMES]
    if isinstance(value, dict):
        return {name: _unpacked(one) for name, one in value.items()}
    return [_unpacked(one) for one in value] if isinstance(value, list) else value


def _columns(text: str) -> bytes:
    rows = [{name: one for name, one in row.items() if name not in TIMES} for row in csv.DictReader(io.StringIO(text))]
    return json.dumps(rows).encode()
