"""Test vectors: random codes of the inputs and the codes that the outputs must have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph, prune
from npuflow.ir.types import Array
from npuflow.quantise.indices import checked_rows, each_row
from npuflow.whole.export_c.files import Sample
from npuflow.whole.export_c.network import IntegerNetwork

INTERPRETED = 2  # samples; more of them are the executor's, which is a hundred times faster
_Codes = Mapping[str, Array]


def random_samples(
    network: IntegerNetwork, numerics: Numerics, count: int, seed: int = 0, interpreted: int = INTERPRETED
) -> list[Sample]:
    """Codes drawn over the whole range of every input, indices over the rows of their table; always the same
    for a seed. Outputs of the first samples (`interpreted`) are the reference interpreter's, of further ones
    the whole-tensor executor's."""
    rng, rows = np.random.default_rng(seed), checked_rows(network.graph, network.nodes)
    drawn: list[_Codes] = []
    for _ in range(count):
        given: dict[str, Array] = {}
        for name, value in network.inputs:
            quant = value.quant
            assert quant is not None
            low, high = np.array(quant.lo), np.array(quant.hi)
            if value.id in rows:
                most = each_row(rows[value.id], value.type.size).reshape(value.type.shape)
                low, high = np.maximum(low, -most), np.minimum(high, most - 1)
            given[name] = rng.integers(low, high + 1, value.type.shape).astype(quant.dtype)
        drawn.append(given)
    found = [sample(network, numerics, given) for given in drawn[:interpreted]]
    return found + executed(network, numerics, drawn[interpreted:])


def sample(network: IntegerNetwork, numerics: Numerics, given: _Codes) -> Sample:
    """One sample by the reference interpreter: codes of the inputs and outputs by their names."""
    from npuflow.run.interpret import Interpreter

    fed = _by_id(network, given)
    made = Interpreter(_integers(network), numerics).run(fed)
    return given, _named(network, {**fed, **made})


def executed(network: IntegerNetwork, numerics: Numerics, given: Sequence[_Codes]) -> list[Sample]:
    """Samples by the whole-tensor executor."""
    from npuflow.whole.execute.executor import Executor

    if not given:
        return []
    fed = [_by_id(network, one) for one in given]
    made = Executor(_integers(network), numerics).run_many(fed)
    return [(one, _named(network, {**a, **b})) for one, a, b in zip(given, fed, made, strict=True)]


def _integers(network: IntegerNetwork) -> Graph:
    """The network without what turns real numbers into codes and back."""
    inputs = tuple(v.id for _, v in network.inputs)
    outputs = tuple(dict.fromkeys(v.id for _, v in network.outputs if v.id not in inputs))
    return prune(network.graph.replaced(inputs=inputs, outputs=outputs, nodes=network.nodes))


def _by_id(network: IntegerNetwork, given: _Codes) -> dict[str, Array]:
    return {value.id: given[name] for name, value in network.inputs}


def _named(network: IntegerNetwork, made: _Codes) -> dict[str, Array]:
    return {name: made[value.id] for name, value in network.outputs}
