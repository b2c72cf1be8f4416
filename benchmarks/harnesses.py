"""Networks of recipes as the search for widths has them: ranges, samples, fake quantisation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from npuflow import build, load_recipe
from npuflow.flow.recipe_build import Settings, open_cache
from npuflow.flow.signature import signature
from npuflow.flow.stage import STAGES
from npuflow.hw.target import Compute, Dma, HostProcessor, Memory, Numerics, Target
from npuflow.place.islands import PlacementTable
from npuflow.quantise.config import Quantize
from npuflow.stages._calibration import CalibrationData, TuningSamples
from npuflow.stages._candidates import PlacedNetwork, RecipeCandidate, TargetNetwork
from npuflow.stages.parse import Parsed
from npuflow.tune.precision.harness import Harness
from npuflow.tune.ranges.thresholds import Calibrate


def harness_of(
    recipe: Path, cache: Path | None, sets: Sequence[str], held: int, fit: int
) -> tuple[Harness, Target]:
    """The network with its ranges, `fit` samples and `held` others that judge, and the target."""
    done = build(recipe, sets, until="baseline", cache=cache)
    loaded = load_recipe(recipe, sets)
    store = open_cache(loaded, Settings(cache=cache))

    def made(stage: str) -> Any:
        return store.load(done.outputs[stage], signature(STAGES[stage]).output)

    name = next(n for n in ("pruned", "equalize", "pixels", "checked", "parse") if n in done.refs)
    parsed: Parsed = store.load(done.outputs[name], Parsed)
    def items(part: str) -> Any:
        kind = signature(STAGES[part]).output
        return {name: store.load(ref, kind) for name, ref in done.refs[part].items.items()}

    tables = (Quantize, Numerics, Calibrate, Compute, Memory, Dma, HostProcessor)
    quantize, numerics, calibrate, compute, memory, dma, host = (loaded.read(kind)[0] for kind in tables)
    least = loaded.read(PlacementTable)[0]
    placed = PlacedNetwork(parsed, made("placement"), quantize, numerics)
    recipe = RecipeCandidate(TargetNetwork(placed, memory, host, least), made("thresholds"), None)
    data = CalibrationData(TuningSamples(items("fit"), items("choose")), made("statistics"), calibrate)
    found = data.harness(recipe.fake_quantised(), recipe.thresholds.chosen, fit + held, held)
    return found, Target(numerics=numerics, compute=compute, memory=memory, dma=dma, host=host)
