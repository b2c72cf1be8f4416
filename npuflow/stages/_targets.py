"""The target as stages take it: of its tables those that they depend on, as one parameter."""

from __future__ import annotations

from dataclasses import dataclass, replace

from npuflow.flow.stage import View
from npuflow.hw.target import Compute, Dma, HostProcessor, Limits, Memory, Numerics, Target


@dataclass(frozen=True)
class Accelerator(View):
    """All but the host."""

    numerics: Numerics
    limits: Limits
    memory: Memory
    compute: Compute
    dma: Dma

    @property
    def target(self) -> Target:
        return Target(
            compute=self.compute, memory=self.memory, dma=self.dma, numerics=self.numerics,
            limits=self.limits,
        )


@dataclass(frozen=True)
class PlannedTarget(View):
    """What plans and their cycles depend on: all but the limits, by which operators were placed."""

    compute: Compute
    memory: Memory
    dma: Dma
    numerics: Numerics
    host: HostProcessor

    @property
    def target(self) -> Target:
        return Target(
            compute=self.compute, memory=self.memory, dma=self.dma, numerics=self.numerics, host=self.host
        )


@dataclass(frozen=True)
class WholeTarget(View):
    """All tables."""

    planned: PlannedTarget
    limits: Limits

    @property
    def target(self) -> Target:
        return replace(self.planned.target, limits=self.limits)
