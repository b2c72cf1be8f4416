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
from npuflow.ir.op import OPS
from npuflow.ir.types import Array
from npuflow.quantise.config import Quantize
from npuflow.run.floats import FloatRun
from npuflow.testing.quantised import quantize_graph
from npuflow.whole.execute.executor import Executor
from tests.networks.small import Builder

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


@pytest.mark.parametrize(("rows", "together"), [(1, False), (200, True)], ids=["weights", "values"])
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
