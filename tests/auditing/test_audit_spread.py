"""An audit that many processes share finds what one process finds, and does each shard once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from tiny import tiny_pairs

from matchlight.auditing import Audit, audit, spread_signals
from matchlight.auditing.better_partners import _best, best_in_blocks
from matchlight.auditing.shard_vectors import Kind, Side, added, equal_spread, principal, products, squares
from matchlight.auditing.signals import read
from matchlight.cli import main
from matchlight.cluster import data_parts
from matchlight.cluster.jobs import Item, Job, Lost, Shared, Unfinished, Work
from matchlight.cluster.ray_workers import RayWorkers
from matchlight.console import BadInput
from matchlight.data import formats
from matchlight.data.formats.sources import NpyFeatures
from matchlight.data.noise import mismatch
from matchlight.pairs import Pairs
from matchlight.parts.canonical_correlation import scaled_components

WORDS = {"captions": "words", "folds": 3}


@pytest.fixture
def pairs(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Pairs:
    """72 pictures, a fifth of the captions wrong; blocks so small that each stage has several."""
    monkeypatch.setattr(data_parts, "PART", 25)
    monkeypatch.setattr(spread_signals, "BLOCK", 20)
    whole = tiny_pairs(72, 2, held=0)
    told = [f"{caption} one{row % 37} two{row % 29}" for row, caption in enumerate(whole.captions)]
    whole = replace(whole, captions=told)  # no two of the same words: ranks of equals are a matter of rounding
    folder = tmp_path_factory.mktemp("noisy")
    formats.write(mismatch(whole, ratio=0.2, seed=1)[0], folder, to="npz")
    return Pairs.read(folder)


def test_two_workers_find_what_one_process_finds(workers: RayWorkers, pairs: Pairs, tmp_path: Path) -> None:
    one: Audit = audit(None, pairs, tmp_path / "one", **WORDS)
    many: Audit = audit(None, pairs, tmp_path / "many", workers=workers, **WORDS)
    kept, made = (read(folder / "signals.npz") for folder in (one.folder, many.folder))
    assert kept.keys() == made.keys()
    for name, value in kept.items():
        np.testing.assert_allclose(made[name], value, atol=2e-3 if value.dtype == np.float16 else 5e-4, err_msg=name)
    np.testing.assert_allclose(many.findings.score, one.findings.score, atol=1e-4)
    assert (many.findings.suspect == one.findings.suspect).all()
    assert many.summary["flagged"] == one.summary["flagged"] and not (many.folder / "work").exists()
    table = pq.read_table(many.folder / "findings")
    assert table["score"].to_pylist() == many.findings.score.tolist()
    assert table["caption"].to_pylist() == [pairs.captions[row] for row in many.findings.row]


@dataclass
class Counted:
    """Workers whose shards are counted, and that stop before a stage."""

    workers: RayWorkers
    stop: str = ""
    stages: list[str] = field(default_factory=list)

    def finish(
        self, work: Work[Shared, Item], shared: Shared, jobs: Iterable[Job[Item]], what: str, *, total: int
    ) -> list[Lost]:
        if what == self.stop:
            raise Unfinished("stopped")
        listed = list(jobs)
        self.stages += [what] * sum(not job.file.exists() for job in listed)
        return self.workers.finish(work, shared, listed, what, total=total)


def test_an_audit_that_was_stopped_goes_on_with_what_is_missing(
    workers: RayWorkers, pairs: Pairs, tmp_path: Path
) -> None:
    first, second, whole = Counted(workers, "scores-1"), Counted(workers), Counted(workers)
    with pytest.raises(Unfinished):
        audit(None, pairs, tmp_path / "out", workers=first, **WORDS)
    done = audit(None, pairs, tmp_path / "out", workers=second, **WORDS)
    assert "neighbours" in first.stages and set(second.stages) == {"scores-1", "moments-2", "scores-2"}
    again = audit(None, pairs, tmp_path / "whole", workers=whole, **WORDS)
    assert sorted(first.stages + second.stages) == sorted(whole.stages)
    np.testing.assert_array_equal(done.findings.score, again.findings.score)


@dataclass
class WithoutFirst(Counted):
    """Workers that cannot do the first part of the pictures."""

    def finish(
        self, work: Work[Shared, Item], shared: Shared, jobs: Iterable[Job[Item]], what: str, *, total: int
    ) -> list[Lost]:
        if what != "vectors of pictures":
            return super().finish(work, shared, jobs, what, total=total)
        first, *others = jobs
        return [Lost(first.name, "a broken disk"), *super().finish(work, shared, others, what, total=total)]


def test_pairs_of_a_shard_that_cannot_be_done_are_left_out_and_told(
    workers: RayWorkers, pairs: Pairs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = audit(None, pairs, tmp_path / "out", workers=WithoutFirst(workers), **WORDS)
    assert "1 of 3 shards left out:\n  pictures-00000: a broken disk\n" in capsys.readouterr().err
    signals = read(found.folder / "signals.npz")
    assert signals["lost"].tolist() == np.flatnonzero(pairs.picture < 25).tolist()
    assert len(signals["rows"]) == 144 - 50 and found.summary["pairs"] == 144


def test_the_command_writes_the_same_files_with_shards_of_findings_and_leaves_nothing_beside_them(
    workers: RayWorkers, pairs: Pairs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    formats.write(pairs, tmp_path / "data", to="npz")
    command = ["audit", "--data", str(tmp_path / "data"), "-o", str(tmp_path / "out"), "--engine", "ray"]
    assert main([*command, "--captions", "words", "--folds", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pairs"] == 144
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"pairs.csv", "summary.json", "report.html", "findings"} <= names
    assert {path.name for path in tmp_path.iterdir()} == {"data", "out"}  # what was needed for a moment is gone


def test_what_is_for_one_process_is_one_line(workers: RayWorkers, pairs: Pairs, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="an audit with quick models is for one process"):
        audit(None, pairs, tmp_path / "out", workers=workers, quick=True)
    assert not (tmp_path / "out").exists()


def test_sums_of_blocks_give_the_components_of_one_process(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(3, 2, size=(40, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    blocks = [np.arange(0, 7), np.arange(7, 40)]
    kind = Kind(NpyFeatures([tmp_path / "x.npy"]))
    kind = equal_spread(kind, added([squares(kind.scaled(some)) for some in blocks]))
    side = Side((kind,))
    centre, directions, scale = principal(added([products(side.reduced(some)) for some in blocks]), 4)
    ours = Side((kind,), centre, directions, scale).components(np.arange(40))
    standard = (x - x.mean(0)) / x.std(0, ddof=1) / 6**0.5
    theirs = scaled_components(torch.from_numpy(standard), most=4)
    torch.testing.assert_close((ours @ ours.T).float(), (theirs @ theirs.T).float(), atol=1e-4, rtol=1e-4)  # but signs


def test_the_best_of_blocks_are_the_best_of_all() -> None:
    generator = torch.Generator().manual_seed(1)
    queries, among = (torch.nn.functional.normalize(torch.randn(n, 8, generator=generator), dim=1) for n in (9, 31))
    own, mine, theirs = np.arange(9) * 2, np.arange(9) % 4, np.arange(31) % 4
    blocks = ((start, among[start : start + 10]) for start in range(0, 31, 10))
    for one, other in zip(
        best_in_blocks(queries, blocks, own, mine, theirs), _best(queries, among, own, mine, theirs), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5)
