"""Modules and files that code names while it runs: found where the name is a constant, refused elsewhere."""

from __future__ import annotations

import functools
from pathlib import Path

from npuflow.base.code_find import CodeError
from npuflow.base.code_loaded import LOADED
from npuflow.base.code_module import SourceModule
from npuflow.base.code_scope import Reference
from npuflow.base.digest import digest_file
from npuflow.base.errors import Where

IMPORTERS = {"importlib.import_module", "importlib.__import__", "builtins.__import__"}
LOADERS = {"runpy.run_path", "runpy.run_module", "importlib.util.spec_from_file_location",
           "importlib.util.module_from_spec", "importlib.machinery.SourceFileLoader"}
READERS = {"importlib.resources", "pkgutil.get_data"}


def imported(module: SourceModule, ref: Reference, what: str) -> str:
    """The full name of the module that a call of an importer gives as a constant."""
    if ref.how != "call" or ref.const is None:
        raise _dynamic(module, ref, what)
    target = ref.const
    if target.startswith("."):
        parts = module.package.split(".")
        level = len(target) - len(target.lstrip("."))
        target = ".".join([*parts[: len(parts) - level + 1], target.lstrip(".")]).rstrip(".")
    return target


def declared_file(module: SourceModule, ref: Reference) -> tuple[Path, str]:
    """The path and content digest of a data file that a call of `package_file` names."""
    where = Where(file=str(module.path), line=ref.line)
    if ref.how != "call" or ref.const is None:
        raise CodeError(
            "package_file needs a constant string", where=where,
            because="a file named while running cannot enter the key beforehand", code="NF-CODE-005",
        )
    path = Path(module.path).parent / ref.const
    LOADED.read(str(path))
    try:
        return path, digest_file(path)
    except OSError as error:
        raise CodeError(
            f'the package file "{ref.const}" cannot be read: {error.strerror}',
            where=where, code="NF-CODE-006",
        ) from error


def refuse_readers(module: SourceModule, ref: Reference, full: str) -> None:
    """An error where a name of the standard library loads code or reads files that no key contains."""
    if full in LOADERS:
        raise _dynamic(module, ref, full)
    if refused(full):
        raise undeclared(module, ref, full)


@functools.cache
def refused(full: str) -> bool:
    """Whether a name of the standard library loads code or reads files."""
    return full in LOADERS or any(full == reader or full.startswith(reader + ".") for reader in READERS)


def _dynamic(module: SourceModule, ref: Reference, what: str) -> CodeError:
    return CodeError(
        f"{what} with a name known only while running", where=Where(file=str(module.path), line=ref.line),
        because="a stage's key contains the code it runs, and this code is not known beforehand",
        hint="a plain import, or a registry", code="NF-CODE-001",
    )


def undeclared(module: SourceModule, ref: Reference, what: str) -> CodeError:
    return CodeError(
        f"{what} refers to files that are in no key", where=Where(file=str(module.path), line=ref.line),
        because="a stage's key contains the data files that its code declares",
        hint='npuflow.base.code.package_file("NAME") for one file, relative to the Python file; a folder of '
        "data by its full path",
        code="NF-CODE-002",
    )
