"""What a recipe table is: a frozen dataclass, its annotations, and the canonical form that enters keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import Annotated, Any, ClassVar, Self, get_args, get_origin, get_type_hints

from npuflow.base.registry import Registry
from npuflow.base.tables_files import FilePath, Location


@dataclass(frozen=True)
class Range:
    """`Annotated[int, Range(1, 16)]`: both ends belong to it; None leaves an end open."""

    low: float | None = None
    high: float | None = None

    def __contains__(self, value: float) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def __str__(self) -> str:
        if self.low is None:
            return f"at most {_in_full(self.high)}"
        return (
            f"at least {_in_full(self.low)}"
            if self.high is None
            else f"{_in_full(self.low)} to {_in_full(self.high)}"
        )


def _in_full(end: float | None) -> str:
    """A number as one writes it: whole ones in full."""
    return f"{end:g}" if end is None or end != int(end) else str(int(end))


@dataclass(frozen=True)
class Doc:
    """`Annotated[int, Doc("...")]`: what a key means, for the reference page and editors."""

    text: str


@dataclass(frozen=True)
class Words:
    """`Annotated[Location, Words("random")]`: texts that are no paths, so that they stay as they are in any
    folder.
    """

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        object.__setattr__(self, "words", words)


@dataclass(frozen=True)
class Instead:
    """`Annotated[Location, Instead("text")]`: a table that lacks the key may have that other one in its
    place, whose value then is this key's too.
    """

    key: str


@dataclass(frozen=True)
class MayBeFolder:
    """`Annotated[FilePath, MayBeFolder(names)]`: a folder stands for the first of the files `names()` that is
    in it. They are asked for only where a folder is named.
    """

    names: Callable[[], Sequence[str]]


@dataclass(frozen=True)
class Unkeyed:
    """`Annotated[str, Unkeyed()]`: how a step is run and not what it makes, so that it is in no key."""


@dataclass(frozen=True)
class Fault:
    """What a `Config.check` yields: the field at fault (or "" for the whole table),
    and what is wrong with it."""

    field: str
    message: str
    because: str = ""
    hint: str = ""
    code: str = ""


class Config:
    """Base of the frozen dataclasses that are recipe tables; the fields are the
    keys, the class name the table."""

    __table__: ClassVar[str] = ""

    def __init_subclass__(cls, table: str | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        if table is not None:
            cls.__table__ = table
        # a slotted dataclass is created twice, the second time without `table`
        elif "__table__" not in cls.__dict__:
            cls.__table__ = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    @property
    def options(self) -> Any:
        """The options of the entry that this table selects by name, or None if that entry has none."""
        return next((o for o in map(self.options_for, registry_fields(type(self))) if o is not None), None)

    def options_for(self, name: str) -> Any:
        """The options of the entry that field `name` selects; its defaults if the
        recipe has no sub-table for it."""
        given: dict[str, Any] = self.__dict__.get("_options", {})
        if name in given:
            return given[name]
        chosen = getattr(self, name)
        registry = registry_fields(type(self))[name]
        kind = options_class(registry, chosen) if isinstance(chosen, str) else None
        return kind() if kind is not None else None

    def with_(self, **changes: Any) -> Self:
        """A copy with other values that keeps the options of the entries it still selects."""
        made = replace(self, **changes)  # type: ignore[type-var]
        kept = {
            name: one
            for name, one in self.__dict__.get("_options", {}).items()
            if getattr(made, name) == getattr(self, name)
        }
        if kept:
            made.__dict__["_options"] = kept
        return made

    def selecting(self, name: str, entry: str, options: Any) -> Self:
        """A copy whose field `name` selects another entry with these options; None: an entry without any."""
        made = self.with_(**{name: entry})
        if options is not None:
            made.__dict__["_options"] = {**made.__dict__.get("_options", {}), name: options}
        return made

    def check(self) -> Iterable[Fault]:
        """Faults that no single field shows; called once all fields are right."""
        return ()


class EntryConfig(Config):
    """Base of registry entries whose fields are their own options in the recipe (`[calibrate.<name>]`)."""

    Options: ClassVar[type[Config]]

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.Options = cls


def table_of(cls: type[Config]) -> str:
    """The dotted path of the recipe table that `cls` is."""
    return cls.__table__


_HINTS: dict[type, dict[str, Any]] = {}


def hints(cls: type) -> dict[str, Any]:
    """Field name -> type with its annotations, in field order."""
    if cls not in _HINTS:
        found = get_type_hints(cls, include_extras=True)
        _HINTS[cls] = {f.name: found[f.name] for f in fields(cls)}
        if "options" in _HINTS[cls]:
            raise TypeError(
                f'{cls.__name__}: "options" is the selected entry\'s sub-table and cannot be a field'
            )
    return _HINTS[cls]


def registry_of(annotation: Any) -> Registry | None:
    """The registry of `Annotated[str, REGISTRY]`, also inside `| None`, or None."""
    for mark in getattr(annotation, "__metadata__", ()):
        if isinstance(mark, Registry):
            return mark
    for part in getattr(annotation, "__args__", ()):
        found = registry_of(part) if not isinstance(part, str) else None
        if found is not None:
            return found
    return None


_REGISTRIES: dict[type, dict[str, Registry | None]] = {}


def _registries(cls: type[Config]) -> dict[str, Registry | None]:
    """Field name -> the registry that its type names, or None."""
    if cls not in _REGISTRIES:
        _REGISTRIES[cls] = {name: registry_of(kind) for name, kind in hints(cls).items()}
    return _REGISTRIES[cls]


def words(annotation: Any) -> tuple[str, ...]:
    """The texts that mean no path in a field of this type."""
    marks = getattr(annotation, "__metadata__", ())
    return next((mark.words for mark in marks if isinstance(mark, Words)), ())


def registry_fields(cls: type[Config]) -> dict[str, Registry]:
    """The fields that select one registry entry by name, whose options may stand below. A
    list of names selects none."""
    return {
        name: registry for name, registry in _registries(cls).items()
        if registry is not None and get_origin(hints(cls)[name]) not in (tuple, dict)
    }


def options_class(registry: Registry, name: str) -> type[Config] | None:
    """The table of an entry's own options: its attribute `Options`, if it has one."""
    kind = getattr(registry[name], "Options", None) if name in registry else None
    return kind if isinstance(kind, type) and issubclass(kind, Config) else None


