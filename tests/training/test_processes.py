"""Several processes from shards: the model of one, whatever their number; the end of one is the end of all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from matchlight import devices
from matchlight.data import formats
from matchlight.pairs import Pairs
from matchlight.runs.train_run import train
from matchlight.training.trainer import Trainer
from tests.tiny import tiny_joint_model, tiny_pictures
from tests.two_processes import started, together

SETTINGS: dict[str, dict[str, object]] = {
    "vse_infty": {"dim": 16, "hidden": 8, "word_dim": 8, "pixels": 32, "harden": 1},
    "dual": {"rate": 1e-4},  # by pixels, with crops
    "ncr+": {"dim": 16, "hidden": 8, "word_dim": 8, "pixels": 32, "dropout": 0.0},
    "lantern": {"dim": 16, "hidden": 8, "word_dim": 8, "pixels": 32, "head_dim": 8, "dropout": 0.0},
}
# A bias before a BatchNorm, which takes it out again: Adam moves it by errors of rounding alone, and the mean follows.
UNFELT = ("first.bias", "norm.running_mean")
STOPPED = 5  # steps after which a run is stopped


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tiny_joint_model()  # before there are several processes: only one of them could write it
    return formats.write(tiny_pictures(), tmp_path_factory.mktemp("processes") / "shards", to="webdataset")


def trained(name: str, shards: Path, out: Path, **more: object) -> Path:
    given = {"preset": "small", "batch": 8, "epochs": 2, "select": "last", "device": "cpu", "stream": "always"}
    model = {"model": tiny_joint_model()} if name == "dual" else {}
    train(name, Pairs.read(shards), out, **{**given, **SETTINGS[name], **model, **more})  # type: ignore[arg-type]
    return out


def assert_same_model(one: Path, other: Path) -> None:
    ours, theirs = load_file(one / "model.safetensors"), load_file(other / "model.safetensors")
    for name in (name for name in ours if not name.endswith(UNFELT)):
        np.testing.assert_allclose(theirs[name].numpy(), ours[name].numpy(), rtol=1e-4, atol=1e-4, err_msg=name)


def _train_all(rank: int, names: list[str], shards: Path, folder: Path) -> None:
    for name in names:
        trained(name, shards, folder / name)


def _stop(rank: int, shards: Path, out: Path) -> None:
    step = Trainer._step

    def until(self: Trainer, *given: object) -> None:
        if self.total_steps == STOPPED:
            self.save()
            self.writer.flush()
            raise KeyboardInterrupt
        step(self, *given)  # type: ignore[arg-type]

    Trainer._step = until  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        trained("vse_infty", shards, out)
    Trainer._step = step  # type: ignore[method-assign]


@pytest.mark.parametrize("name", ["vse_infty", "dual"])
def test_two_processes_train_from_shards_to_the_model_of_one(name: str, shards: Path, tmp_path: Path) -> None:
    together(_train_all, [name], shards, tmp_path / "two")
    assert_same_model(trained(name, shards, tmp_path / "one"), tmp_path / "two" / name)


def test_a_run_that_two_processes_began_goes_on_with_one(shards: Path, tmp_path: Path) -> None:
    together(_stop, shards, tmp_path / "begun")
    whole = trained("vse_infty", shards, tmp_path / "whole")
    assert_same_model(whole, trained("vse_infty", shards, tmp_path / "begun", resume=True))
    log = [json.loads(line) for line in (tmp_path / "begun" / "log.jsonl").read_text().splitlines()]
    assert [line.get("resumed_from_step") for line in log] == [None, STOPPED]


@pytest.mark.full
@pytest.mark.parametrize("count", [2, 4])
def test_any_number_of_processes_trains_every_method_to_the_model_of_one(
    count: int, shards: Path, tmp_path: Path
) -> None:
    together(_train_all, list(SETTINGS), shards, tmp_path / "several", count=count)
    for name in SETTINGS:
        assert_same_model(trained(name, shards, tmp_path / "one" / name), tmp_path / "several" / name)


# ---- the end of one --------------------------------------------------------------------------------------------------


LINE = "one of 2 processes has ended, so all of them stop; run keeps what was saved"


def _end_one(rank: int, folder: Path) -> None:
    try:
        with devices.ending_together("run keeps what was saved"):
            devices.total(torch.ones(1))
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            while True:
                devices.total(torch.ones(1))
    except devices.ProcessLost as lost:
        (folder / "said").write_text(str(lost))
        raise


def test_a_process_whose_partner_was_killed_ends_with_one_line(tmp_path: Path) -> None:
    processes = started(tmp_path, _end_one, tmp_path).processes
    for process in processes:
        process.join(60)
    assert processes[1].exitcode == -signal.SIGKILL and processes[0].exitcode == 1
    assert (tmp_path / "said").read_text() == LINE


def _wait_for_ever(rank: int, folder: Path) -> None:
    os.dup2(os.open(folder / f"{rank}.txt", os.O_CREAT | os.O_WRONLY), 2)
    with devices.ending_together("run keeps what was saved"):
        devices.total(torch.ones(1))
        (folder / f"{rank}.here").touch()
        if rank == 1:
            time.sleep(600)
        devices.total(torch.ones(1))  # the other never comes


def test_sigterm_ends_a_process_that_waits_for_another_with_one_line(tmp_path: Path) -> None:
    first, second = started(tmp_path, _wait_for_ever, tmp_path).processes
    while not all((tmp_path / f"{rank}.here").exists() for rank in (0, 1)):
        assert first.is_alive()
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGTERM)
    first.join(60)
    assert first.exitcode == 1
    assert (tmp_path / "0.txt").read_text().splitlines() == [f"matchlight: {LINE}"]
    second.kill()
    second.join(60)


@pytest.fixture
def torchrun(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The store that torchrun keeps for a group of two."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=20))
    named = {"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    yield
    del store


def test_what_all_processes_meet_is_said_by_one_of_them(torchrun: None, capsys: pytest.CaptureFixture[str]) -> None:
    from matchlight.cli.errors import report
    from matchlight.core import BadInput

    assert [devices.is_first_to_say("a line") for _ in range(3)] == [True, False, False]
    assert [report(BadInput("no such file")) for _ in range(2)] == [2, 2]
    assert [report(devices.ProcessLost("one has ended")) for _ in range(2)] == [1, 1]
    assert capsys.readouterr().err.splitlines() == ["matchlight: no such file", "matchlight: one has ended"]


def test_alone_every_line_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert devices.is_first_to_say("a line") and devices.is_first_to_say("a line")


@pytest.mark.full
def test_under_torchrun_a_killed_process_ends_the_group_and_other_numbers_go_on(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "processes.py"
    command = [sys.executable, str(script), "--folder", str(tmp_path / "work"), "--methods", "none"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    killed = [line for line in said if line.startswith("one of 2 processes killed")]
    assert len(killed) == 2 and all("exit 1 after" in line and "1 line of ours" in line for line in killed)
    apart = [float(line.split("differ by ")[1].split()[0]) for line in said if line.startswith("resumed by")]
    assert len(apart) == 2 and max(apart) < 1e-4


def test_gradients_travel_together_up_to_the_size_of_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "MESSAGE", 5)
    gradients = [torch.ones(2), torch.ones(3), torch.ones(4), torch.ones(1, dtype=torch.float16), torch.ones(9)]
    assert [[len(grad) for grad in message] for message in devices._messages(gradients)] == [[2, 3], [4], [1], [9]]
    assert list(devices._messages([])) == []
