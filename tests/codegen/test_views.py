"""Values that share another's bytes (reshapes, parts of a concatenation) are seen when they are complete."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

from npuflow.checks.agreement import compare
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Op, OpSample
from npuflow.quantise.config import Quantize
from npuflow.testing.op import quantised, samples
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import SMALL, build
from tests.networks.small import Builder


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
    graph, case = quantised(OpSample(OPS["concat"](1), parts, (constant,)), SMALL.numerics, Quantize())
    assert not [c for c in compare(graph, build(graph, SMALL), SMALL.numerics, [case.inputs]) if c.different]


@pytest.mark.parametrize(
    "part",
    [
        OPS["slice"]((0,), (9,), (0,), (1,)),
        OPS["slice"]((9,), (18,), (0,), (1,)),
        OPS["slice"]((5,), (13,), (0,), (1,)),
    ],
)
def test_a_part_of_bytes_that_only_the_runner_or_an_earlier_node_wrote_is_compared(part: Op) -> None:
    b = Builder()
    x = b.input("x", (9,))
    y = b.add(OPS["sigmoid"](), b.add(OPS["neg"](), x))
    both = b.add(OPS["concat"](0), b.add(OPS["concat"](0), x, x), y, b.add(OPS["tanh"](), y))
    cut = b.add(part, both)
    far = b.add(OPS["slice"]((20,), (24,), (0,), (1,)), both)
    outs = (b.add(OPS["relu"](), cut), b.add(OPS["abs"](), far))
    graph = Graph(("x",), outs, tuple(b.nodes), MappingProxyType(b.values), MappingProxyType(b.consts))
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    graph = quantize_graph(graph, lambda _: True, ranges, Quantize(), SMALL.numerics).graph
    program = build(graph, SMALL)
    checks = compare(graph, program, SMALL.numerics, [{"x": b.arrays["x"]}])
    stored = {o for n in graph.nodes if n.is_integer for o in n.outputs if o in program.meta["values"]}
    assert len(stored) >= 6 and stored <= {c.value for c in checks}
    assert not [c for c in checks if c.different]


def test_a_mover_to_a_scalar_makes_a_scalar() -> None:
    op = OPS["gather"]((1,), (), 0)
    graph, _ = quantised(OpSample(op, (np.array([0.5, -1.0, 2.0], np.float32),)), SMALL.numerics, Quantize())
    node = next(n for n in graph.nodes if n.is_integer)
    (found,) = op.integer(graph.site(node), [np.array([3, 4, 5], np.int8)], SMALL.numerics)
    assert found.shape == () and found == 4
