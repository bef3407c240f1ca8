"""Ray: a local cluster that is started for one call, or one that is there already.

Shards are plain tasks of one CPU each, not actors: a pool of actors that takes every CPU waits for ever for one more,
and a dead actor has to be noticed by whoever asks it. What could wait for ever has a limit here: connecting, the first
worker, and the time in which no shard gets done. A worker that dies is replaced and its shard tried again.

The local cluster listens on this machine alone, has no dashboard, sends no statistics, and keeps its files in a folder
that goes away with it. Objects travel between Ray's processes as pickles: join only a cluster that you trust.
"""

from __future__ import annotations

import atexit
import os
import platform
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import TYPE_CHECKING

from matchlight import files
from matchlight.cluster.jobs import Item, Job, Lost, Shared, Unfinished, Work, do_once
from matchlight.console import VERSION, BadInput, progress

if TYPE_CHECKING:
    import ray

TRIES_AGAIN = 2  # after a worker died
CONNECT, FIRST = 20.0, 120.0  # seconds to reach a cluster, and until its first worker answers
LEAVE = 30.0  # seconds to end
PATIENCE = 3600.0  # seconds in which some shard must get done
OBJECTS = 512 << 20  # bytes of memory that a local cluster holds for what its processes send each other
LONGEST = 40  # letters of a folder below which Ray's sockets still have names that systems accept
LOCAL = {  # read by Ray when it is loaded and by the processes it starts
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # listen on this machine alone
    "RAY_task_oom_retries": str(TRIES_AGAIN),  # else a shard too large for the memory is tried for ever
    "RAY_worker_niceness": "0",  # else its workers wait for everybody else's
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@dataclass(frozen=True)
class RayWorkers:
    """A cluster that is open."""

    loaded: ModuleType
    cpus: int  # shards at once
    gpu: bool = False  # each takes a GPU
    patience: float = PATIENCE

    def finish(
        self, work: Work[Shared, Item], shared: Shared, jobs: Iterable[Job[Item]], what: str, *, total: int
    ) -> list[Lost]:
        """Do all jobs whose file is not there yet; those that could not be done come back."""
        remote = self.loaded.remote(do_once).options(num_cpus=1, num_gpus=int(self.gpu), max_retries=TRIES_AGAIN)
        held = self.loaded.put(shared)
        running: dict[ray.ObjectRef, Job[Item]] = {}
        lost: list[Lost] = []
        with progress() as bar:
            task = bar.add_task(what, total=total, note="")
            waiting = iter(jobs)
            try:
                while True:
                    while len(running) < self.cpus and (job := next(waiting, None)) is not None:
                        if job.file.exists():
                            bar.advance(task)
                        else:
                            running[remote.remote(work, held, job)] = job
                    if not running:
                        return lost
                    for place in self._next(list(running)):
                        lost += self._answer(place, running.pop(place))
                        bar.advance(task)
                        bar.update(task, note=f"{len(lost)} left out" if lost else "")
            finally:
                for place in running:
                    self.loaded.cancel(place, force=True)

    def _next(self, running: list[ray.ObjectRef]) -> list[ray.ObjectRef]:
        """Those that ended; one line where nothing does any more."""
        ended, _ = self.loaded.wait(running, num_returns=1, timeout=self.patience)
        if not ended:
            free = self.loaded.available_resources().get("CPU", 0)
            why = f"{len(running)} under way, {free:g} CPUs free; what is done is kept"
            raise Unfinished(f"no shard got done in {self.patience:g} s ({why}): a higher --patience waits longer")
        return list(ended)

    def _answer(self, place: ray.ObjectRef, job: Job[Item]) -> list[Lost]:
        try:
            answer: Lost | None = self.loaded.get(place)
        except self.loaded.exceptions.RayTaskError as error:  # it could not even begin
            last = (str(error).strip().splitlines() or ["no reason given"])[-1]
            return [Lost(job.name, f"no worker can read what it gets ({last[:200]})")]
        except self.loaded.exceptions.RayError as error:
            for path in job.file.parent.iterdir():  # nobody works on it any more, though the dead may not be buried yet
                if path.name.startswith(f".{job.file.stem}.") and files.is_draft(path):
                    path.unlink(missing_ok=True)
            return [Lost(job.name, f"its worker died {TRIES_AGAIN + 1} times ({type(error).__name__})")]
        if answer is not None and answer.fatal:
            raise Unfinished(answer.reason)
        return [] if answer is None else [answer]


@contextmanager
def ray_workers(
    address: str = "", *, cpus: int | None = None, gpu: bool = False, patience: float = PATIENCE
) -> Iterator[RayWorkers]:
    """A cluster to work with: the one at `address` (HOST:PORT, or auto: this machine's), or a local one for the block.

    `cpus` is how many shards are done at once (None: as many as there are CPUs), `gpu` gives each a GPU.
    """
    if not address and cpus is not None and cpus > (here := _cores()):
        raise BadInput(f"--workers {cpus}: this machine has {here} CPUs; --address names a larger cluster")
    loaded = _loaded(local=not address)
    ours = not loaded.is_initialized()
    folder = _short_folder() if ours and not address else None
    try:
        if folder is not None:
            _start(loaded, cpus or _cores(), folder, gpu=gpu)
        elif ours:
            _connect(loaded, address)
        yield RayWorkers(loaded, _checked(loaded, address, cpus, gpu=gpu), gpu, patience)
    finally:
        if ours:
            _leave(loaded)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _leave(loaded: ModuleType) -> None:
    """Disconnect, and end a local cluster; where Ray waits for a process that is dead, go without it."""
    leaving = Thread(target=loaded.shutdown, daemon=True)
    leaving.start()
    leaving.join(LEAVE)
    if leaving.is_alive():
        atexit.unregister(loaded.shutdown)  # it would wait again; the processes of a local cluster end with this one


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _loaded(*, local: bool) -> ModuleType:
    """Ray itself; its settings are read when it is loaded, and left alone where somebody else loaded it."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if local and "ray" not in sys.modules:
        os.environ.update({name: os.environ.get(name, value) for name, value in LOCAL.items()})
        if "RAY_AUTH_MODE" not in os.environ and "RAY_AUTH_TOKEN" not in os.environ:  # a secret of this process alone
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    try:
        import ray
    except ImportError:
        raise BadInput("--engine ray needs one more package: pip install 'matchlight[ray]'") from None
    return ray


def _short_folder() -> Path:
    """A folder for Ray's files; sockets in it must have names of at most a hundred letters."""
    usual = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="ray-", dir=usual if len(usual) <= LONGEST else "/tmp"))


