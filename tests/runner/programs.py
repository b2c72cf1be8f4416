"""Small programs and models that the tests of running share."""

from __future__ import annotations

import random
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.types import Array, TensorType, Value
from npuflow.place.place import place
from npuflow.program.container import Program
from npuflow.program.graph_section import encode_graph
from npuflow.quantise.config import Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.rule import graph_of
from tests.networks.harness import SMALL, build
from tests.networks.onnx_text import TARGET, model
from tests.networks.random_networks import network
from tests.networks.subjects import subject


def kept(graph: Graph) -> Program:
    """The program of a quantised graph, with the graph in it."""
    return replace(build(graph, SMALL), graph_bytes=encode_graph(graph))


def convolutions() -> tuple[Program, tuple[int, ...]]:
    graph, inputs = network(random.Random(3), Numerics())
    return kept(graph), inputs["x"].shape


def split(scale: float = 2.0, host: bool = True) -> Program:
    """x [4, 32] -> tanh, sigmoid (on the host), relu -> y; "x" is given as real numbers."""
    nodes = [
        Node(OPS[op](), (a,), (b,))
        for op, a, b in (("tanh", "x", "a"), ("sigmoid", "a", "b"), ("relu", "b", "y"))
    ]
    values = {v: Value(v, TensorType((4, 32))) for v in "xaby"}
    graph = Graph(("x",), ("y",), tuple(nodes), MappingProxyType(values), MappingProxyType({}))
    ranges = dict.fromkeys(values, (-scale, scale))
    return kept(quantize_graph(graph, lambda i: i != 1 or not host, ranges, Quantize(), Numerics()).graph)


def feeds(count: int, shape: tuple[int, ...] = (4, 32), seed: int = 0) -> list[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(0, 1, shape).astype(np.float32)} for _ in range(count)]


def accumulating() -> bytes:
    """An ONNX model with state: total = carried + x, y = 2 total."""
    ends = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3]) for n in ("x", "carried", "total")}
    two = numpy_helper.from_array(np.array(2, np.float32), "two")
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])
    nodes = [
        helper.make_node("Add", ["carried", "x"], ["total"]), helper.make_node("Mul", ["total", "two"], ["y"])
    ]
    graph = helper.make_graph(nodes, "sums", [ends["x"], ends["carried"]], [y, ends["total"]], [two])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def same_model() -> bytes:
    """An ONNX model that gives back x float32 [1, 4] and ids int64 [1, 2]."""
    kinds = {"x": (TensorProto.FLOAT, [1, 4]), "ids": (TensorProto.INT64, [1, 2])}
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in kinds]
    graph = helper.make_graph(
        nodes,
        "same",
        [helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()],
        [helper.make_tensor_value_info(f"{name}_out", *kind) for name, kind in kinds.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(model.SerializeToString())


def words() -> Program:
    """Rows of a table of 11, picked by ids int64 [1, 5], through tanh: y [1, 5, 6]."""
    table = np.random.default_rng(3).normal(size=(11, 6)).astype(np.float32)
    data = model("int64[1,5] ids => float[1,5,6] y", "t = Gather(w, ids) y = Tanh(t)", {"w": table})
    one = subject("words", rewrite(graph_of(data)).graph)
    on_npu = place(one.graph, TARGET).on_npu
    return kept(quantize_graph(one.graph, on_npu, one.ranges, Quantize(), Numerics()).graph)


def looking_up() -> Program:
    """x float32 [1, 4], and ids int64 [1, 2], which the host casts: y = relu(x), n = float(ids)."""
    cast = OPS["host"](op_type="Cast", version=18, attributes=(("to", 1),), types=(TensorType((1, 2)),))
    values = {
        "x": Value("x", TensorType((1, 4))), "y": Value("y", TensorType((1, 4))),
        "ids": Value("ids", TensorType((1, 2), "int64")), "n": Value("n", TensorType((1, 2))),
    }
    nodes = (Node(OPS["relu"](), ("x",), ("y",)), Node(cast, ("ids",), ("n",), ("cast",)))
    graph = Graph(("x", "ids"), ("y", "n"), nodes, MappingProxyType(values), MappingProxyType({}))
    ranges = dict.fromkeys("xy", (-1.0, 1.0))
    return kept(quantize_graph(graph, lambda i: i == 0, ranges, Quantize(), Numerics()).graph)
