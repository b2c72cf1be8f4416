"""Recurrent layers that were written out step by step are one operator, and give what the steps gave."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from npuflow.frontends import Bindings
from npuflow.frontends.tflite import convert
from npuflow.frontends.tflite.schema import TfliteNetwork
from npuflow.ir.verify import verify
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from tests.frontends.test_tflite_loops import Sub

STEPS, BATCH, INPUTS, UNITS = 4, 2, 3, 5
KINDS = ("LSTM", "GRU", "GRU, reset first", "RNN")
STARTS = ("zeros", "left out", "fed")


class Steps(Sub):
    """A network of recurrent steps on the rows of `x`, as TensorFlow's converter spells them."""

    def __init__(self, kind: str, start: str, dense: bool) -> None:
        state = (BATCH, UNITS)
        fed = dict.fromkeys(("h0", "c0")[: 2 if kind == "LSTM" else 1], (state, "float32"))
        super().__init__(x=((STEPS, BATCH, INPUTS), "float32"), **(fed if start == "fed" else {}))
        self.kind, self.start, self.dense, self.count = kind, start, dense, 0
        self.rng = np.random.default_rng(0)
        if start == "zeros":
            for name in fed:
                self.constant(name, np.zeros(state), "float32")
        self.gates = {"LSTM": 4, "RNN": 1}.get(kind, 3)
        for name, rows in (("W", INPUTS), ("U", UNITS)):
            for tag, width in (("", self.gates * UNITS), ("2", 2 * UNITS), ("1", UNITS)):
                held = self.rng.normal(0, 0.5, (rows, width))
                self.constant(name + tag, held.T if dense else held, "float32")
        self.constant("b", self.rng.normal(0, 0.5, self.gates * UNITS), "float32")
        self.constant("d", self.rng.normal(0, 0.5, UNITS), "float32")
        self.constant("one", 1.0, "float32")
        self.constant("axis", -1)
        rows = [self.fresh(f"x{i}", (BATCH, INPUTS)) for i in range(STEPS)]
        self.calls("UNPACK", "x", rows, Axis=0, Num=STEPS)
        self.rows = rows

    def fresh(self, name: str, shape: tuple[int, ...]) -> str:
        return self.tensor(name, shape, "float32")

    def calls(self, kind: str, inputs: str, results: list[str], **options: Any) -> None:
        from npuflow.frontends.tflite.schema import Operator

        places = (tuple(self.places[n] for n in names) for names in (inputs.split(), results))
        self.operators.append(Operator(kind, *places, options))

    def made(self, kind: str, inputs: str, width: int = UNITS, **options: Any) -> str:
        self.count += 1
        name = f"t{self.count}"
        self.op(kind, inputs, name, (BATCH, width), FusedActivationFunction=0, **options)
        return name

    def product(self, x: str, matrix: str, width: int) -> str:
        more = {} if self.dense else {"AdjX": False, "AdjY": False}
        return self.made("FULLY_CONNECTED" if self.dense else "BATCH_MATMUL", f"{x} {matrix}", width, **more)

    def split(self, source: str, count: int) -> list[str]:
        self.count += 1
        names = [self.fresh(f"s{self.count}.{i}", (BATCH, UNITS)) for i in range(count)]
        self.calls("SPLIT", f"axis {source}", names, NumSplits=count)
        return names

    def step(self, x: str, h: str, c: str) -> tuple[str, str]:
        """The states behind a step; "" where there is none before the first."""
        width = self.gates * UNITS
        total = self.made("ADD", f"{self.product(x, 'W', width)} b", width)
        if self.kind in ("LSTM", "RNN"):
            total = self.made("ADD", f"{self.product(h, 'U', width)} {total}", width) if h else total
            return self.lstm(total, c) if self.kind == "LSTM" else (self.made("TANH", total), "")
        first = self.kind != "GRU"
        z, r, n = self.split(total, 3)
        if h:
            uz, ur = self.split(self.product(h, "U2", 2 * UNITS), 2)
            z, r = self.made("ADD", f"{uz} {z}"), self.made("ADD", f"{r} {ur}")
        z, r = self.made("LOGISTIC", z), self.made("LOGISTIC", r)
        if first and h:
            n = self.made("ADD", f"{n} {self.product(self.made('MUL', f'{r} {h}'), 'U1', UNITS)}")
        elif not first:
            inner = self.made("ADD", f"{self.product(h, 'U1', UNITS)} d") if h else "d"
            n = self.made("ADD", f"{n} {self.made('MUL', f'{r} {inner}')}")
        new = self.made("MUL", f"{self.made('SUB', f'one {z}')} {self.made('TANH', n)}")
        return (self.made("ADD", f"{self.made('MUL', f'{z} {h}')} {new}") if h else new), ""

    def lstm(self, total: str, c: str) -> tuple[str, str]:
        i, f, g, o = self.split(total, 4)
        new = self.made("MUL", f"{self.made('LOGISTIC', i)} {self.made('TANH', g)}")
        kept = self.made("MUL", f"{self.made('LOGISTIC', f)} {c}") if c else ""
        c = self.made("ADD", f"{kept} {new}") if c else new
        return self.made("MUL", f"{self.made('LOGISTIC', o)} {self.made('TANH', c)}"), c


