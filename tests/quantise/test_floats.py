"""Layers in floats: whole networks, exceptions with casts around them, and wishes that a target cannot
meet."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from npuflow.base.errors import RecipeError
from npuflow.hw.target import Compute, FloatRate, Numerics, Target
from npuflow.ir.forms import float_table
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.ir.types import FloatType
from npuflow.quantise.config import Activations, Override, Quantize, Weights
from npuflow.quantise.wishes import scheme_faults
from npuflow.run.interpret import interpret
from npuflow.testing.quantised import local_memory, quantize_graph
from tests.networks import random_tilings
from tests.networks.harness import SMALL, check_exact, local, machine
from tests.networks.small import Builder
from tests.tiers import often

RATES = (FloatRate("bfloat16"), FloatRate("float16"))
NUMERICS = Numerics(float_types=("bfloat16", "float16"), float_chunk=8)
TARGET = replace(SMALL, numerics=NUMERICS, compute=replace(SMALL.compute, float_rates=RATES))


def network() -> tuple[Graph, dict[str, np.ndarray], dict[str, tuple[float, float]]]:
    """Channels beyond a chunk, a depthwise layer, a sum, a pool, a Gemm with factors, Softmax."""
    b = Builder()
    x = b.conv(b.input("x", (1, 3, 9, 7)), 19, 3)
    x = b.conv(x, 19, 3, depthwise=True)
    x = b.add(OPS["add"](), b.conv(x, 11, 3), b.conv(x, 11, 1))
    x = b.add(OPS["relu"](), x)
    x = b.add(OPS["maxpool"]((2, 2), (2, 2), (1, 1), (0, 0, 0, 0)), x)
    x = b.add(OPS["globalaveragepool"](), x)
    x = b.add(OPS["reshape"]((1, 11)), x)
    x = b.add(OPS["gemm"](alpha=0.5, beta=2.0, transB=1), x, b.const((5, 11), 0.3), b.const((5,), 0.1))
    y = b.add(OPS["softmax"](), x)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    return Graph(("x",), (y,), tuple(b.nodes), b.values, b.consts), b.arrays, ranges


@pytest.mark.parametrize(("mode", "decibels"), [("bf16", 35), ("fp16", 55)])
def test_a_whole_network_needs_no_ranges_and_has_the_same_bits_in_every_tiling(mode, decibels) -> None:
    graph, arrays, _ = network()
    done = quantize_graph(graph, lambda _: True, {}, Quantize(mode=mode), NUMERICS)
    assert not done.notes
    want = arrays[graph.outputs[0]]
    found = interpret(done.graph, {"x": arrays["x"]}, NUMERICS)[done.graph.outputs[0]]
    assert 10 * np.log10((want**2).sum() / ((found - want) ** 2).sum()) > decibels
    programs = [check_exact(done.graph, {"x": arrays["x"]}, local(TARGET, size)) for size in (3072, 1 << 16)]
    counts = [sum(c.opcode == "FCONV" for c in p.decoded[0]) for p in programs]
    assert counts[0] > counts[1], "the small memory cuts layers into tiles"
    assert any(c.fields.get("accumulate") for c in programs[0].decoded[0]), "sums are cut between chunks too"


@pytest.mark.parametrize("seed", often(range(4), 2))
def test_random_tilings_give_the_same_bits(seed: int) -> None:
    graph, arrays, ranges = network()
    config = Quantize(
        mode=("bf16", "fp16")[seed % 2], overrides=(Override(("add",), type="int"),)[: seed // 2]
    )
    done = quantize_graph(graph, lambda _: True, ranges, config, NUMERICS).graph
    plan = random_tilings.plan(done, machine(TARGET), NUMERICS, random.Random(seed), tries=50)
    check_exact(done, {"x": arrays["x"]}, TARGET, plan)


def test_copies_within_local_memory_move_patterns() -> None:
    b = Builder()
    x = b.conv(b.input("x", (1, 3, 9, 7)), 6, 3)
    x = b.add(OPS["concat"](1), b.conv(x, 4, 1), b.conv(x, 5, 1))
    x = b.add(OPS["transpose"]((0, 1, 3, 2)), b.add(OPS["relu"](), x))
    x = b.conv(b.add(OPS["slice"]((1, 0), (8, 6), (1, 2), (1, 1)), x), 3, 1)
    graph = Graph(("x",), (x,), tuple(b.nodes), b.values, b.consts)
    done = quantize_graph(graph, lambda _: True, {}, Quantize(mode="bf16"), NUMERICS).graph
    program = check_exact(done, {"x": b.arrays["x"]}, local(TARGET, 1 << 16))
    assert "COPY" in {c.opcode for c in program.decoded[0]}


def test_layers_of_other_types_are_cast_to_and_from() -> None:
    graph, arrays, ranges = network()
    convs = [n.name for n in graph.nodes if n.op.onnx == "Conv"]
    for config in (
        Quantize(
            overrides=(Override((convs[0], "softmax"), type="bf16"), Override((convs[2],), type="fp16"))
        ),
        Quantize(mode="bf16", overrides=(Override(("conv",), type="int"),)),
    ):
        done = quantize_graph(graph, lambda _: True, ranges, config, NUMERICS).graph
        casts = [n for n in done.nodes if n.op.onnx == "Identity"]
        assert len(casts) >= 2
        types = {type(v.quant).__name__ for v in done.values.values() if v.quant is not None}
        assert types == {"QuantType", "FloatType"}
        program = check_exact(done, {"x": arrays["x"]}, TARGET)
        assert {"FCAST", "CONV", "FROUND"} <= {c.opcode for c in program.decoded[0]}


def test_tensors_of_five_and_six_dimensions_are_cast() -> None:
    b = Builder()
    x = b.add(OPS["relu"](), b.input("x", (2, 8, 3, 4)))
    x = b.add(OPS["transpose"]((0, 2, 1, 3, 4)), b.add(OPS["reshape"]((2, 4, 2, 3, 4)), x))
    x = b.add(OPS["concat"](2), x, x)
    x = b.add(OPS["transpose"]((1, 0, 2, 5, 3, 4)), b.add(OPS["reshape"]((2, 2, 2, 4, 3, 4)), x))
    y = b.add(OPS["neg"](), b.add(OPS["reshape"]((2, 16, 3, 4)), x))
    graph = Graph(("x",), (y,), tuple(b.nodes), b.values, b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    config = Quantize(overrides=(Override(("concat", "transpose"), type="bf16"),))
    done = quantize_graph(graph, lambda _: True, ranges, config, NUMERICS).graph
    ranks = {len(v.type.shape) for n in done.nodes if n.op.onnx == "Identity" for v in done.site(n).outputs}
    assert ranks >= {5, 6}, ranks
    program = check_exact(done, {"x": b.arrays["x"]}, local(TARGET, 1 << 16))
    assert any(c.opcode == "FCAST" for c in program.decoded[0])


def test_gemm_factors_are_in_the_constants_once() -> None:
    graph, _, _ = network()
    done = quantize_graph(graph, lambda _: True, {}, Quantize(mode="bf16"), NUMERICS).graph
    (gemm,) = [n for n in done.nodes if n.op.onnx == "Gemm"]
    assert (gemm.op.gain(), gemm.op.bias_factor()) == (1.0, 1.0)


def test_operators_without_a_float_form_stay_on_the_host_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OPS["resize"], "forms", lambda self: {})
    b = Builder()
    x = b.input("x", (1, 2, 4, 4))
    sizes = ((1, 2, 8, 8), (1.0, 1.0, 2.0, 2.0), "linear", "half_pixel")
    graph = Graph(("x",), (b.add(OPS["resize"](*sizes), x),), tuple(b.nodes), b.values, b.consts)
    done = quantize_graph(graph, lambda _: True, {}, Quantize(mode="fp16"), NUMERICS)
    assert [n.reason for n in done.notes] == ["resize has no form in float16"]
    assert not any(isinstance(v.quant, FloatType) for v in done.graph.values.values())


@pytest.mark.parametrize("name", ["relu", "clip", "neg", "sqrt", "pow"])
def test_functions_without_a_table_need_no_room_for_one(name: str) -> None:
    b = Builder()
    x = b.conv(b.input("x", (1, 2, 4, 4)), 3, 1)
    op = OPS[name](0.0, 6.0) if name == "clip" else OPS[name]()
    graph = Graph(("x",), (b.add(op, x),), tuple(b.nodes), b.values, b.consts)
    little, config = local_memory(1 << 12), Quantize(mode="bf16")
    done = quantize_graph(graph, lambda _: True, {}, config, NUMERICS, prices=little)
    assert not done.notes and not any(float_table(node.op, "bfloat16") for node in done.graph.nodes)


def test_functions_whose_table_does_not_fit_local_memory_run_on_the_host() -> None:
    b = Builder()
    x = b.conv(b.input("x", (1, 2, 4, 4)), 3, 1)
    graph = Graph(("x",), (b.add(OPS["sigmoid"](), x),), tuple(b.nodes), b.values, b.consts)
    config, why = Quantize(mode="bf16"), (
        "its table of 6,162 bytes for all numbers of bfloat16 does not fit 4,096 bytes of local memory"
    )
    for room, reasons in ((1 << 12, [why]), (1 << 14, [])):
        done = quantize_graph(graph, lambda _: True, {}, config, NUMERICS, prices=local_memory(room))
        assert [note.reason for note in done.notes] == reasons
        assert ("Sigmoid" in {n.op.onnx for n in done.graph.nodes if n.is_integer}) == (not reasons)


def test_a_type_that_the_target_lacks_names_targets_that_have_it() -> None:
    known = {"own": Target(), "one": Target(numerics=NUMERICS, compute=Compute(float_rates=RATES))}
    (fault,) = scheme_faults(Quantize(mode="bf16"), Numerics(), lambda: known)
    assert fault.message == "the target does not compute in bf16; it has integers alone"
    assert fault.hint == "targets with bf16: one" and fault.where.key == "quantize.mode"
    (fault,) = scheme_faults(Quantize(overrides=(Override(("a",), type="fp16"),)), Numerics())
    assert fault.where.key == "quantize.overrides[0].type"
    with pytest.raises(RecipeError, match="does not compute in bf16"):
        quantize_graph(network()[0], lambda _: True, {}, Quantize(mode="bf16"), Numerics())


def test_a_target_of_floats_alone_refuses_integers_with_one_error() -> None:
    alone = replace(NUMERICS, weight_bits=(), activation_bits=(), float_types=("float16",))
    assert not list(alone.check()) and list(replace(alone, float_types=()).check())
    (fault,) = scheme_faults(Quantize(), alone)
    assert fault.message == "the target does not compute in integers; it has float16"
    assert fault.hint == 'mode = "fp16"' and fault.where.key == "quantize.mode"
    assert not list(scheme_faults(Quantize(mode="fp16"), alone))


@pytest.mark.parametrize(
    ("table", "config"),
    [
        ("weights", Quantize(weights=Weights(bits=4), mode="bf16")),
        ("activations", Quantize(activations=Activations(bits=16), mode="fp16")),
    ],
)
def test_widths_of_integers_beside_a_mode_without_any_are_refused(table: str, config: Quantize) -> None:
    (fault,) = scheme_faults(config, NUMERICS)
    assert fault.where.key == f"quantize.{table}" and "leaves no integers" in fault.message
    mixed = replace(config, overrides=(Override(("conv",), type="int"),))
    assert not list(scheme_faults(mixed, replace(NUMERICS, weight_bits=(4, 8))))
