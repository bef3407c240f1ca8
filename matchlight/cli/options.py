"""What the commands' options have in common: some are shared, and a command with many takes them as one dataclass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar, get_type_hints

import typer
from typer.models import OptionInfo

from matchlight import plugins
from matchlight.cli.errors import nearest

if TYPE_CHECKING:
    from matchlight.cluster.ray_workers import RayWorkers
    from matchlight.pairs import Pairs

Given = TypeVar("Given")
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on stdout.")]

UNDERSTOOD = "Any data set that `matchlight data info` understands."
Data = Annotated[Path, typer.Option("--data", help=UNDERSTOOD)]
DataOrNone = Annotated[Path | None, typer.Option("--data", help=UNDERSTOOD)]
Vectors = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.npz|FOLDER",
        help="Vectors of all pictures and captions that were made already: arrays images and texts in the order of the "
        "data, or clip-retrieval's folder (img_emb/, text_emb/, metadata/), which needs no --data.",
    ),
]

Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        envvar="MATCHLIGHT_MILVUS_ADDRESS",
        show_envvar=True,
        help="The Milvus server of an index that was built with one.",
    ),
]


def data_set(data: Path | None, vectors: Path | None) -> Pairs:
    """The data set that was named, or the one that vectors bring with them."""
    from matchlight.console import BadInput
    from matchlight.inputs.given_vectors import data_of_vectors
    from matchlight.pairs import Pairs

    if data is not None:
        return Pairs.read(data)
    if vectors is None:
        raise BadInput("--data is missing: which data set? `matchlight data info PATH` says what a path holds")
    return data_of_vectors(vectors)


def choice(flag: str, names: Sequence[str], help: str, *, group: str | None = None) -> OptionInfo:
    """An option that takes one of some names, or a plug-in's of a group; a mistyped one gets the nearest as a hint."""

    def check(value: str | None) -> str | None:
        if value is None or value in names:
            return value
        known = [*names, *(plugins.added(group) if group else ())]
        if value in known:
            return value
        raise typer.BadParameter(f"{value!r} is none of {', '.join(known)}{nearest(value, known)}")

    option: OptionInfo = typer.Option(flag, metavar="|".join(names), help=help, callback=check)
    return option


@dataclass(kw_only=True)
class ClusterOptions:
    """The options of commands that many processes can share."""

    engine: Annotated[
        str | None,
        choice("--engine", ("ray",), "Divide the work into shards for many processes, here or on a Ray cluster."),
    ] = None
    address: Annotated[
        str,
        typer.Option(
            "--address",
            metavar="HOST:PORT|auto",
            help="With --engine: a Ray cluster; auto is the one this machine is part of, none starts one for the call.",
        ),
    ] = ""
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="With --engine: shards at once; default: one a CPU.")
    ] = None
    patience: Annotated[
        float, typer.Option("--patience", min=1.0, help="With --engine: seconds in which some shard must get done.")
    ] = 3600.0

    @property
    def spread(self) -> bool:
        """Whether many processes were asked for."""
        from matchlight.console import BadInput

        for option, value in (("--address", self.address), ("--workers", self.workers)):
            if value and self.engine is None:
                raise BadInput(f"{option} {value}: goes with --engine ray")
        return self.engine is not None

    @contextmanager
    def on_cluster(self, device: str) -> Iterator[RayWorkers]:
        """The processes that were asked for."""
        from matchlight.cluster.ray_workers import ray_workers

        gpu = device.startswith("cuda")
        with ray_workers(self.address, cpus=self.workers, gpu=gpu, patience=self.patience) as workers:
            yield workers


def command_of(options: type[Given]) -> Callable[[Callable[[Given], None]], Callable[..., None]]:
    """Turn a function of one dataclass into one with an argument a field, from which Typer reads the command line.

    A field is written as a parameter would be, `seed: Annotated[int, typer.Option(...)] = 0`, and the order of the
    fields is that of the help, with those that several commands share at the end.
    """
    hints = get_type_hints(options, include_extras=True)
    own = [field for field in fields(options) if field.name in options.__annotations__]  # type: ignore[arg-type]  # a dataclass, which
    shared = [field for field in fields(options) if field not in own]  # type: ignore[arg-type]  # TypeVar cannot say
    parameters = [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in (*own, *shared)
    ]

    def decorate(command: Callable[[Given], None]) -> Callable[..., None]:
        def call(**values: object) -> None:
            command(options(**values))

        call.__name__, call.__doc__, call.__module__ = command.__name__, command.__doc__, command.__module__
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # what `inspect` looks for first
        return call

    return decorate
