"""The JSON Schema of recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuflow.cli._engine import JsonOption


def schema(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file instead.")] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Of the lines that verbs print with --json, instead of recipes.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write the JSON Schema of recipes, for editors that complete and check TOML, or of the lines of
    --json."""
    import json

    from npuflow.cli._engine import stages
    from npuflow.cli._events import emit, written
    from npuflow.cli._files import write_file
    from npuflow.cli._line_schema import line_schema
    from npuflow.cli._schema import recipe_schema

    made = line_schema() if lines else recipe_schema(stages())
    text = json.dumps(made, indent=2, ensure_ascii=False) + "\n"
    if output is not None:
        write_file(output, text)
        if as_json:
            written(output, "schema")
    elif as_json:
        emit({"event": "schema", "schema": made})
    else:
        typer.echo(text, nl=False)
