"""What differs between two builds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuflow.base.errors import UsageError
from npuflow.cli._engine import JsonOption


def diff(
    old: Annotated[
        Path, typer.Argument(metavar="A", help="A lock, or a folder with one.", show_default=False)
    ],
    new: Annotated[Path, typer.Argument(metavar="B", help="Another.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Compare two builds by their locks: every stage that differs, field by field."""
    from npuflow.cli._events import emit
    from npuflow.cli._why import plain, tree
    from npuflow.flow.explain import diff as compare
    from npuflow.flow.explain import shown
    from npuflow.flow.lock import parse

    locks = []
    for path in map(_lock, (old, new)):
        try:
            locks.append(parse(path.read_text(encoding="utf-8"), str(path)))
        except UnicodeDecodeError:
            raise UsageError(f"{path} is not a lock", because="it is not text", code="NF-USAGE-036") from None
    reasons = compare(*locks)
    if as_json:
        for reason in reasons:
            emit({"event": "difference", **plain(reason)})
        return
    for reason in reasons:
        output = reason.output
        reported = (
            f"   {shown(output.old)} -> {shown(output.new)}" if output is not None else "   the same product"
        )
        word = {"new": "only in B", "gone": "only in A", "same": "not deterministic"}.get(reason.status, "")
        typer.echo(f"{reason.stage}{reported}" + (f"   {word}" if word else ""))
        if reason.status == "changed":
            for line in tree(reason, "  "):
                typer.echo(line)
    if not reasons:
        typer.echo("no differences")


def _lock(path: Path) -> Path:
    """A lock file, also found by its folder or by the recipe beside whose output it lies."""
    if path.is_dir():
        found = [p for p in sorted(path.glob("*.lock")) if not p.name.endswith(".previous.lock")]
        if len(found) != 1:
            raise UsageError(f"{path} holds {len(found)} locks", hint="name the file", code="NF-USAGE-037")
        return found[0]
    if path.suffix == ".toml" and path.is_file():
        from npuflow.flow.recipe import load
        from npuflow.flow.recipe_build import Settings, lock_path

        path = lock_path(load(path), Settings())
    if not path.is_file():
        raise UsageError(
            f'no lock "{path}"', hint="a build writes NAME.lock beside its products", code="NF-USAGE-038",
        )
    return path
