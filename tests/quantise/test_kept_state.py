"""What is kept of a state by flags of 0 and 1 keeps its codes, however many runs follow."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import OPS, Node
from npuflow.ir.types import TensorType, Value
from npuflow.quantise.config import Activations, Quantize
from npuflow.run.floats import FloatRun
from npuflow.run.interpret import Interpreter
from npuflow.testing.quantised import quantize_graph
from tests.networks.looped import ranges_of
from tests.networks.onnx_text import normal, rewritten
from tests.rules.test_recurrent import INPUTS, layer

RANGES = {"state": (-3.0, 2.9), "x": (-1.0, 1.0), "old": (-2.7, 2.8), "next": (-3.0, 2.9)}


def cache(flags: np.ndarray, order: tuple[str, str]) -> Graph:
    """next = state * flags + x."""
    value, consts = constant("flags", flags)
    values = {name: Value(name, TensorType((8,))) for name in RANGES} | {"flags": value}
    nodes = (
        Node(OPS["mul"](), order, ("old",)),
        Node(OPS["add"](), ("old", "x"), ("next",)),
    )
    whole = Graph(("state", "x"), ("next",), nodes, MappingProxyType(values), MappingProxyType(consts))
    return whole.replaced(state=(("next", "state"),))


@pytest.mark.parametrize("order", [("state", "flags"), ("flags", "state")])
@pytest.mark.parametrize("bits", [8, 16])
def test_codes_stay_run_after_run(order: tuple[str, str], bits: int) -> None:
    numerics, flags = Numerics(), np.array([1, 1, 1, 1, 1, 1, 1, 0], np.float32)
    scheme = Quantize(activations=Activations(bits=bits), inputs="integer", outputs="integer")
    graph = quantize_graph(cache(flags, order), lambda _: True, RANGES, scheme, numerics).graph
    quant = graph.values["state"].quant
    assert quant is not None and graph.values["old"].quant == graph.values["next"].quant == quant
    run, still = Interpreter(graph, numerics), graph.values["x"].quant
    assert still is not None
    start = np.linspace(quant.lo, quant.hi, 8).astype(f"u{bits // 8}" if quant.lo >= 0 else f"i{bits // 8}")
    held = start
    for _ in range(5):
        x = np.full(8, still.zero_point[0], f"u{bits // 8}" if still.lo >= 0 else f"i{bits // 8}")
        held = run.run({"state": held, "x": x})["next"]
        np.testing.assert_array_equal(held[:7], start[:7])
    assert held[7] == quant.zero_point[0]


def test_a_product_with_other_numbers_has_a_range_of_its_own() -> None:
    flags = np.array([1, 0.5, 1, 1, 1, 1, 1, 0], np.float32)
    graph = quantize_graph(
        cache(flags, ("state", "flags")), lambda _: True, RANGES, Quantize(), Numerics()
    ).graph
    assert graph.values["old"].quant != graph.values["next"].quant


@pytest.mark.parametrize("steps", [3, 9])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_states_stay_behind_an_end_that_no_sample_had(op: str, steps: int) -> None:
    """All samples had all steps: nothing of the mask was seen but 1."""
    full = {"x": normal(7, steps, 2, INPUTS), "lengths": np.full(2, steps, np.int32)}
    graph = rewritten(layer(op, lengths="input", steps=steps), feeds=full).graph
    ranges = ranges_of(graph, full)
    scheme, numerics = Quantize(activations=Activations(bits=16)), Numerics()
    coded = quantize_graph(graph, lambda i: not graph.nodes[i].op.hosted, ranges, scheme, numerics).graph
    short = {**full, "lengths": np.array([1, steps - 1], np.int32)}
    wanted, found = FloatRun.of(graph, graph.outputs).run(short), Interpreter(coded, numerics).run(short)
    for name in graph.outputs:
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-2)
