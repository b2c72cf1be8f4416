"""The operators that npuflow has integers for."""

from __future__ import annotations

from typing import Annotated

import typer


def ops(
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line on standard output.")
    ] = False,
) -> None:
    """List the operators; `npuflow inspect MODEL --target T` shows which nodes of a model a target runs."""
    import sys

    from npuflow.base.registry import caption
    from npuflow.cli._events import emit
    from npuflow.ir.op import OPS

    for name in OPS.names():
        row = {
            "name": name,
            "onnx": OPS[name].onnx or OPS[name].__name__,
            "about": caption(sys.modules[OPS[name].__module__].__doc__),
        }
        if as_json:
            emit({"event": "operator", **row})
        else:
            typer.echo(f"{row['onnx']:18s} {row['about']}")
