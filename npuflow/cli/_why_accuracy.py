"""The ledger of a recipe's accuracy, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow.cli._why import WhyAnswer

if TYPE_CHECKING:
    from npuflow.flow.recipe_build import Settings
    from npuflow.stages.ledgers import Ledgers


def accuracy(path: Path, sets: Sequence[str], settings: Settings) -> WhyAnswer:
    """Build what the ledger needs, quietly, and tell it."""
    from npuflow.cli._engine import recipe
    from npuflow.flow.recipe_build import open_cache, plan_recipe, run_plan
    from npuflow.flow.stage import STAGES
    from npuflow.stages.ledgers import Ledgers

    loaded = recipe(path, [*sets, *([] if recipe(path, sets).has("ledger") else ["ledger.outputs=4"])])
    chosen = replace(settings, until="ledgers", publish=False)
    plan, store = plan_recipe(loaded, STAGES, chosen), open_cache(loaded, chosen)
    result = run_plan(plan, loaded, store, chosen).check()
    found = store.load(result.outputs["ledgers"], Ledgers)
    return WhyAnswer("\n".join(text(found)) + "\n", list(_lines(found)))


def _lines(found: Ledgers) -> Iterator[dict[str, Any]]:
    unlike = [f"the calibration data is unlike the evaluation data: {one}" for one in found.inputs]
    for message in (*unlike, *(() if found.ledgers else (f"not split: {found.reason}",))):
        yield {"event": "warning", "message": message, "stage": "ledgers", "hint": ""}
    for one in found.ledgers:
        yield {"event": "ledger", **asdict(one)}


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
