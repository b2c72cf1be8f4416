"""Keys: the pre-image of a step or item, whole and in two parts, so that what is shared is digested once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from npuflow.base.code import Closure, plugin_closure
from npuflow.base.digest import digest
from npuflow.base.errors import InternalError
from npuflow.base.files import file_digest
from npuflow.base.registry import Registry
from npuflow.flow.refs import ArtifactRef, Item, ItemsRef, Listing, Ref, groups, pair, parts
from npuflow.flow.signature import Upstream

SCHEME = 1
"""Version of the pre-image's form. Raise it when the same facts are written differently."""

CONTRACT = 1
"""Version of what stages see of flow and base. Raise it when a stage could compute something else under equal keys."""

Load = Callable[..., Any]


@dataclass(frozen=True)
class Input:
    """What a parameter receives: the product of `step`, or None where an optional stage is off."""

    step: str | None
    upstream: Upstream
    each: bool = False
    """The stage runs over this collection, one item at a time."""


def entries(label: str) -> set[str]:
    """A plug-in of a key and the entries that its code names by constants."""
    name, _, facets = label.partition(":")
    registry, _, entry = name.partition("/")
    return {name} | plugin_code(registry, entry, tuple(facets.split(",")) if facets else None)[1].entries


class Keyed(Protocol):
    """What keys need to know of a step."""

    @property
    def name(self) -> str: ...
    @property
    def over(self) -> str | None: ...
    @property
    def by(self) -> str | None: ...
    @property
    def listing(self) -> Listing | None: ...
    @property
    def code(self) -> Closure: ...
    @property
    def fixed(self) -> dict[str, Any]: ...
    @property
    def inputs(self) -> Mapping[str, Input]: ...


def key_of(preimage: Mapping[str, Any]) -> str:
    """The key of a whole pre-image, as it stands in a record."""
    shared = {name: value for name, value in preimage.items() if name != "item"}
    return _key(digest(shared), preimage.get("item"))


def _key(shared: str, item: Any) -> str:
    return digest([SCHEME, shared, item])


def plugin_code(registry: str, name: str, facets: tuple[str, ...] | None) -> tuple[str, Closure]:
    """How a plug-in is called in a key, and its code."""
    known = Registry.known.get(registry)
    if known is None:
        raise InternalError(
            f'an artifact uses "{registry}/{name}", but no such registry has been imported',
            code="NF-INTERNAL-021",
        )
    label = f"{registry}/{name}" + (":" + ",".join(facets) if facets else "")
    return label, plugin_closure(known, name, facets or ())


class Bound:
    """A step whose inputs are known by digest."""

    __slots__ = ("__dict__", "load", "refs", "step")

    def __init__(self, step: Keyed, refs: Mapping[str, Ref | None], load: Load | None) -> None:
        self.step, self.refs, self.load = step, refs, load

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
        """Of a stage that runs over groups: their members. A planner that knows of more items than are made sets it."""
        return groups(self._each(), self.step.name)

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
            ref = self.refs[name]
            if place.each:
                continue
            if not (place.upstream.project and step.over):
                body["inputs"][name] = self._input(place, ref, None)
            if ref is not None:
                self._plugins(place, ref.uses, body)
        if step.listing is not None and step.over != "files":
            body["files"] = {name: _source(item) for name, item in step.listing.items()}
            for item in step.listing.values():
                self._plugins(None, item.uses, body)
        return body

    @cached_property
    def reach(self) -> frozenset[str]:
        """The registry entries ("ops/relu") whose code the key holds, but for those that only an item names."""
        found = set(self.step.code.entries)
        for label in self.shared["plugins"]:
            found |= entries(label)
        return frozenset(found)

    @cached_property
    def _shared_digest(self) -> str:
        return digest(self.shared)

    def preimage(self, item: str | None = None) -> dict[str, Any]:
        return self.shared if item is None else {**self.shared, "item": self.item(item)}

    def key(self, item: str | None = None) -> str:
        return _key(self._shared_digest, None if item is None else self.item(item))

    def item(self, item: str) -> dict[str, Any]:
        """An item's own part: its id, its content, and whatever is projected for it."""
        step = self.step
        body: dict[str, Any] = {"id": item}
        extra: dict[str, Any] = {"plugins": {}, "libraries": {}}
        if step.over == "files":
            source = (step.listing or {})[item]
            body.update(_source(source))
            self._plugins(None, source.uses, extra)
        else:
            body["input"] = self._made_of(item, extra)
        for name, place in step.inputs.items():
            if place.upstream.project and not place.each:
                body.setdefault("projected", {})[name] = self._input(place, self.refs[name], item)
        body.update({name: part for name, part in extra.items() if part})
        return body

    def _made_of(self, item: str, extra: dict[str, Any]) -> Any:
        """The digest of the collection's item; of a group's members; of both items of a pair, by parameter."""
        found: dict[str, Any] = {}
        for name, members in self.sources(item).items():
            place = self.step.inputs[name]
            for ref in members.values():
                self._plugins(place, ref.uses, extra)
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

    def _plugins(self, place: Input | None, uses: Mapping[str, tuple[str, ...]], body: dict[str, Any]) -> None:
        facets = place.upstream.facets if place is not None else None
        if facets == ():
            return
        for registry, names in uses.items():
            for name in names:
                label, code = plugin_code(registry, name, facets)
                body["plugins"][label] = code.digest
                body["libraries"].update(code.libraries)


def pairs(by: Iterable[str], over: Iterable[str]) -> tuple[str, ...]:
    """The ids of all pairs, those of one item of `by` together."""
    over = tuple(over)
    for name in by:
        if ":" in name:
            raise InternalError(
                f'"{name}" cannot be paired with other items: the id holds a colon', code="NF-INTERNAL-024",
            )
    return tuple(pair(one, other) for one in by for other in over)


def _source(item: Item) -> dict[str, Any]:
    return {"files": [file_digest(path) for path in item.files], "detail": item.detail}
