"""Networks whose outputs are indices, an input, or another output."""

from __future__ import annotations

import numpy as np

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.place.islands import PlacementTable
from npuflow.place.place import place
from npuflow.quantise.config import Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.rule import graph_of
from tests.networks.onnx_text import TARGET, model, normal
from tests.networks.subjects import subject

CONV = "c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w)"
NETWORKS = {
    "argmax": ("int64[1,1,8,8] y", f"{CONV} y = ArgMax<axis=1>(c)"),
    "argmax and what it reads": (
        "int64[1,8,8] y, float[1,5,8,8] c", f"{CONV} y = ArgMax<axis=1, keepdims=0>(c)"
    ),
    "argmin along rows": ("int64[1,5,8,1] y", f"{CONV} y = ArgMin<axis=3>(c)"),
    "argmax as int32": ("int32[1,1,8,8] y", f"{CONV} a = ArgMax<axis=1>(c) y = Cast<to=6>(a)"),
    "argmax as float": ("float[1,1,8,8] y", f"{CONV} a = ArgMax<axis=1>(c) y = Cast<to=1>(a)"),
    "argmax of all": ("int64[1] y", f"{CONV} f = Flatten(c) y = ArgMax<axis=1, keepdims=0>(f)"),
    "topk": ("float[1,3] v, int64[1,3] i", f"{CONV} f = Flatten(c) v, i = TopK(f, k)"),
    "an input": ("float[1,5,8,8] c, float[1,3,8,8] z", f"{CONV} z = Identity(x)"),
    "another output": ("float[1,5,8,8] c, float[1,5,8,8] z", f"{CONV} z = Identity(c)"),
    "half precision": ("float16[1,5,8,8] z", f"{CONV} z = Cast<to=10>(c)"),
}


def network(name: str) -> Graph:
    """Its quantised graph, with what the host does around it."""
    outputs, body = NETWORKS[name]
    held = {"w": normal(1, 5, 3, 3, 3), **({"k": np.array([3], np.int64)} if "TopK" in body else {})}
    one = subject("ends", rewrite(graph_of(model(f"float[1,3,8,8] x => {outputs}", body, held))).graph)
    on_npu = place(one.graph, TARGET, PlacementTable(min_macs=0)).on_npu
    return quantize_graph(one.graph, on_npu, one.ranges, Quantize(), Numerics()).graph
