"""Values that share another's bytes (reshapes, parts of a concatenation) are seen when they are complete."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.engine.agreement import compare
from npuflow.engine.quantize_config import Quantize
from npuflow.ir.op import OPS, Sample
from npuflow.testing.op import quantised, samples
from tests.codegen.harness import SMALL, build


@pytest.mark.parametrize("name", ["reshape", "concat", "slice", "split"])
def test_every_value_is_compared_also_where_the_runner_wrote_its_bytes(name: str) -> None:
    for sample in samples(name):
        graph, case = quantised(sample, SMALL.numerics, Quantize())
        program = build(graph, SMALL)
        checks = {c.value: c for c in compare(graph, program, SMALL.numerics, [case.inputs])}
        integers = {o for n in graph.nodes for o in n.outputs if o and graph.values[o].quant is not None}
        assert integers <= set(checks)
        assert not [c for c in checks.values() if c.different]
        assert all(c.elements == np.prod(graph.type(v).shape) for v, c in checks.items())


@pytest.mark.parametrize("constant", [0, 1])
def test_a_constant_part_of_a_concatenation_reaches_memory(constant: int) -> None:
    rng = np.random.default_rng(0)
    parts = tuple(rng.normal(size=(1, c, 4, 5)).astype(np.float32) for c in (2, 3))
    graph, case = quantised(Sample(OPS["concat"](1), parts, (constant,)), SMALL.numerics, Quantize())
    assert not [c for c in compare(graph, build(graph, SMALL), SMALL.numerics, [case.inputs]) if c.different]
