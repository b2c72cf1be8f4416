"""Weights with the zeros that a target skips: stored without them, multiplied in half the cycles, exact."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from types import MappingProxyType

import numpy as np
import pytest

from npuflow.hw.target import Compute, Numerics, Target
from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import OPS
from npuflow.ir.verify import faults
from npuflow.quantise.config import Quantize, Weights
from npuflow.report.profile import profile
from npuflow.search.plan import plan_network
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import SMALL, build, check_exact, machine
from tests.networks.small import Builder
from tests.tiers import spread

SPARSE = Numerics(weight_bits=(4, 8), sparsity="2:4")
DENSE = Numerics(weight_bits=(4, 8))


class Pruned(Builder):
    """Networks whose weights without a window have two zeros in every four input channels."""

    def const(self, shape: tuple[int, ...], scale: float) -> str:
        name = super().const(shape, scale)
        if len(shape) < 2 or prod(shape[2:]) > 1 or shape[1] % 4:
            return name
        array = self.arrays[name].reshape(-1, 4)
        np.put_along_axis(array, np.argsort(self.rng.random(array.shape), axis=1)[:, :2], 0.0, 1)
        self.arrays[name] = array.reshape(shape)
        self.values[name], found = constant(name, self.arrays[name])
        self.consts.update(found)
        return name


def quantised(b: Builder, out: str, numerics: Numerics, weights: Weights) -> Graph:
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    graph = Graph(("x",), (out,), tuple(b.nodes), MappingProxyType(b.values), MappingProxyType(b.consts))
    return quantize_graph(graph, lambda _: True, ranges, Quantize(weights), numerics).graph


def layers() -> tuple[Builder, str]:
    """Pointwise layers, odd and even, a window, a depthwise layer, matrices of both orientations."""
    b = Pruned()
    y = b.conv(b.conv(b.input("x", (1, 4, 7, 5)), 12, 1), 36, 1)
    y = b.conv(b.conv(y, 36, 3, depthwise=True), 7, 1)
    y = b.conv(y, 8, 3)
    y = b.add(OPS["reshape"]((8, 35)), y)
    y = b.add(OPS["gemm"](transB=1), y, b.const((20, 35), 0.1), b.const((20,), 0.1))
    y = b.add(OPS["gemm"](transB=1), y, b.const((33, 20), 0.1), b.const((33,), 0.1))
    return b, b.add(OPS["matmul"](), y, b.const((33, 4), 0.2))


def typed(program) -> dict[str, int]:
    """How many commands have weights of a type."""
    found: dict[str, int] = {}
    for c in program.decoded[0]:
        if c.opcode in ("CONV", "MATMUL"):
            kind = c.text("w_type" if c.opcode == "CONV" else "b_type")
            found[kind] = found.get(kind, 0) + 1
    return found


@pytest.mark.parametrize(("exact_only", "bits"), spread([False, True], [8, 4]))
def test_every_layer_is_exact(exact_only: bool, bits: int) -> None:
    b, out = layers()
    graph, target = quantised(b, out, SPARSE, Weights(bits=bits)), replace(SMALL, numerics=SPARSE)
    feed = {"x": b.arrays["x"]}
    found = typed(check_exact(graph, feed, target, exact_only=exact_only))
    assert set(found) == {f"int{bits}_2of4", f"int{bits}"} and found[f"int{bits}_2of4"] >= 4
    assert not list(faults(graph))


def test_layers_of_tiles_over_input_channels_are_exact() -> None:
    b = Pruned()
    out = b.conv(b.conv(b.input("x", (1, 256, 3, 3)), 32, 1), 24, 1)
    target = replace(SMALL, numerics=SPARSE, memory=replace(SMALL.memory, local_bytes=2048))
    graph = quantised(b, out, SPARSE, Weights())
    for level in (0, 3):
        plan = plan_network(graph, machine(target), SPARSE, level=level)
        program = check_exact(graph, {"x": b.arrays["x"]}, target, plan)
        assert typed(program).keys() == {"int8_2of4"}
        assert sum(c.opcode == "CONV" and c.number("accumulate") for c in program.decoded[0])


def test_what_has_no_such_zeros_stays_dense() -> None:
    b, out = layers()
    for numerics, weights in (
        (DENSE, Weights()),
        (replace(SPARSE, weight_zero_point=True), Weights(symmetric=False)),
    ):
        graph = quantised(b, out, numerics, weights)
        assert set(typed(build(graph, replace(SMALL, numerics=numerics)))) == {"int8"}
    plain = Builder()
    out = plain.conv(plain.input("x", (1, 8, 4, 4)), 8, 1)
    graph = quantised(plain, out, SPARSE, Weights())
    assert set(typed(build(graph, replace(SMALL, numerics=SPARSE)))) == {"int8"}


def measured(numerics: Numerics, compute: Compute = SMALL.compute) -> dict[str, float]:
    b = Pruned()
    y = b.input("x", (1, 32, 8, 8))
    for _ in range(3):
        y = b.conv(y, 32, 1)
    target = Target(
        compute=compute, numerics=numerics, memory=replace(SMALL.memory, local_bytes=1 << 15), dma=SMALL.dma
    )
    graph = quantised(b, y, numerics, Weights())
    program = build(graph, target)
    return {**profile(program).totals(), "const": len(program.const)}


def test_fewer_bytes_and_half_the_cycles_of_the_array() -> None:
    dense, sparse = measured(DENSE), measured(SPARSE)
    weights = 3 * 32 * 32
    assert dense["const"] - sparse["const"] == weights * 3 // 8              # 20 bits for four weights
    assert dense["bytes"] - sparse["bytes"] == pytest.approx(weights * 3 / 8, abs=3 * 16)
    assert dense["bound_bytes"] - sparse["bound_bytes"] == pytest.approx(weights * 3 / 8, abs=3 * 16)
    assert sparse["schedule_cycles"] == pytest.approx(sparse["cycles"], rel=0.02)
    saved = 3 * 64 * 32 * 32 // 16 // 2                                 # half of what 4 x 4 products take
    assert dense["cycles"] - sparse["cycles"] > 0.8 * saved
    slow = measured(SPARSE, replace(SMALL.compute, sparse_times=1.0))
    assert slow["cycles"] > sparse["cycles"] + 0.8 * saved


def test_a_type_that_its_codes_do_not_have_is_a_fault() -> None:
    b = Pruned()
    graph = quantised(b, b.conv(b.input("x", (1, 8, 4, 4)), 8, 1), SPARSE, Weights())
    weight = next(v for v in graph.values.values() if v.quant is not None and v.quant.sparse)
    assert weight.const is not None
    full = np.ones_like(graph.consts[weight.const])
    broken = graph.replaced(consts=MappingProxyType({**graph.consts, weight.const: full}))
    assert any("not zero" in one for one in faults(broken))
