"""Values that share another's bytes (reshapes, parts of a concatenation) are seen when they are complete."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.engine.agreement import compare
from npuflow.engine.quantize_config import Quantize
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
