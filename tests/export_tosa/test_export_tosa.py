"""TOSA files beside the program: operators and networks bit for bit, and what is refused."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from npuflow.base.errors import ModelError, TargetError
from npuflow.export_tosa.builder import TosaModel, to_tosa
from npuflow.export_tosa.file import written
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.place.partition import is_npu
from npuflow.place.place import place
from npuflow.quantise.config import Activations, Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.testing.op import quantised, samples
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.rule import graph_of
from npuflow.whole.export_c.network import network_of
from npuflow.whole.export_c.vectors import random_samples
from tests.export_tosa.forms import forms_of
from tests.export_tosa.tosa_model import TOOL, by_reference_model, by_rules
from tests.networks.onnx_text import TARGET, model, normal
from tests.networks.random_networks import network
from tests.networks.subjects import subject

pytest.importorskip("flatbuffers")
NUMERICS = Numerics(wide_acc_bits=48, weight_zero_point=True, rounding="half_up", multiplier_bits=31)
FORMLESS = {"quantizelinear", "dequantizelinear", "host"}
JUDGES = [by_rules, *([by_reference_model] if TOOL else [])]


def differing(graph: Graph, numerics: Numerics, count: int = 2) -> tuple[TosaModel, int]:
    """The model, and how many output codes of any judge are not the program's."""
    core, made, wrong = network_of(graph), to_tosa(graph, numerics), 0
    shapes = [tuple(value.type.shape) for _, value in core.outputs]
    for given, wanted in random_samples(core, numerics, count):
        feeds = {end.value.name: end.given(given[end.name]) for end in made.inputs}
        for judge in JUDGES:
            found = judge(made.network, feeds)
            for end, array, shape in zip(made.outputs, found, shapes, strict=True):
                wrong += int((end.taken(array, shape) != wanted[end.name]).sum())
    return made, wrong

# operators of which no sample has an exact form, with the reason
WITHOUT = {
    "absolutedifference": "a distance of two scales",
    "quotient": "a quotient of 16 bits",
    "topk": "the 2 largest elements in order",
}
PARTLY = {"maxpool": "a pool with dilation"}


@pytest.mark.parametrize("name", sorted(set(OPS.names()) - FORMLESS))
def test_every_operator_is_exact_or_refused_for_a_known_reason(name: str) -> None:
    reasons, exact = set(), 0
    for one in samples(name):
        try:
            graph, _ = quantised(one, NUMERICS, Quantize())
            _, wrong = differing(graph, NUMERICS)
        except TargetError:
            continue
        except ModelError as error:
            if error.code == "NF-PROGRAM-141":
                reasons.add(error.message.rsplit("): ", 1)[1])
            continue
        assert not wrong, one.op
        exact += 1
    assert reasons <= {WITHOUT.get(name, PARTLY.get(name, ""))}
    assert not (exact and name in WITHOUT)


def test_the_judge_sees_a_wrong_shift() -> None:
    made = to_tosa(of_text("float[1,4] x => float[1,4] y", "y = Mul(x, x)", {}), NUMERICS)
    (end,) = made.inputs
    feed = {end.value.name: np.array([[-128, -1, 5, 127]], np.int8)}
    last = next(one for one in reversed(made.network.operators) if one.name == "RESCALE")
    tensors = tuple(
        replace(t, data=t.data - 1) if t.name == last.inputs[2] and t.data is not None else t
        for t in made.network.tensors
    )
    found, other = by_rules(made.network, feed)[0], by_rules(replace(made.network, tensors=tensors), feed)[0]
    assert not np.array_equal(found, other)


Weights = dict[str, np.ndarray]


def of_text(signature: str, body: str, weights: Weights, numerics: Numerics = NUMERICS) -> Graph:
    one = subject("net", rewrite(graph_of(model(signature, body, weights))).graph)
    on_npu = place(one.graph, replace(TARGET, numerics=numerics)).on_npu
    return quantize_graph(one.graph, on_npu, one.ranges, Quantize(), numerics).graph


