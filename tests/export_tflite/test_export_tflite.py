"""Written TFLite files in LiteRT's reference kernels beside the program; what has no form is refused."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

from npuflow.base.errors import ModelError, TargetError
from npuflow.export_tflite.container import options_of, written
from npuflow.export_tflite.export import LiteModel, to_tflite
from npuflow.export_tflite.judge import Judgement, judge, judge_layers
from npuflow.frontends.tflite.schema import Codes, Operator, TfliteNetwork, TfliteTensor, parsed
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.quantise.config import Activations, Override, Quantize, Weights
from npuflow.testing.op import quantised, samples
from npuflow.testing.quantised import quantize_graph
from npuflow.whole.export_c.network import network_of
from npuflow.whole.export_c.vectors import random_samples
from tests.networks.small import Builder
from tests.tiers import often

tflite = pytest.importorskip("tflite")
needs_litert = pytest.mark.skipif(
    __import__("importlib.util").util.find_spec("ai_edge_litert") is None, reason="ai-edge-litert"
)
INT8 = Quantize()
NUMERICS = Numerics(wide_acc_bits=48, weight_zero_point=True, weight_bits=(8, 16))
WIDE = Activations(bits=16, symmetric=True, signed=True)
FORMLESS = {"quantizelinear", "dequantizelinear", "host"}
# operators that have a form, some of whose samples may be refused
EIGHT = """
abs add argextreme averagepool clip concat conv convtranspose depthtospace exp expand gather gelu gemm
globalaveragepool globalmaxpool hardsigmoid hardswish leakyrelu log lookup matmul max maxpool min mul
pad prelu reducemax reducemean reducesum relu requantize reshape resize sigmoid silu slice
softmax spacetodepth split sub tanh topk transpose
"""
COARSE = ("averagepool", "sigmoid", "silu", "softmax", "tanh")
NARROW = {"argextreme", "exp", "log", "gelu", "hardswish", "prelu", "depthtospace", "spacetodepth"}


def compared(graph: Graph, numerics: Numerics = NUMERICS, count: int = 3) -> tuple[LiteModel, Judgement]:
    model = to_tflite(graph)
    return model, judge(model, random_samples(network_of(graph), numerics, count))


@needs_litert
@pytest.mark.parametrize("bits", often([8, 16], 2))
def test_every_operator_is_within_one_code(bits: int) -> None:
    """Some layers of 16 bits are up to 4 codes off: LiteRT interpolates tables, and averages round twice."""
    config = Quantize(activations=WIDE if bits == 16 else Activations())
    found = set()
    for name in sorted(set(OPS.names()) - FORMLESS):
        for one in samples(name):
            try:
                graph, _ = quantised(one, NUMERICS, config)
                _, made = compared(graph)
            except (TargetError, ModelError):
                continue
            assert made.worst <= (4 if bits == 16 and name in COARSE else 1), f"{one.op}: {made}"
            assert not made.others, f"{one.op}: {made}"
            found.add(name)
    assert found == {*EIGHT.split()} - (NARROW if bits == 16 else set())


def graph_of(b: Builder, output: str) -> tuple[Graph, dict[str, tuple[float, float]]]:
    values, consts = MappingProxyType(b.values), MappingProxyType(b.consts)
    inputs = tuple(n for n in b.values if n in ("x", "z"))
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    return Graph(inputs, (output,), tuple(b.nodes), values, consts), ranges


def network(b: Builder, output: str, config: Quantize = INT8) -> Graph:
    graph, ranges = graph_of(b, output)
    return quantize_graph(graph, lambda _: True, ranges, config, NUMERICS).graph


def classifier() -> tuple[Builder, str]:
    """Padding that is SAME and that is not, a depthwise layer, a residual, and an image flattened."""
    b = Builder()
    x = b.conv(b.input("x", (1, 3, 9, 9)), 4, 3)
    y = b.add(OPS["conv"]((3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 4), x, b.const((4, 1, 3, 3), 1.0))
    y = b.add(OPS["add"](clip=(0.0, float("inf"))), x, y)
    y = b.add(OPS["maxpool"]((3, 3), (2, 2), (1, 1), (1, 1, 1, 1)), y)
    _, c, h, w = b.arrays[y].shape
    y = b.add(OPS["reshape"]((1, c * h * w)), y)
    return b, b.add(OPS["gemm"](), y, b.const((c * h * w, 5), 1.0), b.const((5,), 1.0))


@needs_litert
def test_a_classifier_has_no_transpositions() -> None:
    """A flattened image stays in TFLite's order: the weights behind it are turned instead."""
    graph = network(*classifier())
    model, made = compared(graph)
    assert "TRANSPOSE" not in model.operators
    assert made.worst <= 2
    assert model.inputs[0].turned and model.inputs[0].tensor.shape == (1, 9, 9, 3)
    given = random_samples(network_of(graph), NUMERICS, 1)[0][0]
    layers = judge_layers(graph, NUMERICS, given)
    assert len(layers) == len(network_of(graph).nodes)
    assert max(j.worst for j in layers.values()) <= 1


