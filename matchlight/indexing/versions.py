"""An index on the disk: versions side by side, each whole and checksummed, and CURRENT, which names the one in use.

    INDEX/CURRENT            v0002 and the checksum of its manifest
    INDEX/v0002/             what is in use; manifest.json holds the size and checksum of every file of it
    INDEX/v0003.partial/     what is being built: half of it may be there, nobody reads it

A version is never changed. A change is a new version, built beside the old one (files that stay the same are linked,
not copied), flushed to the disk, renamed, and only then named in CURRENT: killed at any moment, it leaves the old one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import TypedDict

from matchlight import files, plugins
from matchlight.console import BadInput, track
from matchlight.files import Json
from matchlight.indexing.verified import Content, Verified, content, remember

FORMAT = 1
CURRENT, MANIFEST, PARTIAL = "CURRENT", "manifest.json", ".partial"
PLAN, HELD = "plan.json", "held.json"  # of a draft alone: what it is to become; files of the version in use that held
VERSION = re.compile(r"v(\d{4,})")
AGAIN = "build the index again"
BLOCK = 1 << 20
LARGE = 1 << 26  # bytes of an index that are not read again when it is opened, since it was written by this machine


class FileEntry(TypedDict):
    """What a manifest says of a file."""

    bytes: int
    sha256: str


class Manifest(TypedDict):
    """Every file of a version, by its path in the version's folder."""

    format: int
    files: dict[str, FileEntry]


def locked(root: Path, *, wait: bool = False) -> AbstractContextManager[None]:
    """Hold an index folder while changing it; a second process is refused, or waits for its turn."""
    return files.locked(root, "changing this index", wait=wait)


def is_index(root: Path) -> bool:
    """Whether a folder holds a finished index."""
    return (root / CURRENT).is_file()


def check_free(root: Path) -> None:
    """A folder with other things in it is left alone."""
    if not root.exists() or is_index(root):
        return
    if not root.is_dir() or any(not _ours(path) for path in root.iterdir()):
        raise BadInput(f"{root}: not empty and not an index; choose another -o")


def _ours(path: Path) -> bool:
    """A version, whole or not, a lock, a draft, or a database that an engine keeps beside the versions."""
    if VERSION.fullmatch(path.name.removesuffix(PARTIAL)) or path.name == files.LOCK or files.is_draft(path):
        return True
    return path.name in {f"{name}.db" for name in plugins.names("engines")}


# ---- reading ---------------------------------------------------------------------------------------------------------


def current(root: Path, *, verify: bool = True) -> tuple[Path, Manifest]:
    """The version in use and its manifest; `verify` compares the checksums of files that may have changed."""
    folder, digest = named(root)
    path = files.regular(folder / MANIFEST)
    try:
        raw = path.read_bytes()
        manifest: Manifest = json.loads(raw)
        made, listed = int(manifest["format"]), dict(manifest["files"])
        if any(type(entry["bytes"]) is not int or type(entry["sha256"]) is not str for entry in listed.values()):
            raise ValueError("a file without its size and checksum")
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file, and {root}/{CURRENT} names it; {AGAIN}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadInput(f"{path}: damaged; {AGAIN}") from None
    if made > FORMAT:
        raise BadInput(
            f"{root}: made by a newer Matchlight (format {made}, this one reads {FORMAT}); upgrade to read it"
        )
    if hashlib.sha256(raw).hexdigest() != digest:
        raise BadInput(f"{path}: damaged (its checksum does not hold); {AGAIN}")
    _check_sizes(folder, listed)
    if verify:
        _check_sums(folder, listed)
    return folder, manifest


def named(root: Path) -> tuple[Path, str]:
    """The folder that CURRENT names, and the checksum of its manifest."""
    path = root / CURRENT
    try:
        words = files.regular(path).read_text(encoding="ascii").split()
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(
            f"{root}: not an index (no {CURRENT}); `matchlight index RUN --data PATH -o {root}` makes one"
        ) from None
    except (UnicodeDecodeError, IsADirectoryError):
        words = []
    if len(words) != 2 or not VERSION.fullmatch(words[0]):
        raise BadInput(f"{path}: damaged; it should name a version and its checksum; {AGAIN}")
    return root / words[0], words[1]


def _check_sizes(folder: Path, listed: dict[str, FileEntry]) -> None:
    for name, entry in listed.items():
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts:
            raise BadInput(f"{folder / MANIFEST}: names a file outside the index; {AGAIN}")
        path = folder / name
        if not path.is_file():
            raise BadInput(f"{path}: missing; {AGAIN}")
        if (size := path.stat().st_size) != entry["bytes"]:
            raise BadInput(f"{path}: {size} bytes instead of {entry['bytes']}: cut or changed; {AGAIN}")


