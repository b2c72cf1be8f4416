"""What a program was built from, out of the lock of its build: digests of model, data, code and recipe."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from npuflow import __version__
from npuflow.base.digest import digest
from npuflow.base.errors import StoreError, UsageError
from npuflow.cli._engine import store
from npuflow.cli._recorded import locks_in
from npuflow.flow.lock import Lock, LockedStep, parse
from npuflow.flow.store_writer import Writer
from npuflow.program.container import Body, write
from npuflow.stages.codegen import FILE, CompiledProgram

VERSION = 1
MODEL, SAMPLES, PACKAGE = "model", "samples", "package"      # stages
DIGESTS = ("model", "data", "code", "recipe")


def lock_beside(program: Path) -> Path | None:
    """The lock in the program's folder; None where there is none, or more than one."""
    found = locks_in(program.parent)
    return found[0] if len(found) == 1 else None


def provenance(
    path: Path, fingerprint: str, sections: Sequence[tuple[str, Body]], cache: Path | None
) -> dict[str, Any]:
    """The section's object. UsageError (NF-USAGE-394) where the lock is that of another program."""
    text, lock = _read(path)
    step = _made_by(lock, fingerprint, sections, cache)
    if step is None:
        raise UsageError(
            f'"{path.name}" is the lock of another program', code="NF-USAGE-394",
            because="the product that it states has another digest than this file",
            hint="--lock NAME.lock of the build that wrote the file, or --no-provenance; of several shapes "
            "--cache DIR too, where the build has its cache",
        )
    return {
        "version": VERSION, "npuflow": __version__, "build": path.stem, "program": step.output,
        **digests(lock), "libraries": _libraries(lock), "lock": f"sha256:{hashlib.sha256(text).hexdigest()}",
    }


def digests(lock: Lock) -> dict[str, str]:
    """Of the model's files, of all other files, of the code, and of all keys of the recipe with defaults."""
    files = {name: _of_kind(step, "files") for name, step in lock.steps.items()}
    config = {name: value for step in lock.steps.values() for name, value in _of_kind(step, "config").items()}
    data: dict[str, Any] = {name: rows for name, rows in files.items() if rows and name != MODEL}
    samples = lock.steps.get(SAMPLES)
    if samples is not None and samples.items is not None:
        data[SAMPLES] = {item: product for item, (_, product) in samples.items.items()}
    return {
        "model": digest(files.get(MODEL, {})), "data": digest(data), "code": digest(lock.code),
        "recipe": digest(config),
    }


def differences(held: Mapping[str, Any], path: Path) -> list[str]:
    """What of model, data, code and recipe is another in a lock."""
    own = digests(_read(path)[1])
    return [name for name in DIGESTS if held.get(name) != own[name]]


def _made_by(
    lock: Lock, fingerprint: str, sections: Sequence[tuple[str, Body]], cache: Path | None
) -> LockedStep | None:
    """The step of the lock that made the file with these sections. What the file of several shapes is stored
    with, the cache alone knows."""
    writer = Writer(None)
    with writer.stream(FILE) as sink:
        write(sink, fingerprint, [(name, [body]) for name, body in sections])
    made = writer.seal(CompiledProgram.__qualname__, {}, {"program": FILE}).digest
    packed = lock.steps.get(PACKAGE)
    if packed is None:
        return next((step for step in lock.steps.values() if step.output == made), None)
    try:
        held = store(None, cache).manifest(packed.output).files
    except StoreError:
        return None
    return packed if held.get(FILE) == writer.files[FILE] else None


def _read(path: Path) -> tuple[bytes, Lock]:
    try:
        text = path.read_bytes()
        return text, parse(text.decode(), path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f'cannot read the lock "{path}"', because=str(error), code="NF-USAGE-393") from None


def _of_kind(step: LockedStep, kind: str) -> dict[str, Any]:
    return {name: value for name, value in step.fields.items() if name.partition(".")[0] == kind}


def _libraries(lock: Lock) -> dict[str, Any]:
    found = {
        name.partition(".")[2]: value
        for step in lock.steps.values() for name, value in _of_kind(step, "libraries").items()
    }
    return dict(sorted(found.items()))
