"""Convolutions with few channels over gathered columns: where it pays, with any window, tiled
at will, the same integers."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from types import MappingProxyType

import numpy as np
import pytest

from npuflow.hw.target import Compute, FloatRate, Target
from npuflow.ir.graph import Graph
from npuflow.ir.lowering import Buffer
from npuflow.ir.op import OPS
from npuflow.program.codegen.tiles import gather
from npuflow.quantise.config import Activations, Quantize
from npuflow.search.plan import plan_network
from npuflow.testing.quantised import quantize_graph
from tests.networks import random_tilings
from tests.networks.harness import SMALL, check_exact, local, machine
from tests.networks.small import Builder
from tests.tiers import often

FAST = Compute(
    array_rows=16, array_cols=4, depthwise_macs=4, vector_lanes=64, fill_cycles=4, command_cycles=1
)
TARGET = local(replace(SMALL, compute=FAST), 1 << 18)
WINDOWS = [
    ((3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    ((3, 3), (2, 2), (1, 1), (1, 1, 1, 1), 2),
    ((7, 7), (2, 2), (1, 1), (3, 3, 3, 3), 1),
    ((2, 3), (2, 1), (1, 1), (0, 2, 1, 0), 1),
    ((3, 3), (1, 1), (3, 3), (3, 3, 3, 3), 1),
    ((5, 1), (1, 1), (1, 1), (4, 0, 4, 0), 1),
    ((1, 4), (1, 3), (1, 2), (0, 5, 0, 6), 1),
    ((3,), (2,), (2,), (2, 1), 2),
]


def network(window: tuple, bits: int = 8) -> tuple[Graph, dict[str, np.ndarray]]:
    """Two convolutions with a table behind the first, which follows it in local memory."""
    kernel, stride, dilation, pads, batch = window
    b = Builder()
    x = b.input("x", (batch, 3, 19, 17)[: 2 + len(kernel)])
    op = OPS["conv"](kernel, stride, dilation, pads, clip=(0.0, 2.0))
    y = b.add(op, x, b.const((6, 3, *kernel), 0.2), b.const((6,), 0.1))
    y = b.add(OPS["tanh"](), y)
    graph = Graph(("x",), (y,), tuple(b.nodes), MappingProxyType(b.values), MappingProxyType(b.consts))
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    config = Quantize(activations=Activations(symmetric=False, bits=bits))
    return quantize_graph(graph, lambda _: True, ranges, config, TARGET.numerics).graph, {"x": b.arrays["x"]}


def opcodes(program, *names: str) -> list:
    return [c for core in program.decoded for c in core if c.opcode in names]


@pytest.mark.parametrize(("window", "bits"), often(product(WINDOWS, [8, 16]), 5), ids=str)
def test_any_window_as_planned_and_tiled_at_random(window: tuple, bits: int) -> None:
    graph, feed = network(window, bits)
    program = check_exact(graph, feed, TARGET)
    convs = opcodes(program, "CONV")
    assert opcodes(program, "COPY") and all(c.vector("kernel") == (1, 1) for c in convs)
    rng = random.Random(1)
    for _ in range(2):
        plan = random_tilings.plan(graph, machine(TARGET), TARGET.numerics, rng)
        check_exact(graph, feed, TARGET, plan)


def test_floats_have_their_order_in_columns_too() -> None:
    """Those of several channels are summed tap by tap within a block of channels."""
    numerics = replace(TARGET.numerics, float_types=("bfloat16",), float_chunk=4)
    rated = replace(FAST, float_rates=(FloatRate("bfloat16", 0.5),))
    target = replace(TARGET, numerics=numerics, compute=rated)
    for channels in (1, 3, 7):
        b = Builder()
        conv = OPS["conv"]((3, 3), (2, 1), (1, 2), (1, 1, 2, 0))
        x = b.input("x", (2, channels, 19, 17))
        y = b.add(conv, x, b.const((6, channels, 3, 3), 0.2), b.const((6,), 0.1))
        graph = Graph(("x",), (y,), tuple(b.nodes), MappingProxyType(b.values), MappingProxyType(b.consts))
        done = quantize_graph(graph, lambda _: True, {}, Quantize(mode="bf16"), numerics).graph
        feed, rng = {"x": b.arrays["x"]}, random.Random(2)
        program = check_exact(done, feed, target)
        found = {(c.vector("kernel"), c.number("taps")) for c in opcodes(program, "FCONV")}
        assert found == {((1, 1), 9)}
        for exact_only in (False, True):
            plan = random_tilings.plan(done, machine(target), numerics, rng)
            check_exact(done, feed, target, plan, exact_only=exact_only)


def test_where_it_does_not_pay_the_array_takes_the_window() -> None:
    """Few vector lanes, an array that is full anyway, one that keeps its sums: no columns."""
    graph, feed = network(WINDOWS[0])
    for compute in (
        replace(FAST, vector_lanes=1),
        replace(FAST, array_rows=3),
        replace(FAST, dataflow="output_stationary"),
    ):
        program = check_exact(graph, feed, replace(TARGET, compute=compute))
        assert not opcodes(program, "COPY") and all(
            c.vector("kernel") == (3, 3) for c in opcodes(program, "CONV")
        )


def test_columns_make_the_bound_smaller_and_the_plan_faster() -> None:
    def planned(target: Target):
        return plan_network(graph, machine(target), target.numerics)

    graph, _ = network(WINDOWS[2])
    slow = planned(replace(TARGET, compute=replace(FAST, vector_lanes=2)))
    fast = planned(TARGET)
    assert fast.bounds.compute < slow.bounds.compute and fast.cycles < slow.cycles


def test_gathered_is_what_the_window_sees() -> None:
    """Against a plain loop over taps, rows and columns; every byte of the columns is written."""
    rng = random.Random(3)
    for _ in range(60):
        kernel, stride, dilation = ((rng.randint(1, 4), rng.randint(1, 4)) for _ in range(3))
        origin, extent = (-rng.randint(0, 5), -rng.randint(0, 5)), (rng.randint(1, 9), rng.randint(1, 9))
        high, wide = rng.randint(1, 6), rng.randint(1, 6)
        x = np.random.default_rng(1).integers(0, 200, (2, 3, *extent)).astype(np.uint8)
        conv = {
            "x": 0,
            "x_type": "uint8",
            "x_strides": x.strides,
            "x_dims": x.shape,
            "x_zero": 7,
            "kernel": kernel,
            "stride": stride,
            "dilation": dilation,
            "origin": origin,
            "out_height": high,
            "out_width": wide,
        }
        shape = (2, 3 * kernel[0] * kernel[1], high, wide)
        found, times = np.zeros(shape, np.uint8), np.zeros(shape, np.int64)
        buffer = Buffer(0, "uint8", tuple((0, n) for n in shape), found.strides)
        for opcode, f in gather(conv, buffer):
            for index in np.ndindex(*f["dims"]):
                at = f["y"] + sum(i * s for i, s in zip(index, f["y_strides"], strict=True))
                source = f.get("x", 0) + sum(
                    i * s for i, s in zip(index, f.get("x_strides", ()), strict=False)
                )
                found.reshape(-1)[at] = x.reshape(-1)[source] if opcode == "COPY" else f["value"]
                times.reshape(-1)[at] += 1
        assert times.min() == 1
        for n, c, i, j, a, b in np.ndindex(2, 3, *kernel, high, wide):
            row, col = (
                a * stride[0] + i * dilation[0] + origin[0],
                b * stride[1] + j * dilation[1] + origin[1],
            )
            inside = 0 <= row < extent[0] and 0 <= col < extent[1]
            assert found[n, (c * kernel[0] + i) * kernel[1] + j, a, b] == (x[n, c, row, col] if inside else 7)
