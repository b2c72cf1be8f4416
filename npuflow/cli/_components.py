"""Recipes of components: their plans, what feeds what, and the one file of their programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from npuflow.base.errors import NpuflowError, RecipeError, UsageError, meant
from npuflow.cli._engine import stages
from npuflow.flow.recipe_build import Settings, located, open_cache, plan_build, plan_recipe
from npuflow.flow.recipe_components import TABLE

if TYPE_CHECKING:
    from npuflow.flow.memo_write import BuiltRecipe
    from npuflow.flow.plan import Plan
    from npuflow.flow.recipe import Recipe
    from npuflow.flow.recipe_components import Component
    from npuflow.ir.graph import Graph
    from npuflow.program.container import Program
    from npuflow.runner.ports import Port

FILE = "model.npu"


def planned_of(path: Path, sets: Sequence[str], settings: Settings) -> list[tuple[Recipe, Plan]]:
    """A recipe with its plan, or those of all its components, each behind those that it reads; every fault of
    all of them at once. The samples of a component that reads others are there once these are built: it is
    planned again then."""
    from npuflow.flow.recipe import load
    from npuflow.flow.recipe_components import split, without_data
    from npuflow.flow.recipe_files import components_of, parse_set

    out = Path(settings.out) if settings.out is not None else None
    overrides = [parse_set(text) for text in sets]
    file, name = split(path)
    every = {} if name else components_of(file, overrides)
    if not every:
        recipe = load(path, overrides, lenient=True, out=out)
        return [(recipe, plan_build(recipe, stages(), settings))]
    if settings.until is not None or settings.override:
        raise UsageError(
            "--until and --override are of one recipe", because=f"{path} has {len(every)} components",
            hint=f"{path}#{next(iter(every))} names one of them", code="NF-USAGE-410",
        )
    wrong: list[NpuflowError] = []
    recipes: dict[str, Recipe] = {}
    for name in every:
        try:
            recipes[name] = load(f"{file}#{name}", overrides, lenient=True, out=out)
        except NpuflowError as error:
            wrong += error.faults()
    if len(recipes) == len(every):
        wrong += without_data(every, {name: recipe.tables for name, recipe in recipes.items()})
    empty = {fault.where.key for fault in wrong if fault.code == "NF-RECIPE-172"}
    plans: dict[str, Plan] = {}
    for name, recipe in recipes.items():
        try:
            plans[name] = _planned(every[name], recipe, settings)
        except NpuflowError as error:
            lacks_data = f"components.{name}" in empty
            found = [f for f in error.faults() if not (lacks_data and (f.where.key or "")[:4] == "data")]
            wrong += [_of_component(fault, name) for fault in found]
    wrong += _wrong_chain(every, recipes, plans, settings)
    if wrong:
        raise RecipeError(_once(wrong))
    return [(recipes[name], plans[name]) for name in every]


def _once(faults: Sequence[NpuflowError]) -> list[NpuflowError]:
    """Faults of tables that several components share, each once."""
    return list({(f.where, f.message, f.because): f for f in faults}.values())


def _of_component(fault: NpuflowError, name: str) -> NpuflowError:
    """The fault of a key that no line writes, with the component that lacks it."""
    if fault.where.key is not None and fault.where.line is None and not fault.where.key.startswith(TABLE):
        fault.where = replace(fault.where, key=f"{TABLE}.{name}.{fault.where.key}")
    return fault


def _planned(one: Component, recipe: Recipe, settings: Settings) -> Plan:
    """A plan before the components above are built: nothing is said of samples that they make."""
    from npuflow.flow.faults import unlisted

    if not one.inputs:
        return plan_build(recipe, stages(), settings)
    try:
        plan = plan_recipe(recipe, stages(), settings)
        wrong = [*unlisted(plan, recipe)]
    except NpuflowError as error:
        wrong = list(error.faults())
    wrong = [located(fault, recipe) for fault in wrong if not _awaits(fault, recipe)]
    if wrong:
        raise RecipeError(wrong)
    return plan


def _awaits(fault: NpuflowError, recipe: Recipe) -> bool:
    """Whether a fault is of a file that the build of another component makes."""
    from npuflow.flow.recipe_components import FILES

    text = f"{fault.message} {fault.because}"
    return any(f"/{file}" in text or f'"{file}"' in text for file in FILES.values()) or fault.code in (
        "NF-DATA-281", "NF-DATA-282", "NF-DATA-283", "NF-DATA-284",
    )


def waits(recipe: Recipe, plan: Plan) -> bool:
    """Whether samples of a component are yet to be made by others."""
    from npuflow.flow.faults import unlisted

    return recipe.family is not None and any(_awaits(fault, recipe) for fault in unlisted(plan, recipe))


def planned_again(recipe: Recipe, plan: Plan, settings: Settings) -> Plan:
    """The plan of a component, whose samples may have been made since it was first planned."""
    return plan if recipe.family is None else plan_build(recipe, stages(), settings)


def _wrong_chain(
    every: Mapping[str, Component], recipes: Mapping[str, Recipe], plans: Mapping[str, Plan],
    settings: Settings,
) -> Iterator[NpuflowError]:
    """What models lack that `inputs` names, shapes that differ, and what cannot be chained."""
    graphs: dict[str, Graph] = {}
    for name, plan in plans.items():
        try:
            graphs[name] = graph_of(plan, recipes[name], settings)
        except NpuflowError as error:
            yield from located(error, recipes[name], plan).faults()
        if (recipes[name].table("model") or {}).get("shapes"):
            yield RecipeError(
                f'the component "{name}" has several shapes', where=every[name].at.where(),
                because="networks that feed each other have one each", code="NF-RECIPE-179",
                hint="[model] dims or inputs: one shape",
            )
    for name, one in every.items():
        for given, (source, output) in one.inputs.items():
            above = None if every[source].hands_on else graphs.get(source)   # of a function none knows yet
            fault = _misfit(graphs.get(name), above, given, source, output)
            if fault is not None:
                yield fault.at(one.at.child("inputs", given).where())


def graph_of(plan: Plan, recipe: Recipe, settings: Settings) -> Graph:
    """The model of a component as samples feed it."""
    from npuflow.flow.ahead import Ahead
    from npuflow.flow.refs import Ref
    from npuflow.stages.model import Model

    ahead, refs = Ahead(open_cache(recipe, settings)), dict[str, Ref | None]()
    last: Ref | None = None
    for step in plan:
        if step.signature.output is Model:
            given = {name: last if place.step in refs else None for name, place in step.inputs.items()}
            last = refs[step.name] = ahead.made(step, given) or last
    graph: Graph = ahead.load(last, Model).reading.graph  # type: ignore[arg-type]
    return graph


def _misfit(
    graph: Graph | None, above: Graph | None, given: str, source: str, output: str
) -> NpuflowError | None:
    """Why an output cannot feed an input; None where it can, or where a model is not known."""
    if graph is not None and given not in graph.inputs:
        return RecipeError(
            f'the model has no input "{given}"', because=f"its inputs: {', '.join(graph.inputs)}",
            hint=meant(given, graph.inputs), code="NF-RECIPE-175",
        )
    if above is not None and output not in above.outputs:
        return RecipeError(
            f'the model of "{source}" has no output "{output}"',
            because=f"its outputs: {', '.join(above.outputs)}", hint=meant(output, above.outputs),
            code="NF-RECIPE-176",
        )
    if graph is None or above is None:
        return None
    if above.state or given in {name for _, name in graph.state}:
        return RecipeError(
            "state does not pass between components", code="NF-RECIPE-178",
            because=f'"{source}" has state' if above.state else f'"{given}" is state of its own model',
            hint="a model without state, of whole sequences, may feed others",
        )
    mine, theirs = graph.type(given), above.type(output)
    wanted, made = ([d for d in kind.shape if d != 1] for kind in (mine, theirs))
    if wanted != made or mine.dtype != theirs.dtype:
        return RecipeError(
            f'"{source}.{output}" does not fit the input "{given}"', code="NF-RECIPE-177",
            because=f"the output is {theirs.dtype} {list(theirs.shape)}, the input {mine.dtype} "
            f"{list(mine.shape)}",
            hint="export both models with the same sizes, or bind free ones by [model] inputs or dims",
        )
    return None


def packed_of(
    built: Sequence[BuiltRecipe], recipe: Recipe, *, as_json: bool
) -> tuple[int, str, list[Path]]:
    """Once all components are built, their programs as one file: exit code, what is said, and the file."""
    from npuflow.cli._errors import show
    from npuflow.flow.recipe_files import components_of

    if recipe.path is None or recipe.family is None:
        return 0, "", []
    every = components_of(recipe.path, recipe.overrides)
    mine = {one.recipe.name: one for one in built if one.recipe.family == recipe.family}
    if mine.keys() != every.keys():
        return 0, "", []
    try:
        text, file = _write(every, mine, as_json=as_json)
    except NpuflowError as error:
        return show(error, as_json=as_json), "", []
    sys.stdout.write(text)
    return 0, text, [file]


def _write(
    every: Mapping[str, Component], built: Mapping[str, BuiltRecipe], *, as_json: bool
) -> tuple[str, Path]:
    """The file, and what is said of it. Equal bytes are not written again."""
    from npuflow.cli._files import writing
    from npuflow.flow.recipe_files import shown_path
    from npuflow.program.container import load_program
    from npuflow.program.packing.package import packed
    from npuflow.runner.chained import free_ends, names_of

    programs = {name: load_program(built[name].result.products["program"]) for name in every}
    chain = wired(every)
    data = packed(programs, chain).to_bytes()
    one = built[next(iter(every))]
    assert one.lock is not None
    file = one.lock.parent.parent / FILE
    if not file.is_file() or file.read_bytes() != data:
        with writing(file):
            file.write_bytes(data)
    ends = free_ends({name: _without_state(program) for name, program in programs.items()}, chain)
    inputs, outputs = (", ".join(names_of(ports).values()) for ports in ends)
    if as_json:
        facts = {"networks": [*every], "bytes": len(data)}
        body = {"event": "written", "file": str(file), "kind": "program", "facts": facts, "notes": []}
        return json.dumps(body, ensure_ascii=False) + "\n", file
    what = "one program" if chain else "one file"
    text = f"{file.parent.name}: {', '.join(every)} as {what}, {inputs} -> {outputs}\n"
    return f"{text}  program  {shown_path(file)}\n", file


def wired(every: Mapping[str, Component]) -> dict[str, dict[str, tuple[str, str]]]:
    """By component its inputs that outputs of others feed. What a function makes between them is the
    caller's to make."""
    found = {
        name: {given: source for given, source in one.inputs.items() if not every[source[0]].hands_on}
        for name, one in every.items()
    }
    return {name: inputs for name, inputs in found.items() if inputs}


def _without_state(program: Program) -> tuple[list[Port], list[Port]]:
    """The inputs and outputs that are not kept from run to run."""
    from npuflow.run.state import pairs
    from npuflow.runner.programs import ports_of, source_names

    names = source_names([entry["name"] for entry in program.meta["outputs"]])
    kept = {name for output, given in pairs(program.meta.get("state", ())) for name in (names[output], given)}
    inputs, outputs = ([port for port in ports if port.name not in kept] for ports in ports_of(program))
    return inputs, outputs
