"""The ledger of a recipe's accuracy, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow.cli._columns import columns
from npuflow.cli._sources import places_of
from npuflow.cli._why import WhyAnswer

if TYPE_CHECKING:
    from npuflow.flow.recipe_build import Settings
    from npuflow.report.code_places import CodePlaces
    from npuflow.stages.ledgers import Ledgers

ORIGINS = 15                              # entries of a ledger that are listed with their source line


def accuracy(path: Path, sets: Sequence[str], settings: Settings) -> WhyAnswer:
    """Build what the ledger needs, quietly, and tell it."""
    from npuflow.cli._engine import recipe
    from npuflow.flow.recipe_build import open_cache, plan_recipe, run_plan
    from npuflow.flow.stage import STAGES
    from npuflow.stages.ledgers import Ledgers
    from npuflow.stages.quantize import Quantized

    loaded = recipe(path, [*sets, *([] if recipe(path, sets).has("ledger") else ["ledger.outputs=4"])])
    chosen = replace(settings, until="ledgers", publish=False)
    plan, store = plan_recipe(loaded, STAGES, chosen), open_cache(loaded, chosen)
    result = run_plan(plan, loaded, store, chosen).check()
    found = store.load(result.outputs["ledgers"], Ledgers)
    step = str(plan["ledgers"].inputs["quantized"].step)
    graph = Quantized.load(store.open(result.refs[step].digest)).graph
    places = places_of(path, sets, settings, graph)
    return WhyAnswer("\n".join([*text(found), *_origins(found, places)]) + "\n", [*_lines(found, places)])


def _origins(found: Ledgers, places: CodePlaces) -> Iterator[str]:
    """Where the layers with the largest shares are in the training code."""
    largest = [one for ledger in found.ledgers for one in ledger.entries[:ORIGINS]]
    rows = {one.layer: places.text(one.layer, one.tensor) for one in largest}
    known = [(layer, said) for layer, said in rows.items() if said]
    if known:
        yield ""
        yield from columns([("layer", "in the model's source"), *known])


def _lines(found: Ledgers, places: CodePlaces) -> Iterator[dict[str, Any]]:
    unlike = [f"the calibration data is unlike the evaluation data: {one}" for one in found.inputs]
    for message in (*unlike, *(() if found.ledgers else (f"not split: {found.reason}",))):
        yield {"event": "warning", "message": message, "stage": "ledgers", "hint": ""}
    for one in found.ledgers:
        entries = [{**asdict(entry), **places.row(entry.layer, entry.tensor)} for entry in one.entries]
        yield {"event": "ledger", **asdict(one), "entries": entries}


def text(found: Ledgers) -> Iterator[str]:
    """Warnings about the samples first: no width mends wrong data."""
    from npuflow.tune.precision.ledger import lines

    for warning in found.inputs:
        yield f"the calibration data is unlike the evaluation data: {warning}"
        yield ""
    if not found.ledgers:
        yield f"not split: {found.reason}"
    for i, one in enumerate(found.ledgers):
        yield from [""] if i else []
        yield from lines(one)
