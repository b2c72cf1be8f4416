"""What the rewrite rules ask of the target: nothing, where no node is for a rule that asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import stage
from npuflow.hw.target import Compute, Dma, Memory
from npuflow.ir.queries import kind
from npuflow.rules import RULES, Hardware, Rule
from npuflow.stages.model import Model


@dataclass(frozen=True)
class Asked(Artifact):
    """The target's hardware; None: the rewritten graph is the same for every target."""

    hardware: Hardware | None = None

    def summary(self) -> dict[str, Any]:
        return {"asked": self.hardware is not None}

    @property
    def known(self) -> Hardware:
        return self.hardware or Rule.hardware


@stage(quick=True, minor=True)
def hardware(source: Model, compute: Compute, memory: Memory, dma: Dma) -> Asked:
    """The target, as rules see it, for networks with nodes that a rule rewrites by what the target has."""
    rules: list[type[Rule]] = [RULES[name] for name in RULES.names()]
    graph = source.reading.graph
    asking = [rule for rule in rules if rule.asks]
    asked = any(
        kind(node) in rule.triggers and rule.asks_at(graph, node) for node in graph.nodes for rule in asking
    )
    return Asked(Hardware.of(compute, memory, dma) if asked else None)
