"""Exported QDQ ONNX on onnxruntime and on OpenVINO's CPU plug-in, beside the program.

    python benchmarks/qdq_elsewhere.py [--python PYTHON_WITH_OPENVINO] [--samples N] [--bits 16] NETWORK ...

Networks are names of `shapes.py` or ONNX files; ranges are those of one random sample, the target is edge-4t
with wide sums, activations have 8 bits. Printed for each runtime: the SQNR of its float outputs against the
program's, the least of all outputs, and by how many steps of the output's scale the worst element is off.
OpenVINO may live in an environment of its own: PYTHON runs a few lines that read the model and the inputs and
write its outputs, once as OpenVINO is and once without its low-precision transformations, which compute in
integers of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from c_exact import SHAPES, wide_sums
from shapes import NETWORKS, of_file

from npuflow.base.errors import NpuflowError
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.place.place import place
from npuflow.quantise.config import Activations, Quantize
from npuflow.run.interpret import Interpreter, host_session
from npuflow.run.qdq import to_qdq
from npuflow.testing.quantised import quantize_graph
from tests.networks.subjects import Subject, subject

OPENVINO = """
import sys, numpy as np, openvino as ov
model, given, wanted, plain = sys.argv[1:]
core = ov.Core()
options = {"INFERENCE_PRECISION_HINT": "f32"}
if plain == "1":
    options["LP_TRANSFORMS_MODE"] = "NO"
net = core.compile_model(core.read_model(model), "CPU", options)
fed = np.load(given)
names = [n for n in fed.files]
found = {}
for k in range(len(fed[names[0]])):
    out = net({n: fed[n][k] for n in names})
    for port in net.outputs:
        for name in port.get_names():
            found.setdefault(name, []).append(out[port])
np.savez(wanted, **{n: np.stack(a) for n, a in found.items()})
print(ov.__version__)
"""


def elsewhere(
    python: str, model: bytes, feeds: list[dict[str, Array]], plain: bool
) -> dict[str, Array] | str:
    """Outputs of OpenVINO by name, sample by sample; or the last line of what it said."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("net.onnx", "in.npz", "out.npz")]
        Path(paths[0]).write_bytes(model)
        np.savez(paths[1], **{n: np.stack([f[n] for f in feeds]) for n in feeds[0]})
        words = [python, "-c", OPENVINO, *paths, str(int(plain))]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["it failed"])[-1][:90]
        with np.load(paths[2]) as held:
            return dict(held)


def distance(graph: Graph, found: dict[str, Array], program: dict[str, Array]) -> str:
    """The least SQNR in dB, and the worst element in steps of its output's scale."""
    levels, steps = [], []
    for name, array in program.items():
        real, other = array.astype(np.float64), found[name].reshape(array.shape).astype(np.float64)
        noise = ((real - other) ** 2).sum()
        levels.append(np.inf if noise == 0 else 10 * np.log10((real**2).sum() / noise))
        quant = graph.values.get(f"{name}:q", graph.values[name]).quant
        if quant is not None:
            steps.append(float(np.abs(real - other).max() / quant.scale[0]))
    return f"{min(levels):.1f} dB | {max(steps, default=float('nan')):.1f}"


def measure(name: str, one: Subject, given: argparse.Namespace) -> None:
    target, config = wide_sums("edge-4t"), Quantize(activations=Activations(bits=given.bits))
    try:
        placement = place(one.graph, target)
        done = quantize_graph(one.graph, placement.on_npu, one.ranges, config, target.numerics)
    except NpuflowError as error:
        print(f"| {name} | {error.message[:120]} |", flush=True)
        return
    graph, model = done.graph, to_qdq(done.graph).model
    rng = np.random.default_rng(0)
    feeds = [
        {n: a if k == 0 else rng.permuted(a, axis=-1) for n, a in one.feeds.items()}
        for k in range(given.samples)
    ]
    interpreter, session = Interpreter(graph, target.numerics), host_session(model)
    made = [interpreter.run(f) for f in feeds]
    program = {n: np.stack([m[n] for m in made]) for n in graph.outputs}
    ran = [session.run(list(graph.outputs), f) for f in feeds]
    here = {n: np.stack([r[i] for r in ran]) for i, n in enumerate(graph.outputs)}
    row = [distance(graph, here, program)]
    for plain in (False, True):
        there = elsewhere(given.python, model, feeds, plain)
        row.append(there if isinstance(there, str) else distance(graph, there, program))
    print(f"| {name} | {' | '.join(row)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--bits", type=int, default=8)
    parser.add_argument("--python", default=sys.executable)
    given = parser.parse_args()
    print(
        "| network | onnxruntime | worst, steps | OpenVINO | worst, steps | transformations off | worst |\n"
        "| --- | --- | ---: | --- | ---: | --- | ---: |"
    )
    for name in given.networks:
        graph = NETWORKS[name]()[0] if name in NETWORKS else of_file(name, SHAPES.get(Path(name).stem, {}))[0]
        measure(Path(name).stem, subject(Path(name).stem, graph), given)


if __name__ == "__main__":
    main()
