"""Paths in recipes: relative to the file that wrote them, or inside an installed
package; known by content only."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npuflow.base.errors import InputError, suggestion
from npuflow.base.paths import kind_of, not_a_file


@dataclass(frozen=True)
class FilePath:
    """A file that a recipe names. It enters keys by its content; its text and place never do."""

    text: str
    path: Path

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __str__(self) -> str:
        return self.text

    @property
    def function(self) -> str:
        """The function that `python:module:function` names in the file; "" of a plain file."""
        return self.text.rpartition(":")[2] if self.text.startswith("python:") else ""

    def called(self) -> Callable[..., Any]:
        """That function, loaded; a DataError says what is wrong with it."""
        from npuflow.base.foreign import function

        module = self.text.removeprefix("python:").rpartition(":")[0]
        name = self.path.stem if module.endswith(".py") else module
        found, _ = function(name, self.function, self.path.parent, self.path)
        return found

    def digest(self) -> str:
        from npuflow.base.files import file_digest

        own = file_digest(self.path)
        return f"{own}:{self.function}" if self.function else own


@dataclass(frozen=True)
class Location:
    """A folder, pattern or other address that a recipe names, for a listing to interpret.

    It takes no part in keys: what the listing finds there (item ids, file digests, details) does. A stage
    that reads a `Location` itself, rather than through its listing, would read undeclared input.
    """

    text: str
    base: Path

    @property
    def path(self) -> Path:
        """The text as a path, `pkg:` and relative paths resolved; it need not exist
        and may hold wildcards."""
        return resolve(self.text, self.base)

    def __str__(self) -> str:
        return self.text


def resolve(text: str, base: Path) -> Path:
    """The path that `text` names when written in a file of folder `base`."""
    if text.startswith("pkg:"):
        return _in_package(text)
    return Path(os.path.normpath(base / Path(text).expanduser()))


def existing_file(text: str, base: Path, within: Callable[[], Sequence[str]] | None = None) -> FilePath:
    """A `FilePath` to a file that is there, or an error that says where it was looked for. A folder stands
    for the first of the files `within()` that is in it."""
    if text.startswith("python:"):
        return FilePath(text, _of_function(text, base))
    path = resolve(text, base)
    if path.is_file():
        return FilePath(text, path)
    if path.is_dir():
        names = within() if within is not None else ()
        inner = next((path / name for name in names if (path / name).is_file()), None)
        if inner is not None:
            return FilePath(text, inner)
        also = f", or a folder that holds {' or '.join(names)}" if names else ""
        raise InputError(
            f'"{text}" is a folder', because=f"a file is needed{also}; looked at {path}",
            code="NF-RECIPE-002",
        )
    hint = ""
    message, because = not_a_file(path, text)
    if kind_of(path):
        hint = "name a file"
    elif path.parent.is_dir():
        hint = suggestion(path.name, [p.name for p in path.parent.iterdir()], most=6)
        hint = f"{hint} in {path.parent}" if hint else ""
    else:
        hint = f"the folder {path.parent} does not exist either"
    raise InputError(message, because=because, hint=hint, code="NF-RECIPE-003")


def _of_function(text: str, base: Path) -> Path:
    """The file of the module of `python:module:function`: beside `base` or installed; nothing is imported."""
    from importlib.util import find_spec

    from npuflow.base.foreign import named

    module, _, folder = named(text, base)
    beside = folder / Path(*module.split(".")).with_suffix(".py")
    if beside.is_file():
        return beside
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise InputError(
            f'no Python module "{module}"', because=f"looked beside the recipe too: {beside}",
            code="NF-RECIPE-003",
        )
    return Path(spec.origin)


def _in_package(text: str) -> Path:
    """`pkg:NAME/FILE`, or `pkg:DISTRIBUTION==VERSION:NAME/FILE`, which says what to install: found by the
    import system's index, without importing the package.
    """
    from importlib.util import find_spec

    body = text.removeprefix("pkg:")
    requirement, colon, inside = body.partition(":")
    if not colon or "/" in requirement:
        requirement, inside = "", body
    name, slash, rest = inside.partition("/")
    if not name.isidentifier() or not slash or not rest:
        raise InputError(
            f'"{text}" is not a package file',
            hint='"pkg:NAME/FILE", NAME being a top-level package', code="NF-RECIPE-004",
        )
    spec = find_spec(name)
    if spec is None:
        raise InputError(
            f'the package "{name}" is not installed',
            hint=f"pip install {requirement or name}, or give a path", code="NF-RECIPE-005",
        )
    roots = list(spec.submodule_search_locations or [])
    if not roots:
        raise InputError(
            f'"{name}" is a single module, without files', hint="give a path", code="NF-RECIPE-006",
        )
    candidates = [Path(root) / rest for root in roots]
    return next((c for c in candidates if c.exists()), candidates[0])
