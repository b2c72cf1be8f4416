"""Islands of the NPU between parts of the host: which of them the host runs instead, and why."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import parser

from npuflow.frontends import FRONTENDS, Bindings
from npuflow.hw.target import HostProcessor, Limits, Target
from npuflow.ir.graph import Graph
from npuflow.place.islands import PlacementTable
from npuflow.place.place import NodePlacement, place
from npuflow.quantise.config import Override, Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.testing.quantised import quantize_graph

TARGET = Target()


def graph(body: str, *, inputs: str = "float[6,1,4] x", outputs: str = "float[6,1,4] y") -> Graph:
    """A graph of ONNX text, with weights of an LSTM and a convolution, and the constants 1 and 3. The gates
    of an LSTM have a function that the NPU has not, so that it stays on the host.
    """
    body = body.replace("LSTM<", 'LSTM<activations=["Unknown","Tanh","Tanh"], ')
    head = '<ir_version: 8, opset_import: ["" : 17]>'
    proto = parser.parse_model(f"{head} g ({inputs}) => ({outputs}) {{ {body} }}")
    rng = np.random.default_rng(0)
    arrays = {
        "w": rng.normal(size=(1, 16, 4)),
        "u": rng.normal(size=(1, 16, 4)),
        "k": rng.normal(size=(4, 4, 3)),
    }
    given = {n: a.astype(np.float32) for n, a in arrays.items()} | {"one": np.array([1], np.int64)}
    used = {i for node in proto.graph.node for i in node.input}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in given.items() if n in used)
    return rewrite(FRONTENDS["onnx"]().read(proto.SerializeToString(), Bindings()).graph).graph


def ops_on_npu(found: NodePlacement) -> list[str]:
    return [p.op for p in found.places if p.on_npu]


def test_data_movement_between_recurrent_layers_goes_to_the_host() -> None:
    turned = graph(
        "a = LSTM<hidden_size=4>(x, w, u) b = Squeeze(a, one) c = Transpose<perm=[1,0,2]>(b)"
        " y = LSTM<hidden_size=4, layout=1>(c, w, u)",
        outputs="float[1,6,1,4] y",
    )
    found = place(turned, TARGET)
    assert ops_on_npu(found) == []
    moved = [p for p in found.places if p.op in ("transpose", "squeeze", "reshape")]
    assert moved and all("only data movement next to host nodes: " in p.reason for p in moved)


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("t = Transpose<perm=[1,0,2]>(x) y = LSTM<hidden_size=4, layout=1>(t, w, u)", "float[1,6,1,4] y"),
        ("a = LSTM<hidden_size=4>(x, w, u) y = Transpose<perm=[2,1,0,3]>(a)", "float[1,1,6,4] y"),
    ],
)
def test_movement_between_the_host_and_a_port_goes_to_the_host(body: str, outputs: str) -> None:
    assert ops_on_npu(place(graph(body, outputs=outputs), TARGET)) == []


def test_movement_beside_real_work_stays() -> None:
    conv = graph(
        "a = LSTM<hidden_size=4>(x, w, u) b = Squeeze(a, one) c = Transpose<perm=[1,2,0]>(b) d = "
        "Conv<pads=[1,1]>(c, k)"
        " y = Transpose<perm=[2,0,1]>(d)",
    )
    found = place(conv, TARGET, PlacementTable(min_macs=0))
    assert [op for op in ops_on_npu(found) if op in ("transpose", "conv")] == [
        "transpose",
        "conv",
        "transpose",
    ]


def test_a_network_without_a_host_stays_whatever_its_size() -> None:
    turned = place(graph("y = Transpose<perm=[2,1,0]>(x)", outputs="float[4,1,6] y"), TARGET)
    small = place(graph("y = Relu(x)"), TARGET, PlacementTable(min_macs=1 << 40, min_bytes=1 << 40))
    assert ops_on_npu(turned) == ["transpose"] and ops_on_npu(small) == ["relu"]


LITTLE = graph(
    "a = LSTM<hidden_size=4>(x, w, u) b = Relu(a) c = Squeeze(b, one) y = LSTM<hidden_size=4>(c, w, u)",
    outputs="float[6,1,1,4] y",
)
LONG = graph(
    "a = LSTM<hidden_size=4>(x, w, u) b = Relu(a) c = Tanh(b) d = Abs(c) e = Squeeze(d, one)"
    " y = LSTM<hidden_size=4>(e, w, u)",
    outputs="float[6,1,1,4] y",
)


def test_a_small_island_goes_where_it_costs_less_with_numbers() -> None:
    (relu,) = [p for p in place(LITTLE, TARGET).places if p.op == "relu"]
    # 24 elements cross each way: 48 conversions and 48 bytes over 16 a cycle, against 24 elements computed
    assert "0 MACs next to host nodes: 48 bytes" in relu.reason
    assert "(51 cycles), which computes it in 24" in relu.reason


@pytest.mark.parametrize(
    ("line", "least", "host", "stays"),
    [
        (LITTLE, PlacementTable(), HostProcessor(), False),
        (LITTLE, PlacementTable(min_macs=0), HostProcessor(), True),
        (LITTLE, PlacementTable(min_macs=0, min_bytes=1 << 20), HostProcessor(), False),
        (LONG, PlacementTable(), HostProcessor(), True),
        (LONG, PlacementTable(), HostProcessor(elements_per_cycle=64.0), False),
    ],
)
def test_what_is_too_small_is_for_recipe_and_target_to_say(
    line: Graph, least: PlacementTable, host: HostProcessor, stays: bool
) -> None:
    assert bool(ops_on_npu(place(line, replace(TARGET, host=host), least))) is stays


def test_islands_that_quantisation_makes_are_found() -> None:
    """A layer left in float between two others strands the movement behind it."""
    line = graph(
        "a = Conv<pads=[1,1]>(x, k) b = Transpose<perm=[0,2,1]>(a) c = Sigmoid(b) y = Tanh(c)",
        inputs="float[1,4,6] x", outputs="float[1,6,4] y",
    )
    found = place(line, TARGET)
    assert len(ops_on_npu(found)) == 4
    float_ones = Override(layers=("conv", "sigmoid"), float=True)
    ranges = {v: (-2.0, 2.0) for v in line.values if line.const(v) is None}
    apart = quantize_graph(line, found.on_npu, ranges, Quantize(overrides=(float_ones,)), TARGET.numerics)
    joined = quantize_graph(line, found, ranges, Quantize(overrides=(float_ones,)), TARGET.numerics)
    assert sorted(type(n.op).__name__ for n in apart.graph.nodes if n.is_integer) == ["Tanh", "Transpose"]
    assert [type(n.op).__name__ for n in joined.graph.nodes if n.is_integer] == ["Tanh"]
    (note,) = [n for n in joined.notes if "data movement" in n.reason]
    assert note.on_host and note.node == next(
        n.name for n in line.nodes if type(n.op).__name__ == "Transpose"
    )


def test_islands_follow_refusals_too() -> None:
    """A layer whose sums do not fit the accumulator goes to the host, and with it the movement before it."""
    line = graph(
        "a = LSTM<hidden_size=4>(x, w, u) b = Squeeze(a, one) c = Transpose<perm=[1,2,0]>(b) y = "
        "Conv<pads=[1,1]>(c, k)",
        outputs="float[1,4,6] y",
    )
    narrow = replace(TARGET, numerics=replace(TARGET.numerics, acc_bits=17, bias_bits=17))
    found = place(line, narrow, PlacementTable(min_macs=0))
    assert "conv" in ops_on_npu(found)
    ranges = {v: (-2.0, 2.0) for v in line.values if line.const(v) is None}
    done = quantize_graph(line, found, ranges, Quantize(), narrow.numerics)
    assert not any(n.is_integer for n in done.graph.nodes)
    assert any("accumulator" in n.reason for n in done.notes) and any(
        "data movement" in n.reason for n in done.notes
    )


@pytest.mark.parametrize("seed", range(6))
def test_no_island_is_left_and_none_has_a_neighbour_that_changed(seed: int) -> None:
    """On random chains with parts refused by the target: what stays on the NPU is never movement alone beside
    the host, and asking again changes nothing."""
    rng = np.random.default_rng(seed)
    steps = [
        ("Relu", ""),
        ("Transpose", "<perm=[2,1,0]>"),
        ("Sigmoid", ""),
        ("Tanh", ""),
        ("Transpose", "<perm=[1,0,2]>"),
    ]
    names = ["x", *(f"v{i}" for i in range(12)), "y"]
    picked = [steps[int(i)] for i in rng.integers(0, len(steps), 13)]
    body = " ".join(f"{b} = {op}{a}({n})" for (op, a), n, b in zip(picked, names, names[1:], strict=False))
    chain = graph(body, inputs="float[5,5,5] x", outputs="float[A,B,C] y")
    target = replace(TARGET, limits=Limits(refuse=("sigmoid", "tanh")))
    found = place(chain, target, PlacementTable(min_macs=0))
    chosen = [i for i, p in enumerate(found.places) if p.on_npu]
    assert found.stranded(chain, chosen) == {}
    assert not alone(chain, found, chosen)


def alone(chain: Graph, found: NodePlacement, chosen: Collection[int]) -> list[list[int]]:
    """Runs of movers of a chain on the NPU with a host node at an end."""
    runs: list[list[int]] = []
    for i in range(len(chain.nodes)):
        if i in chosen:
            runs = (
                [*runs[:-1], [*runs[-1], i]] if runs and runs[-1] and runs[-1][-1] == i - 1 else [*runs, [i]]
            )
    return [
        r for r in runs if len(r) < len(chain.nodes) and all(found.places[i].op == "transpose" for i in r)
    ]
