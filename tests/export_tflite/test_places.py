"""Indices as outputs of a TFLite file, outputs that are an input or another one, what a check finds."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.export_tflite import elements
from npuflow.export_tflite.export import to_tflite
from npuflow.export_tflite.judge import judge, tolerance, unequal
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.place.place import place
from npuflow.quantise.config import Activations, Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.rule import graph_of
from npuflow.whole.export_c.network import network_of
from npuflow.whole.export_c.vectors import random_samples
from tests.export_c.index_networks import NETWORKS, network
from tests.networks.onnx_text import TARGET, model, normal
from tests.networks.subjects import subject

pytest.importorskip("tflite")
pytest.importorskip("ai_edge_litert")
NUMERICS = Numerics()


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_that_are_indices_or_copies(name: str) -> None:
    graph = network(name)
    written = to_tflite(graph)
    given = random_samples(network_of(graph), NUMERICS, 3)
    found = judge(written, given)
    assert found.worst <= 1 and not found.others, found
    places = {end.name for end in written.outputs if end.index}
    assert bool(places) == ("Arg" in NETWORKS[name][1] or "TopK" in NETWORKS[name][1])
    assert all(end.tensor.dtype == "int32" for end in written.outputs if end.index)
    assert len({end.tensor.name for end in (*written.inputs, *written.outputs)}) == len(
        written.inputs + written.outputs
    )
    assert not unequal(graph, NUMERICS, given[0][0])


def test_places_that_other_layers_read() -> None:
    """A sum of places is one of codes of 16 bits whose scale is 1."""
    data = model(
        "float[1,5,6] x => float[1,1,6] y",
        "a = ArgMax<axis=1>(x) b = ArgMin<axis=1>(x) s = Add(a, b) y = Cast<to=1>(s)",
    )
    one = subject("sum", rewrite(graph_of(data)).graph)
    graph = quantize_graph(one.graph, lambda _: True, one.ranges, Quantize(), NUMERICS).graph
    written = to_tflite(graph)
    assert written.operators["CAST"] == 2
    assert judge(written, random_samples(network_of(graph), NUMERICS, 3)).differ == 0


@pytest.mark.parametrize(
    ("body", "bits", "reason"),
    [
        ("y = ArgMax<axis=1, select_last_index=1>(c)", 8, "the last place"),
        ("y = ArgMax<axis=1>(c)", 16, "no kernel of 16 bits"),
    ],
)
def test_places_that_tflite_has_not(body: str, bits: int, reason: str) -> None:
    data = model(
        "float[1,3,8,8] x => int64[1,1,8,8] y",
        f"c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w) {body}",
        {"w": normal(1, 5, 3, 3, 3)},
    )
    one = subject("arg", rewrite(graph_of(data)).graph)
    config = Quantize(activations=Activations(bits=bits, symmetric=bits == 16, signed=bits == 16))
    wide = Numerics(wide_acc_bits=48)
    graph = quantize_graph(one.graph, place(one.graph, TARGET).on_npu, one.ranges, config, wide).graph
    with pytest.raises(ModelError, match=reason):
        to_tflite(graph)


def test_a_layer_that_computes_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    data = model("float[1,3,8,8] x, float[1,3,8,8] z => float[1,3,8,8] y", "s = Add(x, z) y = Tanh(s)")
    one = subject("wrong", rewrite(graph_of(data)).graph)
    graph: Graph = quantize_graph(one.graph, lambda _: True, one.ranges, Quantize(), NUMERICS).graph
    given = random_samples(network_of(graph), NUMERICS, 1)[0][0]
    assert not unequal(graph, NUMERICS, given)
    monkeypatch.setitem(elements.BINARY, "Add", "SUB")
    (name,) = unequal(graph, NUMERICS, given)
    assert name == next(n.name for n in graph.nodes if "s" in n.outputs)


def test_a_coarse_target_is_let_its_own_rounding() -> None:
    assert tolerance(Numerics(), 8) <= 3
    assert tolerance(Numerics(multiplier_bits=1, mean_bits=8), 8) > tolerance(Numerics(multiplier_bits=1), 8)
    assert np.isfinite(tolerance(Numerics(multiplier_bits=1), 16))
