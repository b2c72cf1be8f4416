"""Kernels with channels innermost: every tile, edge, rounding and type, beside the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.hw.target import Numerics
from npuflow.ir.graph import constant
from npuflow.ir.op import OPS
from npuflow.quantise.config import Activations, Quantize, Weights
from npuflow.run.interpret import Interpreter
from npuflow.testing.quantised import quantize_graph
from npuflow.whole.execute import dense
from npuflow.whole.execute.dot import available
from npuflow.whole.execute.executor import Executor
from tests.execute.nets import Net

WHOLE = Numerics(weight_zero_point=True, weight_bits=(2, 4, 8), activation_bits=(4, 8, 16), wide_acc_bits=48)
# channels, height and width, output channels, kernel, stride, pad, groups, dilation
SHAPES = (
    (16, 9, 96, 1, 1, 0, 1, 1),
    (8, 5, 40, 1, 1, 0, 1, 1),
    (24, 4, 24, 1, 2, 0, 1, 1),
    (3, 11, 17, 3, 2, 1, 1, 1),
    (4, 1, 130, 1, 1, 0, 1, 1),
    (5, 2, 3, 1, 1, 0, 1, 1),
    (12, 7, 64, 3, 1, 1, 1, 1),
    (8, 9, 33, 3, 1, 2, 1, 2),
    (16, 6, 32, 3, 1, 0, 1, 1),
    (3, 13, 8, 7, 2, 3, 1, 1),
    (12, 6, 24, 3, 1, 1, 3, 1),
    (8, 5, 16, 1, 1, 0, 2, 1),
    (6, 5, 12, 3, 1, 1, 2, 1),
    (64, 6, 64, 3, 1, 1, 64, 1),
    (100, 5, 100, 3, 2, 1, 100, 1),
    (32, 7, 32, 5, 1, 2, 32, 1),
    (16, 1, 16, 3, 1, 1, 16, 1),
    (40, 4, 40, 3, 1, 2, 40, 2),
    (20, 3, 20, 1, 1, 0, 20, 1),
    (7, 5, 7, 3, 1, 1, 7, 1),
    (16, 5, 32, 3, 1, 1, 16, 1),
)


def compared(net: Net, last: str, config: Quantize, numerics: Numerics, count: int = 3) -> set[str]:
    """Every tensor of every sample; what kinds of calls there were."""
    graph, feeds, ranges = net.done(last, count=count)
    done = quantize_graph(graph, lambda _: True, ranges, config, numerics).graph
    executor, reference = Executor(done, numerics, 2), Interpreter(done, numerics)
    for feed, got in zip(feeds, executor.run_many(feeds, keep=lambda _: True), strict=True):
        want = reference.run(feed, keep=lambda _: True)
        for value, array in want.items():
            np.testing.assert_array_equal(got[value], array, err_msg=value, strict=True)
    return {call.what for call, _ in executor.timed(feeds[:2])}


def network(shape: tuple[int, ...], rank: int = 2, clip: bool = False) -> tuple[Net, str]:
    channels, size, out, kernel, stride, pad, groups, dilation = shape
    net = Net(sum(shape))
    x = net.input("x", (2, channels, *(size + 1, size)[:rank]))
    y = net.windowed(x, out, kernel, stride, pad, groups, dilation, (0.0, 2.0) if clip else None)
    return net, y


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape: tuple[int, ...]) -> None:
    few = shape[6] > 1 and shape[0] < 16
    for config in (Quantize(), Quantize(activations=Activations(signed=True), weights=Weights(bits=4))):
        for rank in (1, 2):
            kinds = compared(*network(shape, rank), config, WHOLE)
            assert few or not available() or "CONV+REQUANT" in kinds, kinds


@pytest.mark.parametrize("rounding", ["half_up", "half_even", "half_away", "truncate"])
@pytest.mark.parametrize("bits", [1, 8, 15, 31, 32])
def test_roundings_and_multipliers(rounding: str, bits: int) -> None:
    numerics = Numerics(rounding=rounding, multiplier_bits=bits, power_of_two=bits == 1)  # type: ignore[arg-type]
    for shape in (SHAPES[0], SHAPES[13], SHAPES[14]):
        for clip in (False, True):
            compared(*network(shape, clip=clip), Quantize(), numerics)


def test_weights_with_zero_points_and_narrow_activations() -> None:
    for shape in (SHAPES[0], SHAPES[3], SHAPES[13]):
        weights = Weights(symmetric=False, signed=False)
        compared(*network(shape), Quantize(weights=weights), WHOLE)
        compared(*network(shape), Quantize(weights=Weights(bits=2), activations=Activations(bits=4)), WHOLE)
        compared(*network(shape), Quantize(activations=Activations(bits=16)), WHOLE)


def test_one_tensor_read_in_both_layouts() -> None:
    """Convolutions, sums, pools, tables, movers and a product of matrices around the same values."""
    net = Net(3)
    x = net.windowed(net.input("x", (1, 3, 10, 8)), 16, 3)
    y = net.add(OPS["silu"](), net.windowed(x, 16, 3, groups=16))
    z = net.add(OPS["concat"](1), net.add(OPS["mul"](), x, y), net.add(OPS["relu"](), x))
    pooled = net.add(OPS["maxpool"]((3, 3), (2, 2), (1, 1), (1, 1, 1, 1)), z)
    part = net.add(OPS["slice"]((0, 4, 1, 0), (1, 20, 5, 4), (0, 1, 2, 3), (1, 1, 2, 1)), pooled)
    wide = net.add(OPS["averagepool"]((2, 2), (1, 1), (1, 1), (0, 0, 1, 1)), net.windowed(part, 24, 1))
    turned = net.add(OPS["transpose"]((0, 1, 3, 2)), wide)
    net.add(OPS["matmul"](), wide, turned)
    last = net.add(OPS["softmax"](1), net.add(OPS["reshape"]((1, 24, 4)), net.nodes[-1].outputs[0]))
    kinds = compared(net, last, Quantize(), WHOLE)
    assert not available() or {"CONV+REQUANT", "layout", "move"} <= kinds


@pytest.mark.parametrize("fused", [True, False])
def test_a_large_bias_with_a_small_multiplier(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel of tiny weights has a bias near 2^31 and a tiny multiplier: products fit where they are
    bounded channel by channel."""
    if not fused:
        monkeypatch.setattr("npuflow.whole.execute.dot.available", lambda: False)
        monkeypatch.setattr(dense, "available", lambda: False)
    net = Net(2)
    x = net.input("x", (1, 16, 5, 5))
    weight, bias = net.const((16, 16, 1, 1), 1), net.const((16,), 1)
    for name in (weight, bias):
        array = net.arrays[name]
        array[3] = 1.0 if name == bias else array[3] * 2.0**-24
        net.values[name], found = constant(name, array)
        net.consts.update(found)
    last = net.add(OPS["conv"]((1, 1), (1, 1), (1, 1), (0, 0, 0, 0), 1), x, weight, bias)
    graph, feeds, ranges = net.done(last)
    done = quantize_graph(graph, lambda _: True, ranges, Quantize(), Numerics(multiplier_error=1.0)).graph
    (node,) = [n for n in done.nodes if n.op.onnx == "Conv"]
    held = done.const(node.inputs[2])
    assert held is not None and int(np.abs(held).max()) > 1 << 29
    calls = Executor(done, Numerics(multiplier_error=1.0)).timed(feeds)
    assert not [call for call, _ in calls if call.slow]


