"""What subgraphs cost with the recipe's own widths, where other widths are searched for.

The search prices mixtures by a plan of the network as the recipe says. It is a step of its own, as one
processor makes it while `sensitivity` runs networks on another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from npuflow.base.errors import TargetError
from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import log, stage
from npuflow.quantise.graph import build
from npuflow.search.canonical import Memo
from npuflow.search.memory import SearchMemory
from npuflow.stages._candidates import RecipeCandidate
from npuflow.stages._targets import PlannedTarget
from npuflow.stages.baseline import Baseline
from npuflow.tune.precision.loop_cost import mixture_plan


@dataclass(frozen=True)
class WidthCosts(Artifact, rows=("memo",), costs="memo"):
    """Costs by the keys of subgraphs, of plans for the fewest cycles. Empty where no width is searched."""

    memo: Memo = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        return {"subgraphs": len(self.memo)} if self.memo else {}


@stage(minor=True)
def width_costs(baseline: Baseline, candidate: RecipeCandidate, planned: PlannedTarget) -> WidthCosts:
    """Plan the network with the recipe's widths, and keep what its subgraphs cost."""
    if not baseline.search:
        return WidthCosts()
    memory = SearchMemory()
    try:
        mixture_plan(build(candidate.fake_quantised().candidate).graph, planned.target, memory)
    except TargetError as fault:
        log(f"no plan: {fault.message}")      # the search says so, with what it knows of mixtures
    return WidthCosts(memory.subgraphs)
