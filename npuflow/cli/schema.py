"""The JSON Schema of recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def schema(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file instead.")] = None,
) -> None:
    """Write the JSON Schema of recipes, for editors that complete and check TOML."""
    import json

    from npuflow.cli._engine import stages
    from npuflow.cli._files import write_file
    from npuflow.cli._schema import recipe_schema

    text = json.dumps(recipe_schema(stages()), indent=2, ensure_ascii=False) + "\n"
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_file(output, text)
