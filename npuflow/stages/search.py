"""Thresholds by the method whose quantised network comes closest to the float one."""

from __future__ import annotations

from dataclasses import replace

from npuflow.engine.calibrate.tune import Search
from npuflow.flow.stage import Items, log, stage
from npuflow.ir.contracts import CALIBRATORS
from npuflow.stages.rated import Rated
from npuflow.stages.rivals import Rival
from npuflow.stages.thresholds import Thresholds


@stage(refines="thresholds", when="search", after=("ranges",))
def search(thresholds: Thresholds, rivals: Items[Rival], rated: Items[Rated], search: Search) -> Thresholds:
    """Replace the recipe's ranges, where they come from a method, if a rival is better by the stated objective."""
    ratings = {name: one.rating for name, one in rated.items()}
    winner = max(ratings, key=lambda name: (ratings[name].by(search.objective), name == "recipe"))
    for name, one in sorted(ratings.items(), key=lambda pair: -pair[1].by(search.objective)):
        log(f"{name}: {one.sqnr:.2f} dB, cosine {one.cosine:.6f}{', taken' if name == winner else ''}")
    if winner == "recipe":
        return thresholds
    ranges, methods = dict(thresholds.ranges), dict(thresholds.methods)
    chosen = rivals[winner]
    for name, span in chosen.ranges.items():
        if name not in thresholds.codes and methods[name] in CALIBRATORS:
            ranges[name], methods[name] = span, chosen.methods[name]
    return replace(thresholds, ranges=ranges, methods=methods)
