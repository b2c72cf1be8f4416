"""Whatever the tiling, a network in floats or blocks has the same bits: chunks of a sum are never cut."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from npuflow.hw.target import FloatRate, Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.ir.types import Array
from npuflow.quantise.config import Override, Quantize
from npuflow.run.interpret import interpret
from npuflow.testing.quantised import local_memory, quantize_graph
from tests.networks import random_groups, random_tilings
from tests.networks.harness import SMALL, build, local, machine, simulate
from tests.networks.small import Builder
from tests.tiers import often, tiered

TYPES = ("bfloat16", "float16", "mx9", "bfp16", "mxfp4")
NUMERICS = Numerics(float_types=TYPES, float_chunk=8)
RATES = tuple(FloatRate(name) for name in TYPES)
# with room for tables of functions
TARGET = local(replace(SMALL, numerics=NUMERICS, compute=replace(SMALL.compute, float_rates=RATES)), 1 << 18)
MANY, SHARD = 300, 25


def cnn() -> Builder:
    """A stem with strides, inverted bottlenecks, a grouped and a transposed convolution, a pool, a Gemm."""
    b = Builder()
    x = b.conv(b.input("x", (1, 3, 15, 13)), 18, 3, 2, clip=(0.0, 6.0))
    for _ in range(2):
        wide = b.conv(b.conv(x, 40, 1), 40, 3, depthwise=True, clip=(0.0, 6.0))
        x = b.add(OPS["add"](), x, b.conv(wide, 18, 1))
    grouped = OPS["conv"]((3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 2)
    x = b.add(grouped, x, b.const((20, 9, 3, 3), 0.1), b.const((20,), 0.1))
    up = OPS["convtranspose"]((2, 2), (2, 2), (1, 1), (0, 0, 0, 0), output_padding=(0, 0))
    x = b.add(up, x, b.const((20, 12, 2, 2), 0.2))
    x = b.add(OPS["averagepool"]((3, 3), (2, 2), (1, 1), (0, 0, 0, 0)), b.add(OPS["sigmoid"](), x))
    x = b.add(OPS["reshape"]((1, 12)), b.add(OPS["globalaveragepool"](), x))
    b.add(OPS["gemm"](transB=1), x, b.const((7, 12), 0.3), b.const((7,), 0.1))
    return b


def encoder() -> Builder:
    """A block of a transformer: attention of three heads, norms spelled out, and two layers with Gelu."""
    b = Builder()
    x = b.input("x", (1, 10, 24))

    def dense(y: str, out: int) -> str:
        deep = b.arrays[y].shape[-1]
        product = b.add(OPS["matmul"](), y, b.const((deep, out), deep**-0.5))
        return b.add(OPS["add"](), product, b.const((out,), 0.1))

    def heads(y: str, turned: tuple[int, ...]) -> str:
        return b.add(OPS["transpose"](turned), b.add(OPS["reshape"]((1, 10, 3, 8)), y))

    def norm(y: str) -> str:
        off = b.add(OPS["sub"](), y, b.add(OPS["reducemean"](axes=(2,)), y))
        power = b.add(OPS["reducemean"](axes=(2,)), b.add(OPS["mul"](), off, off))
        scaled = b.add(OPS["div"](), off, b.add(OPS["sqrt"](), power))
        return b.add(OPS["add"](), b.add(OPS["mul"](), scaled, b.const((24,), 1.0)), b.const((24,), 0.1))

    q, k, v = (heads(dense(x, 24), turned) for turned in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)))
    weights = b.add(OPS["softmax"](-1), b.add(OPS["matmul"](), q, k))
    joined = b.add(OPS["transpose"]((0, 2, 1, 3)), b.add(OPS["matmul"](), weights, v))
    x = norm(b.add(OPS["add"](), x, dense(b.add(OPS["reshape"]((1, 10, 24)), joined), 24)))
    norm(b.add(OPS["add"](), x, dense(b.add(OPS["gelu"](), dense(x, 40)), 24)))
    return b


POOLS = Override(("add", "averagepool"), type="int")
FUNCTIONS = Override(("add", "gelu", "softmax"), type="int")
NETWORKS = {
    "cnn-bf16": (cnn, Quantize(mode="bf16")),
    "cnn-mx9": (cnn, Quantize(mode="mx9")),
    "cnn-bfp16-int8": (cnn, Quantize(mode="bfp16", overrides=(POOLS,))),
    "encoder-bf16": (encoder, Quantize(mode="bf16")),
    "encoder-fp16-int8": (encoder, Quantize(mode="fp16", overrides=(FUNCTIONS,))),
    "encoder-mxfp4": (encoder, Quantize(mode="mxfp4")),
    "encoder-mx9": (encoder, Quantize(mode="mx9")),
}


@cache
def network(name: str) -> tuple[Graph, dict[str, Array]]:
    """The quantised graph, and all its values by the reference."""
    make, config = NETWORKS[name]
    b = make()
    graph = Graph(("x",), (b.nodes[-1].outputs[0],), tuple(b.nodes), b.values, b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    room = local_memory(TARGET.memory.local_bytes)
    done = quantize_graph(graph, lambda _: True, ranges, config, NUMERICS, prices=room)
    assert not done.notes, done.notes
    return done.graph, interpret(done.graph, {"x": b.arrays["x"]}, NUMERICS, keep=lambda _: True)


def torn(name: str, seed: int) -> Counter[str]:
    """One tiling of one of these networks; every tenth by plain numpy."""
    return compared(name, *network(name), TARGET, seed, exact_only=seed % 10 == 0)


def compared(
    name: str, graph: Graph, want: dict[str, Array], target: Target, seed: int, exact_only: bool = False
) -> Counter[str]:
    """One tiling on one core or several, compared: its commands by opcode, and those that add to a sum."""
    rng = random.Random(seed)
    cores = rng.choice((1, 1, 2, 3))
    target = replace(target, compute=replace(target.compute, cores=cores))
    if cores > 1:
        plan, _ = random_groups.plan(graph, machine(target), target.numerics, rng, 0)
    else:
        plan = random_tilings.plan(graph, machine(target), target.numerics, rng, rng.choice((0, 2, 3)))
    program = build(graph, target, plan)
    for value, array in simulate(program, want, exact_only=exact_only).items():
        np.testing.assert_array_equal(array, want[value], err_msg=f"{name}, seed {seed}: {value}")
    words = [c for queue in program.decoded for c in queue]
    found = Counter(c.opcode for c in words)
    found["continued"] = sum(bool(c.fields.get("accumulate")) for c in words)
    return found


@pytest.mark.parametrize("name", often(NETWORKS, 8))
def test_tilings_have_the_same_bits(name: str) -> None:
    found = sum((torn(name, seed) for seed in range(2)), Counter[str]())
    assert found["continued"], "sums are cut, too"


@pytest.mark.parametrize("first", tiered(range(0, MANY, SHARD), 1))
@pytest.mark.parametrize("name", NETWORKS)
def test_many_tilings_have_the_same_bits(name: str, first: int) -> None:
    found = sum((torn(name, seed) for seed in range(first, first + SHARD)), Counter[str]())
    print(f"{name}: {SHARD} tilings, {', '.join(f'{n} {op}' for op, n in sorted(found.items()))}")
    assert found["continued"] > SHARD
