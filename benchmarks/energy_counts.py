"""Multiply-accumulates and bytes behind the energy of single layers, beside ZigZag's of the same machine.

    python benchmarks/energy_counts.py [--zigzag PYTHON]

PYTHON is an interpreter with `pip install zigzag-dse six`; without it ZigZag's recorded figures are shown.
Both have an array of 32 x 64 behind 512 KB of local memory, and the target edge-4t's table of energy. ZigZag
minimises energy; npuflow's plans are for the fewest bytes, which `[tiling] minimise = "energy"` begins with,
and for the fewest cycles, the default, in the second table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from npuflow.ir.op import OPS
from npuflow.report.profile import Profile, profile
from npuflow.schedule.machine import Machine
from npuflow.search.plan import plan_network
from npuflow.stages.prices import MOST
from npuflow.stages.tiling import shipped_targets
from tests.networks.by_hand import Net
from tests.networks.harness import build

# name, channels, filters, output side, kernel; ZigZag 3.9.1's multiply-accumulates and bytes of DRAM
LAYERS = (
    ("conv 3x3", 64, 64, 26, 3, 24_920_064, 130_304),
    ("conv 1x1", 64, 128, 28, 1, 6_422_528, 158_720),
    ("dense", 512, 256, 4, 1, 2_097_152, 143_360),
)
REGISTERS = (("rf_w", "I2", 8, 16, ()), ("rf_o", "O", 32, 64, ("D2",)))
SCRIPT = """
import json, logging, sys, yaml
from zigzag.api import get_hardware_performance_zigzag as run
logging.disable(logging.CRITICAL)
for layer in json.load(open("layers.json")):
    yaml.safe_dump([layer], open("layer.yaml", "w"), sort_keys=False)
    found = run("layer.yaml", "machine.yaml", "mapping.yaml", opt="energy", dump_folder="out",
                loma_show_progress_bar=False)[2][0][1][0][0]
    moved = sum(levels[-1] for levels in found.mem_energy_breakdown.values()) / (WORD / 8)
    print("RESULT", found.layer.total_mac_count, round(moved))
"""


@dataclass(frozen=True)
class Counts:
    """Of a layer's program: multiply-accumulates, bytes of the bus, microjoules, cycles."""

    macs: int
    moved: int
    energy: float
    cycles: float

    @classmethod
    def of(cls, made: Profile) -> Counts:
        work, totals = made.work(), made.totals()
        return cls(sum(work.macs.values()), round(work.external), totals["energy_uj"], totals["cycles"])


def ours() -> list[tuple[Counts, Counts]]:
    """By layer the plan of the fewest bytes, and the default one."""
    target, found = shipped_targets()["edge-4t"], []
    machine = Machine(target.compute, target.memory, target.dma, byte_cost=MOST)
    for _, channels, filters, side, kernel, *_ in LAYERS:
        size = side + kernel - 1
        net = Net(1, channels, size, size)
        net.const("w", net.rng.normal(size=(filters, channels, kernel, kernel)) / channels)
        net.const("b", net.rng.normal(size=filters))
        net.add("y", OPS["conv"]((kernel, kernel), (1, 1), (1, 1), (0, 0, 0, 0)), "x", "w", "b")
        graph = net.quantised(["y"], numerics=target.numerics).graph
        plan = plan_network(graph, machine, target.numerics)
        few, fast = (Counts.of(profile(build(graph, target, one), target.energy)) for one in (plan, None))
        found.append((few, fast))
    return found


def zigzag(python: str) -> list[tuple[int, int]]:
    """By layer multiply-accumulates and bytes of DRAM, by ZigZag itself."""
    energy = shipped_targets()["edge-4t"].energy
    assert energy is not None
    word = 8 * energy.external_byte
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "layers.json").write_text(json.dumps([layer(*row[1:5]) for row in LAYERS]))
        (folder / "machine.yaml").write_text(json.dumps(machine(8 * energy.local_byte, word)))
        (folder / "mapping.yaml").write_text(json.dumps([{
            "name": "default", "spatial_mapping": {"D1": ["K, 64"], "D2": ["C, 32"]},
            "memory_operand_links": {"O": "O", "W": "I2", "I": "I1"},
        }]))
        script = SCRIPT.replace("WORD", repr(word))
        said = subprocess.run([python, "-c", script], cwd=folder, check=True, capture_output=True, text=True)
    rows = [line.split()[1:] for line in said.stdout.splitlines() if line.startswith("RESULT")]
    return [(int(float(macs)), int(moved)) for macs, moved in rows]


