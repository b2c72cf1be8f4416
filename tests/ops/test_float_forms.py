"""Which operators have a float form, and what those that order or pick elements do with special numbers."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.ir.forms import Arithmetic, has_form
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.ir.types import FloatType
from npuflow.quantise.config import Quantize
from npuflow.run.interpret import interpret
from npuflow.testing.op import samples
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import check_exact
from tests.networks.small import Builder
from tests.ops.test_float_suite import NUMERICS, ROOMY

WITHOUT = {
    "quantizelinear": "the border to float32",
    "dequantizelinear": "the border to float32",
    "quotient": "of whole numbers, which are integers in a network of floats too",
}


def test_every_operator_with_an_integer_form_has_a_float_form() -> None:
    """All but those that never compute in floats, with the reason."""
    without = {n for n in OPS.names() if any(not has_form(s.op, Arithmetic.FLOATS) for s in samples(n))}
    assert without == set(WITHOUT)


SPECIAL = np.array([[2.0, -np.inf, np.nan, np.inf, -0.0, 0.0, -3.0, np.nan]], np.float32)


@pytest.mark.parametrize(
    ("largest", "last", "order"),
    [
        (1, 0, [2, 7, 3, 0, 4, 5, 6, 1]), (0, 0, [2, 7, 1, 6, 4, 5, 0, 3]),
        (1, 1, [7, 2, 3, 0, 5, 4, 6, 1]), (0, 1, [7, 2, 1, 6, 5, 4, 0, 3]),
    ],
)
def test_nan_comes_first_and_zeros_are_equal(largest: int, last: int, order: list[int]) -> None:
    b = Builder()
    x = b.input("x", SPECIAL.shape)
    y = b.add(OPS["topk"](1, 8, largest, last), x)
    graph = Graph((x,), (y, b.nodes[0].outputs[1]), tuple(b.nodes), b.values, b.consts)
    done = quantize_graph(graph, lambda _: True, {}, Quantize(mode="fp16"), NUMERICS).graph
    elements, positions = (interpret(done, {"x": SPECIAL}, NUMERICS)[o] for o in done.outputs)
    assert positions[0].tolist() == order
    np.testing.assert_array_equal(elements, SPECIAL[:, order])
    check_exact(done, {"x": SPECIAL}, ROOMY)


def test_positions_and_indices_stay_whole_numbers() -> None:
    """300 rows: bfloat16 would round a position beyond 256, on the way through a Reshape, too."""
    b = Builder()
    x = b.input("x", (1, 300))
    at = b.add(OPS["reshape"]((1,)), b.add(OPS["argextreme"](1), x))
    y = b.add(OPS["lookup"](), b.const((1, 300, 4), 1.0), at)
    graph = Graph((x,), (y,), tuple(b.nodes), b.values, b.consts)
    done = quantize_graph(graph, lambda _: True, {}, Quantize(mode="bf16"), NUMERICS)
    assert not done.notes
    found = {v.id: v.quant for v in done.graph.values.values() if v.quant is not None}
    assert isinstance(found[f"{y}:q"], FloatType) and not isinstance(found[at], FloatType)
    given = np.zeros((1, 300), np.float32)
    given[0, 299] = 1.0
    (want,) = (b.arrays[graph.nodes[2].inputs[0]][:, 299:300],)
    made = interpret(done.graph, {"x": given}, NUMERICS)[done.graph.outputs[0]]
    np.testing.assert_allclose(made, want, rtol=2.0**-8)
    check_exact(done.graph, {"x": given}, ROOMY)
