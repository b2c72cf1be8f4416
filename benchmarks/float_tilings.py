"""A network in floats or blocks by tilings drawn at random, every tensor beside the reference.

    python benchmarks/float_tilings.py PROGRAM [--target bm1684x] [--count 300] [--first 0]

PROGRAM is a program of `npuflow build` with a float or block type; its own graph is tiled again, with one
random input. Every tiling is on one to three cores, has sizes, nesting, groups and copies of its own, and is
simulated; a difference of a bit ends the run. Prints a line: tilings, commands, those that add to a sum of a
tile before, seconds of processor time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path

import numpy as np
from shapes import target_named

from npuflow.program.container import Program
from npuflow.program.graph_section import decode_graph
from npuflow.run.interpret import interpret
from tests.codegen.test_float_tilings import compared


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program", type=Path)
    parser.add_argument("--target", default="bm1684x")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    target = target_named(args.target)
    graph = decode_graph(Program.from_bytes(args.program.read_bytes()).graph_bytes)
    rng = np.random.default_rng(1)
    feeds = {i: rng.normal(size=graph.type(i).shape).astype(np.float32) for i in graph.inputs}
    want = interpret(graph, feeds, target.numerics, keep=lambda _: True)
    began, found = time.process_time(), Counter[str]()
    for seed in range(args.first, args.first + args.count):
        found += compared(args.program.stem, graph, want, target, seed)
    commands = sum(n for name, n in found.items() if name != "continued")
    seconds = round(time.process_time() - began)
    row = {"tilings": args.count, "commands": commands, "continued": found["continued"], "seconds": seconds}
    print(json.dumps({"program": str(args.program), **row}), flush=True)


if __name__ == "__main__":
    main()
