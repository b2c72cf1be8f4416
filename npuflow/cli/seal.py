"""Seal programs with a key, check seals, and show what a program was made of."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuflow.base.errors import UsageError, Where
from npuflow.cli._engine import CacheOption
from npuflow.cli._events import emit

if TYPE_CHECKING:
    from npuflow.program.container import Body

PASSWORD = "NPUFLOW_KEY_PASSWORD"


@dataclass(frozen=True)
class SealOptions:
    """What is done with the file, and with which keys."""

    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="KEY", help="Seal the file with this private key of Ed25519."),
    ] = None
    check: Annotated[
        list[str] | None,
        typer.Option(
            "--check", metavar="KEY",
            help="Fail unless it is sealed with this public key: a file, or ed25519:... May be repeated.",
        ),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option("--to", "-o", metavar="FILE", help="With --key: the file to write, instead of PROGRAM."),
    ] = None
    lock: Annotated[
        Path | None,
        typer.Option(
            "--lock", metavar="NAME.lock",
            help="With --key: the build that the file states, else the lock beside it. Alone or with "
            "--check: fail unless model, data, code and recipe are those of this build.",
        ),
    ] = None
    bare: Annotated[
        bool, typer.Option("--no-provenance", help="With --key: state no build.")
    ] = False
    new_key: Annotated[
        bool,
        typer.Option("--new-key", help="PROGRAM is a private key to make, and PROGRAM.pub its public one."),
    ] = False
    cache: CacheOption = None
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False


def seal(
    program: Annotated[
        Path, typer.Argument(metavar="PROGRAM", help="A .npu file.", show_default=False)
    ],
    options: SealOptions,
) -> None:
    """Sign a program (--key), check its seal (--check), or show who sealed it and what it was made of.
    `npuflow run`, `serve` and `npuflow.Runner` refuse others with --require-key KEY.

    A seal covers every byte. Keys are PEM or OpenSSH files; NPUFLOW_KEY_PASSWORD opens an encrypted one."""
    if options.new_key:
        _say({"event": "key", **_new_key(program)}, options.as_json)
        return
    asked = [name for name, given in (("--to", options.out), ("--no-provenance", options.bare)) if given]
    if options.key is None and asked:
        raise UsageError(f"{asked[0]} is for sealing", hint="--key KEY", code="NF-USAGE-395")
    if options.key is not None and options.check:
        raise UsageError(
            "--check is for a sealed file, --key seals one", hint="two commands", code="NF-USAGE-396"
        )
    facts = _seal(program, options) if options.key is not None else _checked(program, options)
    _say({"event": "seal", **facts}, options.as_json)


def _new_key(path: Path) -> dict[str, Any]:
    """Write a pair of keys; neither over a file that is there."""
    from npuflow.cli._files import writing
    from npuflow.program.seal import key_pair, name_of, public_key

    public = path.with_name(f"{path.name}.pub")
    for one in (path, public):
        if one.exists():
            raise UsageError(f'"{one}" is there already', hint="name a new file", code="NF-USAGE-397")
    bodies = key_pair()
    for one, body, mode in ((path, bodies[0], 0o600), (public, bodies[1], 0o644)):
        with writing(one), os.fdopen(os.open(one, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
            file.write(body)
    return {"private": str(path), "public": str(public), "key": name_of(public_key(public))}


def _seal(program: Path, options: SealOptions) -> dict[str, Any]:
    from npuflow.cli._provenance import lock_beside, provenance
    from npuflow.program.container import PROVENANCE, SEAL, file_bytes, json_bytes, sections_of
    from npuflow.program.seal import name_of, private_key, sealed

    assert options.key is not None
    password = os.environ.get(PASSWORD)
    key = private_key(options.key, None if password is None else password.encode())
    fingerprint, parts = sections_of(memoryview(file_bytes(program)), Where(file=str(program)), True)
    sections: list[tuple[str, Body]] = [
        (name, body) for name, body in parts.items() if name not in (PROVENANCE, SEAL)
    ]
    stated = None
    if not options.bare:
        lock = options.lock or lock_beside(program)
        if lock is None:
            raise UsageError(
                f'there is no lock beside "{program}" to say what it was made of',
                hint="--lock NAME.lock of the build that wrote it, or --no-provenance", code="NF-USAGE-398",
            )
        stated = provenance(lock, fingerprint, sections, options.cache)
        sections.append((PROVENANCE, json_bytes(stated)))
    to = options.out or program
    _write(to, program, fingerprint, sealed(fingerprint, sections, key))
    return {
        "file": str(to), "status": "sealed", "key": name_of(key.public_key().public_bytes_raw()),
        "provenance": stated,
    }


def _write(
    to: Path, program: Path, fingerprint: str, sections: Sequence[tuple[str, Body]]
) -> None:
    """The file at once, in place of what is there: the program may be read, or mapped, meanwhile."""
    from npuflow.cli._files import writing
    from npuflow.program.container import write

    made = to.with_name(f".{to.name}.{os.getpid()}")
    with writing(to):
        try:
            with made.open("wb") as file:
                write(file, fingerprint, [(name, [body]) for name, body in sections])
            shutil.copymode(program, made)
            made.replace(to)
        finally:
            made.unlink(missing_ok=True)


def _checked(program: Path, options: SealOptions) -> dict[str, Any]:
    """What the file has; with keys, an error unless it is sealed with one of them."""
    from npuflow.program.container import file_bytes, sections_of
    from npuflow.program.seal import check_sealed, name_of, provenance_of

    where, body = Where(file=str(program)), file_bytes(program)
    _, parts = sections_of(memoryview(body), where, True)
    facts: dict[str, Any] = {
        "file": str(program), "status": "not sealed", "key": None, "provenance": provenance_of(parts, where),
    }
    if "seal" in parts or options.check:
        found = check_sealed(body, options.check or (), where)
        facts |= {"status": "trusted" if options.check else "intact", "key": name_of(found.key)}
    if options.lock is not None:
        from npuflow.cli._provenance import differences

        other = differences(facts["provenance"] or {}, options.lock)
        if other:
            raise UsageError(
                f'the file was not made of what "{options.lock.name}" states', where=where,
                because=f"other: {', '.join(other)}" if facts["provenance"] else "it states no build",
                hint="npuflow diff compares two locks", code="NF-USAGE-399",
            )
    return facts


STATED = ("build", "npuflow", "program", "model", "data", "code", "recipe", "lock")
"""Fields of the provenance that are printed as text. The JSON has the libraries, too."""
SAID = {
    "sealed": "sealed with {key}", "trusted": "sealed with {key}, which is trusted; no byte was changed",
    "intact": "sealed with {key}; no byte was changed. --check KEY says whether it is a key that you trust",
    "not sealed": "not sealed",
}


def _say(facts: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        emit(facts)
    elif facts["event"] == "key":
        typer.echo(f"wrote {facts['private']}, which stays with you, and {facts['public']}: {facts['key']}")
    else:
        typer.echo(f"{facts['file']}: {SAID[facts['status']].format(**facts)}")
        for name in STATED if facts["provenance"] else ():
            typer.echo(f"  {name:<10} {facts['provenance'].get(name, '')}")
