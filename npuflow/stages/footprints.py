"""What the dear steps will take of memory, from shapes alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npuflow.flow.artifact import Artifact, Need
from npuflow.flow.stage import Items, View, log, shown, stage
from npuflow.run.footprint import Footprint, footprint
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.stages.segments import ReadySegment
from npuflow.stages.simulate import Simulate
from npuflow.stages.statistics import Watch
from npuflow.statistics.walk import footprint as taken
from npuflow.statistics.walk import groups
from npuflow.tune.correct.config import Correct, Equalize, Unify
from npuflow.tune.precision.range_search import SearchTable, Tune

BATCH = 8           # samples that the simulator holds at once, at most
MODELS = 2          # a walk holds a float network and a quantised one
SMALLER = "smaller inputs: [model] inputs; or a machine with more memory"


@dataclass(frozen=True)
class Footprints(Artifact, needs="held"):
    """By stage."""

    held: Mapping[str, Need]

    def needs(self) -> Mapping[str, Need]:
        return self.held

    def summary(self) -> dict[str, Any]:
        largest = max(self.held, key=lambda name: _whole(self.held[name]))
        return {"largest": f"{largest} {shown(_whole(self.held[largest]))}"}


def _whole(need: Need) -> int:
    return need.fixed + need.count * need.each


@dataclass(frozen=True)
class SampleCounts(View):
    """The tables that say how many samples a step holds at a time."""

    correct: Correct
    unify: Unify
    equalize: Equalize
    search: SearchTable
    tune: Tune
    simulate: Simulate


@stage(quick=True, minor=True)
def footprints(
    graph: Parsed,
    placement: Placement,
    segments: Items[ReadySegment],
    watch: Watch,
    judging: SampleCounts,
) -> Footprints:
    """Estimate the peaks of the float passes, of the judges and of the simulation."""
    one = footprint(graph.graph, placement.placed.on_npu)
    largest = (
        f"weights {shown(one.weights)}, activations {shown(one.live)} at once; the largest layer is "
        f"{one.name}"
    )
    found = {"statistics.items": _observed(segments, watch, one)}
    for name, count, key in (
        ("equalize", judging.equalize.samples, "[equalize] samples"),
        ("correct", judging.correct.samples, "[correct] samples"),
        ("unify", judging.unify.samples, "[unify] samples"),
        ("search.rivals", judging.search.samples, "[search] samples"),
        ("search.items", judging.search.samples, "[search] samples"),
        ("tune.items", judging.tune.samples, "[tune] samples"),
    ):
        least = 1 if name == "tune.items" else 2
        found[name] = Need(MODELS * one.weights, one.live, count, least, f"{key} = {{count}}", largest)
    found["fidelity"] = Need(MODELS * one.weights + one.executed + one.live, 0, about=largest, key=SMALLER)
    checked = max(1, min(BATCH, judging.simulate.samples))
    codes = (
        f"the tensors of the NPU hold {shown(one.all_codes)} of codes, seen by the simulator and by its "
        "reference"
    )
    found["simulate"] = Need(
        one.all_codes + 2 * one.executed, 2 * one.all_codes, checked, 1, "[simulate] samples = {count}", codes
    )
    passed = one.weights + one.executed + one.live
    found["evaluate"] = Need(passed, BATCH * one.codes, about=largest, key=SMALLER)
    for name, need in found.items():
        log(f"{name}: {shown(_whole(need))}")
    return Footprints(found)


def _observed(segments: Items[ReadySegment], watch: Watch, one: Footprint) -> Need:
    """The float pass: in as many parts as the recipe has it."""
    held = {name: segments[name].content for name in segments}
    parts = [taken([held[name] for name in part]) for part in groups(held, watch.room)] if held else [0]
    alone = max((taken([segment]) for segment in held.values()), default=0)
    room = shown(alone).replace(" ", "")
    key = f'[statistics] max_memory = "{room}" runs the network in parts' if alone < max(parts) else SMALLER
    return Need(
        max(parts), key=key, about=f"weights {shown(one.weights)}, twice; the largest layer is {one.name}"
    )
