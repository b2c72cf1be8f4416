"""The whole-tensor executor beside plain onnxruntime fp32, in the same run: execute.py NETWORK ...

NETWORK: the file of an ONNX model, or resnet50 (its shape, random weights). Processor seconds of one thread;
ranges are those of one random sample. Samples are float arrays, as they come out of preprocessing. It prints
medians of interleaved rounds, and where the executor's time goes; `slow` is the share of nodes without
compiled kernels.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import shapes

from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.onnx.export import export_model
from npuflow.run.interpret import Interpreter, host_session
from npuflow.whole.execute.executor import Executor


def ranges_of(graph: Graph, feed: dict[str, Array]) -> dict[str, tuple[float, float]]:
    names = [v for node in graph.nodes for v in node.outputs if v]
    session = host_session(export_model(graph, names))
    seen = {**feed, **dict(zip(names, session.run(names, feed), strict=True))}
    floats = {v: a for v, a in seen.items() if a.dtype.kind == "f"}
    return {v: (min(0.0, float(a.min())), max(1e-3, float(a.max()))) for v, a in floats.items()}


def measure(name: str, target: str, batch: int, rounds: int) -> dict[str, Any]:
    graph, _ = shapes.NETWORKS[name]() if name in shapes.NETWORKS else shapes.of_file(name)
    numerics, rng = shapes.target_named(target).numerics, np.random.default_rng(0)
    feeds = [
        {v: rng.normal(size=graph.type(v).shape).astype(np.float32) for v in graph.inputs}
        for _ in range(batch)
    ]
    quantised = shapes.quantised(graph, ranges_of(graph, feeds[0]), numerics)
    plain, executor = host_session(export_model(graph)), Executor(quantised, numerics, batch)
    found = executor.run_many(feeds)
    want = Interpreter(quantised, numerics).run(feeds[-1])
    assert all(np.array_equal(found[-1][v], want[v]) for v in quantised.outputs), "not the reference's bits"
    plain.run(None, feeds[0])
    floats, integers = [], []
    for _ in range(rounds):
        start = time.process_time()
        for feed in feeds:
            plain.run(None, feed)
        middle = time.process_time()
        executor.run_many(feeds)
        floats.append((middle - start) / batch)
        integers.append((time.process_time() - middle) / batch)
    fp32, whole = float(np.median(floats)), float(np.median(integers))
    rows = executor.timed(feeds)
    spent: Counter[str] = Counter()
    for call, seconds in rows:
        spent[call.what] += seconds
    total = sum(spent.values())
    return {
        "network": Path(name).stem,
        "fp32_ms": round(fp32 * 1e3, 2),
        "executor_ms": round(whole * 1e3, 2),
        "ratio": round(whole / fp32, 2),
        "slow": round(sum(s for c, s in rows if c.slow) / total, 4),
        "ms_by_kind": {what: round(s / batch * 1e3, 3) for what, s in spent.most_common()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="+", help="ONNX files, or resnet50, mobilenet_v2")
    parser.add_argument("--target", default="edge-4t")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    for name in args.networks:
        print(json.dumps(measure(name, args.target, args.batch, args.rounds)), flush=True)


if __name__ == "__main__":
    main()
