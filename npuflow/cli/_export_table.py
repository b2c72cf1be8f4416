"""The calibration table of a recipe, written in a format of the user's choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from npuflow.base.errors import UsageError, suggestion
from npuflow.base.wording import counted
from npuflow.cli._files import write_file

if TYPE_CHECKING:
    from npuflow.exchange import Table
    from npuflow.flow.artifact import Reader

OWN = ("toml", "json")


def write(
    recipe: Path,
    output: Path,
    chosen: str | None,
    *,
    codes: bool,
    weights: bool,
    sets: Sequence[str],
    cache: Path | None,
) -> list[str]:
    """Write the table; returns what the user should know of it."""
    from npuflow.exchange import EXCHANGE
    from npuflow.quantise.exchange import table_of_graph
    from npuflow.stages.quantize import Quantized
    from npuflow.stages.thresholds import Thresholds

    name = chosen or output.suffix.removeprefix(".").lower()
    if chosen is None and name not in OWN:
        raise UsageError(
            f'the name "{output.name}" does not determine the table format',
            hint=f"--format {', '.join(EXCHANGE.names())}", code="NF-USAGE-008",
        )
    if name not in EXCHANGE:
        raise UsageError(
            f'unknown table format "{name}"', hint=suggestion(name, EXCHANGE.names()), code="NF-USAGE-009",
        )
    _, found = made(recipe, "qdq", sets, cache)
    quantised, ranges = Quantized.load(found["quantized"]), Thresholds.load(found["thresholds"])
    foreign = name not in OWN
    table: Table = table_of_graph(quantised.graph, ranges.ranges, ranges.methods, codes or foreign, weights)
    form = EXCHANGE[name]()
    table, left = _fitting(form.rows, table, found)
    write_file(output, form.write(table))
    kinds = f"{counted(sum(not e.constant for e in table.values()), 'tensor')}"
    kinds += f", {sum(e.constant for e in table.values())} weights" if weights else ""
    reported = [f"wrote {output}: {kinds} as {name}"]
    if left:
        reported.append(
            f"note: {counted(left, 'tensor')} that the compiler made (folded weights) left out: readers of "
            f"{name} refuse what the model does not hold"
        )
    if form.omits:
        reported.append(f"note: {form.omits}")
    if foreign:
        reported.append(f"note: to use it again: [ranges] file = \"{output.name}\", format = \"{name}\"")
    return reported


def _fitting(rows: str, table: Table, found: dict[str, Reader]) -> tuple[Table, int]:
    """The rows that the tool of a format takes, and how many it would refuse: see `Format.rows`."""
    from npuflow.stages.model import Model

    if rows == "any" or "source" not in found:
        return table, 0
    graph = Model.load(found["source"]).reading.graph
    if rows == "held":
        held = {tensor: entry for tensor, entry in table.items() if tensor in graph.values}
        return held, len(table) - len(held)
    clips = [(n.inputs[0], n.outputs[0]) for n in graph.nodes if n.op.algebra == "clamp"]
    return {**{before: table[out] for before, out in clips if out in table}, **table}, 0


def made(path: Path, stage: str, sets: Sequence[str], cache: Path | None) -> tuple[Reader, dict[str, Reader]]:
    """The artifact of a stage, built if it must be, and those of the model, of the last thresholds
    and of the last integer graph."""
    from npuflow.cli._engine import settings, stages
    from npuflow.flow.recipe import load
    from npuflow.flow.recipe_build import open_cache, plan_recipe, run_plan

    recipe = load(path, sets)
    chosen = replace(settings(cache=cache, until=stage), publish=False)  # writes what it is asked for alone
    plan, store = plan_recipe(recipe, stages(), chosen), open_cache(recipe, chosen)
    result = run_plan(plan, recipe, store, chosen).check()
    found = {}
    for step, param in (("qdq", "quantized"), ("quantize", "thresholds"), ("parse", "source")):
        source = plan[step].inputs[param].step if step in plan else None
        if source is not None:
            found[param] = store.open(result.refs[source].digest)
    return store.open(result.refs[stage].digest), found
