"""TOML with places: where every key of a document was written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomli

from npuflow.base.errors import RecipeError, Where

KeyPath = tuple[str | int, ...]
TWICE = ("Cannot overwrite", "Cannot declare", "Duplicate")  # how tomli's messages about repeated keys begin


@dataclass(frozen=True)
class Origin:
    """What wrote a key: a file and line, or a command-line option; `base` is what
    its relative paths start from. `override`: it was set after the files were read, as by a sweep."""

    file: str | None
    line: int | None
    base: Path
    override: bool = False


@dataclass(frozen=True)
class Locator:
    """Finds the origin of a key path, or of the nearest enclosing table that has one."""

    origins: Mapping[KeyPath, Origin] = field(default_factory=dict)
    path: KeyPath = ()
    default: Origin = field(default_factory=lambda: Origin(None, None, Path()))

    def child(self, *keys: str | int) -> Locator:
        return Locator(self.origins, self.path + keys, self.default)

    def origin(self) -> Origin:
        for length in range(len(self.path), -1, -1):
            found = self.origins.get(self.path[:length])
            if found is not None:
                return found
        return self.default

    def where(self) -> Where:
        origin = self.origin()
        return Where(file=origin.file, line=origin.line, key=dotted(self.path) or None)

    @property
    def base(self) -> Path:
        """The folder that a relative path written here starts from."""
        return self.origin().base


def path_of(text: str) -> KeyPath:
    """The key path that `dotted` wrote."""
    parts = re.findall(r'\[\d+\]|"(?:[^"\\]|\\.)*"|[^.\[\]"]+', text)
    return tuple(
        int(p[1:-1]) if p[0] == "[" else p[1:-1].replace('\\"', '"') if p[0] == '"' else p for p in parts
    )


def dotted(path: KeyPath) -> str:
    """`data.steps[1].resize`, with quotes where TOML needs them."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            bare = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else '"' + part.replace('"', '\\"') + '"'
            text += f".{bare}" if text else bare
    return text


def parse(text: str, file: str, base: Path) -> tuple[dict[str, Any], Locator]:
    """A TOML document and the line of each of its keys; a syntax error names its line."""
    default = Origin(file, None, base)
    try:
        table = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column (\d+)\)|\(at end of document\)", str(error))
        line = int(found[1]) if found and found[1] else text.count("\n") + 1
        reason = str(error)[: found.start()].strip() if found else str(error)
        written = text.splitlines()[line - 1 : line]
        raise RecipeError(
            "this is not valid TOML",
            where=Where(file=file, line=line),
            because=": ".join([reason, *(one.strip()[:80] for one in written)]),
            hint="a key or a table is written twice: keep one" if reason.startswith(TWICE) else "",
            code="NF-RECIPE-013",
        ) from None
    origins = {path: Origin(file, line, base) for path, line in _lines_of(text).items()}
    return table, Locator(origins, (), default)


@lru_cache(maxsize=8)                     # a sweep reads the same files at every point
def _lines_of(text: str) -> Mapping[KeyPath, int]:
    lines = _Lines(text)
    lines.document()
    return lines.found


class _Lines:
    """A walk over a *valid* document that only notes on which line each key path begins."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: dict[KeyPath, int] = {}
        self._counted, self._line = 0, 1
        self._arrays: dict[KeyPath, int] = {}

    def line(self) -> int:
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line

    def document(self) -> None:
        table: KeyPath = ()
        while self._blank():
            if self.text.startswith("[[", self.at):
                table = self._header(2)
            elif self.text[self.at] == "[":
                table = self._header(1)
            else:
                self._pair(table)

    def _header(self, width: int) -> KeyPath:
        line = self.line()
        self.at += width
        path = self._resolve(self._key())
        self._blank()
        self.at += width
        if width == 2:
            index = self._arrays.get(path, -1) + 1
            self._arrays[path] = index
            self.found.setdefault(path, line)
            path = (*path, index)
        self.found[path] = line
        return path

    def _resolve(self, keys: list[str]) -> KeyPath:
        """A header path with the current index of every array of tables on its way."""
        path: KeyPath = ()
        for number, key in enumerate(keys):
            path = (*path, key)
            if path in self._arrays and number < len(keys) - 1:
                path = (*path, self._arrays[path])
        return path

    def _pair(self, table: KeyPath) -> None:
        line = self.line()
        path = table
        for key in self._key():
            path = (*path, key)
            self.found.setdefault(path, line)
        self._blank()
        self.at += 1  # the equals sign
        self._value(path)

    def _key(self) -> list[str]:
        keys: list[str] = []
        while True:
            self._blank()
            mark = self.text[self.at]
            if mark in "\"'":
                start = self.at
                self._string()
                keys.append(next(iter(tomli.loads(self.text[start : self.at] + " = 0"))))
            else:
                found = re.compile(r"[A-Za-z0-9_-]+").match(self.text, self.at)
                assert found is not None
                keys.append(found[0])
                self.at = found.end()
            self._blank()
            if self.text[self.at] != ".":
                return keys
            self.at += 1

    def _value(self, path: KeyPath) -> None:
        self._blank()
        mark = self.text[self.at]
        if mark in "\"'":
            self._string()
        elif mark == "[":
            self.at += 1
            index = 0
            while self._blank() and self.text[self.at] != "]":
                self.found[(*path, index)] = self.line()
                self._value((*path, index))
                index += 1
                if self._blank() and self.text[self.at] == ",":
                    self.at += 1
            self.at += 1
        elif mark == "{":
            self.at += 1
            while self._blank() and self.text[self.at] != "}":
                self._pair(path)
                if self._blank() and self.text[self.at] == ",":
                    self.at += 1
            self.at += 1
        else:
            found = re.compile(r"[^,\]}#\n\r]*").match(self.text, self.at)
            assert found is not None
            self.at = found.end()

    def _string(self) -> None:
        mark = self.text[self.at]
        triple = self.text.startswith(mark * 3, self.at)
        close = mark * 3 if triple else mark
        self.at += len(close)
        while not self.text.startswith(close, self.at):
            self.at += 2 if self.text[self.at] == "\\" and mark == '"' else 1
        self.at += len(close)
        # up to two quotes may stand before the closing three
        while triple and self.text.startswith(mark, self.at):
            self.at += 1

    def _blank(self) -> bool:
        """Skip white space and comments; false at the end of the document."""
        found = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*").match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return self.at < len(self.text)


def parse_json(text: str, file: str, base: Path) -> tuple[dict[str, Any], Locator]:
    """The same tables as a JSON document; places are those of the file."""
    default = Origin(file, None, base)
    try:
        table = json.loads(text)
    except json.JSONDecodeError as error:
        raise RecipeError(
            "the file is not valid JSON",
            where=Where(file=file, line=error.lineno), because=error.msg, hint="commas and quotes near there",
            code="NF-RECIPE-075",
        ) from None
    if not isinstance(table, dict):
        raise RecipeError(
            "the file holds no tables",
            where=Where(file=file), because=f"it is a JSON {type(table).__name__}",
            hint='an object of tables: { "quantize": { ... } }', code="NF-RECIPE-076",
        )
    return table, Locator({(key,): default for key in table}, (), default)
