"""TFLite's recurrent layers of whole sequences, judged by LiteRT's reference kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.frontends import Bindings
from npuflow.ir.graph import Graph
from npuflow.ir.loops import loops
from npuflow.ir.verify import verify
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.rewrite.rewrite import rewrite

pytest.importorskip("tflite", reason="npuflow[tflite] is not installed")
pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

from npuflow.frontends.tflite.convert import reading
from npuflow.frontends.tflite.schema import parsed
from tests.frontends.tflite_models import Net, reference

STEPS, BATCH, INPUTS, UNITS = 5, 2, 3, 4
rng = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    return rng.normal(0, 0.6, shape).astype(np.float32)


def state(net: Net, name: str, width: int) -> str:
    net.tensor(name, (BATCH, width))
    net.graph.tensors[net.index[name]].isVariable = True
    return name


def cell(net: Net, way: str, outputs: int, has: set[str]) -> list[str]:
    """The operands of one direction of an LSTM."""
    shapes = {
        **{f"w{g}": (UNITS, INPUTS) for g in "ifco"},
        **{f"r{g}": (UNITS, outputs) for g in "ifco"},
        **{f"p{g}": (UNITS,) for g in "ifo"},
        **{f"b{g}": (UNITS,) for g in "ifco"},
        "pw": (outputs, UNITS),
        "pb": (outputs,),
    }
    absent = set() if "peepholes" in has else {"pi", "pf", "po"}
    absent |= {"wi", "ri", "pi", "bi"} if "coupled" in has else set()
    absent |= set() if "projection" in has else {"pw", "pb"}
    return [
        "" if name in absent else net.constant(f"{way}{name}", drawn(*shape))
        for name, shape in shapes.items()
    ]


def sequence(net: Net, time_major: bool) -> str:
    return net.tensor("x", (STEPS, BATCH, INPUTS) if time_major else (BATCH, STEPS, INPUTS))


def result(net: Net, name: str, width: int, time_major: bool) -> str:
    return net.tensor(name, (STEPS, BATCH, width) if time_major else (BATCH, STEPS, width))


def fed(major: bool) -> np.ndarray:
    shape = (STEPS, BATCH, INPUTS) if major else (BATCH, STEPS, INPUTS)
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def close(data: bytes, major: bool, wanted: list[np.ndarray] | None = None) -> Graph:
    """The graph, whose outputs are LiteRT's, or `wanted`, before and behind the rules."""
    x = fed(major)
    wanted = wanted or reference(data, [x])
    graph = verify(reading(parsed(data), Bindings()).graph, "reading")
    lowered = rewrite(graph).graph
    for form in (graph, lowered):
        for mine, theirs in zip(run(export_model(form), {"x": x}), wanted, strict=True):
            assert mine.shape == theirs.shape
            assert np.abs(mine - theirs).max() <= 1e-4 * np.abs(theirs).max()
    assert not [node for node in lowered.nodes if node.op.hosted]
    return graph


def kinds(graph: Graph) -> list[str]:
    return [node.op.onnx_type()[1] for node in graph.nodes]


@pytest.mark.parametrize("major", [True, False])
@pytest.mark.parametrize("has", ["", "peepholes", "coupled", "coupled peepholes"])
def test_a_plain_lstm_is_one_operator(has: str, major: bool) -> None:
    net = Net()
    x = sequence(net, major)
    given = [x, *cell(net, "", UNITS, set(has.split())), state(net, "h", UNITS), state(net, "c", UNITS)]
    y = result(net, "y", UNITS, major)
    options: dict[str, Any] = {"fusedActivationFunction": 4, "timeMajor": major, "cellClip": 10.0}
    kind = "UNIDIRECTIONAL_SEQUENCE_LSTM"
    net.op(kind, given, [y], "UnidirectionalSequenceLSTMOptions", **options)
    assert kinds(close(net.done([x], [y]), major)).count("LSTM") == 1


