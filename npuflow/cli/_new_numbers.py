"""What a language model's recipe computes in: the type in which its target keeps the checkpoint's codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuflow.cli._template import DEFAULT, TemplateValue

if TYPE_CHECKING:
    from npuflow.hw.target import Numerics

MODES = {"bfloat16": "bf16", "float16": "fp16"}       # types of the target, the wider range first
WIDE = 16                                 # bits of activations: norms and long sums need more than 8


def fills(target: str | None) -> dict[tuple[str, str], TemplateValue]:
    """Keys of [quantize] for a checkpoint on this target."""
    from npuflow.cli.targets import path_of, target_of

    return of_numerics(target_of(path_of(target or DEFAULT)).numerics)


def of_numerics(numerics: Numerics) -> dict[tuple[str, str], TemplateValue]:
    """Floats where the target has them, which need no calibration, those before the others beside which it
    keeps codes in groups; else integers of 16 bits. Empty: a target of 8 bits alone."""
    kept = [one.activations for one in numerics.group_products]
    for name in (*(name for name in MODES if name in kept), *MODES):
        if name in numerics.float_types and (name in kept or "int16" not in kept):
            remark = "codes in groups stay as the checkpoint has them" if name in kept else ""
            return {("quantize", "mode"): TemplateValue(f'"{MODES[name]}"', remark)}
    if WIDE not in numerics.activation_bits:
        return {}
    if "int16" not in kept:
        return {("quantize", "activations"): TemplateValue(f"{{ bits = {WIDE} }}")}
    passes = "it takes many passes of the whole network"
    said = "codes in groups stay as the checkpoint has them"
    return {
        ("quantize", "activations"): TemplateValue(f"{{ bits = {WIDE} }}", said),
        ("correct", "bias"): TemplateValue('"off"', f"weights are as stated, and {passes}"),
        ("verdict", "advice"): TemplateValue("false", passes),
    }
