"""The float network with rounded weights, and whether one choice of codes comes closer than another."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from npuflow.ir.codes import encode
from npuflow.ir.graph import Graph, constant
from npuflow.ir.types import Array, QuantType
from npuflow.quantise.rounded import real_bias, real_weight
from npuflow.rounders import Reals, RoundedWeight
from npuflow.tune.improve import Proposal, Trial, improve
from npuflow.tune.judge import Judge


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


def closer(
    what: str, judge: Judge, start: Mapping[str, RoundedWeight], made: Mapping[str, RoundedWeight]
) -> Trial:
    """Whether the outputs come closer with the codes that were `made`, everything else in float."""
    _, (trial,) = improve(
        start, [Proposal(what, made)], lambda one: judge.score(with_weights(judge.graph, one)).error
    )
    return trial