def _check_sums(folder: Path, listed: dict[str, FileEntry]) -> None:
    """Compare the checksums of all files that may have changed since they were last compared."""
    sums = {name: entry["sha256"] for name, entry in listed.items()}
    memory = Verified(folder, sums)
    changed = memory.unverified()
    with ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1))) as pool:
        computed = track(pool.map(lambda name: checksum(folder / name), changed), "checking the index", len(changed))
        for name, digest in zip(changed, computed, strict=True):
            if digest != sums[name]:
                raise BadInput(f"{folder / name}: damaged (its checksum does not hold); {AGAIN}")
    if changed:
        memory.remember()


def checksum(path: Path, *, flush: bool = False) -> str:
    """The sha256 of a file, which `flush` first brings to the disk."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if flush:
            os.fsync(file.fileno())
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


# ---- writing ---------------------------------------------------------------------------------------------------------


def draft(root: Path, plan: Mapping[str, object]) -> Path:
    """The folder to build the next version in: one that was left by the same plan, else a new one.

    Drafts of other plans are thrown away: they are half of something that nobody asks for any more.
    """
    kept = None
    for path in sorted(root.glob(f"v*{PARTIAL}")):
        if kept is None and _plan(path) == json.loads(json.dumps(plan)):
            kept = path
        else:
            shutil.rmtree(path)
    numbers = [int(match[1]) for path in root.iterdir() if (match := VERSION.fullmatch(path.name))]
    path = root / f"v{max(numbers, default=0) + 1:04d}{PARTIAL}"
    if kept is not None and kept != path:
        os.replace(kept, path)
    path.mkdir(exist_ok=True)
    files.write_json(path / HELD, _held(root))  # before any of them is linked, which changes what is known of them
    files.write_json(path / PLAN, plan)
    return path


def _held(root: Path) -> list[str]:
    """The files of the version in use whose checksums were found to hold."""
    try:
        folder, manifest = current(root, verify=False)
    except BadInput:
        return []
    sums = {name: entry["sha256"] for name, entry in manifest["files"].items()}
    return sorted(set(sums) - set(Verified(folder, sums).unverified()))


def _plan(path: Path) -> Json:
    try:
        plan: Json = json.loads((path / PLAN).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return plan


def link_tree(source: Path, target: Path) -> None:
    """The same files under another folder, linked where the disk can, else copied."""
    for path in sorted(source.rglob("*")):
        if path.is_file():
            link_file(path, target / path.relative_to(source))


def link_file(path: Path, place: Path) -> None:
    """One file more under another name."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    try:
        os.link(path, place)
    except OSError:  # a disk without links
        shutil.copy2(path, place)


def finish(partial: Path, root: Path) -> Path:
    """Make a draft the version in use; what was in use before is removed afterwards."""
    listed, sound = _listed(partial, root)
    files.write_json(partial / MANIFEST, {"format": FORMAT, "files": listed})
    digest = checksum(partial / MANIFEST, flush=True)
    for folder in [*(path for path in partial.rglob("*") if path.is_dir()), partial]:
        files.flush_folder(folder)
    for name in (HELD, PLAN):  # not before: a build killed up to here goes on with its shards
        (partial / name).unlink(missing_ok=True)
    final = partial.with_name(partial.name.removesuffix(PARTIAL))
    os.replace(partial, final)
    files.flush_folder(root)
    _point(root, f"{final.name} {digest}\n")
    for path in root.iterdir():
        if path != final and VERSION.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
    if sum(entry["bytes"] for entry in listed.values()) >= LARGE:
        remember(final, {name: listed[name]["sha256"] for name in listed if name in sound}, sound)
    return final


def _listed(partial: Path, root: Path) -> tuple[dict[str, FileEntry], dict[str, Content]]:
    """What the manifest says of each file; and those known to be sound, with what the file system says of them.

    A file of the version in use keeps its checksum, so that adding a little to much does not read it all; it is known
    to be sound if it was before.
    """
    listed: dict[str, FileEntry] = {}
    sound: dict[str, Content] = {}
    held = set(files.read_json(partial / HELD, "a draft")) if (partial / HELD).is_file() else set()
    linked = _in_use(root)
    for path in sorted(partial.rglob("*")):
        name = path.relative_to(partial).as_posix()
        if not path.is_file() or name in (MANIFEST, PLAN, HELD):
            continue
        about = content(path)
        before = linked.get(about)
        listed[name] = before or {"bytes": path.stat().st_size, "sha256": checksum(path, flush=True)}
        if before is None or name in held:
            sound[name] = about
    return listed, sound


def _in_use(root: Path) -> dict[Content, FileEntry]:
    """The files of the version in use, by what the file system says of them."""
    try:
        folder, manifest = current(root, verify=False)
    except BadInput:
        return {}
    return {content(folder / name): entry for name, entry in manifest["files"].items()}


def _point(root: Path, text: str) -> None:
    files.write_text(root / CURRENT, text, flush=True)
    files.flush_folder(root)
