"""Bit-exact simulation beside plain onnxruntime fp32, in the same run.

    python benchmarks/simulate.py MODEL.onnx PROGRAM.npu ...
    python benchmarks/simulate.py --compile FOLDER resnet50 MODEL.onnx ...

The second form compiles networks (names of `shapes.py` or files) for edge-4t with wide sums at tiling level
3, with the ranges of one random sample, and keeps them in the folder.

Processor seconds of one thread (a busy machine stretches wall time). Hazards and clock are cached (they do
not depend on data), compiled kernels and plans warm, images decoded before; the first batch, with everything
cold, is printed beside.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from c_exact import integers, loaded, wide_sums
from shapes import planned

from npuflow.onnx.export import export_model
from npuflow.program.codegen.generate import generate
from npuflow.program.container import load_program
from npuflow.runner.simulated import ProgramRunner
from npuflow.sim.machine import SimulatedMachine


def session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def feeds(program: Any, count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    entries = program.meta["inputs"]
    return [
        {e["name"]: rng.normal(0, 1, e["shape"]).astype(e["dtype"]) for e in entries} for _ in range(count)
    ]


def measure(model: Path, path: Path, batch: int, rounds: int) -> dict[str, Any]:
    """Interleaved medians: fp32 passes of the same samples before and after every simulated batch."""
    program = load_program(path)
    samples = feeds(program, batch)
    plain, runner = session(model), ProgramRunner(program, batch)
    start = time.process_time()
    runner.run_many(samples)
    cold = time.process_time() - start
    plain.run(None, samples[0])
    float_times, sim_times = [], []
    for _ in range(rounds):
        start = time.process_time()
        for sample in samples:
            plain.run(None, sample)
        middle = time.process_time()
        runner.run_many(samples)
        float_times.append((middle - start) / batch)
        sim_times.append((time.process_time() - middle) / batch)
    fp32, simulated = float(np.median(float_times)), float(np.median(sim_times))
    return {
        "program": path.name,
        "commands": sum(len(w) for w in program.commands),
        "batch": batch,
        "first_batch_s": round(cold, 2),
        "fp32_ms": round(fp32 * 1e3, 2),
        "simulated_ms": round(simulated * 1e3, 2),
        "ratio": round(simulated / fp32, 2),
    }


def by_opcode(path: Path, batch: int) -> dict[str, tuple[float, int, int]]:
    """Milliseconds per sample, commands, and commands on the plain numpy path, by opcode."""
    machine = SimulatedMachine(load_program(path), batch)
    for segment in range(len(machine.order.segments)):
        machine.run(segment)
    spent: Counter[str] = Counter()
    count: Counter[str] = Counter()
    slow: Counter[str] = Counter()
    for (core, index), step in zip(machine.order.sequence, machine.steps, strict=True):
        name = machine.program.decoded[core][index].opcode
        start = time.process_time()
        step()
        spent[name] += time.process_time() - start
        count[name] += 1
        slow[name] += getattr(getattr(step, "func", step), "__module__", "").endswith(".exact")
    return {n: (round(t * 1e3 / batch, 3), count[n], slow[n]) for n, t in spent.most_common()}


def compiled(folder: Path, network: str, bits: int) -> tuple[Path, Path]:
    """Model and program of a network in the folder, made where it has none."""
    model, program = (folder / f"{Path(network).stem}-{bits}.{kind}" for kind in ("onnx", "npu"))
    if not program.exists():
        one, target = loaded(network), wide_sums("edge-4t")
        graph = integers(one, target, bits)
        folder.mkdir(parents=True, exist_ok=True)
        model.write_bytes(export_model(one.graph))
        generate(graph, planned(graph, target), target).save(program)
    return model, program


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="+", help="MODEL.onnx PROGRAM.npu, repeated")
    parser.add_argument("--compile", type=Path, metavar="FOLDER", help="compile networks into this folder")
    parser.add_argument("--bits", type=int, default=8, help="of activations, with --compile")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--opcodes", action="store_true", help="where the time goes")
    args = parser.parse_args()
    paths = [Path(name) for name in args.networks]
    pairs = list(zip(paths[::2], paths[1::2], strict=True)) if args.compile is None else []
    for model, program in pairs or [compiled(args.compile, name, args.bits) for name in args.networks]:
        print(json.dumps(measure(model, program, args.batch, args.rounds)))
        if args.opcodes:
            for name, (ms, count, slow) in by_opcode(program, args.batch).items():
                print(f"  {name:8s} {ms:9.3f} ms/sample {count:6d} commands, {slow} of them plain numpy")


if __name__ == "__main__":
    main()
