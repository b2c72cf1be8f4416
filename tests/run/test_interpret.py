"""The reference interpreter: tensors without dimensions stay tensors, and results go to
the outputs that name them."""

from types import MappingProxyType

import numpy as np
import pytest

from npuflow.base.errors import DataError
from npuflow.hw.target import Numerics, Target
from npuflow.ir.codes import encode
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.types import TensorType, Value
from npuflow.program.codegen.generate import generate
from npuflow.quantise.config import Activations, Quantize
from npuflow.run.interpret import interpret
from npuflow.runner.simulated import ProgramRunner
from npuflow.schedule.machine import Machine
from npuflow.search.plan import plan_network
from npuflow.testing.quantised import quantize_graph


def quantised(shape: tuple[int, ...], *nodes: Node, host: tuple[int, ...] = ()) -> Graph:
    values = {"x": Value("x", TensorType(shape))}
    for node in nodes:
        kinds = node.op.infer(*[values[i].type for i in node.inputs])
        values.update({o: Value(o, kind) for o, kind in zip(node.outputs, kinds, strict=True) if o})
    graph = Graph(
        ("x",),
        tuple(o for o in nodes[-1].outputs if o),
        nodes,
        MappingProxyType(values),
        MappingProxyType({}),
    )
    return quantize_graph(
        graph, lambda i: i not in host, dict.fromkeys(values, (-2.0, 2.0)), Quantize(), Numerics()
    ).graph


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


def integer_input(bits: int) -> Graph:
    """A table function whose input is codes."""
    node, values = Node(OPS["relu"](), ("x",), ("y",)), {v: Value(v, TensorType((6,))) for v in "xy"}
    whole = Graph(("x",), ("y",), (node,), MappingProxyType(values), MappingProxyType({}))
    config = Quantize(inputs="integer", activations=Activations(bits=bits))
    return quantize_graph(whole, lambda _: True, dict.fromkeys(values, (-2.0, 2.0)), config, Numerics()).graph


def test_real_numbers_for_an_integer_input_become_codes() -> None:
    graph = integer_input(8)
    real = np.linspace(-1, 1, 6, dtype=np.float32)
    assert graph.values["x"].quant is not None
    codes = encode(real, graph.values["x"].quant)
    found = interpret(graph, {"x": real}, Numerics())["y"]
    np.testing.assert_array_equal(found, interpret(graph, {"x": codes}, Numerics())["y"])
    np.testing.assert_allclose(found, np.maximum(real, 0), atol=0.02)


def test_codes_that_an_integer_input_cannot_have_are_refused() -> None:
    """Six bits live in eight: a code of 200 fits the container, but no table has an entry for it."""
    graph, target = integer_input(6), Target()
    wrong, codes = np.array([0, 1, 2, 3, 63, 64], np.uint8), np.array([0, 1, 2, 3, 63, 62], np.uint8)
    plan = plan_network(graph, Machine(target.compute, target.memory, target.dma), target.numerics)
    runner = ProgramRunner(generate(graph, plan, target))
    with pytest.raises(DataError, match=r'"x" has codes 0\.\.64, its type has 0\.\.63'):
        interpret(graph, {"x": wrong}, Numerics())
    with pytest.raises(DataError, match=r'"x" has codes 0\.\.64, its type has 0\.\.63'):
        runner.run({"x": wrong})
    np.testing.assert_array_equal(
        runner.run({"x": codes})["y"], interpret(graph, {"x": codes}, Numerics())["y"]
    )
