"""LSTM, GRU and RNN as loops, or written out step by step: onnxruntime's results, whole on the NPU."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuflow.ir.loops import loops
from npuflow.quantise.config import Activations, Quantize
from tests.networks.onnx_text import model, normal, on_npu, ops, refused, rewritten
from tests.tiers import often

STEPS, BATCH, INPUTS, HIDDEN = 4, 2, 5, 3
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def layer(
    op: str,
    attributes: str = "",
    directions: int = 1,
    bias: bool = True,
    states: str = "",
    lengths: str = "",
    peepholes: bool = False,
    layout: int = 0,
    batch: int = BATCH,
    steps: int = STEPS,
) -> bytes:
    """`states`: "" (none), "constant" or "input"; all outputs are outputs of the model."""
    rows = GATES[op] * HIDDEN
    weights = {
        "w": normal(1, directions, rows, INPUTS, scale=0.5),
        "r": normal(2, directions, rows, HIDDEN, scale=0.5),
    }
    if bias:
        weights["b"] = normal(3, directions, 2 * rows)
    state = f"{batch},{directions},{HIDDEN}" if layout else f"{directions},{batch},{HIDDEN}"
    inputs = f"float[{batch},{steps},{INPUTS}] x" if layout else f"float[{steps},{batch},{INPUTS}] x"
    names = ["x", "w", "r", "b" if bias else ""]
    if lengths == "input":
        inputs += f", int32[{batch}] lengths"
    elif lengths:
        known = {"full": [steps], "short": [steps - 1], "mixed": range(1, steps + 1)}[lengths]
        weights["lengths"] = np.resize(np.array([*known], np.int32), batch)
    initial = ["h", "c"] if op == "LSTM" else ["h"]
    for k, name in enumerate(initial if states else []):
        if states == "input":
            inputs += f", float[{state}] {name}"
        else:
            weights[name] = normal(4 + k, *map(int, state.split(",")))
    names += ["lengths" if lengths else "", *(initial if states else [])]
    if peepholes:
        weights["p"] = normal(6, directions, 3 * HIDDEN)
        names += [""] * (7 - len(names)) + ["p"]
    while not names[-1]:
        names.pop()
    y = f"{batch},{steps},{directions},{HIDDEN}" if layout else f"{steps},{directions},{batch},{HIDDEN}"
    outputs = f"float[{y}] y, float[{state}] y_h" + (f", float[{state}] y_c" if op == "LSTM" else "")
    more = f", layout={layout}" if layout else ""
    results = "y, y_h, y_c" if op == "LSTM" else "y, y_h"
    listed = ", ".join(name or '""' for name in names)
    attributes = f"<hidden_size={HIDDEN}{more}{', ' if attributes else ''}{attributes}>"
    return model(f"{inputs} => {outputs}", f"{results} = {op}{attributes}({listed})", weights)


CASES = (
    {},
    {"bias": False},
    {"states": "constant"},
    {"states": "input"},
    {"lengths": "full"},
    {"lengths": "short"},
    {"lengths": "mixed", "batch": 3, "states": "input"},
    {"lengths": "mixed", "attributes": 'direction="bidirectional"', "directions": 2, "states": "constant"},
    {"steps": 1},
    {"attributes": 'direction="reverse"', "states": "input"},
    {"attributes": 'direction="bidirectional"', "directions": 2, "states": "input"},
    {"attributes": "clip=0.5"},
    {"batch": 1, "states": "input"},
)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("case", CASES)
def test_forms(op: str, case: dict[str, object]) -> None:
    done = rewritten(layer(op, **case))  # type: ignore[arg-type]
    assert not any(name.startswith("host:") for name in ops(done))


@pytest.mark.parametrize("op", often(["RNN", "LSTM", "GRU"], 3))
def test_on_the_npu(op: str) -> None:
    on_npu(rewritten(layer(op, states="input")))
    on_npu(rewritten(layer(op, 'direction="bidirectional"', directions=2, batch=1)))


def test_peepholes_and_linear_before_reset() -> None:
    for data in (layer("LSTM", peepholes=True), layer("LSTM", peepholes=True, states="input")):
        assert not any(name.startswith("host:") for name in ops(rewritten(data)))
    for states in ("", "input"):
        done = rewritten(layer("GRU", "linear_before_reset=1", states=states))
        assert not any(name.startswith("host:") for name in ops(done))


@pytest.mark.parametrize("peepholes", often([True, False], 2))
def test_coupled_gates(peepholes: bool) -> None:
    """The forget gate is 1 less the input gate."""
    for steps in (2, STEPS):
        data = layer("LSTM", "input_forget=1", states="input", peepholes=peepholes, steps=steps)
        on_npu(rewritten(data))


@pytest.mark.parametrize(
    "names",
    [
        ("Relu", ""),
        ("LeakyRelu", "activation_alpha=[0.2]"),
        ("HardSigmoid", "activation_alpha=[0.3], activation_beta=[0.4]"),
        ("Softsign", ""),
        ("Softplus", ""),
        ("Elu", "activation_alpha=[0.7]"),
        ("ThresholdedRelu", "activation_alpha=[0.3]"),
    ],
)
def test_functions(names: tuple[str, str]) -> None:
    name, numbers = names
    attributes = f'activations=["{name}"]' + (f", {numbers}" if numbers else "")
    done = rewritten(layer("RNN", attributes), rules=["unroll_rnn"])
    assert name.lower() in ops(done)


def test_functions_of_gates() -> None:
    attributes = (
        'activations=["HardSigmoid","Softsign","Relu"], activation_alpha=[0.3], activation_beta=[0.4]'
    )
    assert {"hardsigmoid", "softsign"} <= set(ops(rewritten(layer("LSTM", attributes, states="input"))))


def test_batch_first() -> None:
    """Read with the sequence first, between transpositions: the result is that of
    the other layout, transposed."""
    from npuflow.frontends import FRONTENDS, Bindings
    from npuflow.onnx.export import export_model
    from npuflow.onnx.run import run
    from npuflow.rewrite.rewrite import rewrite

    for op in GATES:
        graph = FRONTENDS["onnx"]().read(layer(op, layout=1, states="input"), Bindings()).graph
        done = rewrite(graph, careful=True)
        feeds = {i: normal(7, *graph.type(i).shape) for i in graph.inputs}
        found = run(export_model(done.graph), feeds)
        turned = {n: np.ascontiguousarray(a.swapaxes(0, 1)) for n, a in feeds.items()}
        wanted = run(layer(op, states="input"), turned)
        np.testing.assert_allclose(found[0], wanted[0].transpose(2, 0, 1, 3), 1e-4, 1e-5)
        for mine, theirs in zip(found[1:], wanted[1:], strict=True):
            np.testing.assert_allclose(mine, theirs.swapaxes(0, 1), 1e-4, 1e-5)


@pytest.mark.parametrize("op", ["GRU", pytest.param("LSTM", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_hundreds_of_steps(op: str) -> None:
    """More than 256 steps are planned and simulated; the slow one has a thousand."""
    steps = 1000 if op == "LSTM" else 260
    done = rewritten(layer(op, batch=1, steps=steps), rules=[f"unroll_{op.lower()}", "drop_noop"])
    on_npu(done)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (
            layer("RNN", steps=2050, lengths="short"),
            "2050 steps, more than the 2048 that are written out one by one",
        ),
    ],
)
def test_what_stays(data: bytes, reason: str) -> None:
    done = rewritten(data)
    (rule,) = {r.rule for r in done.refusals}
    assert refused(done, rule) == reason


@pytest.mark.parametrize("examples", often((3, 8), 2))
def test_any_layer(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(
        op=st.sampled_from(sorted(GATES)),
        direction=st.sampled_from(["forward", "reverse", "bidirectional"]),
        steps=st.integers(1, 5),
        batch=st.integers(1, 3),
        bias=st.booleans(),
        states=st.sampled_from(["", "constant", "input"]),
        bits=st.sampled_from([8, 16]),
    )
    def runs(op: str, direction: str, steps: int, batch: int, bias: bool, states: str, bits: int) -> None:
        directions = 2 if direction == "bidirectional" else 1
        data = layer(op, f'direction="{direction}"', directions, bias, states, steps=steps, batch=batch)
        on_npu(rewritten(data), Quantize(activations=Activations(bits=bits)))

    runs()


@pytest.mark.parametrize("op", often(["GRU", "LSTM", "RNN"], 3))
@pytest.mark.parametrize("direction", often(["bidirectional", "forward", "reverse"], 3))
def test_lengths_that_are_an_input(op: str, direction: str) -> None:
    """The host casts the lengths; which steps a sequence has is looked up on the NPU."""
    data = layer(op, f'direction="{direction}"', 1 + (direction == "bidirectional"), lengths="input", batch=3)
    feeds = {"x": normal(7, STEPS, 3, INPUTS), "lengths": np.array([1, 4, 2], np.int32)}
    done = rewritten(data, feeds=feeds)
    on_npu(done, Quantize(activations=Activations(bits=16)), feeds, host=["host:cast"])


def test_state_and_cell_state_have_scales_of_their_own() -> None:
    """Both begin with zeros; the cell state of this layer is many times as large as the state."""
    data = layer("LSTM", 'activations=["Sigmoid","Tanh","Softsign"]', steps=12)
    graph = on_npu(rewritten(data))
    (loop,) = loops(graph)
    state, memory = (graph.values[one.now].quant for one in loop.carried)
    assert state is not None and memory is not None and state.scale[0] < 0.7 * memory.scale[0]
    for one in loop.carried:
        assert len({graph.values[v].quant for v in (one.initial, one.now, one.following, one.last)}) == 1
