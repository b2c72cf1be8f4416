"""The wired plan: stages in order, each with its tables, its upstream steps and the
pre-images of its keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from npuflow.base.code import Closure, closure
from npuflow.base.errors import NpuflowError
from npuflow.base.tables import Config, canonical, selections, table_of
from npuflow.flow.keys import Bound, Input, selected_code
from npuflow.flow.processor import processor
from npuflow.flow.refs import Listing, Ref
from npuflow.flow.signature import Signature
from npuflow.flow.stage import Stage


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
        named = [(registry.name, name) for registry, name in pairs]  # type: ignore[attr-defined]
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


@dataclass
class Plan:
    """Steps in topological order."""

    steps: tuple[Step, ...]
    recipe: Any
    off: dict[str, str] = field(default_factory=dict)
    """Stages that are not run, and why."""

    def forced(self, names: Collection[str]) -> frozenset[str]:
        """The steps that are meant by names of stages and of parts: a stage means all of its parts too."""
        return frozenset(step.name for step in self.steps if step.name in names or step.whole in names)

    @cached_property
    def _index(self) -> dict[str, Step]:
        return {step.name: step for step in self.steps}

    def __getitem__(self, name: str) -> Step:
        return self._index[name]

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)
