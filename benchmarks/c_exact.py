"""Generated C beside the whole-tensor executor and the simulator, bit for bit, over many samples.

    python benchmarks/c_exact.py --table c_exact.csv [--samples 100] [--bits 8|16] MODEL.onnx ...

Networks are names of `shapes.py` or files; ranges are those of one random sample, the target is edge-4t with
wide sums. Inputs are random codes. The outputs that the C program must give are the whole-tensor executor's,
which every build proves equal to the simulator's; the first two are the reference interpreter's, and the
first `--simulated` also run on the simulator of the generated program. Then every compiler on the path, -O0
and -O3, AVX2 and UBSan: codes that differ over all samples. Rows are appended to the table as they are found;
networks that it holds are left out. Networks that are not whole on the NPU are listed with the others.
`--slow N` runs the builds that no vector unit helps (-O0, and UBSan without AVX2) on the first N samples.
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from shapes import NETWORKS, of_file, target_named

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from npuflow.base.errors import NpuflowError
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array, Value
from npuflow.place.place import place
from npuflow.program.codegen.generate import generate
from npuflow.quantise.config import Activations, Quantize
from npuflow.runner.simulated import ProgramRunner
from npuflow.schedule.machine import Machine
from npuflow.search.plan import plan_network
from npuflow.testing.quantised import quantize_graph
from npuflow.whole.export_c import files
from npuflow.whole.export_c.compiler import compilers
from npuflow.whole.export_c.files import Sample
from npuflow.whole.export_c.network import IntegerNetwork, network_of
from npuflow.whole.export_c.program import program_of
from npuflow.whole.export_c.vectors import executed, random_samples
from tests.networks.subjects import Subject, subject

# of inputs with free dimensions
SHAPES = {
    "ppocrv4-rec": {"x": (1, 3, 48, 320)},
    "ppocrv4-det": {"x": (1, 3, 320, 320)},
    "attacut-c": {"input": (1, 96)},
}
UB = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
FLAGS = (("-O0",), ("-O3",), ("-O3", "-mavx2"), ("-O1", *UB), ("-O2", "-mavx2", *UB))
SLOW = (("-O0",), ("-O1", *UB))
HEAD = ("network", "bits", "samples", "slow", "simulated", "builds", "differ", "seconds", "reason")


def feedable(graph: Graph, network: IntegerNetwork, target: Target, sample: Sample) -> Sample:
    """The sample, with codes that stand for whole numbers where the network's own input takes these."""
    given, ends = dict(sample[0]), dict(network.inputs)
    for name, codes in sample[0].items():
        quant = ends[name].quant
        if quant is not None and graph.type(name).dtype.startswith(("int", "uint")):
            nearest = np.rint(np.rint(_real(codes, ends[name])) / quant.scale[0]) + quant.zero_point[0]
            given[name] = np.clip(nearest, quant.lo, quant.hi).astype(codes.dtype)
    if all(np.array_equal(codes, given[name]) for name, codes in sample[0].items()):
        return sample
    inputs, outputs = executed(network, target.numerics, [given])[0]
    return inputs, outputs


def simulated(graph: Graph, network: IntegerNetwork, target: Target, samples: Sequence[Sample]) -> int:
    """Codes of the outputs in which the simulator of the generated program differs."""
    machine = Machine(target.compute, target.memory, target.dma)
    program = generate(graph, plan_network(graph, machine, target.numerics, level=1), target)
    values, wrong = dict(network.outputs), 0
    runner = ProgramRunner(program, min(8, len(samples)))
    ends = dict(network.inputs)
    samples = [feedable(graph, network, target, sample) for sample in samples]
    fed = [
        {name: _fed(_real(array, ends[name]), graph.type(name).dtype) for name, array in given.items()}
        for given, _ in samples
    ]
    found = runner.run_many(fed, dump=[value.id for value in values.values()])
    for got, (_, want) in zip(found, samples, strict=True):
        wrong += sum(int(np.count_nonzero(got[values[n].id] != a)) for n, a in want.items())
    return wrong


def _fed(real: Array, dtype: str) -> Array:
    return (np.rint(real) if np.dtype(dtype).kind in "iu" else real).astype(dtype)


def _real(codes: Array, value: Value) -> Array:
    quant = value.quant
    assert quant is not None
    return (quant.scale[0] * (codes.astype(np.float64) - quant.zero_point[0])).astype(np.float32)


def built(folder: Path, compiler: str, flags: tuple[str, ...]) -> Path:
    made = folder / "-".join(("test", compiler, *(f.strip("-") for f in flags))).replace("=", "-")
    words = [compiler, "-std=c99", *flags, "-o", str(made), "net.c", "net_test.c"]
    subprocess.run(words, cwd=folder, check=True)
    return made


