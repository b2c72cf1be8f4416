"""Cycles of a product of one row with weights in groups, over the bytes of these by the bandwidth.

python benchmarks/group_products.py [--file group_products.csv] [--small]

One row of activations, as a step of decoding has it, times random weights in groups: what the program's
clock says, and how long the bus takes for the codes, scales and zero points or minima alone. The products
are those of SmolLM2-135M: its attention and its two-layer network at 4 bits with a minimum (Q4_1), its
output layer of 49,152 tokens at 8 bits (Q8_0). `--small` leaves that one out.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

# name, terms, channels, bits, group, what a group has beside its scale
PRODUCTS = (
    ("query", 576, 576, 4, 32, "minimum"),
    ("up", 576, 1536, 4, 32, "minimum"),
    ("up, zero points", 576, 1536, 4, 32, "zero"),
    ("up, groups of 64", 576, 1536, 4, 64, "minimum"),
    ("up, groups of 128", 576, 1536, 4, 128, "minimum"),
    ("up, 8 bits", 576, 1536, 8, 32, "none"),
    ("down", 1536, 576, 4, 32, "minimum"),
    ("output", 576, 49152, 8, 32, "none"),
)
MODES = {"bm1684x": {"mode": "bf16"}, "edge-8t": {"activations": 16}}
COLUMNS = (
    "target", "product", "k", "n", "bits", "group", "offset", "bytes", "moved", "cycles", "bus", "ratio",
)


def weight(terms: int, channels: int, bits: int, group: int, offset: str) -> tuple[Any, Any]:
    """Random codes [channels, terms], and what they stand for."""
    from npuflow.hw.grouped import WeightGroups

    rng, count = np.random.default_rng(0), -(-terms // group)
    codes = rng.integers(0, 1 << bits, (channels, terms), np.uint8)
    shape = channels, count
    scales = rng.uniform(0.5, 1.5, shape) / (1 << bits) / np.sqrt(terms)
    zeros = rng.integers(0, 1 << bits, shape, np.uint8) if offset == "zero" else None
    minima = (-scales * (1 << (bits - 1))).astype(np.float16) if offset == "minimum" else None
    zero = 1 << (bits - 1) if offset == "none" else 0
    return codes, WeightGroups(bits, False, group, scales.astype(np.float16), zero, zeros, minima)


def quantised(target: Any, codes: Any, groups: Any, options: dict[str, Any]) -> Any:
    """The quantised graph of a product of one row."""
    from npuflow.ir.codes import decode
    from npuflow.ir.graph import Graph, constant
    from npuflow.ir.op import OPS, Node
    from npuflow.ir.types import GroupedType, TensorType, Value
    from npuflow.quantise.config import Activations, Quantize
    from npuflow.testing.quantised import quantize_graph

    channels, terms = codes.shape
    kind = GroupedType.of(groups, 1)
    value, consts = constant("w", decode(np.ascontiguousarray(codes.T), kind))
    values = {
        "x": Value("x", TensorType((1, terms))), "w": value, "y": Value("y", TensorType((1, channels))),
    }
    node = Node(OPS["matmul"](), ("x", "w"), ("y",), ("product",))
    graph = Graph(("x",), ("y",), (node,), MappingProxyType(values), MappingProxyType(consts))
    config = Quantize(mode=options["mode"]) if "mode" in options else Quantize(
        activations=Activations(bits=options["activations"])
    )
    ranges = {"x": (-4.0, 4.0), "y": (-4.0, 4.0)}
    done = quantize_graph(graph, lambda _: True, ranges, config, target.numerics, {"w": kind})
    assert not done.notes, done.notes
    return done.graph


def row(name: str, product: tuple[Any, ...]) -> dict[str, Any]:
    from npuflow.program.codegen.generate import generate
    from npuflow.program.order import order_of
    from npuflow.schedule.machine import Machine
    from npuflow.search.plan import plan_network
    from npuflow.sim.clock import timeline_of
    from npuflow.stages.tiling import shipped_targets

    target = shipped_targets()[name]
    what, terms, channels, bits, group, offset = product
    codes, groups = weight(terms, channels, bits, group, offset)
    graph = quantised(target, codes, groups, MODES[name])
    machine = Machine(target.compute, target.memory, target.dma)
    program = generate(graph, plan_network(graph, machine, target.numerics), target)
    time = timeline_of(program, order_of(program))
    size = groups.scales.size * groups.bytes
    bus = size / target.memory.external_bandwidth
    told = size, int(time.moved.sum()), round(time.cycles), round(bus), round(time.cycles / bus, 3)
    return dict(zip(COLUMNS, (name, what, terms, channels, bits, group, offset, *told), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--file", type=Path, help="also write the rows to this CSV file")
    parser.add_argument("--small", action="store_true", help="without the output layer")
    args = parser.parse_args()
    rows = []
    for name in MODES:
        for product in PRODUCTS[: -1 if args.small else None]:
            rows.append(row(name, product))
            print(" ".join(f"{rows[-1][column]}" for column in COLUMNS), flush=True)
    if args.file is not None:
        with args.file.open("w", newline="") as file:
            table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            table.writeheader()
            table.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
