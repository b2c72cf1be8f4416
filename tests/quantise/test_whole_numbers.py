"""Positions beside values: whole numbers are their own codes, and values around them keep their scales."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.onnx.export import export_model
from npuflow.place.place import place
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.config import Mode, Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.run.interpret import host_session, interpret
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.rule import graph_of
from npuflow.testing.target import load, scheme
from npuflow.tune.precision.fakequant import FakeQuantNetwork
from tests.networks.onnx_text import TARGET, model, normal

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted(path.stem for path in (ROOT / "npuflow" / "targets").glob("*.toml"))
WEIGHTS = {
    "w": normal(1, 4, 3, 3, 3, scale=0.3),
    "one": normal(2, 1, 3, 1, 1),
    "reg": normal(3, 2, 3, 1, 1),
    "q": normal(4, 8, 6),
    "box": normal(5, 8, 4),
    "k": np.array([5], np.int64),
    "rest": np.array([-1], np.int64),
    "row_of_all": np.array([1, -1], np.int64),
    "pairs": np.array([1, 2, -1], np.int64),
    "wide": np.array(8, np.int64),
    "many": np.array([300], np.int64),
}
# name: signature, nodes
HEADS = {
    "classifier": (
        "float[1,3,8,8] x => float[1,256] f, float[1,5] v, int64[1,5] p",
        "c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w) s = Sigmoid(c) f = Flatten(s) v, p = TopK(f, k)",
    ),
    "centers": (
        "float[1,3,8,8] x => float[1,5] v, int64[1,5] p, int64[1,5] row, float[1,2,5] o, float[1,64] flat",
        """h = Conv(x, one) s = Sigmoid(h) m = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(s)
        e = Equal(s, m) b = Cast<to=1>(e) n = Mul(s, b) flat = Reshape(n, row_of_all) v, p = TopK(flat, k)
        row = Div(p, wide) r = Conv(x, reg) t = Reshape(r, pairs) i = Reshape(p, rest)
        o = Gather<axis=2>(t, i)""",
    ),
    "queries": (
        "float[1,20,8] x => float[1,5] v, int64[1,5] p, float[5,4] o",
        """l = MatMul(x, q) s = Sigmoid(l) a = ReduceMax<axes=[-1], keepdims=0>(s) v, p = TopK(a, k)
        d = MatMul(x, box) t = Sigmoid(d) u = Squeeze<axes=[0]>(t) i = Reshape(p, rest) o = Gather(u, i)""",
    ),
}


def graph(signature: str, body: str, opset: int = 11) -> Graph:
    read = set(re.findall(r"\w+", body))
    return rewrite(
        graph_of(model(signature, body, {k: WEIGHTS[k] for k in WEIGHTS.keys() & read}, opset))
    ).graph


def quantised(given: Graph, target: Target = TARGET, config: Quantize | None = None) -> Graph:
    """With ranges of eight samples."""
    placed = place(given, target)
    wanted = [o for n in given.nodes for o in n.outputs if o and given.type(o).dtype == "float32"]
    runs = host_session(export_model(given, wanted))
    seen: dict[str, list[Array]] = {}
    for seed in range(8):
        feeds = {i: normal(seed, *given.type(i).shape) for i in given.inputs}
        for name, array in (*feeds.items(), *zip(wanted, runs.run(wanted, feeds), strict=True)):
            seen.setdefault(name, []).append(array)
    ranges = {n: (float(np.min(a)), float(np.max(a))) for n, a in seen.items()}
    return quantize_graph(given, placed.on_npu, ranges, config or Quantize(), target.numerics).graph


@cache
def head(name: str) -> Graph:
    return graph(*HEADS[name])


def db(real: Array, made: Array) -> float:
    noise = float(((real.astype(np.float64) - made) ** 2).sum())
    return 10 * np.log10(float((real.astype(np.float64) ** 2).sum()) / max(noise, 1e-30))


def outputs(name: str, target: Target) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
    """Of the float and of the quantised network, on a new sample."""
    given = head(name)
    feeds = {i: normal(77, *given.type(i).shape) for i in given.inputs}
    names = list(given.outputs)
    real = dict(zip(names, host_session(export_model(given)).run(names, feeds), strict=True))
    return real, interpret(quantised(given, target, scheme(target)), feeds, target.numerics)


@pytest.mark.parametrize("target", SHIPPED)
@pytest.mark.parametrize("name", HEADS)
def test_the_best_scores_keep_their_values(name: str, target: str) -> None:
    hardware = load(ROOT / "npuflow" / "targets" / f"{target}.toml")
    real, made = outputs(name, hardware)
    assert db(real["v"], made["v"]) > 28
    for other in {"f", "flat", "o"} & set(real):
        if other == "f":
            assert db(real["f"], made["f"]) > 28
            np.testing.assert_array_equal(np.take_along_axis(made["f"], made["p"], 1), made["v"])
        if other == "flat":
            np.testing.assert_array_equal(np.take_along_axis(made["flat"], made["p"], 1), made["v"])
    if "row" in real:
        np.testing.assert_array_equal(made["row"], made["p"] // 8)


def test_values_and_positions_of_a_ranking_have_types_of_their_own() -> None:
    made = quantised(head("classifier"))
    node = next(n for n in made.nodes if n.op.onnx == "TopK")
    x, values, positions = (made.values[v].quant for v in (node.inputs[0], *node.outputs))
    assert x is not None and values == x and values.bits == 8 and values.scale[0] < 0.005
    assert positions is not None and positions.bits == 16 and positions.scale == (1.0,)


def test_the_search_of_widths_knows_values_and_positions_apart() -> None:
    """A ranking's input and its values are one unit of the search, as in the build; positions another."""
    given = head("classifier")
    network = FakeQuantNetwork(Candidate(given, place(given, TARGET), Quantize(), TARGET.numerics))
    node = next(n for n in given.nodes if n.op.onnx == "TopK")
    units = [network.units[v] for v in (node.inputs[0], *node.outputs)]
    assert units[0] == units[1] != units[2]


