"""Wiring: from a registry of stages and a recipe to a plan, by signature alone."""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path
from types import MappingProxyType
from typing import Any

from npuflow.base.errors import InternalError, RecipeError, UsageError, suggestion
from npuflow.base.registry import Registry
from npuflow.base.tables import Config, table_of
from npuflow.flow.artifact import Artifact
from npuflow.flow.faults import unlisted
from npuflow.flow.keys import Input, Step
from npuflow.flow.plan import Plan
from npuflow.flow.recipe import Recipe
from npuflow.flow.signature import Signature, Upstream, signature, tables_of
from npuflow.flow.stage import Stage, steps_of


def wire(
    registry: Registry, recipe: Recipe, until: str | None = None, override: Mapping[str, Path] | None = None,
    *, lenient: bool = False,
) -> Plan:
    """The plan of every stage that the recipe switches on, or of one stage and what it needs. `lenient`:
    tables with faults are read without the keys at fault, to find what else is wrong; nothing can be built of
    it."""
    override = dict(override or {})
    stages = steps_of(registry)
    for name in [*override, *([until] if until is not None else [])]:
        if name not in stages:
            raise UsageError(
                f'there is no stage "{name}"', hint=suggestion(name, tuple(stages)), code="NF-USAGE-017",
            )
    unless = {name: why for name, why in _asked(stages, recipe, "unless").items() if why}
    wanted = {name for name, on in _asked(stages, recipe, "wanted").items() if on}
    wiring = _Wiring(stages, recipe.tables, override, wanted, unless)
    order = wiring.order(until)
    steps = _steps(order, wiring, recipe, override, lenient=lenient)
    return Plan(
        tuple(steps), recipe, {name: why for name, why in wiring.off.items() if stages[name].owner is None}
    )


def _asked(stages: Mapping[str, Stage], recipe: Recipe, option: str) -> dict[str, Any]:
    """By stage what its function of tables says, which decides whether it is on. Tables with faults are not
    asked; they are reported."""
    found: dict[str, Any] = {}
    known = [cls for stage in stages.values() for cls in signature(stage).tables.values()]
    for name, stage in stages.items():
        function = getattr(stage, option)
        if function is None:
            continue
        read = {param: recipe.read(cls, known)[0] for param, cls in tables_of(function, stage).items()}
        if all(table is not None for table in read.values()):
            found[name] = function(**read)
    return found


def whole_of(stages: Mapping[str, Stage], name: str) -> str:
    """The stage that a part belongs to; any other stage itself."""
    return name if stages[name].owner is None else name.rpartition(".")[0]


def table_at(tables: Mapping[str, Any], path: str) -> Any:
    """The table at a dotted path of a recipe, or None."""
    found: Any = tables
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


