"""A data set of WebDataset or Parquet shards, read with the broken ones left out.

Each file is first read by a worker, whole, which may even die of it (a damaged Parquet file can end a process); the
table of names and captions is then made of those that could be read. Other data sets are one thing, and read as such.
"""

from __future__ import annotations

from pathlib import Path

from matchlight import files
from matchlight.cluster.jobs import Job, Lost, Workers, tell
from matchlight.data import formats
from matchlight.data.formats.detection import format_named, place_of
from matchlight.data.formats.hub_data import is_hub
from matchlight.pairs import Pairs


def read_on(workers: Workers, path: str | Path, work: Path) -> tuple[Pairs, list[Lost]]:
    """The data set, and its files that are broken; `work` is a folder that all machines see."""
    format, shards = shards_of(path)
    jobs = [Job(one.name, work / "readable" / _mark(one), one) for one in shards]
    lost = workers.finish(_look, format, jobs, "reading shards", total=len(jobs)) if len(shards) > 1 else []
    tell(lost, len(shards))
    left_out = tuple(one.name for one in lost)
    return (formats.read(path, without=left_out) if left_out else formats.read(path)), lost


def shards_of(path: str | Path) -> tuple[str, list[Path]]:
    """The format of a folder, and the files that can be read one by one; none of most data sets."""
    if is_hub(path) or not Path(path).is_dir():
        return "", []
    place, format = place_of(Path(path), None)
    return format.name, format.shards(place)


def _mark(shard: Path) -> str:
    about = shard.stat()
    return f"{shard.name}-{about.st_size}-{about.st_mtime_ns}.json"


def _look(format: str, shard: Path, draft: Path) -> None:
    """Read all that a shard says of its pictures."""
    read = format_named(format).read(shard, formats.Options(split="train"))  # no splits are dealt out: they take a look
    files.write_json(draft, {"pictures": len(read.names), "captions": len(read)})
