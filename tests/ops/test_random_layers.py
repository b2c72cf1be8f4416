"""Layers with random attributes and shapes: onnxruntime, float reference, integers,
and tiles must all agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from npuflow.base.errors import TargetError
from npuflow.hw.target import Compute, Memory, Numerics, Target
from npuflow.ir.op import OPS, No, Op, OpSample
from npuflow.ir.types import TensorType
from npuflow.quantise.config import Activations, Quantize, Weights
from npuflow.testing.op import case, check_infer, check_integer, check_onnx, check_text, check_tiles
from tests.tiers import tiered

clips = st.sampled_from([None, (0.0, float("inf")), (0.0, 1.0), (-0.5, 0.75)])
schemes = st.builds(
    Quantize,
    weights=st.builds(
        Weights,
        bits=st.sampled_from([4, 7, 8]),
        per=st.sampled_from(["channel", "tensor"]),
        symmetric=st.booleans(),
        narrow=st.booleans(),
    ),
    activations=st.builds(
        Activations,
        bits=st.sampled_from([5, 8, 16]),
        symmetric=st.booleans(),
        signed=st.sampled_from([None, True]),
    ),
)
numerics = st.builds(
    Numerics,
    rounding=st.sampled_from(["half_up", "half_even", "half_away", "truncate"]),
    acc_bits=st.just(48),
    weight_zero_point=st.booleans(),
    multiplier_bits=st.sampled_from([8, 16, 32]),
    bias_shift_max=st.sampled_from([0, 4]),
)


def drawn(data: st.DataObject, *shape: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    return rng.normal(data.draw(st.sampled_from([0.0, 0.5, -2.0])), 1.0, shape).astype(np.float32)


def window(data: st.DataObject, rank: int, dilated: bool = True) -> dict[str, Any]:
    pick = lambda hi, lo=1: tuple(data.draw(st.integers(lo, hi)) for _ in range(rank))  # noqa: E731
    kernel = pick(4)
    dilations = pick(2) if dilated else (1,) * rank
    pads = tuple(data.draw(st.integers(0, kernel[i % rank] - 1)) for i in range(2 * rank))
    return {"kernel_shape": kernel, "strides": pick(3), "dilations": dilations, "pads": pads}


def conv(data: st.DataObject) -> OpSample:
    rank = data.draw(st.sampled_from([1, 2, 2]))
    group, per_group, out = (data.draw(st.integers(1, 4)) for _ in range(3))
    settings_ = window(data, rank)
    spatial = tuple(data.draw(st.integers(1, 9)) for _ in range(rank))
    x = drawn(data, data.draw(st.integers(1, 2)), group * per_group, *spatial)
    op = OPS["conv"](**settings_, group=group, clip=data.draw(clips))
    weight, bias = drawn(data, group * out, per_group, *settings_["kernel_shape"]), drawn(data, group * out)
    return OpSample(op, (x, weight, bias), (1, 2))


def convtranspose(data: st.DataObject) -> OpSample:
    rank = data.draw(st.sampled_from([1, 2, 2]))
    group, per_group, out = (data.draw(st.integers(1, 3)) for _ in range(3))
    settings_ = window(data, rank)
    extra = tuple(data.draw(st.integers(0, stride - 1)) for stride in settings_["strides"])
    spatial = tuple(data.draw(st.integers(1, 6)) for _ in range(rank))
    op = OPS["convtranspose"](**settings_, output_padding=extra, group=group, clip=data.draw(clips))
    x, weight = (
        drawn(data, 1, group * per_group, *spatial),
        drawn(data, group * per_group, out, *settings_["kernel_shape"]),
    )
    return OpSample(op, (x, weight, drawn(data, group * out)), (1, 2))


def pool(data: st.DataObject) -> OpSample:
    name = data.draw(st.sampled_from(["maxpool", "averagepool"]))
    rank = data.draw(st.sampled_from([1, 2, 2]))
    more: dict[str, Any] = {"ceil_mode": data.draw(st.integers(0, 1)), "clip": data.draw(clips)}
    if name == "averagepool":
        more["count_include_pad"] = data.draw(st.integers(0, 1))
    spatial = tuple(data.draw(st.integers(1, 9)) for _ in range(rank))
    op = OPS[name](**window(data, rank), **more)
    return OpSample(op, (drawn(data, data.draw(st.integers(1, 2)), data.draw(st.integers(1, 5)), *spatial),))


def matmul(data: st.DataObject) -> OpSample:
    m, k, n = (data.draw(st.integers(1, 9)) for _ in range(3))
    batch = tuple(data.draw(st.integers(1, 3)) for _ in range(data.draw(st.integers(0, 2))))
    thin = tuple(1 if data.draw(st.booleans()) else d for d in batch)[data.draw(st.integers(0, len(batch))) :]
    sides = [drawn(data, *batch, m, k), drawn(data, *thin, k, n)]
    return OpSample(
        OPS["matmul"](clip=data.draw(clips)), tuple(sides), data.draw(st.sampled_from([(), (1,), (0,)]))
    )


def gemm(data: st.DataObject) -> OpSample:
    m, k, n = (data.draw(st.integers(1, 9)) for _ in range(3))
    a, b = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 1))
    alpha, beta = data.draw(st.sampled_from([1.0, 0.5, 3.0])), data.draw(st.sampled_from([1.0, 0.25]))
    op = OPS["gemm"](alpha=alpha, beta=beta, transA=a, transB=b)
    c = drawn(data, *data.draw(st.sampled_from([(n,), (1, n), (1,), ()])))
    return OpSample(
        op, (drawn(data, *((k, m) if a else (m, k))), drawn(data, *((n, k) if b else (k, n))), c), (1, 2)
    )


def pair(data: st.DataObject) -> OpSample:
    name = data.draw(st.sampled_from(["add", "sub", "mul", "min", "max", "prelu"]))
    out = tuple(data.draw(st.integers(1, 5)) for _ in range(data.draw(st.integers(1, 4))))

    def thin() -> tuple[int, ...]:
        sizes = tuple(1 if data.draw(st.booleans()) else d for d in out)
        return sizes[data.draw(st.integers(0, len(out))) :]

    left = out if name == "prelu" or data.draw(st.booleans()) else thin()
    right = thin() if name == "prelu" else (out if left != out or data.draw(st.booleans()) else thin())
    sides = (drawn(data, *left), drawn(data, *right))
    return OpSample(OPS[name](clip=data.draw(clips)), sides, data.draw(st.sampled_from([(), (1,)])))


def reduction(data: st.DataObject) -> OpSample:
    shape = tuple(data.draw(st.integers(1, 6)) for _ in range(data.draw(st.integers(1, 4))))
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    name = data.draw(st.sampled_from(["reducemean", "reducesum", "reducemax"]))
    op: Op = OPS[name](axes=tuple(sorted(axes)), keepdims=data.draw(st.integers(0, 1)), clip=data.draw(clips))
    return OpSample(op, (drawn(data, *shape),))


MAKERS = {f.__name__: f for f in (conv, convtranspose, pool, matmul, gemm, pair, reduction)}


def judge(data: st.DataObject, kind: str) -> None:
    sample = MAKERS[kind](data)
    shapes = [None if a is None else TensorType(a.shape) for a in sample.inputs]
    (result,) = sample.op.infer(*shapes)
    assume(min(result.shape, default=1) > 0)
    check_infer(sample)
    check_onnx(sample, rtol=1e-3, atol=1e-4)
    scheme, arithmetic = data.draw(schemes), data.draw(numerics)
    wanted = scheme.weights
    if wanted.per == "channel" and data.draw(st.booleans()):
        group, levels = data.draw(st.integers(1, 4)), data.draw(st.sampled_from([0, 0, 2, 4]))
        scheme = replace(scheme, weights=replace(wanted, group=group, sub_scale_bits=levels))
        zeros = arithmetic.weight_zero_point
        arithmetic = replace(arithmetic, weight_groups=(group,), group_zero_points=zeros)
    if not arithmetic.weight_zero_point:  # else the recipe is refused, whatever the layer
        scheme = replace(scheme, weights=replace(scheme.weights, symmetric=True))
    target = Target(
        compute=Compute(array_rows=4, array_cols=4), numerics=arithmetic,
        memory=Memory(local_bytes=data.draw(st.sampled_from([512, 2048, 1 << 20])), local_align=16, burst=16),
    )
    one = case(sample)
    if isinstance(sample.op.accepts(one.graph.site(one.node), target), No):
        return
    try:
        check_integer(sample, arithmetic, scheme)
        check_text(sample, arithmetic, scheme)
        check_tiles(sample, target, scheme)
    except TargetError as error:
        # Refusals are answers too, but only these three have a reason here.
        known = "too few" in error.message or "multiplier" in error.message
        assert known or (error.code == "NF-QUANT-009" and beneath(sample, scheme, arithmetic)), error


def beneath(sample: OpSample, scheme: Quantize, arithmetic: Numerics) -> bool:
    """Whether the codes of the results lie so close together, beside those of the only input, that the factor
    between them is no multiplier: such a layer is refused where the target shifts to the right alone.

    The factor is at most that of a signed symmetric input and unsigned results, over the peaks of both. A
    calibration that sees next to nothing behind a clip makes it as large as one likes."""
    x, (y,) = sample.inputs[0], sample.op.clipped(*sample.inputs)
    if len(sample.inputs) > 1 or x is None or not y.any():
        return False
    bits = scheme.activations.bits
    largest = ((1 << bits) - 1) / ((1 << (bits - 1)) - 1) * float(np.abs(x).max() / np.abs(y).max())
    return arithmetic.shift_left_max == 0 and largest >= (1 << arithmetic.multiplier_bits) - 0.5


@pytest.mark.parametrize("name", ["averagepool", "reducesum"])
def test_results_far_below_the_input_need_wide_multipliers(name: str) -> None:
    """One element of sixteen passes the clip, by a thousandth: one code of the input is 1808 of the results.
    With 8 bits of multiplier that is refused, with 16 bits or a left shift it is exact."""
    x = np.full((1, 1, 1, 16), -1.808, np.float32)
    x[..., 0] = 0.001
    clip = (0.0, float("inf"))
    settings_: dict[str, Any] = {"axes": (1,)}
    if name == "averagepool":
        settings_ = {"kernel_shape": (1, 1), "strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0)}
    sample = OpSample(OPS[name](**settings_, clip=clip), (x,))
    scheme, narrow = Quantize(), Numerics(acc_bits=48, multiplier_bits=8)
    with pytest.raises(TargetError, match="left shift") as refused:
        check_integer(sample, narrow, scheme)
    assert refused.value.code == "NF-QUANT-009" and beneath(sample, scheme, narrow)
    for wider in (replace(narrow, multiplier_bits=16), replace(narrow, shift_left_max=8)):
        check_integer(sample, wider, scheme)
        assert not beneath(sample, scheme, wider)


@pytest.mark.parametrize("kind", MAKERS)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_random_layers_agree(kind: str, data: st.DataObject) -> None:
    judge(data, kind)


@pytest.mark.parametrize("examples", tiered((200, 1500), 1))
@pytest.mark.parametrize("kind", MAKERS)
def test_many_random_layers_agree(kind: str, examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(data=st.data())
    def agrees(data: st.DataObject) -> None:
        judge(data, kind)

    agrees()


def test_sums_of_groups_may_cancel() -> None:
    """Each is rounded by a multiplier of its own: the results, of one code of 255, are five codes off."""
    x, weight, bias = (
        np.random.default_rng(seed).normal(size=shape).astype(np.float32)
        for seed, shape in ((4, (1, 6)), (106, (6, 1)), (38232, (1,)))
    )
    sample = OpSample(OPS["gemm"](alpha=0.5, beta=0.25), (x, weight, bias), (1, 2))
    scheme = Quantize(weights=Weights(bits=4, group=2))
    assert check_integer(sample, Numerics(acc_bits=48, multiplier_bits=8, weight_groups=(2,)), scheme) == 5
