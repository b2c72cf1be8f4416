"""Which nodes that move data may do so in local memory, by the bytes that their results share."""

from __future__ import annotations

from dataclasses import replace

from npuflow.ir.queries import kind
from npuflow.place.place import place
from npuflow.quantise.config import Quantize
from npuflow.schedule.frame import Topology
from npuflow.schedule.machine import Machine
from npuflow.testing.quantised import quantize_graph
from tests.networks.onnx_text import TARGET, graph_of, model


def joining(signature: str, body: str, cores: int = 1) -> list[str]:
    """Kinds of the nodes that may move data in local memory, in order."""
    graph = graph_of(model(signature, body))
    ranges = dict.fromkeys(graph.values, (-1.0, 1.0))
    done = quantize_graph(graph, place(graph, TARGET).on_npu, ranges, Quantize(), TARGET.numerics).graph
    compute = replace(TARGET.compute, cores=cores)
    topology = Topology(done, Machine(compute, TARGET.memory, TARGET.dma), TARGET.numerics)
    return [kind(done.nodes[i]) for i in sorted(topology.joining)]


def test_a_view_of_bytes_that_are_wanted_too_is_none_of_them() -> None:
    """Two cores might store the same bytes, once as what is read, once as the result; one core may."""
    turned = "p = GlobalAveragePool(x) y = Transpose<perm=[2,0,1,3]>(p)"
    both = "float[2,6,7,6] x => float[1,2,6,1] y, float[2,6,1,1] p"
    assert joining("float[2,6,7,6] x => float[1,2,6,1] y", turned, cores=2) == ["transpose"]
    assert joining(both, turned, cores=2) == []
    assert joining(both, turned) == ["transpose"]


def test_concatenations_in_place_are_whoever_reads_their_inputs() -> None:
    """A dense block: what is joined lies in the next concatenation, not the other way round."""
    body = """
        a = Relu(x) b = Neg(a) c = Concat<axis=1>(a, b) d = Sigmoid(c) e = Concat<axis=1>(c, d) y = Tanh(e)
    """
    assert joining("float[1,4,5,5] x => float[1,16,5,5] y", body) == ["concat", "concat"]
