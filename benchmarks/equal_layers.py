"""Cold default builds of networks of 1, 2, 4 ... equal layers: what each layer more costs, by stage.

    python benchmarks/equal_layers.py OUT [--layers 1 2 4 8 16] [--target edge-4t] [--study]

A layer is that of a transformer (LayerNorm, attention of three heads, LayerNorm, two products with GELU), 64
places of 192 channels; weights of each are drawn anew. What looks at structure alone (tilings, groups) is
made once for all layers; what looks at numbers is made for each. Processor seconds, and steps that ran.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from study import write

PLACES, WIDTH, HEADS, SAMPLES, SHOWN = 64, 192, 3, 16, 12
Nodes = list[onnx.NodeProto]


class Layers:
    """A stack of layers on its way to a file."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: Nodes = []
        self.held: list[onnx.TensorProto] = []

    def const(self, array: np.ndarray) -> str:
        name = f"c{len(self.held)}"
        self.held.append(numpy_helper.from_array(array, name))
        return name

    def weights(self, *shape: int) -> str:
        return self.const(self.rng.normal(0, shape[0] ** -0.5, shape).astype(np.float32))

    def add(self, kind: str, *inputs: str, **said: object) -> str:
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], f"{kind}_{out}", **said))
        return out

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        bias = self.const(self.rng.normal(0, 0.1, outputs).astype(np.float32))
        return self.add("Add", self.add("MatMul", x, self.weights(inputs, outputs)), bias)

    def norm(self, x: str) -> str:
        gain = self.const(self.rng.uniform(0.5, 1.5, WIDTH).astype(np.float32))
        return self.add("LayerNormalization", x, gain, self.const(np.zeros(WIDTH, np.float32)), axis=-1)

    def heads(self, x: str, order: Sequence[int]) -> str:
        shape = self.const(np.array([1, PLACES, HEADS, WIDTH // HEADS], np.int64))
        return self.add("Transpose", self.add("Reshape", self.dense(x, WIDTH, WIDTH), shape), perm=order)

    def layer(self, x: str) -> str:
        inner = self.norm(x)
        query, key, value = (self.heads(inner, p) for p in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)))
        scale = self.const(np.array((WIDTH // HEADS) ** -0.5, np.float32))
        shares = self.add("Softmax", self.add("Mul", self.add("MatMul", query, key), scale), axis=-1)
        joined = self.add("Transpose", self.add("MatMul", shares, value), perm=(0, 2, 1, 3))
        shape = self.const(np.array([1, PLACES, WIDTH], np.int64))
        x = self.add("Add", x, self.dense(self.add("Reshape", joined, shape), WIDTH, WIDTH))
        wide = self.add("Gelu", self.dense(self.norm(x), WIDTH, 4 * WIDTH))
        return self.add("Add", x, self.dense(wide, 4 * WIDTH, WIDTH))


def network(layers: int) -> onnx.ModelProto:
    made, x = Layers(layers), "x"
    for _ in range(layers):
        x = made.layer(x)
    made.nodes[-1].output[0] = "y"
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, PLACES, WIDTH]) for n in ("x", "y")]
    graph = helper.make_graph(made.nodes, "layers", [ports[0]], [ports[1]], made.held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def build(layers: int, out: Path, target: str) -> Iterator[dict[str, Any]]:
    """The lines that a build prints of itself."""
    folder = out / str(layers)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(network(layers), folder / "net.onnx")
    numbers = np.random.default_rng(0).normal(0, 1, (SAMPLES, PLACES, WIDTH)).astype(np.float32)
    np.savez(folder / "data.npz", x=numbers)
    recipe = folder / "net.toml"
    recipe.write_text(f'target = "{target}"\n[model]\npath = "net.onnx"\n[data]\nsource = "data.npz"\n')
    words = [sys.executable, "-m", "npuflow", "build", str(recipe), "--profile", "--json"]
    words += ["--out", str(folder / "out"), "--cache", str(folder / "cache")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{layers} layers: {done.stderr[-2000:]}")
    yield from (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))


def profile(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = next(e for e in events if e["event"] == "profile")["stages"]
    return rows


def table(found: dict[int, list[dict[str, Any]]]) -> Iterator[str]:
    """Processor seconds by stage, and those of each layer behind the first."""
    stages = {n: {row["stage"]: row for row in profile(events)} for n, events in found.items()}
    spent = {n: {stage: row["processor"] for stage, row in rows.items()} for n, rows in stages.items()}
    counts, last = list(found), max(found)
    names = sorted(spent[last], key=lambda stage: -spent[last][stage])
    yield f"| stage | {' | '.join(map(str, counts))} | a layer more |"
    yield f"| --- |{' ---: |' * (len(counts) + 1)}"
    others = {n: sum(spent[n].get(stage, 0.0) for stage in names[SHOWN:]) for n in counts}
    rows = [(stage, {n: spent[n].get(stage, 0.0) for n in counts}) for stage in names[:SHOWN]]
    for name, seconds in (*rows, ("others", others), ("in all", {n: sum(spent[n].values()) for n in counts})):
        more = (seconds[last] - seconds[counts[0]]) / max(last - counts[0], 1)
        yield f"| {name} | {' | '.join(f'{seconds[n]:.2f}' for n in counts)} | {more:.3f} |"
    for what in ("costs.tiles", "costs.groups"):
        made = [sum(e["event"] == "step" and e["stage"] == what for e in found[n]) for n in counts]
        yield f"| steps of {what} | {' | '.join(map(str, made))} | |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--target", default="edge-4t")
    parser.add_argument("--study", action="store_true")
    args = parser.parse_args()
    text = "\n".join(table({n: list(build(n, args.out, args.target)) for n in args.layers}))
    print(text)
    if args.study:
        title = "# What equal layers cost a build"
        write(__file__, f"{title}\n\n{__doc__}\n{text}\n")


if __name__ == "__main__":
    main()
