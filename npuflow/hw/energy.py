"""What the work of an NPU costs in energy: the table [energy] of a target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from npuflow.base.tables import Config, Fault, Range
from npuflow.hw.elements import ELEMENTS, WIDEST
from npuflow.hw.ranges import Bits, FloatName

Picojoules = Annotated[float, Range(0, 1e6)]
SPARSE_SKIPS = 2  # of the weights of 2:4 every other one is no product


@dataclass(frozen=True)
class MacEnergy(Config):
    """What a multiply-accumulate costs on operands of up to so many bits."""

    activations: Bits = 16                # of the operand that streams through the array
    weights: Bits = 16                    # of the operand that is held in it
    pj: Picojoules = 1.0


@dataclass(frozen=True)
class FloatMacEnergy(Config):
    """What a multiply-accumulate costs on a float type."""

    type: FloatName
    pj: Picojoules = 2.0


@dataclass(frozen=True)
class Energy(Config, table="target.energy"):
    """What work costs, in picojoules, and the power that is drawn whatever is done. Programs do not depend on
    it. Without the table no energy is reported."""

    source: str = ""                      # where the figures come from
    macs: tuple[MacEnergy, ...] = ()      # of all entries that cover both widths, the cheapest counts
    float_macs: tuple[FloatMacEnergy, ...] = ()
    local_byte: Picojoules = 0.0          # a byte read from or written to local memory
    shared_byte: Picojoules = 0.0         # a byte moved to or from the memory that all cores share
    external_byte: Picojoules = 0.0       # a byte moved to or from external memory, in whole bursts
    vector_op: Picojoules = 0.0           # an element operation of the vector unit
    idle_mw: Annotated[float, Range(0, 1e6)] = 0.0   # drawn by the whole NPU while an inference lasts

    @property
    def stated(self) -> bool:
        """Whether the target has the table."""
        return bool(self.macs or self.float_macs)

    def mac(self, activations: int, weights: int, number: str = "") -> float:
        """pJ of a multiply-accumulate on operands of so many bits, or of a type `number` of floats or sparse
        weights, of which the zeros cost nothing."""
        if number and ELEMENTS[number].sparse is not None:
            return self.mac(activations, weights) / SPARSE_SKIPS
        if number:
            return min(one.pj for one in self.float_macs if one.type == number)
        return self.entry(activations, weights).pj

    def entry(self, activations: int, weights: int) -> MacEnergy:
        """The entry that counts for operands of so many bits: of those that cover both, the cheapest."""
        covering = [e for e in self.macs if activations <= e.activations and weights <= e.weights]
        return min(covering, key=lambda e: (e.pj, e.activations + e.weights))

    def check(self) -> Iterator[Fault]:
        if self.macs and not any(e.activations == e.weights == WIDEST for e in self.macs):
            yield Fault(
                "macs",
                f"no entry covers {WIDEST} by {WIDEST} bits",
                hint=f"add {{ activations = {WIDEST}, weights = {WIDEST}, pj = 0.9 }}",
                code="NF-TARGET-070",
            )
        if not self.stated:
            yield Fault(
                "macs",
                "the target's [energy] says of no multiply-accumulate what it costs",
                "the table is absent, or has neither macs nor float_macs",
                "macs = [{ activations = 16, weights = 16, pj = 0.9 }]",
                code="NF-TARGET-071",
            )