def test_products_with_constant_matrices() -> None:
    """Rows of any length, both orientations, batches; a computed matrix is no such product."""
    for bits in (8, 4):
        net = Net(bits)
        x = net.input("x", (2, 5, 16))
        y = net.add(OPS["matmul"](), x, net.const((16, 70), 0.3))
        y = net.add(OPS["matmul"](), y, net.const((70, 9), 0.3))
        z = net.add(OPS["reshape"]((10, 9)), y)
        z = net.add(OPS["gemm"](transB=1), z, net.const((33, 9), 0.3), net.const((33,), 1))
        z = net.add(OPS["gemm"](transA=1), z, net.const((10, 6), 0.3))
        last = net.add(OPS["matmul"](), net.add(OPS["transpose"]((1, 0)), z), net.add(OPS["relu"](), z))
        config = Quantize(Weights(bits=bits), Activations(signed=bits == 4))
        kinds = compared(net, last, config, WHOLE)
        assert not available() or {"MATMUL", "MATMUL+REQUANT"} <= kinds, kinds


def test_processors_without_such_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npuflow.whole.execute.dot.available", lambda: False)
    monkeypatch.setattr(dense, "available", lambda: False)
    for shape in SHAPES[::4]:
        assert "CONV+REQUANT" not in compared(*network(shape), Quantize(), WHOLE)
