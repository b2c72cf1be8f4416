"""A stage: a plain function whose signature is its wiring."""

from __future__ import annotations

import contextlib
import contextvars
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack, get_type_hints, overload

from npuflow.base.registry import Registry
from npuflow.flow.memory import shown, size
from npuflow.flow.refs import Item, Listing, pair

STAGES = Registry("stages", "npuflow.stages")

A_co = TypeVar("A_co", covariant=True)


class View:
    """Some inputs of a stage as one parameter. A view is a frozen dataclass whose fields are annotated as
    parameters are, or are views. A stage that takes one has the fields as its inputs, by their names, each
    with its own part of the key; two views of a stage may share fields."""


@cache
def _fields(view: Any) -> dict[str, Any]:
    """Its fields with their annotations: read once, as a view is filled for every batch."""
    return get_type_hints(view, include_extras=True)


def inputs_of(view: Any) -> Iterator[tuple[str, Any]]:
    """Name and annotation of the fields of a view, and of those of its views."""
    for name, kind in _fields(view).items():
        if is_view(kind):
            yield from inputs_of(kind)
        else:
            yield name, kind


def is_view(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, View)


def _filled(view: Any, inputs: Mapping[str, Any]) -> Any:
    """The view of these inputs."""
    return view(**_sorted_in(_fields(view), inputs))


def _sorted_in(kinds: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """By parameter its input, or its view of them."""
    return {name: _filled(kind, inputs) if is_view(kind) else inputs[name] for name, kind in kinds.items()}


class Project:
    """`Annotated[Graph, Project("cone")]`: the key holds the digest of
    `graph.cone(item)`, or `graph.cone()`, alone."""

    def __init__(self, name: str) -> None:
        self.name = name


class Whole:
    """`Annotated[Items[A], Whole()]`, of a collection that the stage runs over: it sees all items, and
    `asked` names those that it is to handle. The key of what it makes holds the digest of the asked one
    alone, which must therefore cover whatever the stage reads of the others (the parts of a graph above it).
    """


class Items(Mapping[str, A_co], Generic[A_co]):
    """A collection as a stage sees it: item id -> artifact, in listing order, each
    loaded when it is asked for."""

    def __init__(self, load: Mapping[str, Callable[[], A_co]], asked: tuple[str, ...] | None = None) -> None:
        self._load = load
        self.asked = tuple(load) if asked is None else asked

    def __getitem__(self, item: str) -> A_co:
        return self._load[item]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._load)

    def __len__(self) -> int:
        return len(self._load)


class Groups(Mapping[str, Items[A_co]], Generic[A_co]):
    """A collection in groups of neighbours, for a stage that merges a bounded number of items at a time."""

    def __init__(self, members: Mapping[str, Items[A_co]]) -> None:
        self._members = members

    def __getitem__(self, group: str) -> Items[A_co]:
        return self._members[group]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


_Function = Callable[..., Any]


class PartOptions(TypedDict, total=False):
    """What `part` takes; `stage` says what each means."""

    over: str | None
    by: str | None
    files: Callable[..., Listing] | None
    when: str | None
    cpu: Literal["python", "native"]
    memory: str | None
    lighter: str
    batch: int
    floats: bool


class StageOptions(PartOptions, total=False):
    """What `stage` takes."""

    refines: str | None
    always: bool
    wanted: Callable[..., bool] | None
    unless: Callable[..., str] | None
    after: tuple[str, ...]
    quick: bool
    minor: bool
    replaces: tuple[str, ...]
    merge: _Function | tuple[_Function, ...]
    parts: tuple[Stage, ...]


_DEFAULTS: dict[str, Any] = {
    "over": None, "by": None, "files": None, "when": None, "refines": None, "always": False, "wanted": None,
    "unless": None,
    "after": (), "cpu": "python", "memory": None, "lighter": "", "batch": 8, "floats": False, "quick": False,
    "minor": False, "replaces": (), "merge": (), "parts": (),
}
_INHERITED = ("cpu", "memory", "lighter")
MERGED = 4                  # groups a call, where a merge states nothing


