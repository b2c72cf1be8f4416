"""Tensors against the float network's: the same figures in either order of passes, and one network in memory
at a time where weights are large."""

from __future__ import annotations

import gc
import weakref
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from npuflow.checks.fidelity import measure
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.loops import loops
from npuflow.ir.op import OPS
from npuflow.ir.queries import kind
from npuflow.ir.types import Array
from npuflow.quantise.config import Quantize
from npuflow.report.suggest import step_suggestions
from npuflow.run.floats import FloatRun
from npuflow.testing.quantised import quantize_graph
from npuflow.whole.execute.executor import Executor
from tests.networks.looped import integers
from tests.networks.onnx_text import TARGET, model, rewritten
from tests.networks.small import Builder
from tests.tiers import often

NUMERICS = Numerics()


def product(rows: int) -> tuple[Graph, Graph, list[dict[str, Array]]]:
    """A matrix of 300 by 40 and its quantised form, with three samples of `rows` rows."""
    b = Builder()
    x = b.input("x", (rows, 300))
    y = b.add(OPS["gemm"](transB=1), x, b.const((40, 300), 0.1), b.const((40,), 0.1))
    graph = Graph(("x",), (y,), tuple(b.nodes), MappingProxyType(b.values), MappingProxyType(b.consts))
    ranges = {name: (float(a.min()), float(a.max())) for name, a in b.arrays.items()}
    done = quantize_graph(graph, lambda _: True, ranges, Quantize(), NUMERICS)
    return graph, done.graph, [{"x": b.arrays["x"] * s} for s in np.float32([1.0, 0.5, 0.25])]


@pytest.mark.parametrize(("rows", "together"), often([(1, False), (200, True)], 2), ids=["weights", "values"])
def test_a_float_network_of_large_weights_is_gone_before_the_integers_run(
    rows: int, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, quantised, feeds = product(rows)
    made: list[weakref.ref[FloatRun]] = []
    alive: list[bool] = []
    own, run = FloatRun.of, Executor.run

    def of(*args: Any, **more: Any) -> FloatRun:
        found = own(*args, **more)
        made.append(weakref.ref(found))
        return found

    def ran(self: Executor, *args: Any, **more: Any) -> dict[str, Array]:
        gc.collect()
        alive.append(made[-1]() is not None)
        return run(self, *args, **more)

    monkeypatch.setattr(FloatRun, "of", of)
    monkeypatch.setattr(Executor, "run", ran)
    found = measure(graph, quantised, NUMERICS, feeds)
    assert alive[0] == together and len(alive) == len(feeds)
    (name,) = graph.outputs
    one = found[name]
    assert one.samples == 3 and one.sqnr is not None and 25 < one.sqnr < 60
    monkeypatch.undo()      # a full collection for each of hundreds of samples takes minutes
    again = measure(graph, quantised, NUMERICS, [feed for feed in feeds for _ in range(400 // rows)])
    assert again[name].sqnr == pytest.approx(one.sqnr, abs=1e-9)


ACCUMULATOR = """last, rows = Scan <num_scan_inputs = 1, body = step (float[1,4] h, float[1,4] part)
  => (float[1,4] next, float[1,4] row) { next = Add (h, part) row = Tanh (next) }> (start, x)"""


def test_quarters_of_the_steps_of_a_loop_are_compared_apart() -> None:
    ports = "float[1,4] start, float[40,1,4] x => float[1,4] last, float[40,1,4] rows"
    graph = rewritten(model(ports, ACCUMULATOR)).graph
    x = np.random.default_rng(0).uniform(0.5, 1.5, (40, 1, 4)).astype(np.float32)
    feed = {"start": np.zeros((1, 4), np.float32), "x": x}
    found = measure(graph, integers(graph, feed, TARGET), NUMERICS, [feed])
    (loop,) = loops(graph)
    carried = found[loop.carried[0].following]
    sums = np.cumsum(x, 0)
    assert [(one.first, one.last) for one in carried.stretches] == [(1, 10), (11, 20), (21, 30), (31, 40)]
    assert [one.peak for one in carried.stretches] == pytest.approx(
        [float(np.abs(part).max()) for part in np.split(sums, 4)], rel=1e-4
    )
    energies = [float((part**2).sum()) for part in np.split(sums, 4)]
    levels = [one.sqnr for one in carried.stretches if one.sqnr is not None]
    noise = sum(10 ** (-level / 10) * own for level, own in zip(levels, energies, strict=True))
    assert carried.sqnr == pytest.approx(10 * np.log10(sum(energies) / noise), abs=1e-3)
    assert "grows with the steps" in [one.kind for one in step_suggestions(carried.stretches)]
    bounded = found[next(o for n in graph.nodes if kind(n) == "tanh" for o in n.outputs)]
    assert bounded.stretches and not [*step_suggestions(bounded.stretches)]
    assert not any(found[name].stretches for name in graph.outputs)
