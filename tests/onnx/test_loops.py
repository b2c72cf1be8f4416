"""Loops as ONNX Scans: what onnxruntime computes of them, and how they are written."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from npuflow.base.errors import InternalError
from npuflow.ir.text import from_text
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run

NETWORK = """npuflow graph 1
input x: float32[12,3]
input start: float32[2,3]
input factor: float32[2,3]
part: float32[2,3] = loopslice(x) loop="sums" steps=6{back}
before: float32[2,3] = loopcarry(start) loop="sums" steps=6
by: float32[2,3] = loopcapture(factor) loop="sums" steps=6
scaled: float32[2,3] = mul(part, by)
after: float32[2,3] = add(before, scaled)
most: float32[] = reducemax(after) axes=[0,1] keepdims=0
rows: float32[12,3] = loopstack(after) loop="sums" steps=6
turned: float32[12,3] = loopstack(after) loop="sums" steps=6 reverse=true
last: float32[2,3] = looplast(after) loop="sums" steps=6
peaks: float32[6] = loopstack(most) loop="sums" steps=6
output rows
output turned
output last
output peaks
"""
X = np.arange(36, dtype=np.float32).reshape(12, 3)
START, FACTOR = np.ones((2, 3), np.float32), np.full((2, 3), 0.5, np.float32)
FEEDS = {"x": X, "start": START, "factor": FACTOR}


@pytest.mark.parametrize("back", [False, True])
def test_the_results_of_a_loop(back: bool) -> None:
    graph = from_text(NETWORK.format(back=" reverse=true" if back else ""))
    model = export_model(graph)
    onnx.checker.check_model(onnx.load_from_string(model), full_check=True)
    rows, turned, last, peaks = run(model, FEEDS)
    parts = X.reshape(6, 2, 3)[:: -1 if back else 1]
    sums = START + np.cumsum(parts * FACTOR, 0, dtype=np.float32)
    np.testing.assert_array_equal(rows, sums.reshape(12, 3))
    np.testing.assert_array_equal(turned, sums[::-1].reshape(12, 3))
    np.testing.assert_array_equal(last, sums[-1])
    np.testing.assert_array_equal(peaks, sums.max((1, 2)))


def test_values_of_a_body_as_outputs_are_stacked() -> None:
    found = run(export_model(from_text(NETWORK.format(back="")), ["scaled", "before", "by", "most"]), FEEDS)
    scaled, before, by, most = found
    np.testing.assert_array_equal(scaled, X * 0.5)
    np.testing.assert_array_equal(before[:2], START)
    sums = START + np.cumsum(scaled.reshape(6, 2, 3), 0, dtype=np.float32)
    np.testing.assert_array_equal(before[2:], sums[:-1].reshape(10, 3))
    np.testing.assert_array_equal(by, np.tile(FACTOR, (6, 1)))
    np.testing.assert_array_equal(most, sums.max((1, 2)))


def test_a_loop_that_reads_nothing_step_by_step() -> None:
    """A Scan needs something to scan."""
    graph = from_text("""npuflow graph 1
input start: float32[2,3]
before: float32[2,3] = loopcarry(start) loop="grow" steps=5
after: float32[2,3] = add(before, before)
last: float32[2,3] = looplast(after) loop="grow" steps=5
output last
""")
    np.testing.assert_array_equal(run(export_model(graph), {"start": START})[0], START * 32)


def test_a_loop_in_parts_is_refused() -> None:
    graph = from_text(NETWORK.format(back=""))
    with pytest.raises(InternalError, match="not whole: 1 values carried in, 0 out"):
        export_model(graph.replaced(nodes=graph.nodes[:5], outputs=("after",)))
