"""Fashion network below 8 bits: top-1 of the float model, after calibration alone, and after training.

    python benchmarks/training.py DATA [--widths 3x4 2x4] [--steps 2000] [--pattern 2:4] [--threads 2]

DATA: the folder with the four idx.gz files (see examples/fashion/train.py). It needs the extra torch.
Calibration is what a build does by default (rounding by moments, thresholds by the outputs, bias correction),
with the same 256 images and widths; both are evaluated as integers on all 10,000 test images.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import npuflow
from npuflow.hw.target import Numerics
from npuflow.ir.codes import decode
from npuflow.whole.execute.executor import Executor

ROOT = Path(__file__).resolve().parent.parent
FASHION = ROOT / "examples" / "fashion"
HEAD = "| weights | activations | zeros | float | calibrated | trained | steps | processor seconds |\n"
RULE = "| --- | --- | --- | --- | --- | --- | --- | --- |"


def calibrated(weights: int, activations: int, images: np.ndarray, labels: np.ndarray, pattern: str) -> float:
    """Top-1 of a build's integers."""
    sys.path.insert(0, str(FASHION))
    import torch
    from train import MEAN, STD
    from train_quantized import float_network

    from npuflow.torch.prepare import reading

    _, network = reading(float_network(), (torch.zeros(1, 1, 28, 28),))

    def fed(given: np.ndarray) -> np.ndarray:
        return (given[:, None].astype(np.float32) - MEAN) / STD

    build = npuflow.compile(
        network,
        "edge-4t",
        data=fed(np.load(FASHION / "calib.npz")["image"][:256]).astype(np.float32),
        quantize={"weights": {"bits": weights}, "activations": {"bits": activations}},
        until="correct",
        precision={"strategy": "none"},
        **({"prune": {"pattern": pattern}} if pattern else {}),
    )
    graph = build.artifact("correct").graph
    numerics, faults = build.recipe.read(Numerics)
    assert numerics is not None, faults
    runner, right = Executor(graph, numerics, 50), 0
    (name,) = graph.outputs
    for first in range(0, len(images), 500):
        part = fed(images[first : first + 500]).astype(np.float32)
        rows = runner.run_many([{graph.inputs[0]: one[None]} for one in part])
        value = graph.values[name]
        made = [row[name] if value.quant is None else decode(row[name], value.quant) for row in rows]
        right += int((np.concatenate(made).argmax(1) == labels[first : first + 500]).sum())
    return right / len(images)


def trained(
    data: Path, weights: int, activations: int, steps: int, pattern: str, threads: int
) -> dict[str, float]:
    """What the example's script reports."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            str(FASHION / "train_quantized.py"),
            str(data),
            "--weights",
            str(weights),
            "--activations",
            str(activations),
            "--steps",
            str(steps),
            "--threads",
            str(threads),
            "--pattern",
            pattern,
            "--out",
            f"{folder}/model.onnx",
        ]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--widths", nargs="*", default=["3x4", "2x4"], help="weights x activations, bits")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--pattern", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--calibrate-only", action="store_true")
    args = parser.parse_args()
    sys.path.insert(0, str(FASHION))
    from train import read_idx

    images, labels = (read_idx(args.data / f"t10k-{n}-ubyte.gz") for n in ("images-idx3", "labels-idx1"))
    print(HEAD + RULE)
    for widths in args.widths:
        weights, activations = map(int, widths.split("x"))
        before = calibrated(weights, activations, images, labels, args.pattern)
        row = [str(weights), str(activations), args.pattern or "-"]
        if args.calibrate_only:
            print("|", " | ".join([*row, "", f"{100 * before:.2f}", "", "", ""]), "|", flush=True)
            continue
        found = trained(args.data, weights, activations, args.steps, args.pattern, args.threads)
        row += [f"{100 * found['float']:.2f}", f"{100 * before:.2f}", f"{100 * found['after']:.2f}"]
        row += [str(found["steps"]), f"{found['processor_seconds']:.0f}"]
        print("|", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main()
