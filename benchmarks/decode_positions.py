"""What a token costs behind 32, 256 and 1,024 others of a context of 2,048.

    python benchmarks/decode_positions.py [--targets bm1684x,edge-8t] [--models tiny,middle] [--bits 8]
        [--write]
    python benchmarks/decode_positions.py --chunk 128 --models two --targets bm1684x
    python benchmarks/decode_positions.py --program FILE.npu --checkpoint FILE.gguf

Builds programs of one token a run from random checkpoints of Llama's family in Q4_1, to the commands, and
reads the clock at every position. `least` is what the bus takes for the codes, scales and minima of all
matrices and for the keys and values of the tokens so far, in 16 bits (`--bits 8`: in 8): cycles. `gap`:
cycles over these.
`whole`: cycles of the program with `[program] index = false`, which reads all of the cache in every run.
The second form prints rows of a chunk of so many tokens a run, the third the table of a program that was
built, for each of its networks.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import study

ROOT = Path(__file__).resolve().parent.parent
CONTEXT, POSITIONS = 2048, (32, 256, 1024)
NUMBERS = {"edge-8t": "activations.bits = 16", "bm1684x": 'mode = "bf16"'}
MODELS: dict[str, dict[str, Any]] = {
    "tiny": {"width": 64, "feed": 192, "layers": 2, "heads": 4, "keys": 2, "size": 16, "tokens": 256},
    "middle": {"width": 512, "feed": 1536, "layers": 4, "heads": 8, "keys": 4, "size": 64, "tokens": 4096},
    "two": {"width": 576, "feed": 1536, "layers": 2, "heads": 9, "keys": 3, "size": 64, "tokens": 4096},
}
SIZES = """Tiny: 2 layers of 64 over 2 key heads of 16, 256 tokens; middle: 4 of 512 over 4 of 64,
4,096 tokens. The clock has no cycles of the host here. The tiny model's runs are mostly short commands
that wait for each other."""
RECIPE = """target = "{target}"
[model]
path = "net.gguf"
dims = {{ chunk = {chunk}, context = {context} }}
[data]
source = "calib.npz"
[quantize]
{numbers}
[sequences]
samples = 16
[correct]
bias = "off"
[precision]
strategy = "none"
"""


def checkpoint(folder: Path, shape: dict[str, Any]) -> Path:
    """A folder with random weights, and as GGUF."""
    sys.path.insert(0, str(ROOT))
    from tests.checkpoints.gguf_files import write
    from tests.checkpoints.random_llama import write_llama

    return write(write_llama(folder / "source", shape, CONTEXT), folder / "net.gguf", "Q4_1")


def rows(target: str, name: str, chunk: int = 1, bits: int = 16) -> list[str]:
    """The figures of a model on a target, by position. `chunk`: tokens a run; `bits`: of caches."""
    from npuflow.checkpoints import opened
    from npuflow.program.order import order_of
    from npuflow.sim.clock import timeline_of
    from npuflow.testing.stage import built

    shape, found = MODELS[name], []
    numbers = NUMBERS[target] + ("\ncache = 8" if bits == 8 else "")
    with tempfile.TemporaryDirectory(prefix="npuflow-positions-") as place:
        folder = Path(place)
        file = checkpoint(folder, shape)
        tokens = np.random.default_rng(1).integers(3, shape["tokens"], (2, 8, 1, chunk))
        np.savez(folder / "calib.npz", tokens=tokens)
        (folder / "net.toml").write_text(
            RECIPE.format(target=target, chunk=chunk, context=CONTEXT, numbers=numbers)
        )
        programs = []
        for sets in ([], ["program.index=false"]):
            done = built(folder / "net.toml", folder / "cache", "codegen", sets)
            (product,) = done.products("codegen").values()
            programs.append(product.program)  # type: ignore[attr-defined]
        program, other = programs
        stored = sum(one.nbytes for one in opened(file).tensors.values() if len(one.shape) > 1)
    whole = timeline_of(other, order_of(other)).cycles
    for position in POSITIONS if chunk == 1 else (0, *POSITIONS, CONTEXT - chunk):
        part = program.at({"position": position}) if program.meta.get("indices") else program
        cycles = timeline_of(part, order_of(part)).cycles
        cache = 2 * bits // 8 * shape["layers"] * shape["keys"] * shape["size"] * (position + chunk)
        least = (stored + cache) / program.target.memory.external_bandwidth
        found.append(
            f"| {target} | {name} | {position:,} | {cycles:,.0f} | {least:,.0f} | {cycles / least:.2f} | "
            f"{whole:,.0f} |"
        )
    return found


def rows_of_file(path: Path, checkpoint: Path) -> list[str]:
    """The figures of every network of a built program, from an empty cache to a full one."""
    from npuflow.checkpoints import opened
    from npuflow.program.order import order_of
    from npuflow.program.packing.package import load_file
    from npuflow.sim.clock import timeline_of

    source, found = opened(checkpoint), []
    stored = sum(one.nbytes for one in source.tensors.values() if len(one.shape) > 1)
    for name, program in load_file(path).networks.items():
        chunk = int(name.partition("=")[2])
        caches = [one for one in program.meta["inputs"] if one["name"].startswith("cache")]
        context = max(max(one["shape"]) for one in caches)
        token = sum(2 * np.prod(one["shape"]) // context for one in caches)
        for position in sorted({*(p for p in (0, *POSITIONS) if p + chunk <= context), context - chunk}):
            part = program.at({"position": position})
            timeline = timeline_of(part, order_of(part))
            least = (stored + token * (position + chunk)) / program.target.memory.external_bandwidth
            found.append(
                f"| {chunk} | {position:,} | {timeline.cycles:,.0f} | {least:,.0f} | "
                f"{timeline.cycles / least:.2f} |"
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--targets", default="bm1684x,edge-8t")
    parser.add_argument("--models", default="tiny,middle")
    parser.add_argument("--chunk", type=int, default=1)
    parser.add_argument("--bits", type=int, default=16, choices=(8, 16))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--program", type=Path)
    parser.add_argument("--checkpoint", type=Path)
    chosen = parser.parse_args()
    if chosen.program is not None:
        print("| chunk | position | cycles | least | gap |", "| --- |" + " ---: |" * 4, sep="\n")
        print("\n".join(rows_of_file(chosen.program, chosen.checkpoint)))
        return
    columns = ("target", "model", "position", "cycles", "least", "gap", "whole")
    table = [f"| {' | '.join(columns)} |", "| --- | --- |" + " ---: |" * 5]
    for name in chosen.models.split(","):
        for target in chosen.targets.split(","):
            found = rows(target, name, chosen.chunk, chosen.bits)
            table += found
            print("\n".join(found), flush=True)
    if chosen.write:
        title, *rest = (__doc__ or "").strip().split("\n\n")
        study.write(__file__, "\n\n".join([f"# {title[:-1]}", *rest[1:], "\n".join(table), SIZES]) + "\n")


if __name__ == "__main__":
    main()
