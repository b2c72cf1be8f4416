"""A local page over the cache: builds, stages, reports, and what a running build does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuflow.base.errors import UsageError
from npuflow.base.extras import needs
from npuflow.cli._engine import JsonOption


def view(
    cache: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CACHE]", help="The cache to look at; else the usual one.", show_default=False
        ),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free port.")] = 8080,
    opened: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Serve the page on this machine until Ctrl-C. It follows builds while they run, and needs no network."""
    import asyncio
    import webbrowser

    from npuflow.cli._engine import store

    with needs(
        "the page needs the package aiohttp",
        kind=UsageError,
        hint="pip install 'npuflow[view]'",
        code="NF-RUN-025",
    ):
        from npuflow.apps.view.app import serve
    if cache is not None and not (cache / "store.json").is_file():
        raise UsageError(
            f'"{cache}" is not a cache',
            hint=f"npuflow cache stats shows where the usual one is; npuflow build --cache {cache} makes one",
            code="NF-RUN-026",
        )

    def started(address: str) -> None:
        if as_json:
            from npuflow.cli._events import emit

            emit({"event": "serving", "address": address, "name": "", "exact": ""})
        else:
            typer.echo(address)
        if opened:
            webbrowser.open(address)

    asyncio.run(serve(store(None, cache), port, started))
