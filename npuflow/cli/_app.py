"""The typer application: a verb is a file of this folder, imported when it is called."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from npuflow.base.errors import InternalError, Interrupted, NpuflowError
from npuflow.cli import STOPPED, interrupted
from npuflow.cli._options import expanded


def verbs() -> list[str]:
    """The names of all verbs: one file each, names that start with an underscore excepted."""
    return sorted(
        p.stem.replace("_", "-") for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_")
    )


def application(only: str | None = None) -> typer.Typer:
    """The application with one verb, or with all of them."""
    app = typer.Typer(
        name="npuflow",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode="rich" if _styled() else None,
        help="Compile trained neural networks to NPU programs, the way a build system compiles source.",
    )
    app.callback()(_global)
    for name in [only] if only is not None else verbs():
        _add(app, name)
    return app


def _add(app: typer.Typer, name: str) -> None:
    """A verb file holds a function of its own name, or a `typer.Typer` called `app`
    for a verb with sub-verbs."""
    module: ModuleType = importlib.import_module(f"npuflow.cli.{name.replace('-', '_')}")
    group = getattr(module, "app", None)
    if isinstance(group, typer.Typer):
        app.add_typer(group, name=name, help=(module.__doc__ or "").strip())
        return
    function = getattr(module, name.replace("-", "_"), None)
    if function is None:
        raise InternalError(
            f'{module.__name__} does not define the verb "{name}"',
            hint=f'define a function "{name}" or a typer app', code="NF-INTERNAL-005",
        )
    app.command(name)(expanded(function))


def _print_version(wanted: bool) -> None:
    if wanted:
        from npuflow import __version__

        typer.echo(f"npuflow {__version__}")
        raise typer.Exit


def _global(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options that come before the verb."""


def _styled() -> bool:
    """Whether help is worth the time it takes to import rich."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def run(args: Sequence[str]) -> int:
    """Run one command line; every error a user can cause ends here as text."""
    from npuflow.cli._errors import show
    from npuflow.cli._parser import Fault, fault

    only = args[0] if args and args[0] in verbs() else None
    app = application(only)
    try:
        ended = app(args=list(args), prog_name="npuflow", obj={"argv": list(args)}, standalone_mode=False)
        # typer makes this code of a Ctrl-C, and says nothing; no verb gives it
        return interrupted() if ended == STOPPED else ended if isinstance(ended, int) else 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except Fault as found:
        error = fault(found, args)
        if error is not None:
            return show(error, as_json="--json" in args)
        typer.echo(str(found), err=True)
        return 2
    except Interrupted as stop:
        return interrupted(f"{stop.message}; {stop.hint}")
    except NpuflowError as error:
        return show(error, as_json="--json" in args)
    except (KeyboardInterrupt, typer.Abort):
        return interrupted()
    except BrokenPipeError:  # the reader went away (`| head`): no reason to complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        from npuflow.cli._errors import show_crash

        return show_crash(error, args)
