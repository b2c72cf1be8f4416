"""What energy costs, for searches that minimise it; it is in the keys of no other build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from npuflow.base.tables import Config
from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import View, log, stage
from npuflow.hw.energy import Energy
from npuflow.hw.target import Compute, Dma, Memory
from npuflow.schedule.machine import Machine
from npuflow.tune.precision.config import PrecisionTable

MOST = 1000.0                             # cycles that a byte is worth where time costs no energy


@dataclass(frozen=True)
class TilingGoal(Config, table="tiling"):
    """What plans have least of."""

    minimise: Literal["cycles", "energy"] = "cycles"
    """cycles: of the schedule; energy: external traffic and time, at what [target.energy] says they cost."""


@dataclass(frozen=True)
class EnergyPrices(Artifact):
    """The target's table. `byte_cost`: cycles that cost as much as a byte of external traffic; 0: plans are
    to have the fewest cycles. `widths`: whether the search for widths asks for it."""

    table: Energy
    byte_cost: float
    widths: bool


@dataclass(frozen=True)
class PricedMachine(View):
    """What the time and the energy of an inference depend on."""

    compute: Compute
    memory: Memory
    dma: Dma
    prices: EnergyPrices | None

    def machine(self, inside: bool) -> Machine:
        cost = self.prices.byte_cost if self.prices is not None else 0.0
        return Machine(self.compute, self.memory, self.dma, inside, byte_cost=cost)


def needless(goal: TilingGoal, precision: PrecisionTable) -> str:
    """Why no search needs to know."""
    asked = "energy" in (goal.minimise, precision.minimise)
    return "" if asked else 'neither [tiling] nor [precision] has minimise = "energy"'


@stage(unless=needless, quick=True, minor=True)
def prices(energy: Energy, compute: Compute, goal: TilingGoal, precision: PrecisionTable) -> EnergyPrices:
    """Weigh bytes against cycles by what both cost."""
    cost = 0.0
    if goal.minimise == "energy":
        cycle = energy.idle_mw / compute.clock_mhz * 1000
        moved = energy.external_byte + energy.local_byte
        cost = min(MOST, moved / cycle) if cycle else MOST
        log(f"a byte of external traffic: {moved:g} pJ, worth {cost:g} cycles")
    return EnergyPrices(energy, cost, precision.minimise == "energy")
