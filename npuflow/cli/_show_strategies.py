"""What every strategy of the tiling search proposed, what it would take, and which plan won, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from npuflow.cli._columns import columns
from npuflow.cli._show_verdict import loaded, opened

if TYPE_CHECKING:
    from npuflow.search.plan import TilingPlan


def text(path: Path, sets: Sequence[str] | None, cache: Path | None) -> str:
    """Of the last build of a recipe."""
    from npuflow.stages.tiling import Tiled

    wired, kept = opened(path, sets, cache)
    return "\n".join(_lines(loaded(wired, kept, "tiling", Tiled).plan)) + "\n"


def _lines(plan: TilingPlan) -> Iterator[str]:
    from npuflow.search.strategies import STRATEGIES

    best = min((t.cycles for t in plan.tried if t.cycles), default=0.0)
    rows = [("plan", "cycles", "relative to best", "result")]
    for one in plan.tried:
        cycles = f"{one.cycles:,.0f}" if one.cycles else "-"
        ratio = f"{one.cycles / best:.3f}" if one.cycles else "-"
        rows.append(
            (one.origin, cycles, ratio, f"{one.result}, taken" if one.origin == plan.origin else one.result)
        )
    yield from columns(rows)
    yield ""
    yield f"taken: {plan.origin}, {plan.cycles:,.0f} cycles{f'; loops: {plan.loops}' if plan.loops else ''}"
    yield ""
    yield from columns(
        [("strategy", "applies", "what it does"), *((s.name, s.when, s.what) for s in STRATEGIES)]
    )
    yield ""
    yield '[tiling] without = ["NAME", ...] leaves strategies out'