@pytest.mark.parametrize(
    ("has", "clips"), [("", (0.3, 0.0)), ("projection", (0.5, 0.2)), ("norms peepholes", (0.0, 0.0))]
)
def test_lstms_beyond_onnx_are_loops(has: str, clips: tuple[float, float]) -> None:
    net = Net()
    x, outputs = sequence(net, False), 3 if "projection" in has else UNITS
    given = [x, *cell(net, "", outputs, set(has.split())), state(net, "h", outputs), state(net, "c", UNITS)]
    if "norms" in has:
        given += [net.constant(f"n{g}", 1 + drawn(UNITS)) for g in "ifco"]
    y = result(net, "y", outputs, False)
    options: dict[str, Any] = {"fusedActivationFunction": 4, "cellClip": clips[0], "projClip": clips[1]}
    kind = "UNIDIRECTIONAL_SEQUENCE_LSTM"
    net.op(kind, given, [y], "UnidirectionalSequenceLSTMOptions", **options)
    graph = close(net.done([x], [y]), False)
    assert "LSTM" not in kinds(graph) and [one.steps for one in loops(graph)] == [STEPS]


@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize("major", [True, False])
def test_both_directions_of_an_lstm(major: bool, merged: bool) -> None:
    """LiteRT's kernel gives merged outputs of batches first other numbers from run to run: there the merged
    ones are those of both directions apart, side by side."""
    known, files = rng.bit_generator.state, {}
    for one in (True, False):
        rng.bit_generator.state = known
        net = Net()
        x = sequence(net, major)
        given = [x, *cell(net, "f", UNITS, set()), *cell(net, "b", UNITS, set())]
        given += [state(net, name, UNITS) for name in ("fh", "fc", "bh", "bc")] + [""] * 9
        ends = (("y", 2 * UNITS),) if one else (("y", UNITS), ("z", UNITS))
        made = [result(net, name, width, major) for name, width in ends]
        options: dict[str, Any] = {"fusedActivationFunction": 4, "timeMajor": major, "mergeOutputs": one}
        net.op("BIDIRECTIONAL_SEQUENCE_LSTM", given, made, "BidirectionalSequenceLSTMOptions", **options)
        files[one] = net.done([x], made)
    apart = reference(files[False], [fed(major)])
    wanted = [np.concatenate(apart, 2)] if merged else apart
    assert kinds(close(files[merged], major, wanted)).count("LSTM") == 1


@pytest.mark.parametrize(("function", "kind"), [(4, "RNN"), (1, "RNN"), (3, "Clip")])
@pytest.mark.parametrize("both", [True, False])
def test_simple_cells(function: int, kind: str, both: bool) -> None:
    """ReLU6, which ONNX's layers lack, is written out."""
    net = Net()
    x, given = sequence(net, False), ["x"]
    for way in "fb" if both else "f":
        for name, shape in (("w", (UNITS, INPUTS)), ("r", (UNITS, UNITS)), ("b", (UNITS,))):
            given.append(net.constant(f"{way}{name}", drawn(*shape)))
        given.append(state(net, f"{way}h", UNITS))
    options: dict[str, Any] = {"fusedActivationFunction": function, "timeMajor": False}
    names = ["y", "z"] if both else ["y"]
    made = [result(net, name, UNITS, False) for name in names]
    if both:
        options["mergeOutputs"] = False
        net.op(
            "BIDIRECTIONAL_SEQUENCE_RNN",
            [*given, *[""] * 3],
            made,
            "BidirectionalSequenceRNNOptions",
            **options,
        )
    else:
        net.op("UNIDIRECTIONAL_SEQUENCE_RNN", given, made, "SequenceRNNOptions", **options)
    assert kind in kinds(close(net.done([x], made), False))


def test_codes_without_a_scale_are_refused() -> None:
    """Weights of int8 with a scale are numbers; without one nothing says what they stand for."""
    found = []
    for quant in (([0.01], [0], 0), None):
        net = Net()
        x, y = sequence(net, False), result(net, "y", UNITS, False)
        given = [x, net.constant("w", np.ones((UNITS, INPUTS), np.int8), quant)]
        given += [net.constant("r", np.ones((UNITS, UNITS), np.int8), ([0.01], [0], 0))]
        given += [net.constant("b", drawn(UNITS)), state(net, "h", UNITS)]
        kind = "UNIDIRECTIONAL_SEQUENCE_RNN"
        net.op(kind, given, [y], "SequenceRNNOptions", fusedActivationFunction=4)
        found.append(parsed(net.done([x], [y])))
    graph = reading(found[0], Bindings()).graph
    (layer,) = [node for node in graph.nodes if node.op.onnx_type()[1] == "RNN"]
    weights = graph.const(layer.inputs[1])
    assert weights is not None and np.allclose(weights, 0.01)
    with pytest.raises(ModelError, match="cannot be converted") as caught:
        reading(found[1], Bindings())
    assert "codes without a scale" in caught.value.because
