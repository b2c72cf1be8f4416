"""Rounded weights held against rounding to the nearest: outputs of the float network with
either, on held-out samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from npuflow.ir.codes import encode
from npuflow.ir.graph import Graph, constant
from npuflow.ir.types import Array, QuantType
from npuflow.quantise.rounded import real_bias, real_weight
from npuflow.rounders import Reals, RoundedWeight
from npuflow.tune.correct.error import Feed, output_error, outputs_of
from npuflow.tune.correct.trial import NETWORK, Trial
from npuflow.tune.rounding.rounded import RoundingResult


def with_weights(graph: Graph, weights: Mapping[str, RoundedWeight]) -> Graph:
    """The float network with the weights that codes stand for, and the biases that go with them."""
    values, consts = dict(graph.values), dict(graph.consts)

    def put(value_id: str, array: Array) -> None:
        old = graph.const(value_id)
        assert old is not None
        values[value_id], stored = constant(value_id, array.reshape(old.shape).astype(old.dtype))
        consts.update(stored)

    for value_id, one in weights.items():
        put(value_id, real_weight(one))
        bias = graph.const(one.bias) if one.bias else None
        if bias is not None:
            put(one.bias, real_bias(one, bias))
    return graph.replaced(values=MappingProxyType(values), consts=MappingProxyType(consts))


def to_nearest(
    graph: Graph, value_id: str, quant: QuantType, bias: str, shift: Reals | None
) -> RoundedWeight:
    """A weight rounded to the nearest, its bias taking up the mean likewise."""
    real = graph.const(value_id)
    assert real is not None
    return RoundedWeight(encode(real, quant), quant, bias, shift)


def trials(done: Iterable[tuple[str, RoundingResult]]) -> list[Trial]:
    """A line for every layer: its squared error on held-out samples against that of
    rounding to the nearest."""
    return [Trial("round", name, one.was, one.now, one.used) for name, one in done]


def judged(
    graph: Graph, made: Mapping[str, RoundedWeight], plain: Mapping[str, RoundedWeight], held: Sequence[Feed]
) -> Trial:
    """All layers together, everything else in float."""
    truth = outputs_of(graph, held)
    before, after = (output_error(truth, outputs_of(with_weights(graph, one), held)) for one in (plain, made))
    return Trial("round", NETWORK, before, after, after < before)

