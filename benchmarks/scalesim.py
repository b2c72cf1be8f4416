"""The clock's cycles of single layers on a weight-stationary 32 x 32 array beside SCALE-Sim's.

    python benchmarks/scalesim.py [PYTHON] [--write]

PYTHON is an interpreter with `pip install scalesim "numpy<2.3"`; without it only npuflow's figures and
SCALE-Sim's recorded ones are shown. The layers are ResNet-50's, named as in SCALE-Sim's topology list.
SCALE-Sim loads an array of weights row by row, lets all positions stream through, and drains before the next
fold: R + T + (R - 1) + (C - 1) cycles a fold of T positions. npuflow's clock has that as `pass_cycles = 2 R +
C - 2`; its passes are counted per kernel position, SCALE-Sim's over kernel positions and channels together,
which differ where the channels are no multiple of the rows.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import study

from npuflow.hw.encode import decode, encode
from npuflow.hw.isa import Terms
from npuflow.hw.target import Compute, Target
from npuflow.kernels.cycles import terms_of

SIDE = 32
# name, height and width with padding, kernel, channels, filters, stride; SCALE-Sim 3.0.0's compute cycles
LAYERS = (
    ("CB2a_1", 56, 1, 64, 64, 1, 12_919),
    ("CB2a_2", 58, 3, 64, 64, 1, 116_279),
    ("IB5c_1", 7, 1, 2048, 512, 1, 146_431),
)
CONFIG = f"""[general]
run_name = ws
[architecture_presets]
ArrayHeight: {SIDE}
ArrayWidth: {SIDE}
IfmapSramSzkB: 512
FilterSramSzkB: 512
OfmapSramSzkB: 512
IfmapOffset: 0
FilterOffset: 10000000
OfmapOffset: 20000000
Bandwidth: 32
Dataflow: ws
MemoryBanks: 1
ReadRequestBuffer: 32
WriteRequestBuffer: 32
[layout]
IfmapCustomLayout: False
IfmapSRAMBankBandwidth: 10
IfmapSRAMBankNum: 10
IfmapSRAMBankPort: 2
FilterCustomLayout: False
FilterSRAMBankBandwidth: 10
FilterSRAMBankNum: 10
FilterSRAMBankPort: 2
[sparsity]
SparsitySupport: false
SparseRep: ellpack_block
OptimizedMapping: false
BlockSize: 8
RandomNumberGeneratorSeed: 40
[run_presets]
InterfaceBandwidth: CALC
UseRamulatorTrace: False
"""
TARGET = Target(
    compute=Compute(
        array_rows=SIDE, array_cols=SIDE, fill_cycles=0, command_cycles=0, pass_cycles=3 * SIDE - 2
    )
)


def ours(size: int, kernel: int, channels: int, filters: int, stride: int) -> Terms:
    """One CONV command for the whole layer, whose input has its padding."""
    out = (size - kernel) // stride + 1
    fields = {
        "x": 0,
        "x_type": "int8",
        "x_strides": (channels * size * size, size * size, size, 1),
        "x_dims": (1, channels, size, size),
        "x_zero": 0,
        "w": 0,
        "w_type": "int8",
        "w_zero": 0,
        "acc": 0,
        "acc_type": "int32",
        "batch": 1,
        "out_channels": filters,
        "out_height": out,
        "out_width": out,
        "groups": 1,
        "kernel": (kernel, kernel),
        "stride": (stride, stride),
        "dilation": (1, 1),
        "origin": (0, 0),
        "insert": (1, 1),
        "accumulate": 0,
    }
    return terms_of(decode(encode("CONV", fields, queue=2)), TARGET)


def folds(size: int, kernel: int, channels: int, filters: int, stride: int) -> tuple[int, int]:
    """(SCALE-Sim's folds, npuflow's passes)."""
    theirs = -(-kernel * kernel * channels // SIDE) * -(-filters // SIDE)
    return theirs, kernel * kernel * -(-channels // SIDE) * -(-filters // SIDE)


def scalesim(python: str) -> dict[str, int]:
    """Layer -> compute cycles, by SCALE-Sim itself (its total adds the first fill of its memories)."""
    head = (
        "Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,\n"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ws.cfg").write_text(CONFIG)
        rows = (f"{n}, {s}, {s}, {k}, {k}, {c}, {f}, {t},\n" for n, s, k, c, f, t, _ in LAYERS)
        (folder / "top.csv").write_text(head + "".join(rows))
        command = [
            python,
            "-m",
            "scalesim.scale",
            "-t",
            "top.csv",
            "-l",
            "top.csv",
            "-c",
            "ws.cfg",
            "-p",
            "out",
            "-s",
            "N",
        ]
        said = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    found = [int(line.split(":")[1]) for line in said.splitlines() if line.startswith("Compute cycles")]
    return {row[0]: cycles for row, cycles in zip(LAYERS, found, strict=True)}


def main(arguments: list[str]) -> None:
    python = next((a for a in arguments if not a.startswith("--")), "")
    found = scalesim(python) if python else {}
    lines = [
        ("| layer | positions | folds: SCALE-Sim / npuflow | SCALE-Sim | npuflow | ratio | array | reload | "
        "edge |"),
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, size, kernel, channels, filters, stride, recorded in LAYERS:
        terms = ours(size, kernel, channels, filters, stride)
        theirs = found.get(name, recorded)
        a, b = folds(size, kernel, channels, filters, stride)
        lines.append(
            f"| {name} | {((size - kernel) // stride + 1) ** 2} | {a} / {b} | {theirs:,} | {terms.total:,} "
            f"| {terms.total / theirs - 1:+.2%} | {terms.array:,.0f} | {terms.reload:,} | {terms.edge:,.0f} |"
        )
    print("\n".join(lines))
    if "--write" in arguments:
        about = "\n".join((__doc__ or "").strip().splitlines()[4:])
        study.write(__file__, f"# Beside SCALE-Sim 3.0.0\n\n{about}\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
