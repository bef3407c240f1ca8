"""Where things are computed: the choice of a device and of a precision, and several processes as one.

With several processes, each holds the same weights and its share of a batch. Embeddings are gathered *with* gradients,
each process then computes the loss of the whole batch divided by the number of processes, and gradients are summed over
processes: the sum over processes of L / world is L, so whatever a method does between the gather and the loss, two
processes take the step that one would. (DistributedDataParallel is not used: it averages, and sees only what runs
inside a wrapped forward.) With one process these functions do nothing.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from itertools import groupby
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from matchlight.core import BadInput, Embedding, Embeddings, Items, Parts, Seed, pad_sets

MESSAGE = 1 << 23  # numbers of gradients that are summed over processes at once


def pick_device(name: str) -> torch.device:
    """`auto` is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise BadInput(f"--device {name}: auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadInput(f"--device {name}: this machine has no GPU that torch can use; auto or cpu would work")
    return device


def multiplies_in_bfloat16(*, unknown: bool = False) -> bool:
    """Whether this CPU has products in bfloat16 of its own: others are slower in it than in float."""
    known = getattr(torch.cpu, "_is_avx512_bf16_supported", None)  # torch says so since 2.7
    return unknown if known is None else bool(known())


def pick_precision(name: str, device: torch.device) -> str:
    """`auto` is bf16 where the GPU has it; TF32 products are allowed on any GPU unless fp32 was asked for."""
    if name not in ("auto", "fp32", "tf32", "bf16"):
        raise BadInput(f"--precision {name}: auto, fp32, tf32 or bf16")
    if name == "auto":
        name = "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
    if device.type == "cuda":
        torch.set_float32_matmul_precision("highest" if name == "fp32" else "high")
        torch.backends.cuda.enable_cudnn_sdp(
            False
        )  # it plans for every length of caption anew: 25 s in all, for nothing
    return name


def seed(number: int, *, shared: int | None = None) -> None:
    """`torch.manual_seed`, which also keeps a stack trace a call for each kind of device that this machine lacks.

    `shared` seeds `shared_draw`, where processes have numbers of their own.
    """
    _shared.manual_seed(number if shared is None else shared)
    if _has_accelerator():
        torch.manual_seed(number)
    else:
        torch.default_generator.manual_seed(number)


_shared = torch.Generator()


def shared_draw() -> Seed:
    """A seed for changes by item, which every process draws alike: each step of training seeds them anew."""
    if not _given:
        return int(torch.randint(1 << 31, (1,), generator=_shared))
    if (seed := next(_given[-1], None)) is None:
        raise RuntimeError("more draws than a recorded step has")
    return seed


_given: list[Iterator[Seed]] = []


@contextmanager
def draws_given(seeds: Iterable[Seed]) -> Iterator[None]:
    """In here `shared_draw` gives these seeds, one after the other: a recorded step reads them from the device."""
    _given.append(iter(seeds))
    try:
        yield
    finally:
        _given.pop()


@cache
def _has_accelerator() -> bool:
    return torch.cuda.is_available() or torch.backends.mps.is_available() or torch.xpu.is_available()


def start_processes(device: torch.device) -> torch.device:
    """Join the others when started by torchrun; Accelerate picks the backend and this process's device."""
    if int(os.environ.get("WORLD_SIZE", "1")) <= 1 or world() > 1:
        return device
    from accelerate import PartialState

    return PartialState(cpu=device.type == "cpu").device


_neighbours = 1


def share_machine(processes: int, *, on_device: int) -> None:
    """This process is one of several side by side: it takes its part of the cores and of a GPU's memory."""
    global _neighbours
    _neighbours = on_device
    torch.set_num_threads(threads_each(processes))


def threads_each(processes: int) -> int:
    """The threads of one of several processes."""
    return max(1, len(os.sched_getaffinity(0)) // processes) if hasattr(os, "sched_getaffinity") else 1


def neighbours() -> int:
    """How many processes compute on this one's device, as far as `share_machine` has said."""
    return _neighbours


def room_for_features(device: torch.device) -> int:
    """Bytes of a GPU that features may take: a quarter of what is free, half of the GPU for all that share it."""
    free, total = torch.cuda.mem_get_info(device)
    return int(min(free // 4, total // 2 // _neighbours)) if _neighbours > 1 else int(free // 4)


def free_memory() -> None:
    """What is no longer needed goes back to the GPU, where others compute as well."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def world() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Which of them this one is."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def shard(count: int) -> slice:
    """The share of `count` items that this process takes: contiguous, as equal as can be."""
    each, more = divmod(count, world())
    start = rank() * each + min(rank(), more)
    return slice(start, start + each + (rank() < more))


class _Gather(torch.autograd.Function):
    """All processes' rows, in rank order; backward sums what every process felt about this one's rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: list[int]) -> Tensor:  # type: ignore[override]
        ctx.start, ctx.stop = sum(sizes[: rank()]), sum(sizes[: rank() + 1])
        room = x.new_zeros(max(sizes), *x.shape[1:])
        room[: len(x)] = x
        parts = [torch.empty_like(room) for _ in sizes]
        dist.all_gather(parts, room.contiguous())
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        grad = grads[0].contiguous()
        dist.all_reduce(grad)
        return grad[ctx.start : ctx.stop], None


class _Total(torch.autograd.Function):
    """The sum over processes; its gradient is summed over processes too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        out = x.clone()
        dist.all_reduce(out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        grad = grads[0].clone()
        dist.all_reduce(grad)
        return grad


def total(x: Tensor) -> Tensor:
    """The sum over processes, with gradients."""
    return x if world() == 1 else _Total.apply(x)


def gather(x: Tensor, sizes: list[int]) -> Tensor:
    """All processes' rows of a tensor whose other dimensions agree, with gradients."""
    if world() == 1:
        return x
    if x.dtype == torch.bool:
        return gather(x.to(torch.uint8), sizes).bool()
    return _Gather.apply(x, sizes)


def _numbers(values: list[int], device: torch.device) -> list[list[int]]:
    mine = torch.tensor(values, device=device)
    parts = [torch.empty_like(mine) for _ in range(world())]
    dist.all_gather(parts, mine)
    return [part.tolist() for part in parts]


def gather_embeddings(embedding: Embeddings) -> Embeddings:
    """All processes' sets, padded to the widest set of any process."""
    if world() == 1:
        return embedding
    members = tuple(_gather_sets(part) for part in embedding.members)
    return Parts(members) if isinstance(embedding, Parts) else members[0]


def _gather_sets(embedding: Embedding) -> Embedding:
    seen = _numbers([len(embedding), embedding.vectors.shape[1]], embedding.vectors.device)
    sizes, wide = [count for count, _ in seen], max(width for _, width in seen)
    own, device = embedding.vectors.shape[1], embedding.vectors.device

    def whole(x: Tensor, *, follows: bool = True) -> Tensor:
        x = pad_sets([x], wide)[0] if follows else x
        return gather(x.to(device), sizes).to(x.device)  # lengths of captions stay on the CPU

    mask = None if embedding.mask is None else whole(embedding.mask)
    # extras with two axes are one vector an item; those with more may follow the sets
    extra = {k: whole(v, follows=v.dim() > 2 and v.shape[1] == own) for k, v in embedding.extra.items()}
    return Embedding(whole(embedding.vectors), mask, extra)


def gather_items(items: Items) -> Items:
    """All processes' ids, labels and word ids of one side; features and pixels stay where they are."""
    if world() == 1:
        return items
    tokens = items.x if items.x.dim() == 2 and not items.x.is_floating_point() else None
    seen = _numbers([len(items), 0 if tokens is None else tokens.shape[1]], items.id.device)
    sizes, wide = [count for count, _ in seen], max(width for _, width in seen)
    extra = {name: gather(value.to(items.id.device), sizes) for name, value in items.extra.items()}
    identity = gather(items.id, sizes)
    if tokens is None:
        return Items(identity[:, None], None, identity, extra)
    mask = tokens.new_ones(tokens.shape, dtype=torch.bool) if items.mask is None else items.mask
    x, real = (gather(pad_sets([part], wide)[0], sizes) for part in (tokens, mask))  # objectives may read words
    return Items(x, real, identity, extra)


def share_gradients(parameters: Iterable[Tensor]) -> None:
    """Sum gradients over processes; a parameter nobody used stays without one."""
    if world() == 1:
        return
    wanted = [p for p in parameters if p.requires_grad]
    used = torch.tensor([p.grad is not None for p in wanted], dtype=torch.int32, device=wanted[0].device)
    dist.all_reduce(used)
    shared = [p for p, count in zip(wanted, used.tolist(), strict=True) if count]
    for p in shared:
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    for message in _messages([p.grad for p in shared if p.grad is not None]):
        _sum_together(message)


def _messages(gradients: list[Tensor]) -> Iterator[list[Tensor]]:
    """Neighbours of one type and device, millions of numbers at a time: a message costs more than what is in it."""
    for _, alike in groupby(gradients, key=lambda grad: (grad.dtype, grad.device)):
        waiting: list[Tensor] = []
        for grad in alike:
            if waiting and sum(map(torch.numel, waiting)) + grad.numel() > MESSAGE:
                yield waiting
                waiting = []
            waiting.append(grad)
        yield waiting


def _sum_together(gradients: list[Tensor]) -> None:
    flat = torch.cat([grad.flatten() for grad in gradients])
    dist.all_reduce(flat)
    for grad, summed in zip(gradients, flat.split([grad.numel() for grad in gradients]), strict=True):
        grad.copy_(summed.view_as(grad))


def broadcast(value: Any) -> Any:
    """The first process's value (a mixture fitted once, a choice made once) for everybody."""
    if world() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def barrier() -> None:
    """Wait for everybody."""
    if world() > 1:
        dist.barrier()


# ---- when one of several processes ends ------------------------------------------------------------------------------


class ProcessLost(RuntimeError):
    """Another process of the group has ended, so this one cannot go on; the message is one line for a person."""


@contextmanager
def ending_together(kept: str) -> Iterator[None]:
    """While this lasts, the end of any process ends all of them, with one line for the group that ends in `kept`.

    Those that are left learn of it from torchrun, which sends them SIGTERM, or from an exchange that breaks off. The
    signal is waited for by a thread: the main one may be inside an exchange that never returns.
    """
    if world() == 1:
        yield
        return
    line = f"one of {world()} processes has ended, so all of them stop; {kept}"
    try:
        with _leaving_on_sigterm(line):
            yield
    except RuntimeError as problem:
        if isinstance(problem, dist.DistError) or "gloo" in str(problem) or "NCCL" in str(problem):
            raise ProcessLost(line) from problem
        raise


@contextmanager
def _leaving_on_sigterm(line: str) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only the main thread may ask for signals
        yield
        return
    read, write = os.pipe()
    os.set_blocking(write, False)

    def wait() -> None:
        while (got := os.read(read, 1)) != bytes([signal.SIGTERM]):
            if not got:
                return
        if is_first_to_say(line):
            print(f"matchlight: {line}", file=sys.stderr, flush=True)
        os._exit(1)  # files are replaced as a whole: nothing is lost that was saved

    before, signals = signal.signal(signal.SIGTERM, lambda *_: None), signal.set_wakeup_fd(write)
    threading.Thread(target=wait, daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(signals)
        signal.signal(signal.SIGTERM, before)
        os.close(write)  # ends the thread


def is_first_to_say(line: str) -> bool:
    """Whether no other process of the group has said this line yet: what all of them meet is told once."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) <= 1:
        return True
    place, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:  # a store that torchrun itself keeps, so it is there whichever process has ended
        store = dist.TCPStore(place, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=5))
        said = store.add(f"matchlight said {os.environ.get('TORCHELASTIC_RESTART_COUNT')} {line}", 1)
    except (RuntimeError, ValueError):
        return True
    return bool(said == 1)
