"""Several processes that build one index, where `torchrun` has started them; without torch there is one."""

from __future__ import annotations

import os
import sys


def _together() -> bool:
    """Whether there may be others: processes of a group find each other by torch, so each has loaded it."""
    return "torch.distributed" in sys.modules


def join() -> None:
    """Find the others; a model that is not torch's is computed on the CPU."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        import torch

        from matchlight.devices import start_processes

        start_processes(torch.device("cpu"))


def rank() -> int:
    """Which of the processes this one is."""
    if not _together():
        return 0
    from matchlight import devices

    return devices.rank()


def world() -> int:
    """How many there are."""
    if not _together():
        return 1
    from matchlight import devices

    return devices.world()


def barrier() -> None:
    """Wait for everybody."""
    if _together():
        from matchlight import devices

        devices.barrier()


def broadcast(text: str) -> str:
    """What the first process says, for everybody."""
    if not _together():
        return text
    from matchlight import devices

    return str(devices.broadcast(text))
