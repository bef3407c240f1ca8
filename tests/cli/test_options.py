"""A command with many options takes them as one dataclass; Typer sees a parameter a field."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from matchlight.cli import app
from matchlight.cli.options import command_of

MOST = 8  # parameters a person can read


@dataclass(kw_only=True)
class Wanted:
    """Two of them."""

    count: Annotated[int, typer.Option("--count", "-c", min=1, help="How many.")]
    name: Annotated[str, typer.Argument(help="Who.")] = "you"


def small_app() -> typer.Typer:
    small = typer.Typer()

    @small.command()
    @command_of(Wanted)
    def greet(asked: Wanted) -> None:
        """Say hello."""
        typer.echo(f"{asked.name} x {asked.count + 1}")

    return small


def test_fields_become_options_with_their_types_bounds_and_defaults() -> None:
    runner = CliRunner()
    assert runner.invoke(small_app(), ["-c", "2"]).output == "you x 3\n"
    assert runner.invoke(small_app(), ["--count", "2", "Ann"]).output == "Ann x 3\n"
    assert runner.invoke(small_app(), ["--count", "0"]).exit_code == 2
    assert runner.invoke(small_app(), []).exit_code == 2
    told = runner.invoke(small_app(), ["--help"]).output
    assert "Say hello." in told and "How many." in told and "Who." in told


def written(command: typer.models.CommandInfo) -> int:
    """Parameters of a command as it is written: one where they are a dataclass."""
    call = command.callback
    assert call is not None
    return 1 if hasattr(call, "__signature__") else len(inspect.signature(call).parameters)


def test_no_command_has_a_signature_longer_than_a_person_reads() -> None:
    groups = [app, *(group.typer_instance for group in app.registered_groups)]
    long = {c.callback.__name__: written(c) for g in groups for c in g.registered_commands if written(c) > MOST}
    assert not long
