"""The [quantize] table: widths and schemes of weights and activations, and exceptions by layer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from npuflow.base.errors import TargetError
from npuflow.base.tables import Config, Range
from npuflow.engine.quantize.names import answers
from npuflow.hw.target import Numerics
from npuflow.ir.contracts import Grid

Bits = Annotated[int, Range(2, 16)]


@dataclass(frozen=True)
class Weights(Config):
    """How constant weights become integers."""

    bits: Bits = 8
    per: Literal["channel", "tensor"] = "channel"
    symmetric: bool = True                # zero point 0
    signed: bool = True
    narrow: bool = False                  # leave out the most negative code


@dataclass(frozen=True)
class Activations(Config):
    """How activations become integers."""

    bits: Bits = 8
    symmetric: bool = False               # zero point 0
    signed: bool | None = None            # absent: unsigned where the target and the scheme allow it
    narrow: bool = False                  # leave out the most negative code


@dataclass(frozen=True)
class Override(Config):
    """Exceptions for the layers that `layers` names; what is absent stays as it was."""

    layers: tuple[str, ...]               # node names, operator names (conv, matmul), or patterns (*/head/*)
    weight_bits: Bits | None = None
    weight_per: Literal["channel", "tensor"] | None = None
    bits: Bits | None = None              # of the layer's outputs
    input_bits: Bits | None = None        # of the layer's inputs
    float: bool = False                   # leave the layer to the host, in floating point

    def matches(self, names: Iterable[str], op: str) -> bool:
        return answers(self.layers, names, op)


@dataclass(frozen=True)
class Quantize(Config):
    """Weights, activations, exceptions, and the type of the program's inputs and outputs."""

    weights: Weights = Weights()
    activations: Activations = Activations()
    overrides: tuple[Override, ...] = ()  # later ones win
    constants: Bits | None = None         # bits of constant operands of element-wise operators; absent: as activations
    trim: bool = True                     # no codes for inputs of table functions where the output stands still
    inputs: Literal["float", "integer"] = "float"
    outputs: Literal["float", "integer"] = "float"
    on_refusal: Literal["host", "error"] = "host"   # when a layer's numbers do not fit the target

    def weights_of(self, names: Iterable[str], op: str) -> Weights:
        scheme = self.weights
        for rule in self.matching(names, op):
            scheme = replace(scheme, bits=rule.weight_bits or scheme.bits, per=rule.weight_per or scheme.per)
        return scheme

    def matching(self, names: Iterable[str], op: str) -> list[Override]:
        known = tuple(names)
        return [rule for rule in self.overrides if rule.matches(known, op)]


def activation_grid(scheme: Activations, numerics: Numerics, bits: int | None = None) -> Grid:
    """The codes that a threshold method chooses a range for."""
    width = bits or scheme.bits
    check_width(width, numerics.activation_bits, "activations")
    symmetric = scheme.symmetric or not numerics.activation_zero_point
    signed = scheme.signed if scheme.signed is not None else symmetric or not numerics.unsigned_activations
    signed = signed if numerics.unsigned_activations else True
    signed = signed if numerics.signed_activations else False
    return Grid(width, signed, symmetric, scheme.narrow, numerics.power_of_two)


def check_width(bits: int, containers: tuple[int, ...], what: str) -> None:
    """Narrow codes live in the next wider container that the target computes with."""
    if bits > max(containers):
        raise TargetError(
            f"{what} of {bits} bits; the target computes with {', '.join(map(str, sorted(containers)))}",
            hint="choose fewer bits or another target",
        )
