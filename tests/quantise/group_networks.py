"""Networks of one product with a weight in groups, on small targets with such products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from npuflow.hw.grouped import WeightGroups, group_bytes
from npuflow.hw.target import FloatRate, GroupProduct, Numerics, Target
from npuflow.ir.codes import decode
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.ir.types import GroupedType
from npuflow.program.container import Program
from npuflow.quantise.config import Activations, Quantize
from npuflow.quantise.graph import Quantization
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import SMALL, local
from tests.networks.small import Builder

GROUPS = (32, 64, 128)
FLOATS = Numerics(
    weight_bits=(4, 8), activation_bits=(8, 16), float_types=("bfloat16", "float16"), float_chunk=8,
    group_products=(GroupProduct("bfloat16"), GroupProduct("float16")),
)
INTEGERS = Numerics(
    weight_bits=(4, 8), activation_bits=(8, 16), wide_acc_bits=48, group_products=(GroupProduct("int16"),)
)
RATES = FloatRate("bfloat16"), FloatRate("float16")
WIDE = Quantize(activations=Activations(bits=16))
# what activations are, the target's numbers, the recipe's table
KINDS = {
    "bfloat16": (FLOATS, Quantize(mode="bf16")),
    "float16": (FLOATS, Quantize(mode="fp16")),
    "int16": (INTEGERS, WIDE),
}


def target_of(numerics: Numerics, size: int = 1 << 16) -> Target:
    made = replace(SMALL, numerics=numerics, compute=replace(SMALL.compute, float_rates=RATES))
    return local(made, size)


def drawn(
    seed: int, rows: int, terms: int, group: int, bits: int, offset: str, signed: bool = False
) -> tuple[np.ndarray, WeightGroups]:
    """Random codes [rows, terms], and what they stand for."""
    rng = np.random.default_rng(seed)
    kind, (lo, hi) = ("int8" if signed else "uint8"), WeightGroups(bits, signed, group, np.zeros((1, 1))).ends
    count = -(-terms // group)
    codes = rng.integers(lo, hi, (rows, terms), endpoint=True).astype(kind)
    scales = (rng.choice((-1, 1), (rows, count)) * rng.uniform(0.002, 0.1, (rows, count))).astype(np.float16)
    zeros = rng.integers(lo, hi, (rows, count), endpoint=True).astype(kind) if offset == "zero" else None
    minima = rng.normal(0, 0.3, (rows, count)).astype(np.float16) if offset == "minimum" else None
    zero = (lo + hi + 1) // 2 if offset == "none" else 0
    return codes, WeightGroups(bits, signed, group, scales, zero, zeros, minima)


def network(
    codes: np.ndarray, groups: WeightGroups, rows: int = 3, turned: bool = False, bias: bool = False
) -> tuple[Graph, dict[str, np.ndarray], dict[str, GroupedType]]:
    """A product by a stated weight: MatMul [terms, channels], or Gemm [channels, terms]."""
    b, (outer, inner) = Builder(), codes.shape
    x = b.input("x", (rows, inner))
    kind = GroupedType.of(groups, 0 if turned else 1)
    real = decode(codes if turned else np.ascontiguousarray(codes.T), kind)
    w = b.const(real.shape, 1.0)
    b.consts[b.values[w].const] = real
    more = (b.const((outer,), 0.3),) if bias else ()
    op = OPS["gemm"](transB=1) if turned else OPS["gemm"]() if bias else OPS["matmul"]()
    y = b.add(op, x, w, *more)
    graph = Graph(("x",), (y,), tuple(b.nodes), b.values, b.consts)
    return graph, b.arrays, {w: kind}


def quantised(
    graph: Graph, arrays: dict[str, np.ndarray], stated: dict[str, GroupedType], kind: str
) -> Quantization:
    numerics, config = KINDS[kind]
    ranges = {name: (float(a.min()), float(a.max())) for name, a in arrays.items()}
    return quantize_graph(graph, lambda _: True, ranges, config, numerics, stated)


def opcodes(program: Program) -> set[str]:
    return {c.opcode for queue in program.decoded for c in queue}


def held(graph: Graph) -> tuple[np.ndarray, GroupedType]:
    """The weight's codes [channels, terms] and its type."""
    (value,) = (v for v in graph.values.values() if isinstance(v.quant, GroupedType))
    codes = graph.const(value.id)
    assert codes is not None
    return value.quant.by_channel(codes), value.quant


def read_back(const: bytes, codes: np.ndarray, groups: WeightGroups) -> bool:
    """Whether the constants of a program hold every group, in whatever tile: read with numpy and nothing
    else."""
    rows, count = groups.scales.shape
    return all(_group_held(const, codes, groups, row, at) for row in range(rows) for at in range(count))


def _group_held(const: bytes, codes: np.ndarray, groups: WeightGroups, row: int, at: int) -> bool:
    own = codes[row, at * groups.size : (at + 1) * groups.size].astype(np.uint8) & ((1 << groups.bits) - 1)
    width, scale = group_bytes(groups.bits, groups.size, groups.offset), groups.scales[row, at].tobytes()
    first = const.find(scale)
    while first >= 0:
        raw, data = const[first : first + width], 2
        same = len(raw) == width
        if groups.zeros is not None:
            same, data = same and np.frombuffer(raw, groups.zeros.dtype)[2] == groups.zeros[row, at], 3
        if groups.minima is not None:
            same, data = same and raw[2:4] == groups.minima[row, at].tobytes(), 4
        kept = np.frombuffer(raw[data:], np.uint8)
        kept = np.stack([kept & 15, kept >> 4], -1).reshape(-1) if groups.bits == 4 else kept
        if same and np.array_equal(kept[: len(own)], own):
            return True
        first = const.find(scale, first + 1)
    return False