def test_scores_joined_with_positions_keep_their_scale() -> None:
    """[score, position] in one tensor, which a layer reads: one scale of its own range, not that of whole
    numbers."""
    given = graph(
        "float[1,20,8] x => float[1,5,2] y, float[1,5] v",
        """l = MatMul(x, q) s = Sigmoid(l) a = ReduceMax<axes=[-1], keepdims=0>(s) v, p = TopK(a, k)
        f = Cast<to=1>(p) g = Unsqueeze<axes=[2]>(f) h = Unsqueeze<axes=[2]>(v) j = Concat<axis=2>(h, g)
        y = Mul(j, j)""",
    )
    made = quantised(given)
    joined = next(n for n in made.nodes if n.op.onnx == "Concat")
    kind = made.values[joined.outputs[0]].quant
    assert kind is not None and kind.bits == 8 and kind.scale[0] < 0.1
    feeds = {"x": normal(77, 1, 20, 8)}
    real = host_session(export_model(given)).run(["v"], feeds)[0]
    found = interpret(made, feeds, TARGET.numerics)["v"]
    assert np.abs(real - found).max() < 1.5 * kind.scale[0]


PICKED = """l = MatMul(x, q) a = ReduceMax<axes=[-1], keepdims=0>(l) v, p = TopK(a, many)
    w2, r = TopK<largest=0>(v, k) o = GatherElements<axis=1>(p, r)"""


@pytest.mark.parametrize("number", ["int", "bf16"])
def test_positions_picked_by_positions_are_exact(number: Mode) -> None:
    """In a network of floats, too, whose numbers do not tell 300 from 301."""
    given = graph("float[1,400,8] x => int64[1,5] o, int64[1,300] p, int64[1,5] r", PICKED)
    target = load(ROOT / "npuflow" / "targets" / "xdna2.toml") if number == "bf16" else TARGET
    made = interpret(
        quantised(given, target, Quantize(mode=number)), {"x": normal(77, 1, 400, 8)}, target.numerics
    )
    assert made["p"].max() > 256
    np.testing.assert_array_equal(np.take_along_axis(made["p"], made["r"], 1), made["o"])
