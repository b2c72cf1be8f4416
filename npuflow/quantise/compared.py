"""Chooses codes of constants that activations are compared with.
Of their difference only the sign counts, so that a bound which its code misses puts codes of the activation
on the wrong side.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import floor, log2

import numpy as np

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.types import Array, QuantType

EXACT = 1e-6                              # of a number: what its code may miss it by, as scales are float32
FEW = 14                                  # bits of multipliers below which two of them are no ratio of scales


def compared(
    graph: Graph, chosen: Sequence[Node], types: Mapping[str, QuantType], alone: Collection[str],
    numerics: Numerics,
) -> dict[str, QuantType]:
    """Better types of such constants, where theirs miss them, and of the differences where these need one.
    `alone`: values that share their scale with no other, and whose type is not stated."""
    found: dict[str, QuantType] = {}
    differences = list(_differences(graph, chosen, alone))
    mine, consumers = {n.outputs for n in differences}, graph.consumers()
    few = numerics.multiplier_bits < FEW and not numerics.power_of_two
    for node in differences:
        (bound,) = (i for i in node.inputs if graph.const(i) is not None)
        readers = consumers[bound]
        if bound not in alone or any(n.outputs not in mine for n in readers):
            continue
        array = np.asarray(graph.const(bound), np.float64)
        others = [types[i] for n in readers for i in n.inputs if i != bound]
        if few and len(others) == 1:
            found |= _in_steps_of(others[0], array, (bound, node.outputs[0]), types, numerics)
        elif not few and not _held(array, types[bound]):
            least = max(other.scale[0] for other in others) / _finest(numerics)
            better = _on_a_grid(array, least, numerics) or _widest(types[bound], least, numerics)
            if better is not None:
                found |= {bound: better, **_reached(readers, bound, better, types, numerics)}
    return found


def _finest(numerics: Numerics) -> int:
    """How many steps of a bound one of the activation may hold: its multiplier is smaller by as much, and as
    much less exact. Powers of two are exact, and are shifted left by 14 bits at most."""
    return 1 << (14 if numerics.power_of_two else max(min(numerics.multiplier_bits, 31) - 7, 0) // 2)


def _differences(graph: Graph, chosen: Sequence[Node], alone: Collection[str]) -> Iterator[Node]:
    """Sums of an activation and a constant that only signs are taken of."""
    consumers, mine = graph.consumers(), {n.outputs for n in chosen}
    for node in chosen:
        made = node.outputs[0]
        if not node.op.sums or node.op.clip is not None or made not in alone or made in graph.outputs:
            continue
        readers = consumers.get(made, [])
        constants = [i for i in node.inputs if graph.const(i) is not None]
        if len(constants) == 1 and readers and all(n.op.signs and n.outputs in mine for n in readers):
            yield node


def _held(array: Array, quant: QuantType) -> bool:
    """Whether there is a code for every number."""
    codes = array / quant.scale[0]
    ends = quant.lo - quant.zero_point[0], quant.hi - quant.zero_point[0]
    wrong = np.abs(codes - np.clip(np.rint(codes), *ends))
    return bool(np.all(wrong <= EXACT * np.maximum(np.abs(codes), 1.0)))


def _on_a_grid(array: Array, least: float, numerics: Numerics) -> QuantType | None:
    """Codes that are multiples of the smallest number: bounds between rows are."""
    sizes = np.abs(array[array != 0])
    if numerics.power_of_two or not numerics.signed_activations or not sizes.size or sizes.min() < least:
        return None
    for bits in sorted(numerics.activation_bits):
        made = QuantType(bits, True, (float(np.float32(sizes.min())),))
        if _held(array, made):
            return made
    return None


def _widest(quant: QuantType, least: float, numerics: Numerics) -> QuantType | None:
    """The same range in the most bits, in steps no smaller than `least`."""
    bits, more = max(numerics.activation_bits), 0
    while more < bits - quant.bits and quant.scale[0] / (2 << more) >= least:
        more += 1
    if not more:
        return None
    zero = quant.zero_point[0] << more
    return quant.with_(bits=bits, scale=(quant.scale[0] / (1 << more),), zero_point=(zero,))


def _reached(
    readers: Sequence[Node], bound: str, better: QuantType, types: Mapping[str, QuantType], numerics: Numerics
) -> dict[str, QuantType]:
    """Larger steps for differences whose own are so fine that an operand's multiplier would be too wide."""
    found = {}
    for node in readers:
        steps = [better.scale[0], *(types[i].scale[0] for i in node.inputs if i != bound)]
        least = max(steps) / (1 << min(numerics.multiplier_bits, 31) - 1)
        made = types[node.outputs[0]]
        if made.scale[0] < least and not numerics.power_of_two:
            found[node.outputs[0]] = made.with_(scale=(float(np.float32(least)),))
    return found


def _in_steps_of(
    other: QuantType, array: Array, names: tuple[str, str], types: Mapping[str, QuantType],
    numerics: Numerics,
) -> dict[str, QuantType]:
    """Bound and difference in the other operand's steps, divided by powers of two: multipliers of few bits
    hold such ratios, and no others."""
    (bound, made), top = names, float(np.abs(array).max())
    codes = types[bound].with_(zero_point=(0,))
    if not top or not codes.signed or not types[made].signed:
        return {}
    finer = min(floor(log2(codes.hi * other.scale[0] / top)), numerics.multiplier_bits - 1)
    if finer < 0:
        return {}
    steps = floor(log2(other.scale[0] / types[made].scale[0]))
    steps = max(0, min(steps, numerics.multiplier_bits - 1 + numerics.shift_left_max))
    return {
        bound: codes.with_(scale=(other.scale[0] / 2**finer,)),
        made: types[made].with_(scale=(other.scale[0] / 2**steps,), zero_point=(0,)),
    }
