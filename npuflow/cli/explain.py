"""What an error code means: its message, the likely cause, and what to try."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from npuflow.cli._catalogue import ErrorEntry


def explain(
    code: Annotated[
        str | None,
        typer.Argument(metavar="[CODE]", help="NF-AREA-NNN, as an error prints it.", show_default=False),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line on standard output.")
    ] = False,
) -> None:
    """Explain an error code; without one, list all of them by area."""
    from npuflow.cli._catalogue import catalogue
    from npuflow.cli._events import emit

    shown = [_named(code)] if code is not None else list(catalogue().values())
    if as_json:
        for entry in shown:
            emit({"event": "code", **entry.as_dict()})
    elif code is not None:
        typer.echo("\n".join(_lines(shown[0])))
    else:
        area = ""
        for entry in shown:
            if entry.area != area:
                typer.echo(f"{chr(10) if area else ''}{entry.area}: {entry.about}")
                area = entry.area
            typer.echo(f"  {entry.code:<16} {entry.messages[0]}")


def _named(code: str) -> ErrorEntry:
    """The entry of a code, in any case and also without `NF-`."""
    from npuflow.base.errors import UsageError, suggestion
    from npuflow.cli._catalogue import CODE, catalogue

    area, _, number = code.upper().removeprefix("NF-").partition("-")
    name = f"NF-{area}-{number.zfill(3)}"
    found = catalogue(name) if CODE.fullmatch(name) else {}
    if name not in found:
        hint = suggestion(name, list(catalogue()))
        raise UsageError(f'there is no error code "{code}"', hint=hint, code="NF-USAGE-063")
    return found[name]


def _lines(entry: ErrorEntry) -> list[str]:
    from npuflow.cli._codes import EXPLAINED

    text = [
        f"{entry.code}  {entry.messages[0]}",
        *(f"{'':<{len(entry.code)}}  {m}" for m in entry.messages[1:]),
        "",
    ]
    text += [EXPLAINED[entry.code], ""] if entry.code in EXPLAINED else []
    for label, parts in (("because", entry.because), ("try", entry.hints)):
        for number, part in enumerate(parts):
            head, *more = part.splitlines()
            text.append(f"  {label if number == 0 else '':<8} {head}")
            text += [f"  {'':<8} {line}" for line in more]
    text += [""] if entry.because or entry.hints else []
    return [*text, entry.about]
