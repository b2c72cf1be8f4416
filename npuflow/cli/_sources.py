"""Where layers of a recipe's model come from: asked for in any case, computed where the cache has it not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from npuflow.base.errors import NpuflowError
from npuflow.report.code_places import CodePlaces

if TYPE_CHECKING:
    from npuflow.flow.recipe_build import Settings
    from npuflow.ir.graph import Graph

ON = "sources.on=true"


def places_of(path: Path, sets: Sequence[str], settings: Settings, graph: Graph | None = None) -> CodePlaces:
    """Empty where the model says nothing, or cannot be read here. `graph`: of the layers that are shown."""
    from npuflow.cli._engine import recipe
    from npuflow.flow.recipe_build import open_cache, plan_recipe, run_plan
    from npuflow.flow.stage import STAGES
    from npuflow.stages.sources import SourcePlaces

    loaded = recipe(path, sets)
    if not loaded.has("sources"):
        loaded = recipe(path, [*sets, ON])
    chosen = replace(settings, until="sources", publish=False)
    try:
        plan, store = plan_recipe(loaded, STAGES, chosen), open_cache(loaded, chosen)
        found = store.load(run_plan(plan, loaded, store, chosen).check().outputs["sources"], SourcePlaces)
    except NpuflowError:
        return CodePlaces()
    layers = {} if graph is None else {o: n.origin for n in graph.nodes for o in (*n.outputs, n.name)}
    return CodePlaces(found.places, layers)
