"""Errors as text: what, where, because, what to try; a traceback only for npuflow's own bugs."""

from __future__ import annotations

import json
import os
import shlex
import sys
import traceback
from collections.abc import Sequence

from npuflow.base.errors import InternalError, NpuflowError


def lines(error: NpuflowError) -> list[str]:
    """One error in lines: the message, then one aligned line for each thing that is known."""
    where = error.where
    first = f"{error.code}  {error.message}" if error.code else error.message
    file = where.file or ""
    place = f"{file}:{where.line}" if file and where.line else file
    parts = [p for p in (place, where.key) if p]
    rows = [(_label(file, where.key), "  ".join(parts))] if parts else []
    labels = (("stage", where.stage), ("item", where.item), ("node", where.node), ("value", where.value))
    inner = [f"{label} {text}" if number else text for number, (label, text) in enumerate(_known(labels))]
    if inner:
        rows.append((_known(labels)[0][0], "  ".join(inner)))
    rows += [("because", error.because)] if error.because else []
    rows += [("try", error.hint)] if error.hint else []
    text = [first]
    for label, value in rows:
        head, *more = value.splitlines() or [""]
        text.append(f"  {label:<8} {head}")
        text += [f"  {'':<8} {line}" for line in more]
    return text


def _label(file: str, key: str | None) -> str:
    """What a place is: a recipe's key, an option, or another file such as a program or a model."""
    if file.startswith("--"):
        return "option"
    return "recipe" if key or not file or file.endswith(".toml") else "file"


def _known(pairs: Sequence[tuple[str, str | None]]) -> list[tuple[str, str]]:
    return [(label, value) for label, value in pairs if value]


def show(error: NpuflowError, *, as_json: bool = False) -> int:
    """Print every fault of an error to standard error (and as JSON lines to standard
    output); its exit code."""
    faults = error.faults()
    for fault in faults:
        if as_json:
            event = {"event": "error", **fault.as_dict(), "exit": error.exit_code}
            sys.stdout.write(json.dumps(event, ensure_ascii=False, default=str) + "\n")
        first, *rest = lines(fault)
        sys.stderr.write("\n".join([f"{_red('error')}: {first}", *rest]) + "\n")
    if len(faults) > 1:
        sys.stderr.write(f"{len(faults)} faults\n")
    sys.stdout.flush()
    return error.exit_code


def show_crash(error: BaseException, args: Sequence[str]) -> int:
    """A bug of npuflow: the traceback, and what to put into the report."""
    traceback.print_exception(error)
    from npuflow import __version__

    command = " ".join(["npuflow", *map(shlex.quote, args)])
    bug = InternalError(
        f"a bug in npuflow {__version__}: {type(error).__name__}: {error}",
        hint=f"report the text above together with the recipe and the command: {command}",
        code="NF-INTERNAL-047",
    )
    return show(bug, as_json="--json" in args)


def _red(text: str) -> str:
    return f"\033[1;31m{text}\033[0m" if sys.stderr.isatty() and "NO_COLOR" not in os.environ else text
