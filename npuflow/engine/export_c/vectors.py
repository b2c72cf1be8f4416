"""Test vectors: random codes of the inputs and what the reference interpreter makes of them."""

from __future__ import annotations

import numpy as np

from npuflow.engine.export_c.files import Sample
from npuflow.engine.export_c.network import IntegerNetwork
from npuflow.hw.target import Numerics
from npuflow.ir.graph import prune
from npuflow.ir.types import Array


def random_samples(network: IntegerNetwork, numerics: Numerics, count: int, seed: int = 0) -> list[Sample]:
    """Codes drawn over the whole range of every input; always the same for a seed."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        given: dict[str, Array] = {}
        for name, value in network.inputs:
            quant = value.quant
            assert quant is not None
            given[name] = rng.integers(quant.lo, quant.hi + 1, value.type.shape).astype(quant.dtype)
        found.append(sample(network, numerics, given))
    return found


def sample(network: IntegerNetwork, numerics: Numerics, given: dict[str, Array]) -> Sample:
    """One sample: codes of the inputs by their names, and those of the outputs."""
    from npuflow.engine.interpret import Interpreter

    names = {value.id: name for name, value in network.inputs}
    inputs, outputs = tuple(names), tuple(value.id for _, value in network.outputs)
    graph = prune(network.graph.replaced(inputs=inputs, outputs=outputs, nodes=network.nodes))
    made = Interpreter(graph, numerics).run({i: given[names[i]] for i in inputs})
    return given, {name: made[value.id] for name, value in network.outputs}
