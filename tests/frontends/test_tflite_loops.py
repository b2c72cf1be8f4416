"""Loops and branches of TFLite whose course is known: written out, the rows of their results joined once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.frontends import Bindings
from npuflow.frontends.tflite.convert import reading
from npuflow.frontends.tflite.loops import written
from npuflow.frontends.tflite.schema import Operator, TfliteNetwork, TfliteTensor
from npuflow.ir.verify import verify
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run

STEPS = 4


class Sub:
    """A subgraph under construction; tensors by name."""

    def __init__(self, **given: tuple[tuple[int, ...], str]) -> None:
        self.tensors: list[TfliteTensor] = []
        self.operators: list[Operator] = []
        self.places: dict[str, int] = {}
        for name, (shape, dtype) in given.items():
            self.tensor(name, shape, dtype)
        self.inputs = tuple(range(len(given)))

    def tensor(self, name: str, shape: tuple[int, ...], dtype: str, data: Any = None) -> str:
        self.places[name] = len(self.tensors)
        held = None if data is None else np.asarray(data, dtype).reshape(shape)
        self.tensors.append(TfliteTensor(name, shape, dtype, held, None))
        return name

    def constant(self, name: str, values: Any, dtype: str = "int32") -> str:
        return self.tensor(name, np.shape(values), dtype, values)

    def op(
        self,
        kind: str,
        inputs: str,
        result: str,
        shape: tuple[int, ...],
        dtype: str = "float32",
        **options: Any,
    ) -> None:
        self.tensor(result, shape, dtype)
        places = tuple(self.places[name] for name in inputs.split())
        self.operators.append(Operator(kind, places, (self.places[result],), options))

    def done(self, *outputs: str, bodies: tuple[TfliteNetwork, ...] = ()) -> TfliteNetwork:
        places = tuple(self.places[name] for name in outputs)
        return TfliteNetwork(tuple(self.tensors), tuple(self.operators), self.inputs, places, bodies)


STATE: dict[str, tuple[tuple[int, ...], str]] = {
    "i": ((), "int32"),
    "list": ((STEPS, 1, 3), "float32"),
    "h": ((1, 3), "float32"),
    "x": ((STEPS, 1, 3), "float32"),
}


def condition(data: bool = False) -> TfliteNetwork:
    sub = Sub(**STATE)
    sub.constant("n", STEPS)
    if data:
        sub.op("CAST", "h", "some", (1, 3), "int32")
        sub.op("LESS", "some n", "on", (1, 3), "bool")
    else:
        sub.op("LESS", "i n", "on", (), "bool")
    return sub.done("on")


def body() -> TfliteNetwork:
    """h = tanh(h + x[i]); list[i] = h, as TensorFlow writes it."""
    sub = Sub(**STATE)
    for name, values in (
        ("one", 1),
        ("zeros", [0, 0]),
        ("all", [-1, -1]),
        ("whole", [-1, -1, -1]),
        ("start", [0, 0, 0]),
    ):
        sub.constant(name, values)
    sub.constant("wide", [1, 1, 3])
    sub.op("ADD", "i one", "next", (), "int32", FusedActivationFunction=0)
    sub.op("GATHER", "x i", "row", (1, 3), Axis=0, BatchDims=0)
    sub.op("ADD", "row h", "sum", (1, 3), FusedActivationFunction=0)
    sub.op("TANH", "sum", "new", (1, 3))
    sub.op("RESHAPE", "i wide", "at", (1,), "int32")
    sub.op("CONCATENATION", "at all", "size", (3,), "int32", Axis=0, FusedActivationFunction=0)
    sub.op("SLICE", "list start size", "before", (1, 1, 1))  # the sizes are not known to the file
    sub.op("RESHAPE", "next wide", "after", (1,), "int32")
    sub.op("CONCATENATION", "after zeros", "begin", (3,), "int32", Axis=0, FusedActivationFunction=0)
    sub.op("SLICE", "list begin whole", "behind", (1, 1, 1))
    sub.op("RESHAPE", "new wide", "element", (1, 1, 3))
    sub.op(
        "CONCATENATION", "before element behind", "longer", (STEPS, 1, 3), Axis=0, FusedActivationFunction=0
    )
    return sub.done("next", "longer", "new", "x")


def network(data: bool = False) -> TfliteNetwork:
    main = Sub(x=STATE["x"])
    main.constant("zero", 0)
    main.constant("empty", np.zeros((STEPS, 1, 3)), "float32")
    main.constant("first", np.zeros((1, 3)), "float32")
    results = ["i2", "rows", "last", "x2"]
    for name, (shape, dtype) in zip(results, STATE.values(), strict=True):
        main.tensor(name, shape, dtype)
    inputs = tuple(main.places[name] for name in ("zero", "empty", "first", "x"))
    options = {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2}
    main.operators.append(Operator("WHILE", inputs, tuple(main.places[name] for name in results), options))
    main.op("MUL", "last last", "square", (1, 3), FusedActivationFunction=0)
    return main.done("rows", "square", bodies=(main.done(), condition(data), body()))


def test_a_loop_is_written_out_and_its_rows_are_joined_once() -> None:
    found = written(network())[0]
    kinds = [operator.name for operator in found.operators]
    assert kinds.count("TANH") == STEPS and kinds.count("CONCATENATION") == 1 and "SLICE" not in kinds
    graph = verify(reading(network(), Bindings()).graph, "reading")
    x = np.random.default_rng(0).standard_normal((STEPS, 1, 3)).astype(np.float32)
    rows, square = run(export_model(graph), {"x": x})
    h, wanted = np.zeros((1, 3), np.float32), []
    for one in x:
        h = np.tanh(h + one)
        wanted.append(h)
    assert graph.outputs == ("rows", "square") and np.abs(rows - np.stack(wanted)).max() < 1e-6
    assert np.abs(square - h * h).max() < 1e-6


def test_a_loop_that_depends_on_data_is_refused_with_the_reason() -> None:
    with pytest.raises(ModelError, match="1 operator of the TFLite model cannot be converted") as caught:
        reading(network(data=True), Bindings())
    assert "WHILE: its condition depends on data" in caught.value.because


@pytest.mark.slow
def test_a_loop_without_end_is_refused() -> None:
    """The counter of a damaged file never moves."""
    stuck = Sub(**STATE)
    one = network()
    bodies = (*one.bodies[:2], stuck.done("i", "list", "h", "x"))
    with pytest.raises(ModelError) as caught:
        reading(TfliteNetwork(one.tensors, one.operators, one.inputs, one.outputs, bodies), Bindings())
    assert "more than 8192 operators" in caught.value.because


@pytest.mark.parametrize("yes", [True, False])
def test_a_branch_that_is_known_is_taken(yes: bool) -> None:
    branches = []
    for kind in ("TANH", "NEG"):
        sub = Sub(x=((1, 3), "float32"))
        sub.op(kind, "x", "y", (1, 3))
        branches.append(sub.done("y"))
    main = Sub(x=((1, 3), "float32"))
    main.tensor("on", (), "bool", yes)
    main.op("IF", "on x", "y", (1, 3), ThenSubgraphIndex=1, ElseSubgraphIndex=2)
    graph = reading(main.done("y", bodies=(main.done(), *branches)), Bindings()).graph
    (found,) = run(export_model(graph), {"x": np.array([[1, 2, 3]], np.float32)})
    assert np.allclose(found, np.tanh([[1, 2, 3]]) if yes else [[-1, -2, -3]]) and graph.outputs == ("y",)
