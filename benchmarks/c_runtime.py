"""The C runtime: its bits beside the simulator's, damaged files, its speed beside exported C.

    python benchmarks/c_runtime.py bits [--networks N] [--samples N] [--first SEED]
    python benchmarks/c_runtime.py fuzz [--count N]
    python benchmarks/c_runtime.py speed MODEL.onnx ...

bits: networks drawn at random, each with activations of 8 and of 16 bits, and recurrent ones with repeated
commands; random codes as inputs; the example program compiled by every compiler that there is, in four ways.
fuzz: these programs and one of every opcode, damaged in memory, under the address and undefined behaviour
sanitizers. speed: seconds of processor of a run by both, the least of three.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from npuflow.program.container import Program
from npuflow.runner import raw
from npuflow.whole.export_c.compiler import compilers
from tests.networks.looped import program_of, quantised
from tests.program.test_repeats import TARGET
from tests.rules.test_recurrent import layer
from tests.runtime.harness import ROOT, codes_of, simulated
from tests.runtime.test_networks import grown
from tests.sim import cases, float_cases
from tests.sim.programs import wrap

SANITIZERS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
WAYS = {"-O0": ("-O0",), "-O3": ("-O3",), "-O3 -march=native": ("-O3", "-march=native")}
STRICT = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-ffp-contract=off")
STRICT += (f"-I{ROOT / 'include'}",)
WIDTHS = (8, 16)


def example(folder: Path, compiler: str, flags: tuple[str, ...]) -> Path:
    """The example program; a name by its flags."""
    made = folder / f"run-{len(list(folder.glob('run-*')))}"
    sources = [str(ROOT / "example/run.c"), *sorted(map(str, (ROOT / "src").glob("*.c")))]
    subprocess.run([compiler, *STRICT, *flags, *sources, "-o", str(made), "-lm"], check=True)
    return made


def programs(count: int, first: int) -> Iterator[tuple[str, Program]]:
    """Networks that have programs in both widths, until there are so many; then loops."""
    seed, found = first, 0
    while found < count - 4:
        made = [grown(seed, bits) for bits in WIDTHS]
        if all(one is not None for one in made):
            found += 1
            yield from ((f"{seed}/{b}", one) for b, one in zip(WIDTHS, made, strict=True) if one is not None)
        seed += 1
    for kind in ("LSTM", "GRU"):
        for steps in (12, 24, 25, 40):
            graph = quantised(layer(kind, steps=steps), TARGET)[0]
            yield f"{kind} {steps}", program_of(graph, TARGET)


def bits(networks: int, samples: int, first: int) -> None:
    places = {Path(shutil.which(name) or name).resolve(): name for name in compilers()}
    known = [("clang" if "clang" in name else "gcc", name) for name in places.values()]
    with tempfile.TemporaryDirectory() as at:
        folder = Path(at)
        built = {f"{n} {way}": example(folder, c, flags) for n, c in known for way, flags in WAYS.items()}
        for name, compiler in known:
            if name.startswith("gcc"):
                built[f"{name} sanitizers"] = example(folder, compiler, ("-O1", *SANITIZERS))
            else:
                trap = "-O1", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"
                built[f"{name} UBSan"] = example(folder, compiler, trap)
        wrong, of, count, opcodes = dict.fromkeys(built, 0), 0, 0, set[str]()
        for _, program in programs(networks, first):
            count += 1
            opcodes |= {c.opcode for core in program.decoded for c in core}
            opcodes |= {"REPEAT", "ADVANCE"} if program.stored else set()
            rng = np.random.default_rng(count)
            codes = {slot.name: codes_of(slot, rng, samples) for slot in raw.inputs(program)}
            wanted = simulated(program, codes)
            body = b"".join(a[k].tobytes() for k in range(samples) for a in wanted.values())
            given = b"".join(a[k].tobytes() for k in range(samples) for a in codes.values())
            file = folder / "one.npu"
            file.write_bytes(program.to_bytes())
            of += len(body)
            for way, run in built.items():
                made = subprocess.run([run, file, "-"], input=given, capture_output=True, check=True).stdout
                assert len(made) == len(body), way
                wrong[way] += int((np.frombuffer(made, np.uint8) != np.frombuffer(body, np.uint8)).sum())
        print(f"{count} programs, {samples} inputs each, {of:,} bytes of outputs; {len(opcodes)} opcodes")
        print("| compiled by | bytes that differ |\n| --- | --- |")
        for way, number in wrong.items():
            print(f"| {way} | {number} |")


def fuzz(count: int) -> None:
    with tempfile.TemporaryDirectory() as at:
        folder = Path(at)
        made = folder / "fuzz"
        sources = [str(ROOT / "fuzz/fuzz.c"), *sorted(map(str, (ROOT / "src").glob("*.c")))]
        flags = *STRICT, "-O1", *SANITIZERS
        subprocess.run([compilers()[0], *flags, *sources, "-o", str(made), "-lm"], check=True)
        held = [one for _, one in programs(8, 0)]
        for opcode in {**cases.MAKERS, **float_cases.MAKERS}:
            kind = float_cases if opcode in float_cases.MAKERS else cases
            held.append(wrap(kind.random_case(3, opcode)))
        files = [folder / f"{k}.npu" for k in range(len(held))]
        for file, one in zip(files, held, strict=True):
            file.write_bytes(one.to_bytes())
        run = subprocess.run([made, str(count), "1", *files], capture_output=True, text=True, check=False)
        print(run.stdout or run.stderr, f"{len(files)} files, status {run.returncode}")


def speed(models: list[str]) -> None:
    from shapes import of_file, planned, target_named

    from npuflow.place.place import place
    from npuflow.program.codegen.generate import generate
    from npuflow.testing.quantised import quantize_graph
    from npuflow.testing.target import scheme
    from npuflow.whole.export_c import files, vectors
    from npuflow.whole.export_c.network import network_of
    from npuflow.whole.export_c.program import program_of as c_program
    from tests.networks.subjects import subject

    target, compiler = target_named("edge-4t"), compilers()[0]
    print("| network | commands | MMACs | load, ms | runtime, ms | exported C, ms | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for path in models:
        one = subject(path, of_file(path)[0])
        placed = place(one.graph, target)
        done = quantize_graph(one.graph, placed, one.ranges, scheme(target), target.numerics).graph
        program = generate(done, planned(done, target), target)
        with tempfile.TemporaryDirectory() as at:
            folder, rng = Path(at), np.random.default_rng(1)
            run, file = example(folder, compiler, ("-O3", "-march=native")), folder / "one.npu"
            program.save(file)
            slots = raw.inputs(program)
            codes = b"".join(codes_of(slot, rng, 1).tobytes() for slot in slots)
            times = {}
            for many in (0, 4, 8):
                times[many] = min(_timed([run, file, "-"], codes * many) for _ in range(3))
            network = network_of(done)
            exported = c_program(network, target.numerics, "net")
            found = vectors.random_samples(network, target.numerics, 1)
            files.write(exported, folder, found, 1 << 40)
            flags = "-std=c99", "-O3", "-march=native"
            words = [compiler, *flags, "net.c", "net_test.c", "-o", "net", "-lm"]
            subprocess.run(words, cwd=folder, check=True)
            words = ["./net", "net_test.bin", "8"]
            said = [subprocess.run(words, cwd=folder, capture_output=True, check=True) for _ in range(3)]
            theirs = min(float(one.stdout.split()[-2]) for one in said) / 1e3
        ours = (times[8] - times[4]) / 4
        macs = sum(node["macs"] for node in program.meta["nodes"]) / 1e6
        count = sum(map(len, program.commands))
        figures = f"{times[0] * 1e3:.1f} | {ours * 1e3:.2f} | {theirs * 1e3:.2f} | {ours / theirs:.1f}"
        print(f"| {Path(path).name} | {count} | {macs:.1f} | {figures} |", flush=True)


def _timed(words: list[object], given: bytes) -> float:
    """Seconds of processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(list(map(str, words)), input=given, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    parser.add_argument("what", choices=("bits", "fuzz", "speed"))
    parser.add_argument("models", nargs="*")
    parser.add_argument("--networks", type=int, default=40)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10000)
    asked = parser.parse_args()
    if asked.what == "bits":
        bits(asked.networks, asked.samples, asked.first)
    elif asked.what == "fuzz":
        fuzz(asked.count)
    else:
        speed(asked.models)
