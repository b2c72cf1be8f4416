"""Wishes of the [quantize] table that a target's arithmetic cannot meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from npuflow.base.errors import RecipeError, TargetError, Where
from npuflow.hw.target import Numerics, Target
from npuflow.quantise.config import FLOATS, Activations, Mode, Quantize, Weights, computes

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
    yield from _cache_misfits(config, numerics)
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
                key, f"{bits} bits; {computes(containers)}", f"at most {max(containers)}, or another target"
            )
    stated = [("weights.symmetric", weights.symmetric, "symmetric = true")]
    stated += [
        (f"overrides[{i}].weight_symmetric", rule.weight_symmetric is not False, "leave it out")
        for i, rule in enumerate(config.overrides)
    ]
    for key, symmetric, hint in stated:
        if not symmetric and not numerics.weight_zero_point and config.integers:
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


def _cache_misfits(config: Quantize, numerics: Numerics) -> Iterator[TargetError]:
    """Caches of 8 bits where the target has no such codes, or where they are that narrow already."""
    if config.cache is None:
        return
    own, bits = config.activations.bits, config.cache
    if not (numerics.integers and bits in numerics.activation_bits and numerics.signed_activations):
        text = f"caches in signed codes of {bits} bits, which the target has not"
        yield _misfit("cache", text, "leave it out, or another target")
    elif config.mode == "int" and own <= bits:
        text = f"caches of {bits} bits, which activations of {own} bits are already"
        yield _misfit("cache", text, "leave it out, or activations = { bits = 16 }")


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


@dataclass(frozen=True)
class _AskedGroup:
    """Groups of weights that a key of the recipe asks for, and what its layers compute in."""

    key: str
    group: int
    bits: int
    mode: Mode
    activations: int

    def loaded(self, number: str, numerics: Numerics) -> bool:
        """Whether the target has a product with such weights beside activations of a type."""
        narrow = number == "int16" and self.activations <= 8
        return not narrow and numerics.group_bits(number, self.bits, self.group) > 0


def _groups_asked(config: Quantize) -> list[_AskedGroup]:
    own, bits = config.weights, config.activations.bits
    found = [_AskedGroup("weights.group", own.group, own.bits, config.mode, bits)]
    for i, rule in enumerate(config.overrides):
        width = own.bits if rule.weight_bits is None else rule.weight_bits
        found.append(_AskedGroup(
            f"overrides[{i}].weight_group", rule.weight_group or 0, width, rule.type or config.mode,
            rule.input_bits or bits,
        ))
    return [one for one in found if one.group]


def _float_group_misfits(config: Quantize, numerics: Numerics) -> Iterator[TargetError]:
    """Groups of weights beside floats that the target has no product for, or that contradict the table."""
    beside = any(one.mode != "int" for one in _groups_asked(config))
    own = config.weights
    if own.offset == "minimum" and (not beside or own.symmetric or own.method != "minmax"):
        text = "minima are of codes in groups beside floats, and reach to the least and greatest number"
        hint = 'mode = "bf16", group = 32, symmetric = false and method = "minmax", or offset = "zero"'
        yield _misfit("weights.offset", text, hint)
    for one in _groups_asked(config):
        number = FLOATS.get(one.mode, "")
        if one.mode == "int" or (number and one.loaded(number, numerics)):
            continue
        having = sorted({
            (width, group) for own in numerics.group_products if own.activations == number
            for width in own.weights for group in own.groups
        })
        has = ", ".join(f"{width} bits by {group}" for width, group in having) or "none"
        text = f"weights of {one.bits} bits in groups of {one.group} beside {number or one.mode}"
        yield _misfit(
            one.key, f"{text}; the target has {has}",
            "0, or a target with such products (target.numerics.group_products)",
        )


def _group_misfits(config: Quantize, numerics: Numerics) -> Iterator[TargetError]:
    """Scales by groups of input channels that the target lacks, or that contradict the rest of the table."""
    weights = config.weights
    asked = [one for one in _groups_asked(config) if one.mode == "int"]
    has = ", ".join(map(str, sorted(numerics.weight_groups)))
    for one in asked:
        if one.group not in numerics.weight_groups and not one.loaded("int16", numerics):
            text = f"groups of {has}" if has else "one scale per channel"
            other = f"one of {has}" if has else "0"
            yield _misfit(
                one.key, f"weight scales by groups of {one.group} input channels; the target has {text}",
                f"{other}, or a target with such groups (target.numerics.weight_groups)",
            )
    yield from _group_zero_misfits(config, numerics)
    if asked and weights.per == "tensor":
        yield _misfit(asked[0].key, "scales by groups are scales of channels, too", 'per = "channel"')
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
        lacks = numerics.weight_zero_point and not numerics.group_zero_points
        if group in numerics.weight_groups and not symmetric and lacks and config.integers:
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
    yield from _float_group_misfits(config, numerics)
    if config.mode != "int" and not config.integers:
        for key, table, default in (
            ("weights", config.weights, Weights()), ("activations", config.activations, Activations()),
        ):
            if table != default and not (table is config.weights and config.weights.group):
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