def layer(channels: int, filters: int, side: int, kernel: int) -> dict[str, Any]:
    """A convolution without padding, as ZigZag reads it."""
    size = side + kernel - 1
    return {
        "id": 0, "operator_type": "Conv",
        "equation": "O[b][k][oy][ox]+=W[k][c][fy][fx]*I[b][c][iy][ix]",
        "dimension_relations": ["ix=1*ox+1*fx", "iy=1*oy+1*fy"],
        "loop_dims": ["B", "K", "C", "OY", "OX", "FY", "FX"],
        "loop_sizes": [1, filters, channels, side, side, kernel, kernel],
        "operand_precision": {"W": 8, "I": 8, "O": 32, "O_final": 8}, "operand_source": {"I": 0, "W": 0},
        "pr_loop_dims": ["IX", "IY"], "pr_loop_sizes": [size, size], "padding": [[0, 0], [0, 0]],
    }


def machine(local: float, external: float) -> dict[str, Any]:
    """The array, its registers, local memory and DRAM; costs in pJ of 64 bits, ports of as many."""
    memories: dict[str, Any] = {}
    for name, operand, bits, size, served in REGISTERS:
        flows = (("r", "tl"), ("w", "fh")) if operand == "I2" else (
            ("r", "tl"), ("r", "th"), ("w", "fh"), ("w", "fl"))
        ports = [port(f"{way}_port_{i}", way, bits, bits, [f"{operand}, {flow}"])
                 for i, (way, flow) in enumerate(flows, 1)]
        memories[name] = memory(size, 0.0, [operand], ports, list(served))
    both = ["D1", "D2"]
    read = ["I1, tl", "I2, tl", "O, tl", "O, th"]
    write = ["I1, fh", "I2, fh", "O, fh", "O, fl"]
    every = ["I1", "I2", "O"]
    ports = [port("r_port_1", "r", 64, 4096, read), port("w_port_1", "w", 64, 4096, write)]
    memories["sram"] = memory(8 << 19, local, every, ports, both)
    memories["dram"] = memory(10**10, external, every, [port("rw_port_1", "rw", 64, 64, read + write)], both)
    array = {"unit_energy": 0.3, "unit_area": 1, "dimensions": both, "sizes": [64, 32]}
    return {"name": "edge", "memories": memories, "operational_array": array}


def memory(
    size: int, cost: float, operands: list[str], ports: list[Any], served: list[str]
) -> dict[str, Any]:
    return {
        "size": size, "r_cost": cost, "w_cost": cost, "area": 0, "latency": 1, "operands": operands,
        "ports": ports, "served_dimensions": served,
    }


def port(name: str, way: str, low: int, high: int, flows: list[str]) -> dict[str, Any]:
    kind = {"r": "read", "w": "write", "rw": "read_write"}[way]
    return {"name": name, "type": kind, "bandwidth_min": low, "bandwidth_max": high, "allocation": flows}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--zigzag", metavar="PYTHON")
    python = options.parse_args().zigzag
    theirs = zigzag(python) if python else [row[5:7] for row in LAYERS]
    rows = list(zip((row[0] for row in LAYERS), theirs, ours(), strict=True))
    columns = ("MACs: ZigZag", "npuflow", "bytes of DRAM: ZigZag", "npuflow", "ratio", "uJ")
    print(f"| layer | {' | '.join(columns)} |\n|{' --- |' * 7}")
    for name, (macs, moved), (few, _) in rows:
        cells = f"{macs:,} | {few.macs:,} | {moved:,} | {few.moved:,} | {few.moved / moved - 1:+.2%}"
        print(f"| {name} | {cells} | {few.energy:.2f} |")
    columns = ("bytes, default plan", "beside ZigZag's", "uJ", "cycles", "cycles, fewest bytes")
    print(f"\n| layer | {' | '.join(columns)} |\n|{' --- |' * 6}")
    for name, (_, moved), (few, fast) in rows:
        cells = f"{fast.moved:,} | {fast.moved / moved - 1:+.2%} | {fast.energy:.2f}"
        print(f"| {name} | {cells} | {fast.cycles:,.0f} | {few.cycles:,.0f} |")


if __name__ == "__main__":
    main()
