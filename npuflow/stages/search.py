"""Thresholds by the method whose quantised network comes closest to the float one."""

from __future__ import annotations

from dataclasses import replace

from npuflow.base.errors import RecipeError, Where
from npuflow.engine.calibrate.tune import Search
from npuflow.flow.stage import Items, log, stage
from npuflow.ir.contracts import CALIBRATORS
from npuflow.stages.marked import Marked
from npuflow.stages.rated import Rated
from npuflow.stages.rivals import Rival
from npuflow.stages.thresholds import Thresholds


@stage(refines="thresholds", when="search", after=("clipping", "ranges"))
def search(
    thresholds: Thresholds, rivals: Items[Rival], rated: Items[Rated], marked: Items[Marked] | None, search: Search
) -> Thresholds:
    """Replace the recipe's ranges, where they come from a method, if a rival is better by the stated objective."""
    ratings = {name: one.rating for name, one in rated.items()}
    marks = {name: one.first for name, one in marked.items()} if marked is not None else {}
    if search.objective == "metric" and not marks:
        raise RecipeError(
            'objective = "metric" needs labelled samples', where=Where(key="search.objective"),
            hint='[search.labelled] source = "...", metric = "top1"; they are left out of the evaluation',
            code="NF-RECIPE-041",
        )  # fmt: skip

    def worth(name: str) -> tuple[float, float, bool]:
        by_metric = marks[name][1] if search.objective == "metric" else 0.0
        return by_metric, ratings[name].by("cosine" if search.objective == "cosine" else "sqnr"), name == "recipe"

    winner = max(ratings, key=worth)
    for name in sorted(ratings, key=worth, reverse=True):
        one, figure = ratings[name], "{} {:.4f}, ".format(*marks[name]) if marks else ""
        log(f"{name}: {figure}{one.sqnr:.2f} dB, cosine {one.cosine:.6f}{', taken' if name == winner else ''}")
    if winner == "recipe":
        return thresholds
    ranges, methods = dict(thresholds.ranges), dict(thresholds.methods)
    chosen = rivals[winner]
    for name, span in chosen.ranges.items():
        if name not in thresholds.codes and methods[name] in CALIBRATORS:
            ranges[name], methods[name] = span, chosen.methods[name]
    return replace(thresholds, ranges=ranges, methods=methods)