def selections(cfg: Config) -> Iterator[tuple[Registry, str]]:
    """Every (registry, entry name) that a table selects, in nested tables, tuples and options too."""
    for name, registry in _registries(type(cfg)).items():
        value = getattr(cfg, name)
        if registry is not None:
            names = (
                value if isinstance(value, tuple) else value.values() if isinstance(value, dict) else (value,)
            )
            yield from ((registry, entry) for entry in names if isinstance(entry, str) and entry in registry)
            options = cfg.options_for(name) if isinstance(value, str) else None
            if options is not None:
                yield from selections(options)
        else:
            for inner in _configs(value):
                yield from selections(inner)


def files(cfg: Config) -> Iterator[FilePath]:
    """Every file that a table names, in nested tables, tuples and options too."""
    for name in hints(type(cfg)):
        yield from _files(getattr(cfg, name))
    for name in registry_fields(type(cfg)):
        options = cfg.options_for(name)
        if options is not None:
            yield from files(options)


def _files(value: Any) -> Iterator[FilePath]:
    if isinstance(value, FilePath):
        yield value
    elif isinstance(value, Config):
        yield from files(value)
    elif isinstance(value, tuple | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _files(inner)


def _configs(value: Any) -> Iterator[Config]:
    if isinstance(value, Config):
        yield value
    elif isinstance(value, tuple | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _configs(inner)


def canonical(cfg: Config) -> dict[str, Any]:
    """The JSON-able form that enters keys: all fields after defaults, files by
    content, the selected options only."""
    table: dict[str, Any] = {}
    for name, kind in hints(type(cfg)).items():
        if not _is_location(kind) and not any(
            isinstance(mark, Unkeyed) for mark in getattr(kind, "__metadata__", ())
        ):
            table[name] = _plain(getattr(cfg, name), tagged=_union_of_tables(kind))
    for name in registry_fields(type(cfg)):
        options = cfg.options_for(name)
        if options is not None:
            table.setdefault("options", {})[name] = canonical(options)
    return table


def _plain(value: Any, tagged: bool = False) -> Any:
    if isinstance(value, Config):
        return {"=": type(value).__qualname__, **canonical(value)} if tagged else canonical(value)
    if isinstance(value, FilePath):
        return {"file": value.digest()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(v, tagged) for v in value]
    if isinstance(value, Mapping):
        return {str(k): _plain(v, tagged) for k, v in value.items()}
    return value


def instead(kind: Any) -> str:
    """The key whose value stands for one that is left out; "" where there is none."""
    marks = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    return next((mark.key for mark in marks if isinstance(mark, Instead)), "")


def _is_location(kind: Any) -> bool:
    """Whether a field holds places that a listing interprets, set or not."""
    return kind is Location or any(
        _is_location(a) for a in getattr(kind, "__args__", ()) if not isinstance(a, str)
    )


def _union_of_tables(kind: Any) -> bool:
    """Whether two different tables may stand in this place, so that the class must
    be reported apart in the key."""
    args = getattr(kind, "__args__", ())
    tables = [a for a in args if isinstance(a, type) and is_dataclass(a) and issubclass(a, Config)]
    return len(tables) > 1 or any(_union_of_tables(a) for a in args if not isinstance(a, str))
