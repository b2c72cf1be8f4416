"""Language models in the C runtime: bits beside the simulator's, damaged files, speed beside the executor.

    python benchmarks/c_language.py bits [--family NAME ...] [--all-rows]
    python benchmarks/c_language.py fuzz [--count N] [--all-rows]
    python benchmarks/c_language.py text FILE.npu CHECKPOINT TEXT [--tokens N]

bits: tiny random checkpoints of several families, programs of one and of four tokens a run over one cache, at
several splits of a sequence that fills it; logits and caches behind every run. fuzz: these files, damaged in
memory, under the address and undefined behaviour sanitizers. --all-rows: of programs that are built with
`[program] index = false`. text: what the example `generate` and
`npuflow generate`'s Runner make of a text, and the seconds of processor of both, one after the other.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from npuflow import Runner
from npuflow.checkpoints import opened
from npuflow.checkpoints.tokenizer import tokenizer
from tests.program.test_indices import CONTEXT, Decoder
from tests.runtime.harness import COMPILERS, ROOT, library
from tests.runtime.test_language import FAMILIES, SPLITS, TOKENS, Simulated, beside, file_of, real

TARGETS = ("edge-8t", "bm1684x")
WAYS = {"-O0": ("-O0",), "-O2": ("-O2",), "-O3 -march=native": ("-O3", "-march=native")}


def bits(families: list[str], indexed: bool) -> None:
    """One row a family and target: bytes compared, and how many differ, in all ways together."""
    print("| family | target | ways | runs | bytes compared | different |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        ways = []
        for compiler in dict.fromkeys(COMPILERS[1:] or COMPILERS):
            for k, flags in enumerate(WAYS.values()):
                own = Path(folder) / f"{compiler}{k}"
                own.mkdir()
                ways.append(library(own, flags, compiler))
        for family in families:
            for target in TARGETS:
                runs, of, wrong = compared(ways, file_of(family, target, indexed))
                print(f"| {family} | {target} | {len(ways)} | {runs} | {of:,} | {wrong} |", flush=True)


def compared(ways: list, programs: tuple[bytes, tuple[Decoder, Decoder]]) -> tuple[int, int, int]:
    file, both = programs
    runs = of = wrong = 0
    entries = []
    for way in ways:
        first = beside(way, file, "chunk=1")
        entries.append({1: first, 4: beside(way, file, "chunk=4", first)})
    for chunks in SPLITS:
        simulated, at = Simulated(*both), 0
        for entry in entries:
            entry[1].reset()
        for chunk in chunks:
            tokens = TOKENS[at : at + chunk]
            wanted = simulated.run(tokens)
            for entry in entries:
                made = entry[chunk].run({"tokens": np.array([tokens])})
                runs += 1
                for name, array in wanted.items():
                    found = made[name]
                    if array.dtype.kind == "f":
                        found = real(entry[chunk], name, found)
                    same = found.reshape(array.shape).view(np.uint8) == array.view(np.uint8)
                    of, wrong = of + same.size, wrong + int((~same).sum())
            at += chunk
    assert at == CONTEXT
    return runs, of, wrong


def fuzz(count: int, indexed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for target in TARGETS:
            files.append(Path(folder) / f"{target}.npu")
            files[-1].write_bytes(file_of("llama", target, indexed)[0])
        make = ["make", "-s", "-C", str(ROOT), f"BUILD={folder}", f"{folder}/fuzz"]
        subprocess.run(make, check=True)
        subprocess.run([f"{folder}/fuzz", str(count), "1", *map(str, files)], check=True)


def text(file: Path, checkpoint: Path, said: str, count: int) -> None:
    """Both from the same tokens; a line of figures each."""
    words = tokenizer(opened(checkpoint))
    prompt = words.encode(said)
    print(f"prompt of {len(prompt)} tokens, {count} more")
    made = {}
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "tokens.txt"
        given.write_text(" ".join(map(str, prompt)))
        for flags in ("-O2", "-O3 -march=native"):
            build = Path(folder) / flags.replace(" ", "")
            subprocess.run(["make", "-s", "-C", str(ROOT), f"BUILD={build}", f"CFLAGS={flags}",
                            f"{build}/generate"], check=True)
            run = subprocess.run([f"{build}/generate", str(file), str(given), str(count)],
                                 capture_output=True, text=True, check=True)
            made[f"C runtime, {flags}"] = [int(line) for line in run.stdout.split()]
            print(f"C runtime, {flags}: {run.stderr.strip()}", flush=True)
    session, own = Runner(file).session(), list[int]()
    start = time.process_time()
    logits = session.append(prompt)
    own.append(int(logits.argmax()))
    first = time.process_time()
    while len(own) < count:
        own.append(int(session.append(own[-1:]).argmax()))
    rate = (count - 1) / (time.process_time() - first)
    print(f"executor: first token after {first - start:.3f} s, {rate:.2f} tokens/s of the processor")
    made["executor"] = own
    same = len({tuple(tokens) for tokens in made.values()}) == 1
    print(f"tokens equal: {same}; {words.decode(own)!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    judged = kinds.add_parser("bits")
    judged.add_argument("--family", action="append")
    damage = kinds.add_parser("fuzz")
    damage.add_argument("--count", type=int, default=10000)
    for each in (judged, damage):
        each.add_argument("--all-rows", action="store_true")
    one = kinds.add_parser("text")
    for name, kind in (("file", Path), ("checkpoint", Path), ("said", str)):
        one.add_argument(name, type=kind)
    one.add_argument("--tokens", type=int, default=16)
    given = parser.parse_args()
    if given.kind == "bits":
        bits(given.family or FAMILIES, not given.all_rows)
    elif given.kind == "fuzz":
        fuzz(given.count, not given.all_rows)
    else:
        text(given.file, given.checkpoint, given.said, given.tokens)


if __name__ == "__main__":
    main()
