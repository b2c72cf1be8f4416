"""Tables of functions that stand still at the ends of a wide range: a loop stays on the NPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuflow.ir.graph import Graph
from npuflow.ir.loops import loops
from npuflow.ir.types import Array
from npuflow.place.place import place
from npuflow.quantise.config import Activations, Override, Quantize
from npuflow.quantise.graph import Quantization
from npuflow.rewrite.rewrite import rewrite
from npuflow.run.floats import FloatRun
from npuflow.run.interpret import interpret
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.rule import graph_of
from tests.networks.onnx_text import TARGET, normal
from tests.rules.test_recurrent import layer

WIDE = Quantize(activations=Activations(bits=16))
FAR = 700.0                               # a cell that nothing is forgotten of, after many steps


def cell(graph: Graph) -> tuple[str, ...]:
    """The values of the LSTM's cell that have one type: before a step, behind it, behind the loop."""
    (loop,) = loops(graph)
    tables = {n.inputs[0] for n in graph.nodes if n.op.onnx == "Tanh"}
    one = next(c for c in loop.carried if c.following in tables)
    return one.initial, one.now, one.following, one.last


def quantised(scheme: Quantize, far: float = FAR) -> tuple[Graph, Quantization, dict[str, Array]]:
    graph = rewrite(graph_of(layer("LSTM", steps=9, states="input"))).graph
    feed = {i: normal(k, *graph.type(i).shape) for k, i in enumerate(graph.inputs)}
    names = [o for n in graph.nodes for o in n.outputs if o]
    feed["c"] *= np.float32(far / 4)
    made = {**feed, **FloatRun.of(graph, names).run(feed)}
    ranges = {v: (float(a.min()), float(a.max())) for v, a in made.items()}
    ranges.update(dict.fromkeys(cell(graph), (-far, far)))
    return graph, quantize_graph(graph, place(graph, TARGET), ranges, scheme, TARGET.numerics), feed


@pytest.mark.parametrize("bits", [0, 8], ids=["16 bits", "its result 8 bits"])
def test_a_tanh_over_a_wide_cell_stays_on_the_npu(bits: int) -> None:
    scheme = WIDE
    if bits:
        graph, *_ = quantised(WIDE)
        tanh = next(n for n in graph.nodes if n.op.onnx == "Tanh" and n.inputs[0] in cell(graph))
        scheme = replace(WIDE, overrides=(Override(layers=(tanh.outputs[0],), bits=bits),))
    graph, done, feed = quantised(scheme)
    assert not [n for n in done.notes if n.on_host]
    assert all(done.graph.nodes[i].is_integer for i in loops(done.graph)[0].nodes)
    made, real = interpret(done.graph, feed, TARGET.numerics), FloatRun.of(graph, graph.outputs).run(feed)
    for name in graph.outputs:
        noise = np.mean((real[name] - made[name]) ** 2) / np.mean(real[name] ** 2)
        assert -10 * np.log10(noise) > (25 if bits else 33), name
