"""Weights of at most 4 bits lie two codes a byte on targets whose array takes such:
exact, and half the bytes."""

from __future__ import annotations

import random
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from npuflow.hw.target import Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.program.codegen.consts import pack
from npuflow.quantise.config import Quantize, Weights
from npuflow.report.profile import profile
from npuflow.search.plan import plan_network
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import SMALL, build, check_exact, machine
from tests.networks.random_networks import network, target
from tests.networks.small import Builder
from tests.tiers import often, spread

FOUR = Numerics(weight_bits=(4, 8))


def narrow(b: Builder, out: str, weights: Weights, numerics: Numerics = FOUR) -> Graph:
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    graph = Graph(("x",), (out,), tuple(b.nodes), MappingProxyType(b.values), MappingProxyType(b.consts))
    return quantize_graph(graph, lambda _: True, ranges, Quantize(weights), numerics).graph


def layers() -> tuple[Builder, str]:
    """Every operator with weights: odd counts of channels, groups, depthwise, transposed,
    both orientations of matrices."""
    b = Builder()
    x = b.input("x", (1, 3, 9, 7))
    y = b.conv(b.conv(x, 7, 3), 7, 3, depthwise=True)
    y = b.add(
        OPS["convtranspose"]((2, 2), (2, 2), (1, 1), (0, 0, 0, 0), 1, (0, 0)), y, b.const((7, 5, 2, 2), 0.3)
    )
    y = b.add(
        OPS["conv"]((1, 1), (2, 2), (1, 1), (0, 0, 0, 0), 5),
        y,
        b.const((10, 1, 1, 1), 0.5),
        b.const((10,), 0.1),
    )
    y = b.add(OPS["reshape"]((9, 70)), y)
    y = b.add(OPS["gemm"](transB=1), y, b.const((33, 70), 0.1), b.const((33,), 0.1))
    return b, b.add(OPS["matmul"](), y, b.const((33, 5), 0.2))


def typed(program) -> dict[str, set[str]]:
    """Types of the weights by opcode."""
    found: dict[str, set[str]] = {}
    for c in program.decoded[0]:
        if c.opcode in ("CONV", "MATMUL"):
            found.setdefault(c.opcode, set()).add(c.text("w_type" if c.opcode == "CONV" else "b_type"))
    return found


@pytest.mark.parametrize(("exact_only", "bits"), spread([False, True], [3, 4]))
def test_every_weighted_operator_is_exact(exact_only: bool, bits: int) -> None:
    b, out = layers()
    program = check_exact(
        narrow(b, out, Weights(bits=bits)),
        {"x": b.arrays["x"]},
        replace(SMALL, numerics=FOUR),
        exact_only=exact_only,
    )
    assert typed(program) == {"CONV": {"int4"}, "MATMUL": {"int4"}}


def test_unsigned_codes_with_zero_points() -> None:
    b, out = layers()
    numerics = replace(FOUR, weight_zero_point=True)
    graph = narrow(b, out, Weights(bits=4, symmetric=False, signed=False), numerics)
    program = check_exact(graph, {"x": b.arrays["x"]}, replace(SMALL, numerics=numerics))
    assert typed(program) == {"CONV": {"uint4"}, "MATMUL": {"uint4"}}


def test_wider_codes_and_other_targets_keep_their_bytes() -> None:
    b, out = layers()
    assert typed(build(narrow(b, out, Weights(bits=5)), replace(SMALL, numerics=FOUR)))["CONV"] == {"int8"}
    eight = Numerics(weight_bits=(8,))
    assert typed(build(narrow(b, out, Weights(bits=4), eight), replace(SMALL, numerics=eight)))["CONV"] == {
        "int8"
    }


def deep() -> tuple[Builder, str]:
    """Weights are nearly all that it moves."""
    b = Builder()
    y = b.input("x", (1, 32, 4, 4))
    for _ in range(3):
        y = b.conv(y, 32, 3)
    return b, y


def measured(target_: Target, level: int = 3) -> dict[str, float]:
    b, out = deep()
    graph = narrow(b, out, Weights(bits=4), target_.numerics)
    plan = plan_network(graph, machine(target_), target_.numerics, level=level)
    program = build(graph, target_, plan)
    return {**profile(program).totals(), "const": len(program.const)}


def test_half_the_bytes_move() -> None:
    size = replace(SMALL.memory, local_bytes=1 << 15)
    packed, plain = (
        measured(replace(SMALL, memory=size, numerics=Numerics(weight_bits=w))) for w in ((4, 8), (8,))
    )
    weights = 3 * 32 * 32 * 9
    assert plain["const"] - packed["const"] == weights // 2
    assert plain["bytes"] - packed["bytes"] == pytest.approx(weights / 2, abs=3 * 16)
    assert plain["bound_bytes"] - packed["bound_bytes"] == pytest.approx(weights / 2, abs=3 * 16)
    assert packed["schedule_cycles"] == pytest.approx(packed["cycles"], rel=0.02)
    assert packed["cycles"] < plain["cycles"]


def test_bytes_of_a_block() -> None:
    codes = np.array([[-8, 7, 1], [-1, 0, 5]], np.int8)
    block, offsets = pack(
        [(codes, "int4"), (np.array([1], np.int32), "int32")], [((0, 2), (0, 3)), ((0, 1),)]
    )
    assert block == bytes([0x78, 0xF1, 0x50]) + bytes(13) + b"\1\0\0\0" and offsets == [0, 16]
    assert pack([(codes, "int4")], [((1, 2), (0, 3))])[0] == bytes([0x0F, 0x05])


@pytest.mark.parametrize("seed", often(range(6), 3))
def test_random_networks(seed: int) -> None:
    rng = random.Random(7000 + seed)
    machine_ = target(rng)
    numerics = replace(machine_.numerics, weight_bits=(4, 8))
    machine_ = replace(machine_, numerics=numerics, memory=replace(machine_.memory, local_bytes=8192))
    graph, inputs = network(rng, numerics, weight_bits=4)
    check_exact(
        graph, inputs, machine_, plan_network(graph, machine(machine_), numerics, level=rng.choice((0, 3)))
    )
