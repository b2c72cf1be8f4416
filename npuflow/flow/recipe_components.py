"""The `[components]` table of a recipe: several recipes in one, whose inputs may be outputs of others.

A component is a recipe: the file that its `recipe` names, under the tables beside `[components]`, under its
own tables. `inputs` says which of its model's inputs are outputs of other components. What these hand on lies
in files of their output folders, which the tables `[component]` (of who makes them) and `[data] beside` (of
who reads them) name: both are written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npuflow.base.errors import NpuflowError, RecipeError, meant
from npuflow.base.tables_files import resolve
from npuflow.base.tables_toml import Locator

TABLE = "components"
MARK = "#"                                # before the name of a component, in "RECIPE.toml#COMPONENT"
HANDS_ON = "hands_on"
OWN = ("recipe", "inputs", HANDS_ON)      # keys of a component that are no tables of a recipe
FILES = {"data": "outputs.npz", "evaluate": "evaluation-outputs.npz"}
"""By the table of samples: the file of what a component makes of them."""
EXAMPLE = '[components.encoder]\nrecipe = "encoder.toml"'


@dataclass(frozen=True)
class Component:
    """One component. `inputs`: input of its model -> component and output that feed it. `hands_on`: the
    function that makes what others read of it, from its inputs and outputs; "": they read its outputs."""

    name: str
    table: Mapping[str, Any]
    at: Locator
    inputs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    hands_on: str = ""

    @property
    def upstream(self) -> tuple[str, ...]:
        """The components whose outputs it reads."""
        return tuple(dict.fromkeys(name for name, _ in self.inputs.values()))


def split(path: str | Path) -> tuple[Path, str]:
    """The file of a recipe and the component that "RECIPE.toml#COMPONENT" names; "" where it names none."""
    file, mark, name = str(path).rpartition(MARK)
    if not mark or not file.endswith((".toml", ".json")) or Path(path).exists():
        return Path(path), ""
    return Path(file), name


def components(table: Any, at: Locator) -> dict[str, Component]:
    """The components of a `[components]` table in an order in which each comes behind those that it reads;
    all faults of the table at once."""
    found: dict[str, Component] = {}
    wrong: list[NpuflowError] = []
    whole = table if isinstance(table, Mapping) else {}
    if not whole:
        wrong.append(RecipeError(
            "a recipe of components names at least one", where=at.where(), hint=EXAMPLE, code="NF-RECIPE-168",
        ))
    for name, own in whole.items():
        here = at.child(name)
        if not isinstance(own, Mapping) or not name.replace("-", "").replace("_", "").isalnum():
            wrong.append(RecipeError(
                f'"{name}" is no component', where=here.where(), hint=EXAMPLE, code="NF-RECIPE-181",
                because="it is a table, called by letters, digits, - and _",
            ))
            continue
        inputs, function = _inputs(own, here, [*whole], wrong), own.get(HANDS_ON, "")
        if not isinstance(function, str):
            wrong.append(RecipeError(
                f'"{HANDS_ON}" names a function', where=here.child(HANDS_ON).where(), code="NF-RECIPE-185",
                because=f"it is {function!r}", hint=f'{HANDS_ON} = "python:crops.py:lines"',
            ))
            continue
        found[name] = Component(name, own, here, inputs, function)
    wrong += [*_circles(found), *_mixed(found)]
    if wrong:
        raise RecipeError(wrong)
    return {name: found[name] for name in _ordered(found)}


def _inputs(
    own: Mapping[str, Any], at: Locator, known: list[str], wrong: list[NpuflowError]
) -> dict[str, tuple[str, str]]:
    """What feeds a component's inputs; faults are appended to `wrong`."""
    stated = own.get("inputs", {})
    pairs = stated.items() if isinstance(stated, Mapping) else [("", stated)]
    found = {}
    for name, source in pairs:
        where = at.child("inputs", *([name] if name else [])).where()
        component, dot, output = source.partition(".") if isinstance(source, str) else ("", "", "")
        if not name or not dot or not output:
            wrong.append(RecipeError(
                "an input is fed by an output of a component", where=where, because=f"it is {source!r}",
                hint='inputs = { memory = "encoder.hidden" }', code="NF-RECIPE-169",
            ))
        elif component not in known:
            wrong.append(RecipeError(
                f'there is no component "{component}"', where=where,
                because=f"components: {', '.join(known)}", hint=meant(component, known), code="NF-RECIPE-170",
            ))
        else:
            found[name] = component, output
    return found


def _circles(found: Mapping[str, Component]) -> Iterator[NpuflowError]:
    """Components that read what is made of their own outputs: each circle once."""
    seen: set[frozenset[str]] = set()
    for name in found:
        way = _way_back(found, name, (name,))
        if way is not None and frozenset(way) not in seen:
            seen.add(frozenset(way))
            yield RecipeError(
                "components feed each other in a circle", where=found[name].at.child("inputs").where(),
                because=" reads ".join(way), code="NF-RECIPE-171",
                hint="state that comes back is of one model: [model] state",
            )


def _mixed(found: Mapping[str, Component]) -> Iterator[NpuflowError]:
    """Components that read rows of a function, of which a sample may have any number, beside others."""
    for one in found.values():
        made = [name for name in one.upstream if name in found and found[name].hands_on]
        if made and len(one.upstream) > 1:
            yield RecipeError(
                f'"{one.name}" reads what the function of "{made[0]}" makes, and other components',
                where=one.at.child("inputs").where(), code="NF-RECIPE-186",
                because="a function makes any number of rows of a sample: none belongs to a row of others",
                hint=f'let the function of "{made[0]}" yield all that "{one.name}" reads',
            )


