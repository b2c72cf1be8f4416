"""Architectures of torchvision and timm through ExecuTorch: PT2E, npuflow's partitioner, a .pte that runs.

    python benchmarks/executorch_architectures.py [--target T] [--state FILE] [NAME...]   # prints its study

Each has random weights and is quantised by PT2E with npuflow's quantiser on 4 inputs, lowered with npuflow's
partitioner, and run from its .pte by ExecuTorch's runtime on 4 other inputs. The judge is the .npu that
`npuflow.compile` builds from the same quantised program as a .pt2 file: it has the same scales, and comes
neither through the Edge dialect nor through partitions. Rows are kept in FILE.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from executorch.exir import to_edge_transform_and_lower
from torch_architectures import TIMM, TORCHVISION, first, network
from torchao.quantization.pt2e import MinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import npuflow
from npuflow.apps.executorch import NpuflowPartitioner, NpuflowQuantizer
from npuflow.apps.executorch.request import RANGES_KEPT
from npuflow.apps.executorch.runtime import load

NAMES = (
    "alexnet", "mobilenet_v2", "mobilenet_v3_small", "mnasnet0_5", "resnet18", "regnet_x_400mf",
    "squeezenet1_1", "shufflenet_v2_x0_5", "efficientnet_b0", "lcnet_050", "repvgg_a0", "poolformer_s12",
)
CALIBRATED, RUN = 4, 4


def row(name: str, target: str, folder: Path) -> dict[str, Any]:
    """Of one architecture: operators delegated, delegates, and what differs."""
    module, x = network(name)
    torch.manual_seed(1)
    samples = [torch.randn_like(x) for _ in range(CALIBRATED)]
    inputs = [torch.randn_like(x) for _ in range(RUN)]
    started = time.time()
    quantizer = NpuflowQuantizer(target, observer=MinMaxObserver)
    prepared = prepare_pt2e(torch.export.export(module, (x,)).module(), quantizer)
    with torch.no_grad():
        for sample in samples:
            prepared(sample)
    quantised = convert_pt2e(prepared)
    program = torch.export.export(quantised, (x,))
    partitioner = NpuflowPartitioner(quantizer, samples=samples, cache=folder / "cache")
    edge = to_edge_transform_and_lower(program, partitioner=[partitioner])
    delegates = sum("executorch_call_delegate" in str(n.target) for n in edge.exported_program().graph.nodes)
    path = folder / "net.pte"
    path.write_bytes(edge.to_executorch().buffer)
    lowered = time.time() - started
    method = load(path)
    got = [np.asarray(method(one)[0]) for one in inputs]
    runner = npuflow.Runner(judge(program, target, np.stack(samples), folder))
    (port,) = runner.inputs
    wanted = [np.asarray(runner.run({port.name: one.numpy()})[runner.outputs[0].name]) for one in inputs]
    with torch.no_grad():
        real = [first(module(one)) for one in inputs]
    operators, left = partitioner.counts()
    return {
        "input": x.shape[-1], "operators": operators, "left": left, "delegates": delegates,
        "values": sum(one.size for one in wanted),
        "differ": int(sum((a != b).sum() for a, b in zip(got, wanted, strict=True))),
        "db": round(decibels(got, real), 1), "kb": round(path.stat().st_size / 1000), "s": round(lowered),
        "reasons": partitioner.report().splitlines()[1:],
    }


def judge(program: Any, target: str, samples: Any, folder: Path) -> Any:
    """The .npu of the same program, read from its .pt2 file. Samples have the shape that the partition's
    have: which of them fit ranges and which choose follows from what they hold, shapes included."""
    path = folder / "net.pt2"
    torch.export.save(program, path)
    (name,) = program.graph_signature.user_inputs
    build = npuflow.compile(
        path, target, data={name: samples}, cache=folder / "judge", out=folder / "out", jobs=1,
        until="codegen", **RANGES_KEPT,
    )
    return build.program


def decibels(got: list[Any], real: list[Any]) -> float:
    noise = sum(float(((a - b) ** 2).sum()) for a, b in zip(got, real, strict=True))
    return float(10 * np.log10(sum(float((b**2).sum()) for b in real) / max(noise, 1e-30)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--target", default="edge-4t")
    parser.add_argument("--state", type=Path, default=Path(tempfile.gettempdir()) / "executorch_rows.json")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    rows = json.loads(args.state.read_text()) if args.state.is_file() else {}
    unknown = [name for name in args.names if name not in {*TORCHVISION, *TIMM}]
    if unknown:
        raise SystemExit(f"not known: {', '.join(unknown)}")
    for name in args.names:
        if name in rows and "error" not in rows[name]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                rows[name] = row(name, args.target, Path(folder))
            except Exception as fault:  # a row says what stopped it
                rows[name] = {"error": f"{type(fault).__name__}: {' '.join(str(fault).split())[:300]}"}
        args.state.write_text(json.dumps(rows))
        sys.stderr.write(f"{name}: {rows[name]}\n")
    page({name: rows[name] for name in args.names}, args.target)


def page(rows: dict[str, Any], target: str) -> None:
    print("# Architectures through ExecuTorch\n")
    print(f"Random weights, {target}: PT2E with npuflow's quantiser on {CALIBRATED} inputs, npuflow's")
    print("partitioner, and the `.pte` run by ExecuTorch's runtime, against the `.npu` of the same program")
    print(f"as a `.pt2` file: values of {RUN} inputs that differ. `dB`: the outputs beside the float")
    print("network's. `benchmarks/executorch_architectures.py` prints this page.\n")
    print("| architecture | input | operators | left out | delegates | values | differ | dB | kB | s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    columns = ("input", "operators", "left", "delegates", "values", "differ", "db", "kb", "s")
    for name, one in rows.items():
        print(f"| {name} | {one.get('error') or ' | '.join(str(one[key]) for key in columns)} |")
    for name, one in rows.items():
        if one.get("reasons"):
            print(f"\n{name}, left out:\n" + "\n".join(f"-{line}" for line in one["reasons"]))


if __name__ == "__main__":
    main()