def network(kind: str, start: str = "zeros", dense: bool = True, middle: bool = False) -> TfliteNetwork:
    """All states as one tensor, and the last ones; `middle`: a state in between as well."""
    sub = Steps(kind, start, dense)
    h, c = ("", "") if start == "left out" else ("h0", "c0" if kind == "LSTM" else "")
    states, cells = [], []
    for x in sub.rows:
        h, c = sub.step(x, h, c)
        states.append(h)
        cells.append(c)
    sub.op("PACK", " ".join(states), "all", (STEPS, BATCH, UNITS), Axis=0, ValuesCount=STEPS)
    ends = ["all", h, *([c] if c else []), *([states[1]] if middle else [])]
    return sub.done(*ends)


def answers(net: TfliteNetwork) -> tuple[Counter[str], list[np.ndarray]]:
    graph = verify(convert.reading(net, Bindings()).graph, "reading")
    rng = np.random.default_rng(1)
    feeds = {n: rng.standard_normal(graph.type(n).shape).astype(np.float32) for n in graph.inputs}
    return Counter(node.op.onnx_type()[1] for node in graph.nodes), run(export_model(graph), feeds)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_one_operator(kind: str, start: str, dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    net = network(kind, start, dense, middle=True)
    kinds, found = answers(net)
    monkeypatch.setattr(convert, "folded", lambda one: one)
    steps, wanted = answers(net)
    assert kinds[kind[:4].rstrip(",")] == 1 and not kinds["Tanh"] and not kinds["Gemm"], kinds
    assert steps["Tanh"] >= STEPS
    for one, other in zip(found, wanted, strict=True):
        assert np.abs(one - other).max() < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_steps_of_different_weights_are_no_layer(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other step has a bias of its own."""
    plain = Steps.step

    def step(self: Steps, x: str, h: str, c: str) -> tuple[str, str]:
        held = self.places["b"]
        other = self.constant(f"b.{self.count}", self.rng.normal(0, 0.5, self.gates * UNITS), "float32")
        self.places["b"] = self.places[other]
        try:
            return plain(self, x, h, c)
        finally:
            self.places["b"] = held

    monkeypatch.setattr(Steps, "step", step)
    kinds, found = answers(network(kind, "fed"))
    monkeypatch.setattr(convert, "folded", lambda one: one)
    _, wanted = answers(network(kind, "fed"))
    assert not kinds["LSTM"] + kinds["GRU"] + kinds["RNN"]
    for one, other in zip(found, wanted, strict=True):
        assert np.abs(one - other).max() < 1e-6


def test_layers_one_behind_the_other_hand_over_whole_sequences() -> None:
    sub = Steps("LSTM", "left out", True)
    rows = sub.rows
    sub.constant("V", sub.rng.normal(0, 0.5, (4 * UNITS, UNITS)), "float32")
    h, c, second, k = "", "", "", ""
    states = []
    for x in rows:
        h, c = sub.step(x, h, c)
        held, sub.places["W"] = sub.places["W"], sub.places["V"]
        second, k = sub.step(h, second, k)
        sub.places["W"] = held
        states.append(second)
    sub.op("PACK", " ".join(states), "all", (STEPS, BATCH, UNITS), Axis=0, ValuesCount=STEPS)
    kinds, _ = answers(sub.done("all"))
    assert kinds == {"LSTM": 2, "Reshape": 4} or (kinds["LSTM"] == 2 and not kinds["Concat"]), kinds


def test_an_int8_layer_keeps_its_steps() -> None:
    """Its codes are stated step by step."""
    from dataclasses import replace

    from npuflow.frontends.tflite.chains import folded
    from npuflow.frontends.tflite.schema import Codes

    net = network("RNN", "left out")
    coded = [
        replace(t, dtype="int8", codes=Codes((0.05,), (0,), None)) if t.data is None else t
        for t in net.tensors
    ]
    coded_net = replace(net, tensors=tuple(coded))
    assert folded(coded_net) is coded_net
