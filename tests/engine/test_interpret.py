"""The reference interpreter: tensors without dimensions stay tensors, and results go to the outputs that name them."""

from types import MappingProxyType

import numpy as np

from npuflow.engine.interpret import interpret
from npuflow.engine.quantize.config import Quantize
from npuflow.engine.quantize.graph import quantize_graph
from npuflow.engine.quantize.types import encode
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph, Node
from npuflow.ir.op import OPS
from npuflow.ir.types import TensorType, Value


def quantised(shape: tuple[int, ...], *nodes: Node, host: tuple[int, ...] = ()) -> Graph:
    values = {"x": Value("x", TensorType(shape))}
    for node in nodes:
        kinds = node.op.infer(*[values[i].type for i in node.inputs])
        values.update({o: Value(o, kind) for o, kind in zip(node.outputs, kinds, strict=True) if o})
    graph = Graph(("x",), tuple(o for o in nodes[-1].outputs if o), nodes, MappingProxyType(values), MappingProxyType({}))
    return quantize_graph(graph, lambda i: i not in host, dict.fromkeys(values, (-2.0, 2.0)), Quantize(), Numerics()).graph


def test_a_scalar_passes_from_the_npu_to_a_host_operator() -> None:
    pick, host = Node(OPS["gather"]((1,), (), 0), ("x",), ("y",)), Node(OPS["sigmoid"](), ("y",), ("z",))
    graph = quantised((3,), pick, host, host=(1,))
    found = interpret(graph, {"x": np.array([0.0, 1.0, 2.0], np.float32)}, Numerics(), keep=lambda _: True)
    assert all(isinstance(a, np.ndarray) for a in found.values())
    assert found["z"].shape == () and abs(float(found["z"]) - 0.731) < 0.01


def test_an_output_that_nobody_names_does_not_shift_the_others() -> None:
    graph = quantised((6,), Node(OPS["split"]((1, 2, 3), 0), ("x",), ("a", "", "c")))
    found = interpret(graph, {"x": np.linspace(-1, 1, 6, dtype=np.float32)}, Numerics())
    assert found["a"].shape == (1,) and found["c"].shape == (3,)
    np.testing.assert_allclose(found["c"], [0.2, 0.6, 1.0], atol=0.02)


def test_real_numbers_for_an_integer_input_become_codes() -> None:
    node, values = Node(OPS["relu"](), ("x",), ("y",)), {v: Value(v, TensorType((6,))) for v in "xy"}
    whole = Graph(("x",), ("y",), (node,), MappingProxyType(values), MappingProxyType({}))
    config = Quantize(inputs="integer")
    graph = quantize_graph(whole, lambda _: True, dict.fromkeys(values, (-2.0, 2.0)), config, Numerics()).graph
    real = np.linspace(-1, 1, 6, dtype=np.float32)
    assert graph.values["x"].quant is not None
    codes = encode(real, graph.values["x"].quant)
    found = interpret(graph, {"x": real}, Numerics())["y"]
    np.testing.assert_array_equal(found, interpret(graph, {"x": codes}, Numerics())["y"])
    np.testing.assert_allclose(found, np.maximum(real, 0), atol=0.02)