class _Wiring:
    """Who feeds whom."""

    def __init__(
        self,
        stages: dict[str, Stage],
        tables: Mapping[str, Any],
        override: Mapping[str, Path],
        wanted: Set[str] = frozenset(),
        unless: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.stages = stages
        self.override = override
        self.signatures: dict[str, Signature] = {name: signature(stage) for name, stage in stages.items()}
        self.off: dict[str, str] = dict(unless)
        for name in stages:
            table, whole = self._switch(name), whole_of(stages, name)
            if table is not None and table_at(tables, table) is None and not {name, whole} & wanted:
                self.off[name] = f"the recipe has no table [{table}]"
            elif whole in self.off:
                self.off[name] = self.off[whole]
        self.refining: dict[str, list[str]] = {}
        for name, stage in stages.items():
            self.refining.setdefault(stage.refines or "", []).append(name)
        self.chains = {name: self._chain(name) for name in stages if stages[name].refines is None}
        self.makers: dict[tuple[type[Artifact], str], list[str]] = {}
        for name, sign in self.signatures.items():
            self.makers.setdefault((sign.output, sign.product), []).append(name)
        self.inputs: dict[str, dict[str, str]] = {}
        for name in stages:
            self.inputs[name] = {
                param: self._provider(name, param, need) for param, need in self._upstream(name)
            }
        self._spread_off()

    def _switch(self, name: str) -> str | None:
        """The table that turns a stage on; a refinement's own first table unless it says otherwise."""
        stage = self.stages[name]
        if stage.when is not None or stage.refines is None or stage.always:
            return stage.when
        return next((table_of(cls) for cls in self.signatures[name].tables.values()), None)

    def _upstream(self, name: str) -> list[tuple[str, Upstream]]:
        return [] if name in self.override else list(self.signatures[name].upstream.items())

    def _chain(self, base: str) -> list[str]:
        """A stage and its refinements that are on, in order."""
        on = [name for name in self.refining.get(base, ()) if name not in self.off]
        for name in on:
            if self.signatures[name].output is not self.signatures[base].output:
                raise InternalError(
                    f'"{name}" refines "{base}" but returns another type', code="NF-INTERNAL-037",
                )
        ordered: list[str] = []
        while on:
            free = [name for name in on if not set(self.stages[name].after) & set(on)]
            if len(free) != 1:
                names = " and ".join(sorted(free or on))
                raise InternalError(
                    f'the order of {names}, which refine "{base}", is not stated',
                    hint=f'write @stage(refines="{base}", after=(...)) in one of them',
                    code="NF-INTERNAL-038",
                )
            ordered += free
            on.remove(free[0])
        return [base, *ordered]

    def _provider(self, name: str, param: str, need: Upstream) -> str:
        """The stage whose product a parameter receives: the only one of its type,
        else the one of its name."""
        stage, whole = self.stages[name], whole_of(self.stages, name)
        if stage.source is not None and param == next(iter(self.signatures[name].upstream)):
            return f"{whole}.{stage.source}"
        base = self.stages[whole].refines
        wants = "items" if need.items else "one"
        makers = [
            other
            for other in self.makers.get((need.kind, wants), ())
            if other in self.chains and whole_of(self.stages, other) in (other, whole)
        ]
        if base in makers:  # a refinement improves on what stands before it
            chain = self.chains[str(base)]
            return chain[chain.index(whole) - 1] if whole in chain else chain[-1]
        makers = [other for other in makers if other not in (name, whole)]
        if len(makers) > 1:
            makers = [other for other in makers if other.removeprefix(f"{whole}.") == param]
        if len(makers) != 1:
            raise InternalError(
                f'the stage "{name}" cannot be wired: no one stage yields {need.kind.__name__} for "{param}"',
                hint="return that type from one stage, or name the parameter after the stage",
                code="NF-INTERNAL-039",
            )
        return self.chains[makers[0]][-1]

    def _spread_off(self) -> None:
        """A stage that needs a stage which is off is off itself."""
        changed = True
        while changed:
            changed = False
            for name in self.stages:
                for param, need in self._upstream(name):
                    source = self.inputs[name][param]
                    if name not in self.off and source in self.off and not need.optional:
                        self.off[name] = f'it needs "{source}", and {self.off[source]}'
                        changed = True

    def order(self, until: str | None) -> list[str]:
        """Topological order of what is on, by name where the graph leaves a choice."""
        if until is not None and until in self.off:
            raise UsageError(f'the stage "{until}" is off', because=self.off[until], code="NF-USAGE-016")
        done: list[str] = []
        for name in [until] if until is not None else sorted(self.stages):
            if name not in self.off and (name == until or self.stages[name].owner is None):
                self._visit(name, done, ())
        return done

    def _visit(self, name: str, done: list[str], path: tuple[str, ...]) -> None:
        if name in path:
            raise InternalError(
                "stages depend on each other in a cycle: " + " <- ".join([*path[path.index(name) :], name]),
                code="NF-INTERNAL-040",
            )
        if name in done:
            return
        for source in sorted(self.inputs[name].values()):
            if source not in self.off:
                self._visit(source, done, (*path, name))
        done.append(name)


def _steps(
    order: list[str], wiring: _Wiring, recipe: Recipe, override: Mapping[str, Path], *, lenient: bool
) -> list[Step]:
    known = [
        cls for sign in wiring.signatures.values() for cls in (*sign.tables.values(), *sign.listing.values())
    ]
    needed: dict[type[Config], None] = {}

    def config(cls: type[Config]) -> Config | None:
        needed[cls] = None
        return recipe.readable(cls, known) if lenient else recipe.read(cls, known)[0]

    steps = []
    for name in order:
        sign = wiring.signatures[name]
        source = name in override
        configs = {} if source else {param: config(cls) for param, cls in sign.tables.items()}
        listed = {
            param: cls
            for param, cls in sign.listing.items()
            if param not in sign.maybe or recipe.has(table_of(cls))
        }
        listing = {} if source else {param: config(cls) for param, cls in listed.items()}
        inputs = {
            param: Input(None if (made := wiring.inputs[name][param]) in wiring.off else made, need,
                         each=param in (wiring.stages[name].over, wiring.stages[name].by))
            for param, need in wiring._upstream(name)
        }
        given = override.get(name)
        steps.append(
            Step(name, wiring.stages[name], sign, configs, inputs, listing, given)  # type: ignore[arg-type]
        )
    if not lenient and (faults := recipe.faults(known, required=needed)):
        raise RecipeError([*faults, *unlisted(steps, recipe, known)])
    return steps
