"""The [quantize] table: widths and schemes of weights and activations, and exceptions by layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Literal

from npuflow.base.errors import TargetError
from npuflow.base.tables import Config, Fault, Range
from npuflow.calibrators import CALIBRATORS, Calibrator, Grid
from npuflow.hw.elements import having
from npuflow.hw.target import Bits, BlockName, Numerics
from npuflow.place.names import LayerPatterns

# Names of the types that layers compute in, as recipes write them; empty: integers.
FLOATS = {"int": "", "bf16": "bfloat16", "fp16": "float16"}
# And those of weights in blocks that share an exponent: such layers have activations in bfloat16.
BLOCKS = having("block")

FloatMode = Literal["bf16", "fp16"]
Mode = Literal["int", FloatMode, BlockName]
Group = Annotated[int, Range(0, 1 << 16)]


@dataclass(frozen=True)
class Weights(Config):
    """How constant weights become integers."""

    bits: Bits = 8
    per: Literal["channel", "tensor"] = "channel"
    symmetric: bool = True                # zero point 0
    signed: bool = True
    narrow: bool = False                  # leave out the most negative code
    group: Group = 0                      # input channels that share a scale; 0: all of them
    # of the scales of groups, integers of so many bits times a scale per channel; 0: any multipliers
    sub_scale_bits: Annotated[int, Range(0, 8)] = 0
    # of groups beside floats, where codes are not symmetric: a whole zero point, or a minimum in float16
    offset: Literal["zero", "minimum"] = "zero"
    # minmax keeps large weights; others clip them for finer steps
    method: Annotated[str, CALIBRATORS] = "minmax"

    @property
    def calibrator(self) -> Calibrator:
        """The method with its options."""
        made: Calibrator = self.options
        return made


@dataclass(frozen=True)
class Activations(Config):
    """How activations become integers."""

    bits: Bits = 8
    symmetric: bool = False               # zero point 0
    signed: bool | None = None            # absent: unsigned where the target and the scheme allow it
    narrow: bool = False                  # leave out the most negative code


# keys of an exception that speak of integers
INTEGERS = (
    "bits", "input_bits", "symmetric", "signed", "narrow", "weight_bits", "weight_per", "weight_group",
    "weight_symmetric", "weight_narrow", "weight_signed", "weight_method",
)


# and those that speak of weights in groups, too, which there are beside floats
OF_GROUPS = frozenset(name for name in INTEGERS if name.startswith("weight_"))


def _contradiction(key: str, other: str, meaning: str) -> Fault:
    hint = f"leave out {key}, or {other.partition(' ')[0]}"
    return Fault(key, f"{key} contradicts {other}", f"{other} {meaning}", hint, code="NF-RECIPE-123")


@dataclass(frozen=True)
class Override(Config):
    """Exceptions for the layers that `layers` names; what is absent stays as it was."""

    layers: tuple[str, ...]               # node names, operator names (conv, matmul), or patterns (*/head/*)
    weight_bits: Bits | None = None
    weight_per: Literal["channel", "tensor"] | None = None
    weight_group: Group | None = None     # input channels that share a scale; 0: all of them
    weight_symmetric: bool | None = None  # zero point 0
    weight_narrow: bool | None = None     # leave out the most negative code
    weight_signed: bool | None = None
    weight_method: Annotated[str, CALIBRATORS] | None = None
    symmetric: bool | None = None         # of what they write: zero point 0
    signed: bool | None = None            # of what they write
    narrow: bool | None = None            # of what they write: leave out the most negative code
    bits: Bits | None = None              # of the layer's outputs
    input_bits: Bits | None = None        # of the layer's inputs
    float: bool = False                   # leave the layer to the host, in floating point
    # what the layer computes in on the NPU: integers, or a float or block type of the target
    type: Mode | None = None

    def check(self) -> Iterator[Fault]:
        """One rule gives a layer one kind of number: what it says of integers holds in integers alone."""
        of_integers = [
            name for name in INTEGERS
            if getattr(self, name) is not None and not (self.weight_group and name in OF_GROUPS)
        ]
        others = ["weight_group"] if self.weight_group else []
        kinds = [*of_integers, *others, *(["type"] if self.type is not None else [])]
        if self.float and kinds:
            yield _contradiction(kinds[0], "float = true", "leaves these layers to the host, in floats")
        elif self.type in FLOATS and self.type != "int" and of_integers:
            text = "lets these layers compute in floats, on the NPU"
            yield _contradiction(of_integers[0], f'type = "{self.type}"', text)

    @cached_property
    def _named(self) -> LayerPatterns:
        return LayerPatterns.of(self.layers)

    def matches(self, names: Iterable[str], op: str) -> bool:
        return self._named.answer(names, op)


@dataclass(frozen=True)
class Quantize(Config):
    """Weights, activations, exceptions, and the type of the program's inputs and outputs."""

    # what layers compute in: integers of the widths below, or a float or block type of the target, without
    # calibration; of a block type are the products of the network, the rest of it is in bf16
    mode: Mode = field(default="int", kw_only=True)
    weights: Weights = Weights()
    activations: Activations = Activations()
    overrides: tuple[Override, ...] = ()  # later ones win
    # bits of constant operands of element-wise operators; absent: as activations
    constants: Bits | None = None
    # of a language model's key and value caches: 8, with a scale for each head. Absent: as activations
    cache: Literal[8] | None = None
    # no codes for inputs of table functions where the output does not change
    trim: bool = True
    inputs: Literal["float", "integer"] = "float"
    outputs: Literal["float", "integer"] = "float"
    on_refusal: Literal["host", "error"] = "host"   # when a layer's numbers do not fit the target

    def weights_of(self, names: Iterable[str], op: str) -> Weights:
        scheme = self.weights
        for rule in self.matching(names, op):
            asked = {
                "bits": rule.weight_bits, "per": rule.weight_per, "group": rule.weight_group,
                "symmetric": rule.weight_symmetric, "narrow": rule.weight_narrow,
                "signed": rule.weight_signed,
            }
            scheme = scheme.with_(**{key: value for key, value in asked.items() if value is not None})
            if rule.weight_method is not None:
                options = rule.options_for("weight_method")
                scheme = scheme.selecting("method", rule.weight_method, options)
        return scheme

    def activations_of(self, names: Iterable[str], op: str) -> Activations:
        """What a layer writes."""
        scheme = self.activations
        for rule in self.matching(names, op):
            asked = {key: getattr(rule, key) for key in ("bits", "symmetric", "signed", "narrow")}
            scheme = scheme.with_(**{key: value for key, value in asked.items() if value is not None})
        return scheme

    def number(self, names: Iterable[str], op: str) -> str:
        """The float type of the table of element types that a layer computes in; empty: integers."""
        mode = self.mode_of(names, op)
        return FLOATS["bf16" if mode in BLOCKS else mode]

    def blocks(self, names: Iterable[str], op: str) -> str:
        """The block type of a layer's weights; empty: none."""
        mode = self.mode_of(names, op)
        return mode if mode in BLOCKS else ""

    def mode_of(self, names: Iterable[str], op: str) -> Mode:
        """What a layer computes in, as recipes write it."""
        stated = [rule.type for rule in self.matching(names, op) if rule.type is not None]
        return stated[-1] if stated else self.mode

    @property
    def integers(self) -> bool:
        """Whether any layer may compute in integers."""
        return self.mode == "int" or any(rule.type == "int" for rule in self.overrides)

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


def floats_alone(quantize: Quantize) -> str:
    """Why no ranges are needed, if they are not."""
    if quantize.integers:
        return ""
    return f'[quantize] mode = "{quantize.mode}" leaves no integers: nothing is calibrated'


def computes(containers: tuple[int, ...]) -> str:
    return f"the target computes with {', '.join(map(str, sorted(containers)))}"


def check_width(bits: int, containers: tuple[int, ...], what: str) -> None:
    """Narrow codes live in the next wider container that the target computes with."""
    if bits > max(containers):
        raise TargetError(
            f"{what} of {bits} bits; {computes(containers)}",
            hint="choose fewer bits or another target", code="NF-QUANT-002",
        )
