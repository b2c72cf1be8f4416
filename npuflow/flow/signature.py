"""What a stage's signature says: tables, upstream products, source files, and the kind of its own product."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from npuflow.base.errors import InternalError
from npuflow.base.tables import Config, FilePath, Location, hints, table_of
from npuflow.flow.artifact import Artifact
from npuflow.flow.refs import Files
from npuflow.flow.stage import Groups, Items, Project, Stage, Whole, inputs_of, is_view

Product = Literal["one", "items"]
_STREAMS = {collections.abc.Iterator, collections.abc.Iterable, collections.abc.Generator}


@dataclass(frozen=True)
class Upstream:
    """A parameter that receives another stage's product."""

    kind: type[Artifact]
    items: bool = False
    optional: bool = False
    project: str | None = None
    grouped: bool = False
    whole: bool = False


@dataclass(frozen=True)
class Signature:
    """The parameters of a stage, sorted by what they receive, and what the stage yields."""

    tables: dict[str, type[Config]]
    upstream: dict[str, Upstream]
    files: str | None
    output: type[Artifact]
    product: Product
    listing: dict[str, type[Config]]
    maybe: frozenset[str] = frozenset()
    """Parameters of the listing that are left out where the recipe lacks their table."""


_READ: dict[int, tuple[Stage, Signature]] = {}


def signature(stage: Stage) -> Signature:
    """Read a stage's signature, once per process."""
    known = _READ.get(id(stage))
    if known is None or known[0] is not stage:
        known = _READ[id(stage)] = (stage, _read(stage))
    return known[1]


def tables(stage: Stage) -> dict[str, type[Config]]:
    """Dotted table path -> class, for the stage and its listing: its part of the recipe's schema."""
    found = signature(stage)
    return {table_of(cls): cls for cls in (*found.tables.values(), *found.listing.values())}


def _read(stage: Stage) -> Signature:
    output, product = _returned(_hints(stage, stage).get("return"), stage)
    if stage.folds:
        product = "items"
    configs: dict[str, type[Config]] = {}
    upstream: dict[str, Upstream] = {}
    files: str | None = None
    for name, kind in _parameters(stage):
        if isinstance(kind, type) and issubclass(kind, Config):
            configs[name] = kind
        elif kind is Files:
            files = name
        elif (found := _upstream(kind)) is not None:
            upstream[name] = replace(found, grouped=True) if stage.folds and name == stage.over else found
        else:
            raise InternalError(
                f'the stage "{stage.name}" cannot be wired: parameter "{name}" is annotated {kind!r}',
                hint="an Artifact class, Items[Artifact], a Config class, a View, or Files",
                code="NF-INTERNAL-029",
            )
    _check(stage, files, upstream)
    if stage.over is not None:
        product = "items"
    return Signature(configs, upstream, files, output, product, _listing_tables(stage), _maybe(stage))


def _parameters(stage: Stage) -> Iterator[tuple[str, Any]]:
    """Name and annotation of everything that a stage receives: its parameters, and the fields of views."""
    found: dict[str, Any] = {}
    for name, kind in stage.parameters.items():
        for own, what in inputs_of(kind) if is_view(kind) else [(name, kind)]:
            if found.setdefault(own, what) != what:
                raise InternalError(
                    f'the stage "{stage.name}" cannot be wired: "{own}" is annotated twice',
                    because=f"{found[own]!r} and {what!r}", hint="another name in one of the views",
                    code="NF-INTERNAL-092",
                )
    yield from found.items()


def _check(stage: Stage, files: str | None, upstream: dict[str, Upstream]) -> None:
    if (stage.files is None) != (files is None):
        raise InternalError(
            f'the stage "{stage.name}" needs both files=LISTING and a parameter of type Files',
            code="NF-INTERNAL-030",
        )
    if stage.over == "files":
        fan = files is not None
    else:
        fan = stage.over is None or (stage.over in upstream and upstream[stage.over].items)
    if not fan:
        raise InternalError(
            f'the stage "{stage.name}" is over "{stage.over}", which is not one of its Items parameters',
            code="NF-INTERNAL-031",
        )
    plain = {name for name, one in upstream.items() if one.items and not one.grouped}
    if stage.by is not None and (stage.by == stage.over or not {stage.by, stage.over} <= plain):
        raise InternalError(
            f'the stage "{stage.name}" pairs "{stage.over}" with "{stage.by}", not two Items parameters',
            code="NF-INTERNAL-032",
        )
    for name, one in upstream.items():
        if (one.grouped and name != stage.over) or (one.whole and name not in (stage.over, stage.by)):
            raise InternalError(
                f'the stage "{stage.name}" is not over "{name}", whose items it wants in groups or whole',
                code="NF-INTERNAL-033",
            )


