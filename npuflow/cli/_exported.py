"""The quantised graph that an export writes: of a recipe, or of a built program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from npuflow.base.errors import ModelError
from npuflow.base.paths import absent
from npuflow.cli._slow import Working
from npuflow.hw.target import Numerics

if TYPE_CHECKING:
    from npuflow.flow.store import Store
    from npuflow.ir.graph import Graph


def graph_of(source: Path, sets: Sequence[str], cache: Path | None, what: str) -> tuple[Graph, Numerics]:
    """The integer graph of a recipe or a .npu, and its target's numerics. `what`: the export."""
    if not source.is_file():
        raise absent(source)
    program = source.suffix == ".npu"
    return _of_program(source, cache, what) if program else _of_recipe(source, sets, cache)


def _of_recipe(path: Path, sets: Sequence[str], cache: Path | None) -> tuple[Graph, Numerics]:
    """The last integer graph of a recipe, built if it must be, and its target's numerics."""
    from npuflow.cli._engine import known_tables, settings, stages
    from npuflow.flow.recipe import load
    from npuflow.flow.recipe_build import open_cache, plan_recipe, run_plan
    from npuflow.flow.stage import STAGES
    from npuflow.hw.target import Target
    from npuflow.stages.quantize import Quantized

    recipe = load(path, sets)
    step = plan_recipe(recipe, stages(), settings(cache=cache, until="codegen"))["codegen"]
    last = step.inputs["quantized"].step
    assert last is not None
    chosen = replace(settings(cache=cache, until=last), publish=False)  # writes what it is asked for alone
    plan, store = plan_recipe(recipe, stages(), chosen), open_cache(recipe, chosen)
    with Working(f'building "{path}"'):
        result = run_plan(plan, recipe, store, chosen).check()
    target = recipe.read(Target, [*known_tables(STAGES), Target])[0]
    assert target is not None
    return Quantized.load(store.open(result.refs[last].digest)).graph, target.numerics


def _of_program(path: Path, cache: Path | None, what: str) -> tuple[Graph, Numerics]:
    """The graph that a program was generated from, kept in it, or found in the cache by its bytes."""
    from npuflow.cli._engine import store as open_store
    from npuflow.program.container import load_program
    from npuflow.program.graph_section import decode_graph
    from npuflow.stages.quantize import Quantized

    program = load_program(path)
    if program.graph_bytes:
        return decode_graph(program.graph_bytes), program.target.numerics
    store = open_store(None, cache)
    digest = _graph_of(store, path.read_bytes())
    if digest is None:
        raise ModelError(
            f'the graph of "{path}" is not in the cache',
            because="a program holds commands and packed constants, not the network's graph",
            hint=f"npuflow export {what} RECIPE, or --cache DIR of the build that made it",
            code="NF-PROGRAM-032",
        )
    return Quantized.load(store.open(digest)).graph, program.target.numerics


def _graph_of(store: Store, body: bytes) -> str | None:
    """The integer graph that the code generator read where it made exactly these bytes."""
    from npuflow.stages.codegen import FILE

    for key in store.record_keys():
        record = store.record(key, touch=False, remote=False)
        if record is None or record.stage != "codegen":
            continue
        digest = record.preimage["inputs"].get("quantized")
        made = store.object_path(record.output)
        if digest is None or not made.exists() or not store.intact(str(digest), remote=False):
            continue
        if store.open(record.output).bytes(FILE) == body:
            return str(digest)
    return None
