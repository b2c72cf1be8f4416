"""Tables as TOML text: values, whole tables with their defaults, comments where asked."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from pathlib import Path
from typing import Any

from npuflow.base.tables_files import FilePath, Location
from npuflow.base.tables_schema import default_of
from npuflow.base.tables_types import Config, hints, registry_fields, words

WIDTH = 100


def key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def dotted_header(path: str) -> str:
    return ".".join(key(part) for part in path.split("."))


def value(found: Any, folder: Path | None = None) -> str:
    """One value on one line; paths are written relative to `folder`."""
    if isinstance(found, Config):
        found = {
            name: getattr(found, name) for name in hints(type(found)) if getattr(found, name) is not None
        }
    if isinstance(found, Enum):
        found = found.value
    if isinstance(found, FilePath | Location):
        return json.dumps(_relative(found, folder), ensure_ascii=False)
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, str):
        return json.dumps(found, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(found, Mapping):
        inner = ", ".join(f"{key(str(name))} = {value(one, folder)}" for name, one in found.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(found, list | tuple):
        return "[" + ", ".join(value(one, folder) for one in found) + "]"
    return repr(found)


def _relative(found: FilePath | Location, folder: Path | None) -> str:
    """The path as a recipe in `folder` would write it."""
    text = found.text
    foreign = re.match(r"(?!python:)[A-Za-z][A-Za-z0-9+.-]+:", text)
    if folder is None or text.startswith("pkg:") or foreign or Path(text).is_absolute():
        return text
    base = found.base if isinstance(found, Location) else None
    if base is not None and base.resolve() == folder.resolve():
        return text
    if base is not None and text.startswith("python:"):
        file, colon, name = text.removeprefix("python:").rpartition(":")
        return f"python:{_from(base / file, folder)}{colon}{name}" if file.endswith(".py") else text
    return _from(found.path, folder)


def _from(path: Path, folder: Path) -> str:
    return os.path.relpath(path, folder).replace(os.sep, "/")


def document(
    tables: Iterable[tuple[Config, str]],
    folder: Path | None = None,
    note: Callable[[str, str], str] = lambda header, key: "",
) -> Iterator[str]:
    """Whole tables with every default written out; unset keys as comments; options of entries as tables.

    Several classes may read one table: it is written once, with the keys of all of them. `note` gives the
    comment of a key.
    """
    listed = list(tables)
    sections: dict[str, dict[str, str]] = {}
    apart = {header for _, header in listed}
    for cfg, header in listed:
        _fill(sections, cfg, header, apart, folder, note)
    for header, lines in sections.items():
        yield f"[{dotted_header(header)}]"
        yield from lines.values()
        yield ""


def _fill(
    sections: dict[str, dict[str, str]], cfg: Config, header: str, apart: set[str], folder: Path | None,
    note: Callable[[str, str], str],
) -> None:
    """The lines of one table by key, below those that are there; tables that cannot stand in a line of it get
    their own.
    """
    lines = sections.setdefault(header, {})
    inner: list[tuple[str, Config]] = []
    for name, kind in hints(type(cfg)).items():
        found = getattr(cfg, name)
        text = "" if found is None else value(found, folder)
        if isinstance(found, Config) and (f"{header}.{name}" in apart or len(name) + len(text) + 3 > WIDTH):
            inner.append((name, found))
        elif found is None:
            lines.setdefault(name, f"# {key(name)} is not set")
        else:
            if isinstance(found, Location) and found.text in words(kind):
                text = json.dumps(found.text)
            remark = note(header, name)
            lines.setdefault(name, f"{key(name)} = {text}  # {remark}" if remark else f"{key(name)} = {text}")
    for name in registry_fields(type(cfg)):
        options = cfg.options_for(name)
        if options is not None and hints(type(options)):
            inner.append((str(getattr(cfg, name)), options))
    for name, one in inner:
        _fill(sections, one, f"{header}.{name}", apart, folder, note)


def sketch(cls: type[Config]) -> Iterator[tuple[str, str | None]]:
    """(key, its default as TOML or None if it must be given or is unset) of every field, for a template."""
    for field in fields(cls):  # type: ignore[arg-type]
        default = default_of(field)
        yield field.name, None if default is MISSING or default is None else value(default)
