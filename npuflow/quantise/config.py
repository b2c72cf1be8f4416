"""The [quantize] table: widths and schemes of weights and activations, and exceptions by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Literal

from npuflow.base.errors import RecipeError, TargetError, Where
from npuflow.base.tables import Config, Fault, Range
from npuflow.calibrators import CALIBRATORS, Calibrator, Grid
from npuflow.hw.elements import having
from npuflow.hw.target import Bits, BlockName, Numerics, Target
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
        of_integers = [name for name in INTEGERS if getattr(self, name) is not None]
        kinds = [*of_integers, *(["type"] if self.type is not None else [])]
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


Others = Callable[[], Mapping[str, Target]]


def check_scheme(config: Quantize, numerics: Numerics) -> None:
    """Every wish of the table that the target's arithmetic cannot meet, as one error."""
    faults = scheme_faults(config, numerics)
    if faults:
        raise RecipeError(faults)


def scheme_faults(
    config: Quantize, numerics: Numerics, others: Others | None = None
) -> list[TargetError]:
    """A fault for every wish of the table that the target's arithmetic cannot meet. `others`: the targets
    that a fault may suggest."""
    return [*_float_misfits(config, numerics, others), *_misfits(config, numerics)]


def _misfit(key: str, text: str, hint: str, table: str = "quantize") -> TargetError:
    return TargetError(text, hint=hint, where=Where(key=f"{table}.{key}"), code="NF-QUANT-001")


def _misfits(config: Quantize, numerics: Numerics) -> Iterator[TargetError]:
    weights, activations = config.weights, config.activations
    if not numerics.integers:
        if config.integers:
            mode = next(name for name, number in FLOATS.items() if number in numerics.float_types)
            text = f"the target does not compute in integers; it has {', '.join(numerics.float_types)}"
            yield _misfit("mode", text, f'mode = "{mode}"')
        return
    widths: list[tuple[str, int | None, tuple[int, ...]]] = [
        ("weights.bits", weights.bits, numerics.weight_bits),
        ("activations.bits", activations.bits, numerics.activation_bits),
        ("constants", config.constants, numerics.activation_bits),
    ]
    for i, rule in enumerate(config.overrides):
        widths.append((f"overrides[{i}].weight_bits", rule.weight_bits, numerics.weight_bits))
        widths += [
            (f"overrides[{i}].{k}", getattr(rule, k), numerics.activation_bits)
            for k in ("bits", "input_bits")
        ]
    for key, bits, containers in widths:
        if bits is not None and bits > max(containers):
            yield _misfit(
                key, f"{bits} bits; {_computes(containers)}", f"at most {max(containers)}, or another target"
            )
    stated = [("weights.symmetric", weights.symmetric, "symmetric = true")]
    stated += [
        (f"overrides[{i}].weight_symmetric", rule.weight_symmetric is not False, "leave it out")
        for i, rule in enumerate(config.overrides)
    ]
    for key, symmetric, hint in stated:
        if not symmetric and not numerics.weight_zero_point:
            yield _misfit(key, "weights with zero points; the target has none", hint)
    if weights.symmetric and not weights.signed:
        yield _misfit(
            "weights.signed", "unsigned weights without zero points hold no negative number", "signed = true"
        )
    if weights.narrow and not weights.signed:
        yield _misfit(
            "weights.narrow", "unsigned codes have no most negative one to leave out", "narrow = false"
        )
    yield from _group_misfits(config, numerics)
    yield from _unsigned_symmetric(config)
    signs = [("activations.signed", activations.signed)]
    signs += [(f"overrides[{i}].signed", rule.signed) for i, rule in enumerate(config.overrides)]
    for key, signed in signs:
        if signed is True and not numerics.signed_activations:
            yield _misfit(key, "the target has no signed activations", "leave it out")
        if signed is False and not numerics.unsigned_activations:
            yield _misfit(key, "the target has no unsigned activations", "leave it out")
    for i, rule in enumerate(config.overrides):
        plain = weights.symmetric if rule.weight_symmetric is None else rule.weight_symmetric
        if rule.weight_signed is False and plain:
            yield _misfit(
                f"overrides[{i}].weight_signed",
                "unsigned weights without zero points hold no negative number", "weight_symmetric = false",
            )


