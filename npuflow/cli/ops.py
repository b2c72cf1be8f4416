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
    import json
    import sys

    from npuflow.base.registry import caption
    from npuflow.ir.op import OPS

    for name in OPS.names():
        row = {
            "name": name,
            "onnx": OPS[name].onnx or OPS[name].__name__,
            "about": caption(sys.modules[OPS[name].__module__].__doc__),
        }
        typer.echo(json.dumps(row) if as_json else f"{row['onnx']:18s} {row['about']}")
