"""What a stage yields: an immutable value that saves itself as named entries and is known by their digest.

Entries are derived from the fields of a dataclass and their types. A field is an entry of its own name: an
array, arrays by name, or JSON. What differs stands in the head of the class: `class Report(Artifact,
about=("samples", "reason"))` puts two fields into one entry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from types import EllipsisType, MappingProxyType
from typing import Any, ClassVar, Self, get_args, get_origin

from npuflow.base.errors import StoreError
from npuflow.base.plain import hints_of, plain, typed
from npuflow.flow.store_manifest import Damaged, Manifest
from npuflow.flow.store_reader import Reader
from npuflow.flow.store_writer import Writer

__all__ = ["Artifact", "ArtifactRef", "Codec", "Damaged", "Manifest", "Need", "Reader", "Writer"]

Uses = Mapping[str, tuple[str, ...]]
NONE: Mapping[str, Any] = MappingProxyType({})
Group = str | tuple[str, ...] | Mapping[str, str] | EllipsisType


class Codec(ABC):
    """An explicit form for what a field's type does not tell."""

    @staticmethod
    @abstractmethod
    def save(folder: Writer, name: str, value: Any) -> None: ...

    @staticmethod
    @abstractmethod
    def load(folder: Reader, name: str) -> Any: ...


@dataclass(frozen=True)
class EntryLayout:
    """What a class says of its entries.

    `entries`: a field that is stored under another name, or fields that share an entry, as arrays or as the
    keys of one JSON object; a mapping has keys with other names than the fields, `...` are all fields left.
    `spread`: fields whose own fields are entries. `rows`: fields in which dataclasses are lists. `optional`:
    entries and keys that are left out where they are false. `codecs`: fields with a form of their own.
    """

    spread: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    codecs: Mapping[str, type[Codec]] = field(default_factory=dict)
    entries: Mapping[str, Group] = field(default_factory=dict)


class StoredDataclass:
    """A dataclass that is stored field by field."""

    __slots__ = ()
    _layout: ClassVar[EntryLayout] = EntryLayout()

    def __init_subclass__(
        cls, spread: tuple[str, ...] = (), rows: tuple[str, ...] = (), optional: tuple[str, ...] = (),
        codecs: Mapping[str, type[Codec]] = NONE, **entries: Group,
    ) -> None:
        super().__init_subclass__()
        if spread or rows or optional or codecs or entries:
            cls._layout = EntryLayout(spread, rows, optional, codecs, entries)

    def save(self, folder: Writer) -> None:
        """Write every entry of this value."""
        kind: Any = type(self)
        for entry in entries_of(kind):
            entry.save(folder, self)

    @classmethod
    def load(cls, folder: Reader) -> Self:
        """Read the value back; entries may be read lazily."""
        found: dict[tuple[str, ...], Any] = {}
        kind: Any = cls
        for entry in entries_of(kind):
            found.update(entry.load(folder))
        made: Self = _built(kind, (), found, cls._layout.spread)
        return made


@dataclass(frozen=True, slots=True)
class Need:
    """What a later step will take of memory, foreseen: `fixed` bytes, and `each` for every one of the `count`
    things that it holds at once. `least`: as many it needs at any rate. `key`: the recipe key that sets the
    count, with `{count}` in it, or other words on what to set; empty where no key helps."""

    fixed: int
    each: int = 0
    count: int = 1
    least: int = 1
    key: str = ""
    about: str = ""
    """What takes the most, in words."""


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """A stored artifact seen from outside: all that keys and schedulers ever handle."""

    digest: str
    uses: Uses = field(default_factory=dict, hash=False)


class Artifact(StoredDataclass):
    """Base of every product of a stage: normally a frozen dataclass, stored field by field.

    A class may define `save` and `load` itself. The digest is that of the entries' logical content, so it
    does not depend on the compression, the chunking or the machine.
    """

    __slots__ = ()

    def uses(self) -> dict[str, tuple[str, ...]]:
        """Registry name -> entries whose code gives this value its meaning (a graph: its operators)."""
        return {}

    def products(self) -> dict[str, str]:
        """Product name -> entry that is copied beside the build's lock (`{"program": "model.npu"}`)."""
        return {}

    def summary(self) -> dict[str, Any]:
        """A few scalars worth a line on the terminal."""
        return {}

    def needs(self) -> Mapping[str, Need]:
        """Stage name -> the memory that the stage will take, as far as this value determines it."""
        return {}

    def digest(self) -> str:
        """The digest a store would give this value; nothing is written."""
        return seal(self, Writer(None)).digest


def seal(artifact: Artifact, writer: Writer) -> Manifest:
    """Save the artifact through the writer and close it with a manifest."""
    artifact.save(writer)
    return writer.seal(type(artifact).__qualname__, artifact.uses(), artifact.products())


# --- entries, from the fields of a class


@dataclass(frozen=True)
class _Field:
    """A field that is stored, by the names that lead to it."""

    path: tuple[str, ...]
    kind: Any
    needed: bool
    """There is no default."""
    rows: bool
    form: type[Codec] | None
    """None: as JSON."""

    def of(self, value: Any) -> Any:
        for name in self.path:
            value = getattr(value, name)
        return value

    def typed(self, data: Any) -> Any:
        return typed(self.kind, data, self.rows)