def _way_back(found: Mapping[str, Component], goal: str, way: tuple[str, ...]) -> tuple[str, ...] | None:
    for name in found[way[-1]].upstream if way[-1] in found else ():
        if name == goal:
            return (*way, goal)
        if name not in way and (whole := _way_back(found, goal, (*way, name))) is not None:
            return whole
    return None


def _ordered(found: Mapping[str, Component]) -> list[str]:
    order: list[str] = []
    while len(order) < len(found):
        order += [n for n, one in found.items() if n not in order and {*one.upstream} <= {*order}][:1]
    return order


def chosen(every: Mapping[str, Component], name: str, shown: str) -> Component:
    """The component of that name; an unknown one is an error that lists them."""
    if name not in every:
        raise RecipeError(
            f'"{shown}" has no component "{name}"', because=f"components: {', '.join(every)}",
            hint=meant(name, list(every)), code="NF-RECIPE-182",
        )
    return every[name]


def handed_on(every: Mapping[str, Component], name: str) -> list[str]:
    """The outputs of a component that others read."""
    read = (source for one in every.values() for source in one.inputs.values())
    return list(dict.fromkeys(output for component, output in read if component == name))


def tables_of(
    every: Mapping[str, Component], one: Component, tables: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """What a component's tables say beside what the recipe writes. `tables`: of the component, merged.
    `folder`: where the output folders of all components are."""
    added: dict[str, Any] = {}
    outputs = handed_on(every, one.name)
    if outputs:
        one_table = {"outputs": outputs, **({HANDS_ON: one.hands_on} if one.hands_on else {})}
        added["component"] = {**one_table, **({"evaluation": one_table} if "evaluate" in tables else {})}
    for table in FILES if one.inputs else ():
        if table == "data" or table in tables:
            added[table] = _fed(one, tables.get(table, {}), folder, FILES[table])
    return added


def _fed(one: Component, table: Any, folder: Path, file: str) -> dict[str, Any]:
    """Where a table of samples finds the inputs that other components make: beside its own samples, or, where
    it has none, the first of them in their place."""
    beside = [
        {
            "source": str(folder / upstream / file),
            "arrays": {name: output for name, (source, output) in one.inputs.items() if source == upstream},
        }
        for upstream in one.upstream
    ]
    if isinstance(table, Mapping) and ("source" in table or "text" in table):
        return {"beside": beside}
    return {**beside[0], **({"beside": beside[1:]} if beside[1:] else {})}


def family(file: Path, merged: Mapping[str, Any], at: Locator, out: Path | None) -> Path:
    """Where the output folders of a recipe's components are. `out`: a folder for all recipes."""
    table = merged.get("build")
    stated = table.get("out") if isinstance(table, Mapping) else None
    if out is None and isinstance(stated, str):
        return resolve(stated, at.child("build", "out").base)
    return (out if out is not None else file.resolve().parent / "out") / file.stem


def own_tables(one: Component) -> dict[str, Any]:
    """The tables that a component states itself."""
    return placeless({key: value for key, value in one.table.items() if key not in OWN})


def placeless(tables: dict[str, Any]) -> dict[str, Any]:
    """Without the output folder that a recipe states for itself: those of components lie side by side."""
    build = tables.get("build")
    if isinstance(build, Mapping) and "out" in build:
        return {**tables, "build": {key: value for key, value in build.items() if key != "out"}}
    return tables


def without_data(
    every: Mapping[str, Component], tables: Mapping[str, Mapping[str, Any]]
) -> Iterator[NpuflowError]:
    """Components for which there are no samples. `tables`: by component, as they are merged."""
    for name, one in every.items():
        own = tables[name]
        if not one.inputs and not _named(own.get("data")):
            yield RecipeError(
                f'the component "{name}" has neither data nor inputs of other components',
                where=one.at.where(), code="NF-RECIPE-172",
                hint=f'[components.{name}.data] source = "calib.npz", or inputs = {{ x = "other.y" }}',
            )
        made = [up for up in one.upstream if every[up].hands_on]
        if made and "beside" in own.get("data", {}):      # beside samples that the recipe names
            yield RecipeError(
                f'the component "{name}" has samples of its own beside those that a function makes',
                where=one.at.child("data").where(), code="NF-RECIPE-187",
                because=f'rows that the function of "{made[0]}" makes belong to no sample of another source',
                hint=f'let the function of "{made[0]}" yield all that "{name}" reads',
            )
        lacking = [up for up in one.upstream if "evaluate" in own and "evaluate" not in tables[up]]
        if lacking:
            yield RecipeError(
                f'the evaluation of "{name}" lacks what "{lacking[0]}" makes of its samples',
                where=one.at.child("evaluate").where(), because=f'"{lacking[0]}" has no [evaluate]',
                hint=f'[components.{lacking[0]}.evaluate] source = "test.npz"', code="NF-RECIPE-173",
            )


def _named(table: Any) -> bool:
    return isinstance(table, Mapping) and ("source" in table or "text" in table)


def needs_a_name(shown: str, names: Iterable[str], at: Locator) -> RecipeError:
    """The fault of a recipe of components where one recipe is meant."""
    every = list(names)
    return RecipeError(
        f'"{shown}" is a recipe of components: {", ".join(every)}', where=at.child(TABLE).where(),
        hint=f"npuflow build {shown} builds all of them; {shown}{MARK}{every[0] if every else 'NAME'} is one",
        code="NF-RECIPE-174",
    )