NETWORKS = {
    "image": (
        "float[1,3,16,16] x => float[1,5] y",
        (
            "a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w) b = Clip(a, z, s)"
            " c = Conv<group=8, pads=[1,1,1,1]>(b, d) e = HardSwish(c) f = Add(e, b)"
            " g = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(f)"
            " h = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(g) i = GlobalAveragePool(h) j = Flatten(i)"
            " k = MatMul(j, m) y = Softmax(k)"
        ),
        {
            "w": normal(0, 8, 3, 3, 3), "d": normal(1, 8, 1, 3, 3), "m": normal(2, 8, 5),
            "z": np.float32(0), "s": np.float32(6),
        },
    ),
    "attention": (
        "float[1,2,6,8] x => float[1,2,6,8] y",
        (
            "t = Transpose<perm=[0,1,3,2]>(x) p = MatMul(x, t) s = Softmax(p) a = MatMul(s, x)"
            " y = LayerNormalization(a, g)"
        ),
        {"g": np.ones(8, np.float32)},
    ),
    "decoder": (
        "float[1,4,5,6] x => float[1,3,10,12] y, int64[1,1,10,12] place",
        (
            "a = ConvTranspose<strides=[2,2], kernel_shape=[3,3], pads=[1,1,1,1], output_padding=[1,1]>(x, w)"
            " b = Resize<mode=\"linear\", coordinate_transformation_mode=\"half_pixel\">(x, , s)"
            " c = Concat<axis=1>(a, b) d = Conv(c, v) y = Sigmoid(d) place = ArgMax<axis=1>(d)"
        ),
        {"w": normal(3, 4, 2, 3, 3), "v": normal(4, 3, 6, 1, 1), "s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "words": (
        "int64[1,4] i => float[1,4,6] y",
        "e = Gather(t, i) y = MatMul(e, w)",
        {"t": normal(5, 10, 8), "w": normal(6, 8, 6)},
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_the_programs_bit_for_bit(name: str) -> None:
    graph = of_text(*NETWORKS[name])
    made, wrong = differing(graph, NUMERICS)
    assert not wrong and sum(made.operators.values()) > 3
    assert written(made.network)[4:8] == b"TOSA"
    assert not forms_of(graph, NUMERICS, [node for node in graph.nodes if is_npu(node)])


@pytest.mark.parametrize("seed", [0, 4, 11, 26])
def test_a_random_network_is_the_programs_bit_for_bit(seed: int) -> None:
    graph, _ = network(random.Random(seed), NUMERICS)
    assert not differing(graph, NUMERICS)[1]


def test_ties_that_go_away_from_zero_are_exact_too() -> None:
    away = replace(NUMERICS, rounding="half_away")
    graph = of_text(
        "float[1,3,6,6] x => float[1,4,6,6] y", "a = Conv<pads=[1,1,1,1]>(x, w) y = Mul(a, a)",
        {"w": normal(7, 4, 3, 3, 3)}, away,
    )
    assert not differing(graph, away, 4)[1]


@pytest.mark.parametrize(
    ("numerics", "config", "reason"),
    [
        (replace(NUMERICS, rounding="half_even"), Quantize(), "rounding half_even: RESCALE rounds half up"),
        (NUMERICS, Quantize(activations=Activations(bits=16)), "a convolution of uint16"),
    ],
)
def test_what_has_no_exact_form_is_one_error_with_the_reason(
    numerics: Numerics, config: Quantize, reason: str
) -> None:
    ends, body = "float[1,3,6,6] x => float[1,4,6,6] y", "y = Conv<pads=[1,1,1,1]>(x, w)"
    one = subject("net", rewrite(graph_of(model(ends, body, {"w": normal(8, 4, 3, 3, 3)}))).graph)
    graph = quantize_graph(one.graph, lambda _: True, one.ranges, config, numerics).graph
    with pytest.raises(ModelError) as raised:
        to_tosa(graph, numerics)
    assert raised.value.code == "NF-PROGRAM-141" and reason in raised.value.message
    assert "export c" in str(raised.value.hint) and raised.value.because