@dataclass(frozen=True)
class _Entry:
    """An entry: one field, or several by their keys."""

    name: str
    parts: Mapping[str, _Field]
    single: bool
    optional: frozenset[str]

    def save(self, folder: Writer, whole: Any) -> None:
        values = {key: field.of(whole) for key, field in self.parts.items()}
        if self.name in self.optional and not any(values.values()):
            return
        form = next(iter(self.parts.values())).form
        if not self.single and form is not None:
            folder.arrays(self.name, values)
        elif form is not None:
            form.save(folder, self.name, values[self.name])
        else:
            made = {
                key: plain(value, self.parts[key].rows)
                for key, value in values.items() if value or key not in self.optional
            }
            folder.json(self.name, made[self.name] if self.single else made)

    def load(self, folder: Reader) -> Iterator[tuple[tuple[str, ...], Any]]:
        if self.name in self.optional and self.name not in folder:
            return
        first = next(iter(self.parts.values()))
        form = first.form
        if self.single and form is not None:
            yield first.path, form.load(folder, self.name)
            return
        held = folder.json(self.name) if form is None else folder.arrays(self.name)
        rows: Any = {self.name: held} if self.single else held
        try:
            if not isinstance(rows, Mapping):
                raise TypeError(f"there is {rows!r:.40} where an object should be")
            for key, field in self.parts.items():
                if field.needed or key in rows:
                    yield field.path, field.typed(rows[key]) if form is None else rows[key]
        except (TypeError, ValueError, KeyError, IndexError) as fault:
            raise _misfit(folder, self.name, fault) from fault


def _misfit(folder: Reader, name: str, fault: Exception) -> StoreError:
    because = f"there is no {fault}" if isinstance(fault, KeyError) else str(fault)
    return StoreError(
        f"entry {name!r} of artifact {folder.manifest.kind} {folder.digest} is not what it should be",
        because=because, hint="start from a copy of an artifact: npuflow show STAGE RECIPE --export DIR",
        code="NF-STORE-020",
    )


class _Array(Codec):
    @staticmethod
    def save(folder: Writer, name: str, value: Any) -> None:
        folder.array(name, value)

    @staticmethod
    def load(folder: Reader, name: str) -> Any:
        return folder.array(name)


class _Arrays(Codec):
    @staticmethod
    def save(folder: Writer, name: str, value: Any) -> None:
        folder.arrays(name, value)

    @staticmethod
    def load(folder: Reader, name: str) -> Any:
        return folder.arrays(name)


def _nested(kind: type[StoredDataclass]) -> type[Codec]:
    """An artifact in another one: its entries beside those of the other."""

    class Nested(Codec):
        @staticmethod
        def save(folder: Writer, name: str, value: Any) -> None:
            value.save(folder)

        @staticmethod
        def load(folder: Reader, name: str) -> Any:
            return kind.load(folder)

    return Nested


@cache
def _form(kind: Any) -> type[Codec] | None:
    """How values of a type are entries; None: as JSON."""
    import numpy as np

    if isinstance(kind, type) and issubclass(kind, StoredDataclass):
        return _nested(kind)
    origin, inner = get_origin(kind), get_args(kind)
    if (origin or kind) is np.ndarray:
        return _Array
    by_name = isinstance(origin, type) and issubclass(origin, Mapping)
    return _Arrays if by_name and _form(inner[1]) is _Array else None


@cache
def entries_of(cls: Any) -> tuple[_Entry, ...]:
    layout = cls._layout
    free = {one.path[-1]: one for one in _fields(cls, (), layout)}
    made: list[_Entry] = []
    for name, group in layout.entries.items():
        keys: Any = {name: group} if isinstance(group, str) else list(free) if group is ... else group
        keys = keys if isinstance(keys, Mapping) else {one: one for one in keys}
        parts = {key: free.pop(field) for key, field in keys.items()}
        made.append(_Entry(name, parts, isinstance(group, str), frozenset(layout.optional)))
    made += [_Entry(name, {name: one}, True, frozenset(layout.optional)) for name, one in free.items()]
    return tuple(made)


def _fields(kind: Any, above: tuple[str, ...], layout: EntryLayout) -> Iterator[_Field]:
    hints = hints_of(kind)
    for one in fields(kind):
        if not one.init:
            continue
        inner: Any = hints[one.name]
        path = (*above, one.name)
        if one.name in layout.spread and not issubclass(inner, StoredDataclass):
            yield from _fields(inner, path, layout)
        else:
            needed = one.default is MISSING and one.default_factory is MISSING
            form = layout.codecs.get(one.name) or _form(inner)
            yield _Field(path, inner, needed, one.name in layout.rows, form)


def _built(
    kind: Callable[..., Any], above: tuple[str, ...], found: Mapping[tuple[str, ...], Any],
    spread: tuple[str, ...],
) -> Any:
    """An object from what was found of its fields, and of theirs."""
    given: dict[str, Any] = {}
    for path, value in found.items():
        if path[: len(above)] != above:
            continue
        name = path[len(above)]
        if len(path) == len(above) + 1:
            given[name] = value
        elif name not in given:
            given[name] = _built(hints_of(kind)[name], (*above, name), found, spread)
    return kind(**given)
