"""Steps of a plan and their keys: the pre-image of a step or item, its shared part digested once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from npuflow.base.code import (
    Closure,
    Mentions,
    closure,
    derived,
    facets_of,
    plugin_closure,
    registry_named,
)
from npuflow.base.digest import digest
from npuflow.base.errors import InternalError, NpuflowError
from npuflow.base.files import file_digest
from npuflow.base.tables import Config, canonical, selections, table_of
from npuflow.flow.processor import processor
from npuflow.flow.refs import ArtifactRef, Item, ItemsRef, Listing, Ref, Uses, groups, pair, parts
from npuflow.flow.signature import Signature, Upstream
from npuflow.flow.stage import Stage

SCHEME = 1
"""Version of the pre-image's form. Raise it when the same facts are written differently."""

CONTRACT = 1
"""Version of what stages see of flow and base. Raise it when a stage could compute
something else under equal keys."""

Load = Callable[..., Any]


@dataclass(frozen=True)
class Input:
    """What a parameter receives: the product of `step`, or None where an optional stage is off."""

    step: str | None
    upstream: Upstream
    each: bool = False
    """The stage runs over this collection, one item at a time."""


@dataclass
class Step:
    """A stage in a plan."""

    name: str
    stage: Stage
    signature: Signature
    configs: dict[str, Config]
    inputs: dict[str, Input]
    listing_configs: dict[str, Config] = field(default_factory=dict)
    override: Path | None = None
    _bound: tuple[Any, Bound] | None = field(default=None, repr=False)

    @property
    def whole(self) -> str:
        """The stage that users know the step by: of a part, the one that it belongs to."""
        return self.name if self.stage.owner is None else self.name.rpartition(".")[0]

    @property
    def over(self) -> str | None:
        return self.stage.over

    @property
    def by(self) -> str | None:
        return self.stage.by

    @cached_property
    def code(self) -> Closure:
        return closure(self.stage.function)

    @cached_property
    def listing(self) -> Listing | None:
        """The source items, listed on first use."""
        if self.stage.files is None:
            return None
        try:
            return self.stage.files(**self.listing_configs)
        except NpuflowError as error:
            raise error.at(stage=self.name) from error

    def in_recipe(self, tables: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Tables of a pre-image, which has them under the names of the stage's parameters, under those that a
        recipe has."""
        found: dict[str, dict[str, Any]] = {}
        for name, table in tables.items():
            place = table_of(type(self.configs[name])) if name in self.configs else name
            found.setdefault(place, {}).update(table)
        return found

    @cached_property
    def selected(self) -> dict[str, Closure]:
        """The plug-ins that the step's tables name, with what the step's code may call of them."""
        pairs = (pair for config in self.configs.values() for pair in selections(config))
        named = [(registry.name, name) for registry, name in pairs]
        return selected_code(named, self.code)

    @cached_property
    def fixed(self) -> dict[str, Any]:
        """The part of the pre-image that depends on no input."""
        libraries = dict(self.code.libraries)
        for entry in self.selected.values():
            libraries.update(entry.libraries)
        if self.stage.floats or "onnxruntime" in libraries:
            libraries["cpu"] = processor()
        return {
            "stage": self.name,
            "code": self.code.digest,
            "config": {name: canonical(config) for name, config in sorted(self.configs.items())},
            "plugins": {label: entry.digest for label, entry in self.selected.items()},
            "libraries": libraries,
        }

    def bind(self, refs: Mapping[str, Ref | None], load: Callable[..., Any] | None = None) -> Bound:
        """This step with its inputs known: gives item ids, pre-images and keys.
        `load(ref, cls)` serves projections."""
        mark = tuple((name, None if ref is None else ref.digest) for name, ref in sorted(refs.items()))
        if self._bound is None or self._bound[0] != mark:
            self._bound = mark, Bound(self, refs, load)
        return self._bound[1]

    def preimage(
        self, refs: Mapping[str, Ref | None], item: str | None = None, load: Callable[..., Any] | None = None
    ) -> dict[str, Any]:
        """Everything that the step (or one item of it) depends on, as JSON-able data."""
        return self.bind(refs, load).preimage(item)

    def key(
        self, refs: Mapping[str, Ref | None], item: str | None = None, load: Callable[..., Any] | None = None
    ) -> str:
        return self.bind(refs, load).key(item)


def key_of(preimage: Mapping[str, Any]) -> str:
    """The key of a whole pre-image, as it stands in a record."""
    shared = {name: value for name, value in preimage.items() if name != "item"}
    return _key(digest(shared), preimage.get("item"))


def _key(shared: str, item: Any) -> str:
    return digest([SCHEME, shared, item])


Plugin = tuple[str, str]
"""A registry and a name in it."""


def plugin_code(registry: str, name: str, wanted: Mentions | None = None) -> Closure:
    """The code of a plug-in: all of it, or the methods that are wanted."""
    known = registry_named(registry)
    if known is None:
        raise InternalError(
            f'an artifact uses "{registry}/{name}", but no such registry has been imported',
            code="NF-INTERNAL-021",
        )
    return plugin_closure(known, name, None if wanted is None else facets_of(known, name, wanted))


def used_code(plugins: Collection[Plugin], code: Iterable[Closure]) -> dict[str, Closure]:
    """Of the plug-ins that inputs or code name, the methods that `code` may call, and those that
    plug-ins may call of each other.
    """
    code = tuple(code)
    # identities, as closures stay as long as what is derived from them; kept beside it, for those that do not
    mark = used_code, frozenset(plugins), frozenset(map(id, code))
    return derived(mark, lambda: (code, _used_code(plugins, code)))[1]


def _used_code(plugins: Collection[Plugin], code: tuple[Closure, ...]) -> dict[str, Closure]:
    wanted = Mentions(mention for one in code for mention in one.mentions)
    labels = {f"{registry}/{name}" for registry, name in plugins}.union(*(one.entries for one in code))
    while True:
        known = len(wanted.mentions), len(labels)
        found = {label: plugin_code(*split(label), wanted) for label in sorted(labels)}
        for one in found.values():
            wanted.add(one.mentions)
            labels |= one.entries
        if (len(wanted.mentions), len(labels)) == known:
            return found


def selected_code(named: Collection[Plugin], code: Closure) -> dict[str, Closure]:
    """The plug-ins that tables name, with the methods that a stage's code may call of them."""
    found = used_code(named, [code]) if named else {}
    return {f"{registry}/{name}": found[f"{registry}/{name}"] for registry, name in named}


def split(label: str) -> Plugin:
    """A plug-in by what it is called in keys."""
    registry, _, name = label.partition("/")
    return registry, name


class Bound:
    """A step whose inputs are known by digest."""

    __slots__ = ("__dict__", "load", "refs", "step")

    def __init__(self, step: Step, refs: Mapping[str, Ref | None], load: Load | None) -> None:
        self.step, self.refs, self.load = step, refs, load
        self._keys: dict[str | None, str] = {}

    @cached_property
    def ids(self) -> tuple[str, ...] | None:
        """The item ids in listing order, or None for a step that is not a fan-out."""
        step = self.step
        if step.over is None:
            return None
        if step.over == "files":
            return tuple(step.listing or ())
        if step.by is not None:
            return pairs(self._each(step.by), self._each())
        return tuple(self.groups if step.inputs[step.over].upstream.grouped else self._each())

    @cached_property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Of a stage that runs over groups: their members."""
        return groups(self._each(), self.step.name)

    def regroup(self, found: dict[str, tuple[str, ...]]) -> None:
        """State the members of all groups, for a planner that knows of more items than are made."""
        self.groups = found
        self._keys.clear()

    def members(self, item: str) -> dict[str, tuple[str, ...]]:
        """What an item is made of: parameter -> items of that collection."""
        step = self.step
        if step.over is None or step.over == "files":
            return {}
        if step.by is not None:
            by, over = parts(item)
            return {step.by: (by,), step.over: (over,)}
        return {step.over: self.groups[item] if step.inputs[step.over].upstream.grouped else (item,)}

    def sources(self, item: str) -> dict[str, dict[str, ArtifactRef]]:
        """The same with their products."""
        made_of = self.members(item)
        return {name: {one: self._each(name)[one] for one in members} for name, members in made_of.items()}

    @cached_property
    def shared(self) -> dict[str, Any]:
        """The pre-image without its item."""
        step = self.step
        body: dict[str, Any] = {"scheme": SCHEME, "contract": CONTRACT, **step.fixed}
        body["plugins"], body["libraries"] = dict(body["plugins"]), dict(body["libraries"])
        body["inputs"] = {}
        for name, place in sorted(step.inputs.items()):
            if not place.each and not (place.upstream.project and step.over):
                body["inputs"][name] = self._input(place, self.refs[name], None)
        if step.listing is not None and step.over != "files":
            body["files"] = {name: _source(item) for name, item in step.listing.items()}
        _hold(body, self._code(self.named))
        return body

    @cached_property
    def named(self) -> frozenset[Plugin]:
        """The plug-ins that inputs name which all items share."""
        step = self.step
        found = [
            ref.uses for name, ref in self.refs.items() if ref is not None and not step.inputs[name].each
        ]
        if step.listing is not None and step.over != "files":
            found += [item.uses for item in step.listing.values()]
        return frozenset(_plugins(found))

    def _code(self, plugins: frozenset[Plugin]) -> dict[str, Closure]:
        """The code of plug-ins, as far as this step may use it."""
        return used_code(plugins, (self.step.code, *self.step.selected.values()))

    @cached_property
    def reach(self) -> frozenset[str]:
        """The registry entries ("ops/relu") whose code the key holds, but for those
        that only an item names."""
        return frozenset({*self.step.selected, *self._code(self.named)})

    def reach_of(self, item: str) -> frozenset[str]:
        """The same for one item."""
        named = self._plugins_of(item)
        return self.reach.union(self._code(named)) if named else self.reach

    @cached_property
    def _shared_digest(self) -> str:
        return digest(self.shared)

    def preimage(self, item: str | None = None) -> dict[str, Any]:
        return self.shared if item is None else {**self.shared, "item": self.item(item)}

    def key(self, item: str | None = None) -> str:
        if item not in self._keys:
            self._keys[item] = _key(self._shared_digest, None if item is None else self.item(item))
        return self._keys[item]

    def item(self, item: str) -> dict[str, Any]:
        """An item's own part: its id, its content, and whatever is projected for it."""
        step = self.step
        body: dict[str, Any] = {"id": item}
        if step.over == "files":
            body.update(_source((step.listing or {})[item]))
        else:
            body["input"] = self._made_of(item)
        for name, place in step.inputs.items():
            if place.upstream.project and not place.each:
                body.setdefault("projected", {})[name] = self._input(place, self.refs[name], item)
        if named := self._plugins_of(item):
            shared = self._code(self.named)
            own = {label: code for label, code in self._code(named).items() if shared.get(label) is not code}
            extra: dict[str, Any] = {"plugins": {}, "libraries": {}}
            _hold(extra, own)
            body.update({name: part for name, part in extra.items() if part})
        return body

    def _plugins_of(self, item: str) -> frozenset[Plugin]:
        """The plug-ins of an item, with those that all share; nothing if it names none."""
        step = self.step
        if step.over == "files":
            found = frozenset(_plugins([(step.listing or {})[item].uses]))
        else:
            found = frozenset(
                _plugins(ref.uses for members in self.sources(item).values() for ref in members.values())
            )
        return found | self.named if found else found

    def _made_of(self, item: str) -> Any:
        """The digest of the collection's item; of a group's members; of both items
        of a pair, by parameter."""
        found: dict[str, Any] = {}
        for name, members in self.sources(item).items():
            place = self.step.inputs[name]
            if place.upstream.grouped:
                found[name] = ItemsRef(members).digest
            else:
                ((member, ref),) = members.items()
                found[name] = self._input(place, ref, member)
        return found if self.step.by is not None else found[str(self.step.over)]

    def _each(self, param: str | None = None) -> Mapping[str, ArtifactRef]:
        param = str(self.step.over) if param is None else param
        ref = self.refs[param]
        if not isinstance(ref, ItemsRef):
            raise InternalError(
                f'the stage "{self.step.name}" runs over "{param}", which is not a collection',
                code="NF-INTERNAL-022",
            )
        return ref.items

    def _input(self, place: Input, ref: Ref | None, item: str | None) -> str | None:
        if ref is None:
            return None
        if place.upstream.project is None or isinstance(ref, ItemsRef):
            return ref.digest
        if self.load is None:
            raise InternalError(f"{self.step.name}: a projected input needs a loader", code="NF-INTERNAL-023")
        project = getattr(self.load(ref, place.upstream.kind), place.upstream.project)
        return digest(project() if item is None else project(item))


def _plugins(several: Iterable[Uses]) -> Iterator[Plugin]:
    for uses in several:
        for registry, names in uses.items():
            yield from ((registry, name) for name in names)


def _hold(body: dict[str, Any], plugins: Mapping[str, Closure]) -> None:
    """Write plug-ins into a pre-image."""
    for label, code in sorted(plugins.items()):
        body["plugins"].setdefault(label, code.digest)
        body["libraries"].update(code.libraries)


def pairs(by: Iterable[str], over: Iterable[str]) -> tuple[str, ...]:
    """The ids of all pairs, those of one item of `by` together."""
    over = tuple(over)
    for name in by:
        if ":" in name:
            raise InternalError(
                f'"{name}" cannot be paired with other items: the id contains a colon',
                code="NF-INTERNAL-024",
            )
    return tuple(pair(one, other) for one in by for other in over)


def _source(item: Item) -> dict[str, Any]:
    return {"files": [file_digest(path) for path in item.files], "detail": item.detail}
