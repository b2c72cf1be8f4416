"""Weights with a scale for every group of input channels, and maybe a zero point: exact from the reference to
the program, closer than one scale per channel, and refused where the target has none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnxruntime as ort
import pytest

from npuflow.base.errors import ModelError, RecipeError
from npuflow.hw.target import Compute, Memory, Numerics, Target
from npuflow.ir.codes import encode
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, OpSample
from npuflow.quantise.config import Activations, Override, Quantize, Weights
from npuflow.quantise.types import weight_type, widened
from npuflow.quantise.wishes import check_scheme
from npuflow.run.interpret import interpret
from npuflow.run.qdq import to_qdq
from npuflow.testing.op import check_integer, check_text, check_tiles, quantised
from npuflow.tune.bias import shifted
from npuflow.whole.execute.executor import Executor
from npuflow.whole.export_c.network import network_of
from npuflow.whole.export_c.program import program_of
from tests.tiers import spread

GROUP = 4
SYMMETRIC = Numerics(weight_bits=(4, 8), activation_bits=(8, 16), weight_groups=(GROUP,), wide_acc_bits=48)
OF_CHANNELS = replace(SYMMETRIC, weight_zero_point=True)
NUMERICS = replace(OF_CHANNELS, group_zero_points=True)
TARGET = Target(
    numerics=NUMERICS,
    memory=Memory(local_bytes=2048, local_align=16),
    compute=Compute(array_rows=8, array_cols=8),
)
RNG = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


SAMPLES = {
    "gemm": OpSample(OPS["gemm"](transB=1), (drawn(5, 23), drawn(7, 23), drawn(7)), (1, 2)),
    "gemm, both turned, scaled": OpSample(
        OPS["gemm"](alpha=0.5, beta=2.0, transA=1), (drawn(16, 5), drawn(16, 7), drawn(7)), (1, 2)
    ),
    "matmul": OpSample(OPS["matmul"](clip=(0.0, 3.0)), (drawn(2, 5, 20), drawn(20, 6)), (1,)),
    "conv": OpSample(
        OPS["conv"]((3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
        (drawn(1, 10, 6, 5), drawn(6, 10, 3, 3), drawn(6)),
        (1, 2),
    ),
    "conv of one dimension": OpSample(
        OPS["conv"]((1,), (2,), (1,), (0, 0)), (drawn(2, 10, 9), drawn(6, 10, 1), drawn(6)), (1, 2)
    ),
}
SCHEMES = {
    f"{name}, {bits} bits": Quantize(
        weights=Weights(**{"bits": 4, **more}, group=GROUP, sub_scale_bits=sub),
        activations=Activations(bits=bits),
    )
    for name, sub, more in (
        ("a multiplier a group", 0, {}),
        ("two levels", 4, {}),
        ("a zero point a group", 0, {"symmetric": False}),
        ("unsigned with a zero point a group", 0, {"symmetric": False, "signed": False, "bits": 8}),
        ("two levels and zero points", 4, {"symmetric": False}),
    )
    for bits in (8, 16)
}


def scaled(graph: Graph) -> bool:
    return any("scales" in dict(node.params) for node in graph.nodes if node.params)


@pytest.mark.parametrize(("kind", "scheme"), spread([*SAMPLES], [*SCHEMES], 4))
def test_program_and_executor_make_the_integers_of_the_reference(kind: str, scheme: str) -> None:
    sample, config = SAMPLES[kind], SCHEMES[scheme]
    graph, one = quantised(sample, NUMERICS, config)
    assert scaled(graph)
    check_integer(sample, NUMERICS, config)
    check_text(sample, NUMERICS, config)
    check_tiles(sample, TARGET, config)
    want = interpret(graph, one.inputs, NUMERICS, keep=lambda _: True)
    (found,) = Executor(graph, NUMERICS).run_many([one.inputs], keep=lambda _: True)
    for node in graph.nodes:
        if node.is_integer:
            np.testing.assert_array_equal(found[node.outputs[0]], want[node.outputs[0]])


@pytest.mark.parametrize("scheme", ["a multiplier a group, 8 bits", "a zero point a group, 8 bits"])
@pytest.mark.parametrize("kind", SAMPLES)
def test_exported_as_blocks(kind: str, scheme: str) -> None:
    """DequantizeLinear with a block size gives the weights back; the outputs agree to a code."""
    graph, one = quantised(SAMPLES[kind], NUMERICS, SCHEMES[scheme])
    exported = to_qdq(graph)
    session = ort.InferenceSession(exported.model, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {k: v for k, v in one.inputs.items() if k in graph.inputs})
    (want,) = interpret(graph, one.inputs, NUMERICS).values()
    step = max(
        v.quant.scale[0] for v in graph.values.values() if v.quant is not None and v.quant.axis is None
    )
    assert np.abs(found - want).max() <= 1.01 * step


def test_groups_are_closer_than_channels() -> None:
    weight = drawn(8, 64) * np.exp(RNG.uniform(-2, 2, (8, 64 // GROUP, 1))).repeat(GROUP, 1).reshape(8, 64)
    errors = []
    for scheme in (
        Weights(bits=4),
        Weights(bits=4, group=GROUP, sub_scale_bits=6),
        Weights(bits=4, group=GROUP),
    ):
        quant = weight_type(weight, 0, scheme, NUMERICS, 1)
        scale, zero = quant.spread(weight.shape)
        errors.append(np.square((encode(weight, quant) - zero) * scale - weight).mean())
    assert errors[2] < errors[1] < 0.5 * errors[0]


def test_zero_points_spend_codes_on_the_numbers_that_a_group_has() -> None:
    """Groups of one sign, as those of a weight around a mean that moves from group to group."""
    weight = RNG.uniform(0, 1, (8, 64)) * RNG.choice((-1, 1), (8, 64 // GROUP)).repeat(GROUP, 1)
    errors = []
    for scheme in (Weights(bits=4, group=GROUP), Weights(bits=4, group=GROUP, symmetric=False)):
        quant = weight_type(weight, 0, scheme, NUMERICS, 1)
        scale, zero = quant.spread(weight.shape)
        errors.append(np.square((encode(weight, quant) - zero) * scale - weight).mean())
    assert len(set(quant.zero_point)) > 1 and len(quant.zero_point) == len(quant.scale)
    assert errors[1] < 0.35 * errors[0]                 # half the step: a quarter, and clipped ends


@pytest.mark.parametrize("factor", [1.0, 1e3])
def test_raised_scales_move_their_zero_points(factor: float) -> None:
    weight = RNG.uniform(-0.2, 1, (4, 8))
    quant = weight_type(weight, 0, Weights(bits=4, group=GROUP, symmetric=False), NUMERICS, 1)
    raised = widened(quant, factor * np.array(quant.scale), False)
    scale, zero = raised.spread(weight.shape)
    off = np.abs((encode(weight, raised) - zero) * scale - weight)
    assert (off <= scale).all()


def test_a_target_without_zero_points_says_so() -> None:
    config = Quantize(Weights(group=GROUP, symmetric=False))
    with pytest.raises(RecipeError, match="weights with zero points; the target has none") as caught:
        check_scheme(config, SYMMETRIC)
    assert [one.where.key for one in caught.value.faults()] == ["quantize.weights.symmetric"]


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (Quantize(Weights(group=GROUP, symmetric=False)), "weights.symmetric"),
        (
            Quantize(Weights(symmetric=False), overrides=(Override(("fc",), weight_group=GROUP),)),
            "overrides[0].weight_group",
        ),
        (
            Quantize(Weights(group=GROUP), overrides=(Override(("fc",), weight_symmetric=False),)),
            "overrides[0].weight_symmetric",
        ),
    ],
)
def test_a_target_with_zero_points_of_channels_alone_says_so(config: Quantize, key: str) -> None:
    with pytest.raises(RecipeError, match="the target has zero points of channels alone") as caught:
        check_scheme(config, OF_CHANNELS)
    assert [one.where.key for one in caught.value.faults()] == [f"quantize.{key}"]


def test_an_exception_may_leave_out_either() -> None:
    neither = Override(("fc",), weight_group=0, weight_symmetric=False)
    check_scheme(Quantize(Weights(group=GROUP), overrides=(neither,)), OF_CHANNELS)
    without = Override(("fc",), weight_group=0), Override(("conv",), weight_symmetric=True)
    check_scheme(Quantize(Weights(symmetric=False), overrides=without), OF_CHANNELS)


def test_a_target_states_zero_points_of_groups_with_what_they_need() -> None:
    for lacking in (Numerics(group_zero_points=True), replace(SYMMETRIC, group_zero_points=True)):
        (fault,) = lacking.check()
        assert fault.field == "group_zero_points"
    assert not list(NUMERICS.check())


def test_two_level_scales_are_integers_of_a_channel() -> None:
    quant = weight_type(drawn(6, 30), 0, Weights(bits=4, group=GROUP, sub_scale_bits=4), NUMERICS, 1)
    rows = np.reshape(quant.scale, (6, -1))
    steps = rows / quant.channel_scale(6)[:, None]
    assert rows.shape == (6, 8) and quant.sub_bits == 4
    assert (steps == np.rint(steps)).all() and steps.min() >= 1 and (steps.max(1) == 15).all()


def test_sums_beyond_64_bits_get_smaller_multipliers() -> None:
    sample = OpSample(OPS["gemm"](transB=1), (drawn(2, 64) * 300, drawn(3, 64)), (1,))
    numerics = replace(NUMERICS, multiplier_bits=32, wide_acc_bits=62, weight_bits=(4, 8, 16))
    config = Quantize(weights=Weights(bits=16, group=GROUP), activations=Activations(bits=16))
    graph, _ = quantised(sample, numerics, config)
    (scales,) = (
        graph.site(n).array("scales")
        for n in graph.nodes
        if n.params and scaled(graph) and n.op.onnx == "Gemm"
    )
    assert (1 << 16) < int(scales.max()) < (1 << 31)
    check_integer(sample, numerics, config)


@pytest.mark.parametrize(
    ("config", "key", "message"),
    [
        (Quantize(Weights(group=64)), "quantize.weights.group", "the target has groups of 4"),
        (
            Quantize(overrides=(Override(("conv",), weight_group=32),)),
            "quantize.overrides[0].weight_group",
            "the target has groups of 4",
        ),
        (Quantize(Weights(group=4, per="tensor")), "quantize.weights.group", "scales of channels"),
        (Quantize(Weights(sub_scale_bits=4)), "quantize.weights.sub_scale_bits", "without groups"),
    ],
)
def test_what_the_target_lacks_is_one_error(config: Quantize, key: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        check_scheme(config, NUMERICS)
    assert [one.where.key for one in caught.value.faults()] == [key]


def test_a_target_without_groups_says_so() -> None:
    with pytest.raises(RecipeError, match="the target has one scale per channel"):
        check_scheme(Quantize(Weights(group=64)), Numerics())


def test_an_exception_takes_a_layer_out() -> None:
    rule = Override(("gemm",), weight_group=0)
    scheme = SCHEMES["a multiplier a group, 8 bits"]
    graph, _ = quantised(SAMPLES["gemm"], NUMERICS, replace(scheme, overrides=(rule,)))
    assert not scaled(graph)


def test_export_to_c_names_the_layer_and_what_to_try() -> None:
    graph, _ = quantised(SAMPLES["gemm"], NUMERICS, SCHEMES["a multiplier a group, 8 bits"])
    with pytest.raises(ModelError, match="SCALEDMATMUL has no C kernel") as caught:
        program_of(network_of(graph), NUMERICS, "net")
    assert "weight_group = 0" in caught.value.hint


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_corrected_bias_moves_the_outputs(scheme: str) -> None:
    graph, one = quantised(SAMPLES["gemm"], NUMERICS, SCHEMES[scheme])
    (at,) = (i for i, node in enumerate(graph.nodes) if node.op.onnx == "Gemm")
    delta = np.linspace(-0.2, 0.2, 7)
    moved = shifted(graph, at, delta, NUMERICS)
    (was,), (now,) = (interpret(g, one.inputs, NUMERICS).values() for g in (graph, moved))
    quant = graph.values[graph.nodes[at].outputs[0]].quant
    assert quant is not None
    # all but those that the clamp cuts
    assert np.median(np.abs(now - was - delta)) <= 1.01 * quant.scale[0]


def test_blocks_of_another_quantiser_get_their_codes_back() -> None:
    """Where a block uses its first and its last code: what a model with blocks and zero points is read as."""
    codes = RNG.integers(0, 16, (6, 8 * GROUP))
    codes[:, ::GROUP], codes[:, 1::GROUP] = 0, 15
    scale = RNG.uniform(0.01, 0.1, (6, 8)).astype(np.float32).repeat(GROUP, 1)
    zero = RNG.integers(0, 16, (6, 8)).repeat(GROUP, 1)
    real = ((codes - zero) * scale).astype(np.float32)
    quant = weight_type(real, 0, Weights(bits=4, group=GROUP, symmetric=False, signed=False), NUMERICS, 1)
    np.testing.assert_array_equal(encode(real, quant), codes)
    np.testing.assert_array_equal(np.reshape(quant.zero_point, (6, 8)), zero[:, ::GROUP])
