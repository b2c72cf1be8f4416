"""The accuracy of a program beside its float model's."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuflow.base.errors import NpuflowError, UsageError, Where
from npuflow.base.paths import absent
from npuflow.base.wording import counted
from npuflow.cli._engine import CacheOption, JsonOption, RecipeArg, SetOption
from npuflow.cli._slow import Working

if TYPE_CHECKING:
    from npuflow.checks.evaluate import Score
    from npuflow.flow.plan import Plan
    from npuflow.flow.recipe import Recipe
    from npuflow.flow.recipe_build import Settings
    from npuflow.flow.run import Result
    from npuflow.flow.store import Store
    from npuflow.ir.graph import Graph
    from npuflow.runner.backend import Backend


def eval(  # noqa: A001
    recipe: RecipeArg,
    program: Annotated[
        Path | None,
        typer.Option(
            "--program", metavar="FILE", help="Measure this .npu or .onnx instead of what the recipe builds."
        ),
    ] = None,
    sets: SetOption = None,
    cache: CacheOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure accuracy on the recipe's [evaluate] data: metric, difference to the
    float model, SQNR, agreement."""
    from dataclasses import asdict

    from npuflow.cli._events import emit

    found = _measured(recipe, program, sets or [], cache)
    for name, score in found.items():
        if as_json:
            component = {"component": name} if name else {}
            emit({"event": "score", **component, **asdict(score), "delta": score.delta})
        else:
            _print(name, score)


def _print(name: str, score: Score) -> None:
    """`name`: of the component whose outputs are scored behind those above it; "" of a recipe of its own."""
    rows = [
        (n, f"{v:.4f}", f"{score.baseline[n]:.4f}", f"{score.delta[n]:+.4f}")
        for n, v in score.figures.items()
    ]
    width = max(10, len(name), *(len(figure) for figure in score.figures))
    typer.echo(f"{name:<{width}}  {'program':>9}  {'float':>9}  {'change':>9}")
    for figure, mine, theirs, change in rows:
        typer.echo(f"{figure:<{width}}  {mine:>9}  {theirs:>9}  {change:>9}")
    for output, value in score.sqnr_db.items():
        typer.echo(f"SQNR of {output}: {'no difference' if value >= 200 else f'{value:.2f} dB'}")
    for output, count in score.unlike.items():
        typer.echo(
            f"{output}: not compared on {count} of {counted(score.samples, 'sample')}, where its shape is "
            "another than in the float model"
        )
    if score.agreement is not None:
        typer.echo(f"agreement with the float model: {100 * score.agreement:.2f} %")
    share = f"{100 * score.npu_macs:.2f} % of the multiply-accumulates on the NPU"
    typer.echo(f"{counted(score.samples, 'sample')}; {share}, {score.host_macs:,} on the host")
    for sample, why in score.left_out.items():
        typer.echo(f"left out {sample}: {why}")


def _measured(
    path: Path, program: Path | None, sets: list[str], cache: Path | None
) -> dict[str, Score]:
    """The score of a recipe; of one of components that of every chain's last one, by its name."""
    from dataclasses import replace

    from npuflow.cli._engine import settings, stages
    from npuflow.flow.recipe import load
    from npuflow.flow.recipe_build import open_cache, plan_recipe
    from npuflow.flow.recipe_components import split
    from npuflow.flow.recipe_files import components_of, parse_set

    file, name = split(path)
    if not name and components_of(file, [parse_set(text) for text in sets]):
        from npuflow.cli._chain_score import chain_scores

        return chain_scores(file, program, sets, settings(cache=cache))
    recipe = load(path, sets)
    if recipe.table("evaluate") is None:
        raise UsageError(
            f"{path} has no [evaluate] table",
            hint='[evaluate] source = "...", metric = "agreement"',
            code="NF-USAGE-040",
        )
    chosen = replace(settings(cache=cache, until="evaluate"), publish=False)  # measures only
    plan, store = plan_recipe(recipe, stages(), chosen), open_cache(recipe, chosen)
    if program is None:
        result = _shown(plan, recipe, store, chosen)
        from npuflow.stages.evaluate import Evaluation

        return {"": store.load(_digest(result, "evaluate"), Evaluation).score}
    if not program.is_file():
        raise absent(program)
    early = replace(chosen, until="placement")
    result = _shown(plan_recipe(recipe, stages(), early), recipe, store, early)
    with Working(f'evaluating "{program}"'):
        return {"": _given(program, plan, store, result)}