class Stage:
    """A stage function with what its decorator says; calling it calls the function."""

    def __init__(self, function: _Function, **stated: Any) -> None:
        if unknown := stated.keys() - _DEFAULTS.keys():
            raise TypeError(f"stage() has no option {', '.join(sorted(unknown))}")
        options = {**_DEFAULTS, **stated}
        self.function = function
        self.over: str | None = options["over"]
        self.by: str | None = options["by"]
        self.files: Callable[..., Listing] | None = options["files"]
        self.when: str | None = options["when"]
        self.refines: str | None = options["refines"]
        self.always: bool = options["always"]
        self.wanted: Callable[..., bool] | None = options["wanted"]
        self.unless: Callable[..., str] | None = options["unless"]
        self.after: tuple[str, ...] = tuple(options["after"])
        self.cpu: Literal["python", "native"] = options["cpu"]
        self.memory: int = size(options["memory"]) if options["memory"] else 0
        """Bytes that one batch needs, so that no more of them run at once than fit."""
        self.lighter: str = options["lighter"]
        self.batch: int = options["batch"]
        self.floats: bool = options["floats"]
        self.quick: bool = options["quick"]
        self.minor: bool = options["minor"]
        self.replaces: tuple[str, ...] = tuple(options["replaces"])
        self.stated = stated
        self.owner: Stage | None = None
        """The stage that this one is a part of."""
        self.source: str | None = None
        """The part of the same stage whose product the first parameter receives."""
        self.folds = False
        """The function makes one artifact of many, and is called once for every group."""
        self.parts: dict[str, Stage] = {}
        self.name = self.label = function.__module__.rpartition(".")[2]
        self.__module__ = self.__entry__ = function.__module__
        self.__qualname__ = function.__qualname__
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        for one in options["parts"]:
            self._add(one.__name__, one)
        if options["merge"]:
            self._merge(options["merge"] if isinstance(options["merge"], tuple) else (options["merge"],))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @cached_property
    def hints(self) -> dict[str, Any]:
        """The annotations of the function; a NameError where a type is not imported."""
        return get_type_hints(self.function, include_extras=True)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """What each parameter is annotated as."""
        return {name: self.hints.get(name) for name in inspect.signature(self.function).parameters}

    def run(self, inputs: Mapping[str, Any]) -> Any:
        """What the function gives; of one that merges, an artifact for every group. `inputs`: by the names of
        parameters and of the fields of views."""
        arguments = _sorted_in(self.parameters, inputs)
        if not self.folds:
            return self.function(**arguments)
        groups = arguments.pop(str(self.over))
        return ((name, self.function(members, **arguments)) for name, members in groups.items())

    def __repr__(self) -> str:
        return f"<stage {self.name}>"

    def __reduce__(self) -> Any:
        # A worker imports the stage by name and checks its code against the driver's.
        return self.__qualname__ if self.owner is None else (part_of, (self.owner, self.label))

    def _add(self, label: str, one: Stage) -> None:
        if one.owner is not None or label in self.parts:
            raise TypeError(f"{label} is a part of {self.name} twice, or of another stage")
        one.owner, one.label, one.name, one.__entry__ = self, label, f"{self.name}.{label}", ""
        one.when = one.when or self.when
        self.parts[label] = one

    def _merge(self, levels: tuple[_Function | Stage, ...]) -> None:
        """The function becomes a part, each merge but the last another, and the last
        one what the stage gives."""
        own = {name: value for name, value in self.stated.items() if name in _OF_ITEMS}
        self._add("items", Stage(self.function, **own))
        shared = {name: self.stated[name] for name in _INHERITED if name in self.stated}
        before, last = "items", len(levels)
        for number, level in enumerate(levels, 1):
            function = level.function if isinstance(level, Stage) else level
            stated = level.stated if isinstance(level, Stage) else {"batch": MERGED, **shared}
            if number < last:
                first = next(iter(inspect.signature(function).parameters))
                one = Stage(function, **{**stated, "over": first})
                one.folds, one.source = True, before
                self._add(before := f"merge{number}", one)
        usual = Stage(function, **stated)
        self.function, self.source, self.over, self.by, self.files = function, before, None, None, None
        self.cpu, self.memory, self.lighter, self.floats = (
            usual.cpu,
            usual.memory,
            usual.lighter,
            usual.floats,
        )


_OF_ITEMS = ("over", "by", "files", "batch", "floats", *_INHERITED)


def part_of(owner: Stage, label: str) -> Stage:
    """A part of a stage by its name in it."""
    return owner.parts[label]


def steps_of(registry: Registry) -> dict[str, Stage]:
    """Every stage of a registry by its name, and its parts as `stage.part`."""
    found: dict[str, Stage] = {}
    for name in registry.names():
        one = found[name] = registry[name]
        found |= {f"{name}.{label}": inner for label, inner in one.parts.items()}
    return found