def ran(program: Path, rounds: int = 0, vector: str = "net_test.bin") -> tuple[int, float]:
    """Codes that differ, -1 where the program stops, and milliseconds of a run."""
    words = [str(program), vector, str(rounds)]
    reported = subprocess.run(words, cwd=program.parent, capture_output=True, text=True, check=False).stdout
    differ, ms = re.search(r"(\d+) codes differ", reported), re.search(r"([\d.]+) ms", reported)
    return int(differ[1]) if differ else -1, float(ms[1]) if ms else 0.0


def wide_sums(name: str) -> Target:
    """A target whose sums are wide enough for 16 bits."""
    target = target_named(name)
    numerics = replace(target.numerics, wide_acc_bits=max(48, target.numerics.acc_bits))
    return replace(target, numerics=numerics)


def integers(one: Subject, target: Target, bits: int) -> Graph:
    config, placement = Quantize(activations=Activations(bits=bits)), place(one.graph, target)
    return quantize_graph(one.graph, placement.on_npu, one.ranges, config, target.numerics).graph


def loaded(path: str) -> Subject:
    """A network of `shapes.py` or of a file, with one random sample."""
    name = Path(path).stem
    return subject(name, NETWORKS[path]()[0] if path in NETWORKS else of_file(path, SHAPES.get(name, {}))[0])


def measure(one: Subject, bits: int, count: int, slow: int, on_simulator: int) -> Mapping[str, object]:
    """The row of one network; NpuflowError where it is not whole on the NPU."""
    target, begun = wide_sums("edge-4t"), time.monotonic()
    graph, numerics = integers(one, target, bits), target.numerics
    network = network_of(graph)
    program = program_of(network, numerics, "net")
    passed = _clock(begun)
    samples = random_samples(network, numerics, count)
    _, executors = executed(network, numerics, [samples[0][0]])[0]
    assert all(np.array_equal(samples[0][1][n], a) for n, a in executors.items())
    passed("samples")
    wrong = {"simulator": simulated(graph, network, target, samples[:on_simulator])}
    passed("simulator")
    with tempfile.TemporaryDirectory() as made:
        files.write(program, Path(made), samples, large=1 << 18)
        whole = (Path(made) / "net_test.bin").read_bytes()
        (Path(made) / "slow.bin").write_bytes(whole[: len(whole) // count * slow])
        for compiler in [c for c in ("gcc", "clang") if c in compilers()]:
            for flags in FLAGS:
                vector = "slow.bin" if flags in SLOW else "net_test.bin"
                name = " ".join((compiler, *flags))
                test = built(Path(made), compiler, flags)
                passed(f"{name} compiled")
                wrong[name] = ran(test, vector=vector)[0]
                passed(f"{name} run")
    return {
        "samples": count,
        "slow": slow,
        "simulated": on_simulator,
        "builds": len(wrong) - 1,
        "differ": sum(n != 0 for n in wrong.values()),
        "seconds": round(time.monotonic() - begun),
        "reason": "; ".join(f"{name}: {n}" for name, n in wrong.items() if n),
    }


def _clock(begun: float) -> Callable[[str], None]:
    """Prints what took how long, as it goes."""
    last = [begun]

    def passed(what: str) -> None:
        now = time.monotonic()
        print(f"  {now - last[0]:7.1f} s  {what}", flush=True)
        last[0] = now

    return passed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--slow", type=int)
    parser.add_argument("--simulated", type=int, default=4)
    parser.add_argument("--bits", type=int, default=8)
    chosen = parser.parse_args()
    if not chosen.table.exists():
        chosen.table.write_text(",".join(HEAD) + "\n", encoding="utf-8")
    with chosen.table.open(encoding="utf-8") as held:
        done = {(row["network"], row["bits"]) for row in csv.DictReader(held)}
    for path in chosen.networks:
        name = Path(path).stem
        if (name, str(chosen.bits)) in done:
            continue
        row: dict[str, object] = {"network": name, "bits": chosen.bits}
        try:
            slow = min(chosen.slow or chosen.samples, chosen.samples)
            row |= measure(loaded(path), chosen.bits, chosen.samples, slow, chosen.simulated)
        except NpuflowError as error:
            row["reason"] = error.message
        with chosen.table.open("a", encoding="utf-8", newline="") as table:
            csv.DictWriter(table, HEAD).writerow(row)
        print(row, flush=True)


if __name__ == "__main__":
    main()