@needs_litert
def test_channels_last_in_the_model_are_so_in_the_file() -> None:
    b = Builder()
    x = b.add(OPS["transpose"]((0, 3, 1, 2)), b.input("x", (1, 8, 8, 3)))
    y = b.add(OPS["transpose"]((0, 2, 3, 1)), b.conv(x, 4, 3))
    model, made = compared(network(b, y))
    assert set(model.operators) <= {"CONV_2D", "PAD"}
    assert made.worst <= 1
    assert model.inputs[0].tensor.shape == (1, 8, 8, 3)


@needs_litert
def test_layers_of_16_bits_between_layers_of_8() -> None:
    """Operands of 8 bits are widened exactly; what a layer of 16 bits gives in 8 is rounded once more."""
    b = Builder()
    x = b.conv(b.conv(b.conv(b.input("x", (1, 3, 8, 8)), 4, 3), 4, 3), 4, 1)
    name = b.nodes[1].name
    config = Quantize(
        activations=Activations(symmetric=True, signed=True), overrides=(Override((name,), bits=16),)
    )
    model, _ = compared(network(b, x, config))
    assert model.operators["QUANTIZE"] == 2
    assert {t.dtype for t in parsed(model.model).tensors} >= {"int8", "int16", "int64", "int32"}
    graph = network(b, x, config)
    layers = judge_layers(graph, NUMERICS, random_samples(network_of(graph), NUMERICS, 1)[0][0])
    assert max(j.worst for j in layers.values()) <= 1


def test_what_has_no_form_is_listed_with_its_reason() -> None:
    b = Builder()
    x = b.add(OPS["erf"](), b.conv(b.input("x", (1, 3, 6, 6)), 4, 3))
    with pytest.raises(ModelError, match=r"1 layer without a TFLite form: .*\(erf\): no operator") as caught:
        to_tflite(network(b, x))
    assert caught.value.code == "NF-PROGRAM-122"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (Quantize(activations=Activations(bits=16)), "16 bits and the zero point"),
        (Quantize(activations=Activations(bits=6)), "activations of 6 bits"),
        (Quantize(weights=Weights(symmetric=False, signed=False)), "weights with a zero point"),
        (Quantize(weights=Weights(bits=16), activations=WIDE), "weights of 16 bits"),
    ],
)
def test_codes_that_tflite_lacks_are_refused(config: Quantize, reason: str) -> None:
    b = Builder()
    graph = network(b, b.conv(b.input("x", (1, 3, 6, 6)), 4, 3), config)
    with pytest.raises(ModelError, match=reason) as caught:
        to_tflite(graph)
    assert "zero point" not in reason or "symmetric = true" in str(caught.value.hint)


def test_a_written_file_is_read_back() -> None:
    rng = np.random.default_rng(0)
    weight, bias = rng.integers(-127, 128, (2, 3, 3, 4)).astype(np.int8), np.arange(2, dtype=np.int32)
    scale = Codes((0.5, 0.25), (0, 0), 0)
    tensors = (
        TfliteTensor("x", (1, 8, 8, 4), "int8", None, Codes((0.125,), (-3,), None)),
        TfliteTensor("w", weight.shape, "int8", weight, scale),
        TfliteTensor("b", bias.shape, "int32", bias, scale),
        TfliteTensor("y", (1, 6, 6, 2), "int8", None, Codes((0.5,), (7,), None)),
    )
    conv = Operator("CONV_2D", (0, 1, 2), (3,), {"Padding": 1, "StrideH": 1, "StrideW": 1})
    read = parsed(written(TfliteNetwork(tensors, (conv,), (0,), (3,)), "net"))
    assert (read.inputs, read.outputs) == ((0,), (3,))
    for one, other in zip(tensors, read.tensors, strict=True):
        assert (one.name, one.shape, one.dtype, one.codes) == (
            other.name,
            other.shape,
            other.dtype,
            other.codes,
        )
        assert (one.data is None) == (other.data is None)
        assert one.data is None or np.array_equal(one.data, other.data)
    assert read.operators[0].options.items() >= conv.options.items()


def test_every_table_of_options_exists() -> None:
    from npuflow.export_tflite.container import OPTIONS, PLAIN, VERSIONS

    for name in {*VERSIONS, *OPTIONS, *PLAIN}:
        assert hasattr(tflite.BuiltinOperator, name)
        assert not options_of(name) or hasattr(tflite.BuiltinOptions, options_of(name)), name
