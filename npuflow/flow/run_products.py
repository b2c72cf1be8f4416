"""Copies the products of a build out of the cache, to where the user looks for them."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from npuflow.base.errors import BuildError, InternalError, UsageError
from npuflow.flow import store_files as files
from npuflow.flow.refs import ArtifactRef, Ref
from npuflow.flow.store import Store
from npuflow.flow.store_manifest import file_digest


def publish(refs: Mapping[str, Ref], store: Store, folder: Path) -> dict[str, Path]:
    """Write every product that is missing or differs; each is a copy, so that
    editing it leaves the cache alone."""
    products: dict[str, Path] = {}
    given: dict[str, tuple[int, str]] = {}
    for stage, ref in refs.items():
        if not isinstance(ref, ArtifactRef):
            continue
        reader = store.open(ref.digest)
        for name, entry in reader.manifest.products.items():
            target = folder / entry
            file = reader.manifest.entries[entry]["file"]
            if given.get(name) == reader.manifest.files[file]:
                continue                      # a stage that refines another's artifact hands it on
            if name in products:
                raise InternalError(
                    f'two stages give a product "{name}"; the second is {stage}', code="NF-INTERNAL-025",
                )
            products[name], given[name] = target, reader.manifest.files[file]
            if not _same(target, reader.manifest.files[file]):
                _copy(reader.path(entry), target)
    return products


def _same(target: Path, wanted: tuple[int, str]) -> bool:
    try:
        return target.stat().st_size == wanted[0] and file_digest(target) == wanted
    except OSError:
        return False


def _copy(source: Path, target: Path) -> None:
    made = files.fresh(target.parent, f".{target.name}.")
    with _writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as read:       # a damaged cache is another fault than a folder that takes nothing
        try:
            with _writing(target), made.open("wb") as write:
                shutil.copyfileobj(read, write)
            with _writing(target):
                made.replace(target)
        finally:
            files.unlink(str(made))


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """The operating system's refusal, as the fault of the folder that was chosen."""
    try:
        yield
    except OSError as fault:
        hint = "every step is kept; choose another folder: --out DIR or [build] out"
        kind = BuildError if fault.errno in (errno.ENOSPC, errno.EDQUOT) else UsageError
        raise kind(f"cannot write the product {target}", because=str(fault), hint=hint) from fault
