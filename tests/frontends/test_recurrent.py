"""Recurrent layers whose data has the batch first: onnxruntime has no kernel for them,
and they build all the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from npuflow.frontends import FRONTENDS, Bindings
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.stages.simulate import Simulation
from tests.frontends.building import built, model
from tests.networks.onnx_cases import cases, judge

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
BATCH, STEPS, SIZE, HIDDEN = 2, 5, 3, 4
RNG = np.random.default_rng(0)


def weights(op: str, directions: int = 1) -> dict[str, np.ndarray]:
    rows, rng = GATES[op] * HIDDEN, np.random.default_rng(1)
    return {
        "w": rng.normal(size=(directions, rows, SIZE)).astype(np.float32),
        "r": rng.normal(size=(directions, rows, HIDDEN)).astype(np.float32),
    }


def batch_first(op: str, directions: int = 1, states: bool = True, opset: int = 17) -> onnx.ModelProto:
    held = f"float[{BATCH},{directions},{HIDDEN}]"
    known = ["h0", "c0"][: 1 + (op == "LSTM")] if states else []
    ends = ["yh", "yc"][: 1 + (op == "LSTM")]
    arguments = ", ".join(["x", "w", "r", "", "", *known]) if states else "x, w, r"
    more = ', direction="bidirectional"' if directions == 2 else ""
    return model(
        f"""g (float[{BATCH},{STEPS},{SIZE}] x{"".join(f", {held} {k}" for k in known)}) =>
        (float[{BATCH},{STEPS},{directions},{HIDDEN}] y, {", ".join(f"{held} {e}" for e in ends)}) {{
        y, {", ".join(ends)} = {op}<hidden_size={HIDDEN}, layout=1{more}>({arguments}) }}""",
        opset,
        weights(op, directions),
    )


def feeds(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in proto.graph.input}
    return {n: RNG.normal(size=s).astype(np.float32) for n, s in shapes.items() if n not in ("w", "r")}


def sequence_first(proto: onnx.ModelProto, fed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The same layer run by onnxruntime with the sequence first, transposed around it in numpy."""
    other = onnx.ModelProto()
    other.CopyFrom(proto)
    (node,) = other.graph.node
    kept = [a for a in node.attribute if a.name != "layout"]
    del node.attribute[:]
    node.attribute.extend(kept)
    for info in (*other.graph.input, *other.graph.output):
        info.type.tensor_type.ClearField("shape")
    found = run(
        other.SerializeToString(),
        {n: a.swapaxes(0, 1) for n, a in fed.items()},
        [o.name for o in other.graph.output],
    )
    return [found[0].transpose(2, 0, 1, 3), *(a.swapaxes(0, 1) for a in found[1:])]


@pytest.mark.parametrize("opset", [14, 17, 22])
@pytest.mark.parametrize("states", [True, False])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("op", list(GATES))
def test_the_layer_computes_what_it_says(op: str, directions: int, states: bool, opset: int) -> None:
    proto = batch_first(op, directions, states, opset)
    fed = feeds(proto)
    graph = (
        FRONTENDS["onnx"]()
        .read(proto.SerializeToString(), Bindings({n: a.shape for n, a in fed.items()}))
        .graph
    )
    found = run(export_model(graph), fed, graph.outputs)
    for mine, theirs in zip(found, sequence_first(batch_first(op, directions, states), fed), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    assert found[0].shape == (BATCH, STEPS, directions, HIDDEN) and found[1].shape == (
        BATCH,
        directions,
        HIDDEN,
    )


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_it_is_what_onnx_defines(op: str) -> None:
    """By onnx's own reference, which takes one step of one direction with the batch first."""
    case = {"LSTM": "test_lstm_batchwise", "GRU": "test_gru_batchwise", "RNN": "test_simple_rnn_batchwise"}[
        op
    ]
    (found,) = [judge(c) for c in cases() if c.name == case]
    assert not found.kind, found


@pytest.mark.slow
def test_it_builds_through_every_step(tmp_path: Path) -> None:
    text = f"""g (float[{BATCH},{STEPS},{SIZE}] x) => (float[{BATCH},{STEPS},2] y) {{
        h, last = GRU<hidden_size={HIDDEN}, layout=1>(x, w, r) axes = Constant<value = int64[1] {{2}}>()
        s = Squeeze(h, axes) y = MatMul(s, k) }}"""
    held = {**weights("GRU"), "k": RNG.normal(size=(HIDDEN, 2)).astype(np.float32)}
    proto = model(text, 17, held)
    data = {"x": RNG.normal(size=(6, BATCH, STEPS, SIZE)).astype(np.float32)}
    done = built(tmp_path, proto, data, '[evaluate]\nsource = "data.npz"\n')
    found = done.artifact("simulate", Simulation).summary()
    assert found["different"] == 0 and found["hazards"] == 0
