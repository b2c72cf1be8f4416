"""Two sides with many tensors each, as codes and as real numbers: every one that both have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from npuflow.compare.difference import Difference, difference
from npuflow.ir.types import Array


@dataclass
class Side:
    """Named arrays, and what is known of the network that made them. `order`: its tensors; empty where there
    is only a file. `leads`: its order is the one to report in, whichever side it is. `quants`: as programs
    have them. `layers`: tensor -> the layer that makes it."""

    codes: dict[str, Array] = field(default_factory=dict)
    real: dict[str, Array] = field(default_factory=dict)
    quants: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    layers: dict[str, str] = field(default_factory=dict)
    leads: bool = False

    @property
    def names(self) -> dict[str, None]:
        return dict.fromkeys((*self.order, *self.codes, *self.real))


@dataclass(frozen=True)
class TensorComparison:
    """One tensor of both sides, and the layer that makes it."""

    difference: Difference
    layer: str = ""


def compared(first: Side, second: Side, tolerance: float) -> list[TensorComparison]:
    """Every tensor that both have, in the network's order: codes with codes where both hold them, else real
    numbers.
    """
    sides = (second, first) if second.leads and not first.leads else (first, second)
    order = (*sides[0].order, *sides[1].order, *first.names, *second.names)
    found = []
    for name in dict.fromkeys(n for n in order if n in first.names and n in second.names):
        pair = _pair(name, first, second)
        if pair is None:
            continue
        a, b, codes = pair
        layer = first.layers.get(name) or second.layers.get(name, "")
        quant = first.quants.get(name) or second.quants.get(name) or {}
        zeros = quant.get("zero_point", [0]) if codes else [0]
        zero = zeros[0] if len(zeros) == 1 else 0
        found.append(
            TensorComparison(difference(name, a, b, tolerance=tolerance, codes=codes, zero=zero), layer)
        )
    return found


def _pair(name: str, first: Side, second: Side) -> tuple[Array, Array, bool] | None:
    if (
        name in first.codes
        and name in second.codes
        and _alike(first.quants.get(name), second.quants.get(name))
    ):
        return first.codes[name], second.codes[name], True
    if name in first.real and name in second.real:
        return first.real[name], second.real[name], False
    a, b = (side.codes.get(name, side.real.get(name)) for side in (first, second))
    return None if a is None or b is None else (a, b, False)


def _alike(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> bool:
    """Whether codes of both mean the same, as far as both say what they mean."""
    return a is None or b is None or (a["scale"], a["zero_point"]) == (b["scale"], b["zero_point"])
