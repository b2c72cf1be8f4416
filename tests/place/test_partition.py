"""Placement gives reasons; segments cover the graph, run in order and give the whole graph's results."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from onnx import parser

from npuflow.frontends import FRONTENDS, Bindings
from npuflow.hw.target import Limits, Target
from npuflow.ir.graph import Graph
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.place.partition import boundary_bytes, host_model, segments
from npuflow.place.place import place
from npuflow.rewrite.rewrite import rewrite

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,4,8,8] x, float[1,3] free) => (float[1,4,8,8] y, float[2,M] z, float[8] w) {
    a = Relu(x) b = Softsign(a) c = Add(a, b) d = Pow(c, c) e = Conv<pads=[1,1,1,1]>(d, k) f =
    Sigmoid(c)
    g_ = Pow(f, f) h = Mul(e, g_) i = Tanh(h) y = Add(i, a) p = NonZero(free) o = Cast<to=1>(p) z = Relu(o)
    q = RandomNormalLike<seed=1.0>(a)
    r = ReduceMean<axes=[0,1,3], keepdims=0>(y) s = NonZero(r) t = Cast<to=1>(s) u =
    ReduceSum<keepdims=0>(t) w = Add(r, u)
}"""


def graph() -> Graph:
    proto = parser.parse_model(TEXT)
    import onnx

    rng = np.random.default_rng(0)
    proto.graph.initializer.append(
        onnx.numpy_helper.from_array(rng.normal(size=(4, 4, 3, 3)).astype(np.float32), "k")
    )
    return rewrite(FRONTENDS["onnx"]().read(proto.SerializeToString(), Bindings()).graph).graph


GRAPH = graph()
FEEDS = {
    "x": np.random.default_rng(1).normal(size=(1, 4, 8, 8)).astype(np.float32),
    "free": np.ones((1, 3), np.float32),
}


def reasons(target: Target) -> dict[str, str]:
    return {p.node: p.reason for p in place(GRAPH, target).places}


def test_every_host_node_has_a_reason_of_its_own() -> None:
    found, power = reasons(Target()), "the exponent is not a constant, and the base not known to be positive"
    assert (
        found["e"] == found["i"] == ""
        and found["d"] == found["g_"] == power
        and "no operator file" in found["p"]
        and "not known before it runs" in found["z"]
    )
    placement = place(GRAPH, Target())
    assert placement.total_macs == placement.npu_macs == 64 * 4 * 4 * 9 and placement.share == 1.0


def test_limits_of_the_target_count() -> None:
    found = reasons(Target(limits=Limits(kernel=1, refuse=("tanh",))))
    assert "kernel 3 > 1" in found["e"] and "does not run tanh" in found["i"]
    assert place(GRAPH, Target(limits=Limits(kernel=1))).share == 0.0


@pytest.mark.parametrize("seed", range(8))
def test_segments_compute_what_the_graph_computes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    side = {id(n): bool(rng.integers(2)) for n in GRAPH.nodes}
    parts = segments(GRAPH, lambda n: side[id(n)])
    assert sorted(n.name for p in parts for n in p.nodes) == sorted(n.name for n in GRAPH.nodes)
    assert all(side[id(n)] is (p.kind == "npu") for p in parts for n in p.nodes)
    assert all(a.kind != b.kind for a, b in pairwise(parts))
    values = dict(FEEDS)
    for part in parts:
        feeds = {i: values[i] for i in part.inputs}
        values.update(zip(part.outputs, run(host_model(GRAPH, part), feeds, part.outputs), strict=True))
    for name, wanted in zip(GRAPH.outputs, run(export_model(GRAPH), FEEDS, GRAPH.outputs), strict=True):
        np.testing.assert_allclose(values[name], wanted, rtol=1e-5, atol=1e-6)


def test_bytes_over_each_boundary() -> None:
    placement = place(GRAPH, Target())
    where = {id(n): p.on_npu for n, p in zip(GRAPH.nodes, placement.places, strict=True)}
    parts = segments(GRAPH, lambda n: where[id(n)])
    crossing = {(v, w): b for v, w, b in boundary_bytes(GRAPH, parts)}
    assert crossing["x", "host->npu"] == 4 * 4 * 64 and crossing["y", "npu->host"] == 4 * 4 * 64
    assert ("d", "host->npu") in crossing and ("free", "host->npu") not in crossing


def test_any_values_can_be_exposed_under_their_names() -> None:
    names = [o for n in GRAPH.nodes for o in n.outputs if o]
    found = run(export_model(GRAPH, names), FEEDS, names)
    for name, array in zip(names, found, strict=True):
        declared = GRAPH.type(name).shape
        assert len(declared) == array.ndim and all(
            d in (-1, s) for d, s in zip(declared, array.shape, strict=True)
        )
    assert export_model(GRAPH, names) == export_model(GRAPH, names)