def _shown(plan: Plan, recipe: Recipe, store: Store, chosen: Settings) -> Result:
    """Build what the evaluation needs: step by step on a terminal, else with few lines."""
    from npuflow.cli._build import view
    from npuflow.flow.recipe_build import run_plan

    if not sys.stderr.isatty():
        with Working(f'building "{recipe.path}" to measure it'):
            return run_plan(plan, recipe, store, chosen).check()
    shown = view(plan, quiet=False)
    try:
        return run_plan(plan, recipe, store, chosen, shown.show).check()
    finally:
        shown.close()


def _given(path: Path, plan: Plan, store: Store, result: Result) -> Score:
    """A program that the recipe did not build, on the recipe's data and beside its float model."""
    from dataclasses import replace

    from npuflow.checks.evaluate import Evaluate
    from npuflow.flow.refs import Files
    from npuflow.ir.macs import graph_macs
    from npuflow.onnx.external import read_model
    from npuflow.place.partition import share as npu_part
    from npuflow.program.packing.package import Package, load_file
    from npuflow.run.interpret import host_session
    from npuflow.runner.opening import opened
    from npuflow.stages import evaluate as stage
    from npuflow.stages._reference import reference_of
    from npuflow.stages.parse import Parsed

    table = plan["evaluate"].configs["evaluate"]
    assert isinstance(table, Evaluate)
    parsed = store.load(_digest(result, "pixels"), Parsed)
    graph = reference_of(parsed)
    if path.suffix == ".npu":
        loaded = load_file(path)
        shapes = {name: graph.type(name).shape for name in graph.inputs}
        program = loaded.of_shapes(shapes) if isinstance(loaded, Package) else loaded
        _same_inputs(path, [entry["name"] for entry in program.meta["inputs"]], graph)
        backend = opened(program, None if table.by == "executor" else "simulator", raw=True)
        model, total = stage.named(program, parsed, _Backed(backend)), graph_macs(graph)
        nodes = program.meta["nodes"]
        host = sum(node["host"]["macs"] for node in nodes if "host" in node)
        runs = any(step["kind"] == "npu" for step in program.meta["steps"])
        share = npu_part(sum(node["macs"] for node in nodes), total, int(runs), 1)
    else:
        try:
            read = read_model(path)
            model, share, host = stage.exported(read, parsed), 0.0, graph_macs(graph)
            _same_inputs(path, [i.name for i in host_session(read).get_inputs()], graph)
        except NpuflowError as error:
            raise error.at(Where(file=str(path))) from None
    return replace(
        stage.scored(Files(plan["evaluate"].listing or {}), graph, share, model, table), host_macs=host
    )


class _Backed:
    """A program's backend as what is scored."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def run_many(self, samples: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return self.backend.run([self.backend.fed(sample) for sample in samples], False)


def _same_inputs(path: Path, names: list[str], graph: Graph) -> None:
    if sorted(names) != sorted(graph.inputs):
        wanted = f"the recipe's model takes {', '.join(graph.inputs)}"
        hint = "give a program or model of the same network"
        raise UsageError(
            f'"{path}" takes the inputs {", ".join(names)}',
            because=wanted,
            hint=hint,
            code="NF-USAGE-041",
        )


def _digest(result: Result, stage: str) -> str:
    return result.refs[stage].digest