def _listing_tables(stage: Stage) -> dict[str, type[Config]]:
    return {} if stage.files is None else tables_of(stage.files, stage)


def tables_of(function: Callable[..., Any], stage: Stage) -> dict[str, type[Config]]:
    """The tables that a stage's listing, or its `wanted`, takes."""
    stated = {name: _plain(kind) for name, kind in _hints(function, stage).items() if name != "return"}
    for name, kind in stated.items():
        if not (isinstance(kind, type) and issubclass(kind, Config)):
            raise InternalError(
                f'the listing of stage "{stage.name}" takes tables only; "{name}" is {kind!r}',
                code="NF-INTERNAL-034",
            )
    return stated


def _plain(kind: Any) -> Any:
    """The table of `Table | None`."""
    rest = [arg for arg in get_args(kind) if arg is not type(None)]
    return rest[0] if isinstance(kind, types.UnionType) and len(rest) == 1 else kind


def _maybe(stage: Stage) -> frozenset[str]:
    """The listing's parameters that have a default: it is called without those whose
    table the recipe lacks."""
    parameters = inspect.signature(stage.files).parameters if stage.files is not None else {}
    return frozenset(name for name, one in parameters.items() if one.default is not inspect.Parameter.empty)


def _hints(function: Any, stage: Stage) -> dict[str, Any]:
    try:
        if isinstance(function, Stage):
            return function.hints
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise InternalError(
            f'the stage "{stage.name}" cannot be wired: {error}',
            because="the types in a stage's signature are looked up when it is wired",
            hint="import them at the top of the file, not under TYPE_CHECKING", code="NF-INTERNAL-035",
        ) from error


def _upstream(kind: Any) -> Upstream | None:
    """The upstream product that an annotation asks for: A, Items[A], `| None`, and
    Annotated around any of them."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        inner = _upstream(args[0])
        if inner is None:
            return None
        project = next((mark.name for mark in args[1:] if isinstance(mark, Project)), inner.project)
        whole = inner.whole or any(isinstance(mark, Whole) for mark in args[1:])
        return replace(inner, project=project, whole=whole)
    if origin is Union or origin is types.UnionType:
        rest = [arg for arg in args if arg is not type(None)]
        inner = _upstream(rest[0]) if len(rest) == 1 else None
        if inner is None:
            return None
        return replace(inner, optional=len(rest) < len(args))
    if origin is Items or origin is Groups:
        inner = _upstream(args[0])
        return None if inner is None else replace(inner, items=True, optional=False, grouped=origin is Groups)
    if isinstance(kind, type) and issubclass(kind, Artifact):
        return Upstream(kind)
    return None


def _returned(kind: Any, stage: Stage) -> tuple[type[Artifact], Product]:
    """An artifact class, or an iterator of (item id, artifact)."""
    if isinstance(kind, type) and issubclass(kind, Artifact) and (stage.over is None or stage.folds):
        return kind, "one"
    if get_origin(kind) in _STREAMS:
        pair = get_args(kind)[0]
        parts = get_args(pair)
        if get_origin(pair) is tuple and len(parts) == 2 and parts[0] is str:
            inner = typing.cast(type, parts[1])
            if isinstance(inner, type) and issubclass(inner, Artifact):
                return inner, "items"
    expected = "an Artifact class" if stage.over is None or stage.folds else "Iterator[tuple[str, ARTIFACT]]"
    raise InternalError(
        f'the stage "{stage.name}" must return {expected}, not {kind!r}', code="NF-INTERNAL-036",
    )


def named_paths(value: Any) -> Iterator[FilePath | Location]:
    """The files and places that a table names, in tables below it too."""
    if isinstance(value, FilePath | Location):
        yield value
    elif isinstance(value, Config):
        for name in hints(type(value)):
            yield from named_paths(getattr(value, name))
        yield from named_paths(value.options)
    elif isinstance(value, dict):
        yield from named_paths(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from named_paths(inner)
