"""Exported TFLite files beside the program: LiteRT's reference kernels, and Vela's placement.

    python benchmarks/export_tflite.py [--samples N] [--vela PATH] [--bits 8|16] NETWORK ...

Networks are names of `shapes.py` or ONNX files; ranges are those of one random sample, the target is edge-4t
with wide sums. For each: codes that differ layer by layer (every layer alone, on the program's own codes) and
end to end, and how many operators Vela leaves to the CPU.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from shapes import NETWORKS, of_file, target_named

from npuflow.base.errors import NpuflowError
from npuflow.export_tflite.export import LiteModel, to_tflite
from npuflow.export_tflite.judge import judge, judge_layers
from npuflow.hw.numerics import quantize
from npuflow.ir.types import Array
from npuflow.place.place import place
from npuflow.quantise.config import Activations, Quantize
from npuflow.testing.quantised import quantize_graph
from npuflow.whole.export_c.network import network_of
from npuflow.whole.export_c.vectors import sample
from tests.networks.subjects import Subject, subject

CONFIG = "ethos-u85-256"


def codes(one: Subject, value: object, feed: Array) -> Array:
    quant = value.quant  # type: ignore[attr-defined]
    return quantize(feed, quant.scale[0], quant.zero_point[0], quant.lo, quant.hi).astype(quant.dtype)


def vela(tool: str, model: LiteModel) -> str:
    with tempfile.TemporaryDirectory() as place_:
        path = Path(place_) / "net.tflite"
        path.write_bytes(model.model)
        words = [tool, str(path), "--accelerator-config", CONFIG, "--output-dir", place_]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = re.search(r"CPU operators = (\d+).*?NPU operators = (\d+)", done.stdout, re.DOTALL)
    if found is None:
        return (done.stderr or done.stdout).strip().splitlines()[-1][:60]
    return f"{found[1]} of {int(found[1]) + int(found[2])} on the CPU"


def measure(name: str, one: Subject, chosen: argparse.Namespace) -> None:
    target = target_named("edge-4t")
    numerics = replace(target.numerics, wide_acc_bits=max(48, target.numerics.acc_bits))
    activations = Activations(
        bits=chosen.bits, **({"symmetric": True, "signed": True} if chosen.bits > 8 else {})
    )
    try:
        placement = place(one.graph, replace(target, numerics=numerics))
        done = quantize_graph(
            one.graph, placement.on_npu, one.ranges, Quantize(activations=activations), numerics
        )
        network, model = network_of(done.graph), to_tflite(done.graph)
    except NpuflowError as error:
        print(f"| {name} | {chosen.bits} | {error.message[:160]} |", flush=True)
        return
    rng, samples = np.random.default_rng(0), []
    for k in range(chosen.samples):
        given = {
            n: codes(one, v, f if k == 0 else rng.permuted(f, axis=-1))
            for (n, v), f in zip(network.inputs, one.feeds.values(), strict=True)
        }
        samples.append(sample(network, numerics, given))
    layers = judge_layers(done.graph, numerics, samples[0][0])
    worst = max(j.worst for j in layers.values())
    shares = sum(j.differ for j in layers.values()) / sum(j.codes for j in layers.values())
    whole = judge(model, samples)
    placed = vela(chosen.vela, model) if chosen.vela else ""
    print(
        f"| {name} | {chosen.bits} | {sum(model.operators.values())} | {len(model.model) / 1e6:.2f} "
        f"| {worst} | "
        f"{100 * shares:.2f} % | {whole.worst} | {100 * whole.differ / whole.codes:.1f} % | {placed} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--bits", type=int, default=8)
    parser.add_argument("--vela", default="")
    chosen = parser.parse_args()
    print("| network | bits | operators | MB | layers: worst | differ | whole: worst | differ | Vela |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in chosen.networks:
        graph = NETWORKS[name]()[0] if name in NETWORKS else of_file(name)[0]
        measure(Path(name).stem, subject(name, graph), chosen)


if __name__ == "__main__":
    main()