def _start(loaded: ModuleType, cpus: int, folder: Path, *, gpu: bool) -> None:
    try:
        loaded.init(
            num_cpus=cpus,
            num_gpus=None if gpu else 0,
            include_dashboard=False,
            object_store_memory=OBJECTS,
            _node_ip_address="127.0.0.1",
            _temp_dir=str(folder),
            log_to_driver=False,
            logging_level="ERROR",
        )
    except (RuntimeError, OSError, TimeoutError, ValueError) as error:
        raise BadInput(f"Ray could not start a cluster on this machine: {_first_line(error)}") from None


def _connect(loaded: ModuleType, address: str) -> None:
    host, _, port = address.rpartition(":")
    if address != "auto" and not (host and port.isdecimal() and "/" not in host):
        raise BadInput(f"--address {address}: HOST:PORT of a cluster, or auto on one of its machines")
    try:
        if address != "auto":  # Ray itself would try for minutes
            socket.create_connection((host, int(port)), timeout=CONNECT).close()
        loaded.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (RuntimeError, OSError, OverflowError, ValueError) as error:
        hint = "" if "RAY_AUTH_MODE" in os.environ else "; one that asks for a token needs RAY_AUTH_MODE=token"
        raise BadInput(f"--address {address}: no Ray cluster answers there ({_first_line(error)}){hint}") from None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _checked(loaded: ModuleType, address: str, cpus: int | None, *, gpu: bool) -> int:
    """How many shards are done at once, after a worker has answered that it is of the same versions."""
    there = loaded.cluster_resources()
    have, what, option = (there.get("GPU", 0), "GPUs", "--device cuda") if gpu else (there.get("CPU", 0), "CPUs", "")
    where = f"the cluster at {address}" if address else "the local cluster"
    if (cpus or 1) > have:
        asked = f"--workers {cpus}" if cpus else option or "--engine ray"
        raise BadInput(f"{asked}: {where} has {have:g} {what}")
    probe = loaded.remote(_versions).options(num_cpus=1, num_gpus=int(gpu)).remote()
    try:
        theirs = loaded.get(probe, timeout=FIRST)
    except loaded.exceptions.GetTimeoutError:
        loaded.cancel(probe, force=True)
        free = loaded.available_resources().get("CPU", 0)
        taken = f"{there.get('CPU', 0):g} CPUs, {free:g} of them free"
        raise BadInput(f"no worker began within {FIRST:g} s: {where} has {taken}") from None
    except loaded.exceptions.RayError as error:
        raise BadInput(f"{where}: its workers cannot use Matchlight ({_first_line(error)}); install it there") from None
    if theirs != (mine := _versions()):
        raise BadInput(f"{where}: its workers have {theirs}, this process has {mine}; install the same")
    return cpus or int(have)


def _versions() -> str:
    return f"Matchlight {VERSION}, Python {'.'.join(platform.python_version_tuple()[:2])}"
