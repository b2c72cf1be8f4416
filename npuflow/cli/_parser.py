"""Reports faults of the command line as errors with a code.
An unknown verb or option, an argument that is missing or wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import typer

from npuflow.base.errors import UsageError, nearest, suggestion

# typer's own class of all faults of a command line
Fault: type[Exception] = typer.BadParameter.__bases__[0]


def fault(found: Any, args: Sequence[str]) -> UsageError | None:
    """The parser's fault as an error; None where it only prints the help of a verb that
    was called without anything."""
    kind = type(found).__name__
    context, message = getattr(found, "ctx", None), str(getattr(found, "message", found)).rstrip(".")
    verb = args[0] if args and not args[0].startswith("-") else ""
    command = getattr(context, "command_path", None) or f"npuflow {verb}".strip()
    help_ = f"{command} --help"
    if kind == "NoArgsIsHelpError":
        return None
    if kind == "NoSuchOption":
        close = nearest(found.option_name, _options(context))
        hint = f"{close}, or {help_}" if close else help_
        return UsageError(f'{command} has no option "{found.option_name}"', hint=hint, code="NF-USAGE-064")
    if kind == "MissingParameter":
        return UsageError(f"{command}: {_called(found.param)} is missing", hint=help_, code="NF-USAGE-065")
    if kind == "BadOptionUsage":
        said = message[:1].lower() + message[1:].replace("'", "")
        return UsageError(f"{command} cannot read an option: {said}", hint=help_, code="NF-USAGE-066")
    if kind == "BadParameter":
        return UsageError(
            f"{command}: {_called(found.param)} has a wrong value",
            because=message,
            hint=help_,
            code="NF-USAGE-067",
        )
    verbs = _verbs(context)
    wrong = next((a for a in args if verbs and f"'{a}'" in message), None)
    if wrong is not None:
        hint = suggestion(wrong, verbs, most=40)
        hint = hint if nearest(wrong, verbs) else f"{hint}; {help_} says what each does"
        return UsageError(f'{command} has no verb "{wrong}"', hint=hint, code="NF-USAGE-068")
    return UsageError(
        "the command line cannot be read",
        because=message[:1].lower() + message[1:],
        hint=help_,
        code="NF-USAGE-069",
    )


def _options(context: Any) -> list[str]:
    """Every spelling of the options of a command."""
    known = getattr(getattr(context, "command", None), "params", ())
    return [name for one in known for name in (*one.opts, *one.secondary_opts) if name.startswith("--")]


def _verbs(context: Any) -> list[str]:
    """The verbs of a group of commands; nothing of a command."""
    command: Any = getattr(context, "command", None)
    return list(command.list_commands(context)) if hasattr(command, "list_commands") else []


def _called(parameter: Any) -> str:
    """A parameter as the help calls it."""
    if parameter is None:
        return "an argument"
    if parameter.param_type_name == "option":
        return str(max(parameter.opts, key=len))
    name = str(parameter.metavar or parameter.name).strip("{}")
    return name[1:-1] if re.fullmatch(r"\[[^][]*\]", name) else name
