"""Keeps what was read from source files, by content.
A file that has not changed is parsed by one process only.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from npuflow.base.code_module import Class, Facts, Form, SourceModule, SourceUnit
from npuflow.base.code_scope import ImportTarget, Reference
from npuflow.base.memo_file import maker_of, read_shared, write_shared

SPARE = 4  # pictures kept of files that this build does not read, for each that it does


class Pictures:
    """Pictures of modules; with a file, kept between processes. They go by content,
    so an old one is never wrong."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}  # as text: a process reads few of them
        self._used: dict[str, str] = {}
        self._path: Path | None = None
        self._grown = False
        self._unread = False

    def restore(self, module: SourceModule) -> bool:
        """Fill in a module from the picture of its content, if there is one."""
        if self._unread and self._path is not None:
            self._read(self._path)
        mark = _mark(module)
        found = self._known.get(mark) or self._used.get(mark)
        if found is None:
            return False
        self._used[mark] = found
        _fill(module, json.loads(found))
        return True

    def keep(self, module: SourceModule) -> None:
        self._used[_mark(module)] = json.dumps(_picture(module), separators=(",", ":"))
        self._grown = True

    def open(self, path: Path) -> None:
        """Remember through this file: what it holds counts (read on first use), and `save` writes it."""
        if path != self._path:
            self._path, self._unread = path, True

    def _read(self, path: Path) -> None:
        self._unread = False
        self._known = {**(read_shared(path, _maker()) or {}), **self._known}

    def save(self) -> None:
        """Write what this process read, and some of what was there; failing to is no fault of the build."""
        if self._path is None or not self._grown:
            return
        rest = [pair for pair in self._known.items() if pair[0] not in self._used]
        kept = {**dict(rest[: SPARE * len(self._used)]), **self._used}
        self._grown = not write_shared(self._path, _maker(), kept)


PICTURES = Pictures()
"""The memo of this process."""


def _mark(module: SourceModule) -> str:
    return f"{module.content} {module.package}"


@functools.cache
def _maker() -> str:
    """The code that draws pictures."""
    folder = Path(__file__).parent
    names = ("code_memo", "code_module", "code_normal", "code_scope", "digest")
    return maker_of(folder / f"{name}.py" for name in names)


# ***** as JSON *****


def _picture(module: SourceModule) -> Any:
    places: dict[int, int] = {}
    listed: list[Any] = []
    for unit in (*(one for several in module.units.values() for one in several), *module.effects):
        if id(unit) not in places:
            places[id(unit)] = len(listed)
            listed.append(_unit(unit))
    return [
        listed,
        {name: [places[id(one)] for one in several] for name, several in module.units.items()},
        [places[id(one)] for one in module.effects],
        module.imports, module.stars, module.executed,
    ]


def _fill(module: SourceModule, picture: Any) -> None:
    listed, named, effects, imports, module.stars, executed = picture
    units = [_as_unit(one) for one in listed]
    module.units = {name: [units[place] for place in places] for name, places in named.items()}
    module.effects = [units[place] for place in effects]
    module.imports = {name: [ImportTarget(*one) for one in several] for name, several in imports.items()}
    module.executed = [ImportTarget(*one) for one in executed]


def _unit(unit: SourceUnit) -> Any:
    parts = unit.parts
    return [
        _facts(unit.facts), unit.marks, [_facts(one) for one in unit.unmarked], unit.call,
        None if parts is None else [
            [[chain, _facts(facts)] for chain, facts in parts.bases], _facts(parts.rest),
            {name: [_facts(one) for one in several] for name, several in parts.methods.items()}, parts.forms,
        ],
    ]


def _as_unit(found: Any) -> SourceUnit:
    facts, marks, unmarked, (func, texts), parts = found
    made = None
    if parts is not None:
        bases, rest, methods, forms = parts
        named = {name: tuple(map(_as_facts, several)) for name, several in methods.items()}
        made = Class(
            tuple((tuple(chain), _as_facts(one)) for chain, one in bases),
            _as_facts(rest),
            named,
            _forms(forms),
        )
    call = tuple(func), tuple(texts)
    return SourceUnit(_as_facts(facts), tuple(map(tuple, marks)), tuple(map(_as_facts, unmarked)), call, made)


def _facts(facts: Facts) -> Any:
    return [facts.digest, facts.references, sorted(facts.mentions)]


def _as_facts(found: Any) -> Facts:
    made, references, mentions = found
    return Facts(made, tuple(_reference(*one) for one in references), frozenset(mentions))


def _forms(found: Any) -> dict[str, Form]:
    return {name: Form(*one) for name, one in found.items()}


def _reference(root: Any, attrs: Any, how: str, const: str | None, line: int) -> Reference:
    return Reference(root if isinstance(root, str) else ImportTarget(*root), tuple(attrs), how, const, line)