def _unsigned_symmetric(config: Quantize) -> Iterator[TargetError]:
    """Activations without negative codes and without a zero point, which hold no negative number."""
    own = config.activations
    asked = [("activations", own.symmetric, own.signed, own.signed is False)]
    for i, rule in enumerate(config.overrides):
        symmetric = own.symmetric if rule.symmetric is None else rule.symmetric
        signed = own.signed if rule.signed is None else rule.signed
        stated = rule.signed is False or (rule.symmetric is True and signed is False)
        asked.append((f"overrides[{i}]", symmetric, signed, stated))
    for table, symmetric, signed, stated in asked:
        if stated and symmetric and signed is False:
            yield _misfit(
                f"{table}.signed", "unsigned activations without zero points hold no negative number",
                "leave signed out: tensors without negative values are unsigned then; or symmetric = false",
            )


def _group_misfits(config: Quantize, numerics: Numerics) -> Iterator[TargetError]:
    """Scales by groups of input channels that the target lacks, or that contradict the rest of the table."""
    weights = config.weights
    asked = [("weights.group", weights.group)]
    rules = enumerate(config.overrides)
    asked += [(f"overrides[{i}].weight_group", rule.weight_group or 0) for i, rule in rules]
    asked = [(key, group) for key, group in asked if group]
    has = ", ".join(map(str, sorted(numerics.weight_groups)))
    for key, group in asked:
        if group not in numerics.weight_groups:
            text = f"groups of {has}" if has else "one scale per channel"
            other = f"one of {has}" if has else "0"
            yield _misfit(
                key, f"weight scales by groups of {group} input channels; the target has {text}",
                f"{other}, or a target with such groups (target.numerics.weight_groups)",
            )
    yield from _group_zero_misfits(config, numerics)
    if asked and weights.per == "tensor":
        yield _misfit(asked[0][0], "scales by groups are scales of channels, too", 'per = "channel"')
    if weights.sub_scale_bits and not asked:
        yield _misfit("weights.sub_scale_bits", "integer scales of groups without groups", "group = 64")
    if weights.sub_scale_bits == 1:
        yield _misfit("weights.sub_scale_bits", "integer scales of one bit are all alike", "4")


def _group_zero_misfits(config: Quantize, numerics: Numerics) -> Iterator[TargetError]:
    """Zero points by groups of input channels that the target lacks."""
    weights = config.weights
    asked = [("weights.symmetric", weights.group, weights.symmetric)]
    for i, rule in enumerate(config.overrides):
        group = weights.group if rule.weight_group is None else rule.weight_group
        symmetric = weights.symmetric if rule.weight_symmetric is None else rule.weight_symmetric
        if rule.weight_group is not None or rule.weight_symmetric is not None:
            key = "weight_symmetric" if rule.weight_symmetric is not None else "weight_group"
            asked.append((f"overrides[{i}].{key}", group, symmetric))
    for key, group, symmetric in asked:
        if group and not symmetric and numerics.weight_zero_point and not numerics.group_zero_points:
            yield _misfit(
                key,
                f"zero points by groups of {group} channels; the target has zero points of channels alone",
                "symmetric = true, or group = 0",
            )


def _float_misfits(
    config: Quantize, numerics: Numerics, others: Others | None
) -> Iterator[TargetError]:
    """Float types that the target has not, and widths of integers where there are none."""
    asked: list[tuple[str, str | None]] = [("mode", config.mode)]
    asked += [(f"overrides[{i}].type", rule.type) for i, rule in enumerate(config.overrides)]
    for key, name in asked:
        yield from lacking_types(key, [name] if name is not None else [], numerics, others)
    if config.mode != "int" and not config.integers:
        for key, table, default in (
            ("weights", config.weights, Weights()), ("activations", config.activations, Activations()),
        ):
            if table != default:
                text = f'mode = "{config.mode}" leaves no integers that this table could speak of'
                yield _misfit(key, text, "leave out the one or the other")


def lacking_types(
    key: str, names: Iterable[str], numerics: Numerics, others: Others | None = None, table: str = "quantize"
) -> Iterator[TargetError]:
    """A fault for every type that layers are to compute in and the target lacks."""
    for name in names:
        kind = FLOATS.get(name, name)
        if not kind or kind in numerics.float_types:
            continue
        own = ", ".join(numerics.float_types) or "integers alone"
        known = others() if others is not None else {}
        having = [target for target, one in known.items() if kind in one.numerics.float_types]
        hint = f"targets with {name}: {', '.join(having)}" if having else "another target"
        yield _misfit(key, f"the target does not compute in {name}; it has {own}", hint, table)


def _computes(containers: tuple[int, ...]) -> str:
    return f"the target computes with {', '.join(map(str, sorted(containers)))}"


def check_width(bits: int, containers: tuple[int, ...], what: str) -> None:
    """Narrow codes live in the next wider container that the target computes with."""
    if bits > max(containers):
        raise TargetError(
            f"{what} of {bits} bits; {_computes(containers)}",
            hint="choose fewer bits or another target", code="NF-QUANT-002",
        )
