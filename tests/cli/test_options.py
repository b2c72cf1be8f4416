"""Options of a verb as a dataclass: the command line has an option for each field, the verb gets them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from npuflow.cli._options import expanded


@dataclass(frozen=True)
class Asked:
    times: Annotated[int, typer.Option("--times", "-t", min=1, help="How often.")] = 1
    loud: Annotated[bool, typer.Option("--loud")] = False


def greet(name: Annotated[str, typer.Argument()], asked: Asked) -> None:
    """Greets."""
    typer.echo(f"{name} {asked}")


def run(*words: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(expanded(greet))
    found = CliRunner().invoke(app, list(words))
    return found.exit_code, found.output


def test_fields_are_options_with_their_defaults() -> None:
    assert run("x") == (0, f"x {Asked()}\n")
    assert run("x", "-t", "3", "--loud") == (0, f"x {Asked(3, True)}\n")


def test_help_and_ranges_are_those_of_the_fields() -> None:
    code, text = run("--help")
    assert code == 0 and "Greets." in text and "How often." in text
    assert run("x", "--times", "0")[0] == 2


def test_a_verb_without_options_stays_as_it_is() -> None:
    assert expanded(run) is run