@overload
def stage(function: _Function, /) -> Stage: ...
@overload
def stage(**options: Unpack[StageOptions]) -> Callable[[_Function], Stage]: ...
def stage(function: _Function | None = None, /, **options: Any) -> Any:
    """Make a function a stage, and the entry of its file.

    What it runs over: over: the `Items[...]` parameter whose items are processed one by one, or "files" for
    the files of a listing. Groups of
        a `Groups[...]` parameter are processed in the same way.
    by: a second collection. Each pair of an item of `by` and one of `over` is an item, named `pair(by,
        over)`. A call gets items of `over` that lack the same items of `by`, and yields all their pairs.
    files: a function that lists the source files to read, from the stage's tables.
    batch: the number of items of `over` per call.

    What it consists of: merge: one or more functions that combine all items into one product. The first
    parameter of each is `Items[...]`. All
        but the last run on groups of up to 64 neighbouring items, the last on all remaining products.
    parts: steps internal to the stage, defined with `part`; no other stage sees their products.

    When it runs: when: the recipe table without which the stage is off. refines: the stage whose product it
    improves for all consumers. It is on if the recipe has the first table that it
        takes, if `always` is set, or if `wanted` returns true for its tables.
    unless: a function of tables that gives the reason why it is off, or nothing.
    after: refinements that run before this one.
    quick: it takes about a second and decides what expensive stages do, so `plan` runs it in memory.

    How it runs:
    cpu: "native" if it releases the interpreter lock.
    memory: what one batch needs, such as "2GB".
    lighter: the recipe keys that reduce it, as a suggestion in errors.
    floats: results depend on the processor's features, which then enter the key.
    minor: the log shows it only with `-v`.
    replaces: stages whose products are not copied beside the lock, as this one's hold them.
    """
    return Stage(function) if function is not None else lambda target: Stage(target, **options)


@overload
def part(function: _Function, /) -> Stage: ...
@overload
def part(**options: Unpack[PartOptions]) -> Callable[[_Function], Stage]: ...
def part(function: _Function | None = None, /, **options: Any) -> Any:
    """A step that belongs to a stage of the same file, which names it in `parts` or `merge`: wired, keyed,
    cached and run like a stage, but seen by that stage alone. The options are those of `stage`; `when` is
    the stage's own unless stated.
    """
    made = Stage(function) if function is not None else None
    if made is not None:
        made.__entry__ = ""
        return made

    def mark(target: _Function) -> Stage:
        one = Stage(target, **options)
        one.__entry__ = ""
        return one

    return mark


_log: contextvars.ContextVar[Callable[[str], None] | None] = contextvars.ContextVar(
    "npuflow_log", default=None
)
_progress: contextvars.ContextVar[Callable[[int, int], None] | None] = contextvars.ContextVar(
    "npuflow_progress", default=None
)


def library(table: str) -> tuple[Path, ...]:
    """The files that a library table may name. No key holds them: only for what is never
    stored, the words of a refusal."""
    from npuflow.flow.recipe_files import library_folders  # needed once something is wrong

    return tuple(sorted(library_folders()[table].glob("*.toml")))


def log(text: str) -> None:
    """Append a line to the running step's log, which is kept with its record; outside a step, nothing."""
    sink = _log.get()
    if sink is not None:
        sink(text)


def progress(done: int, total: int) -> None:
    """Tell how far the running step is."""
    sink = _progress.get()
    if sink is not None:
        sink(done, total)


@contextlib.contextmanager
def listening(
    on_log: Callable[[str], None] | None = None, on_progress: Callable[[int, int], None] | None = None
) -> Iterator[None]:
    """Receive the log lines and progress of the step run inside (the executor's side
    of `log` and `progress`)."""
    tokens = _log.set(on_log), _progress.set(on_progress)
    try:
        yield
    finally:
        _log.reset(tokens[0])
        _progress.reset(tokens[1])


__all__ = [
    "STAGES",
    "Groups",
    "Item",
    "Items",
    "Listing",
    "Project",
    "Stage",
    "View",
    "Whole",
    "inputs_of",
    "is_view",
    "listening",
    "log",
    "pair",
    "part",
    "part_of",
    "progress",
    "shown",
    "size",
    "stage",
    "steps_of",
]
