"""What laying out memory gains: results in place, local lives in banks of their own.

    python benchmarks/memory.py [--networks A,B] [--targets A,B] [--levels 0,3] [--write]

`apart` is external memory with bytes of its own for every value, `in place` as programs are made, `alive` the
lower bound: the most bytes alive at once. `local`: bytes used of local memory beside the most that are alive
there. On targets with `bank_ports`, cycles on the clock with lives as the allocator lays them, spread over
banks, and on a machine without conflicts. Networks by their shapes, random weights. With --write the rows
replace or join those of its study.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from unittest.mock import patch

import study
from shapes import NETWORKS, planned, quantised, target_named
from tiling import MODELS

from npuflow.place.place import place
from npuflow.program.codegen import generate as made
from npuflow.program.container import Program
from npuflow.report.profile import profile
from npuflow.schedule import bank_layout as banks

HEAD = (
    "| network | target | level | apart | in place | alive | ratio | local | alive | cycles | spread | no "
    "conflicts |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def cycles(program: Program) -> str:
    return f"{profile(program).cycles:,.0f}"


def row(network: str, name: str, level: int) -> str:
    target = target_named(name)
    graph, ranges = MODELS[network]()
    graph = quantised(graph, ranges, target.numerics, place(graph, target).on_npu)
    plan = planned(graph, target, level)
    program = made.generate(graph, plan, target)
    with patch.object(made, "in_place", lambda *_: {}):
        apart = made.generate(graph, plan, target)
    clock = ["", "", ""]
    if target.memory.bank_ports:
        with patch.object(banks, "spread", lambda lives, layout, *_: layout):
            close = made.generate(graph, plan, target)
        free = replace(target, memory=replace(target.memory, bank_ports=0))
        clock = [cycles(close), cycles(program), cycles(made.generate(graph, plan, free))]
    memory, taken = program.meta["memory"], program.meta["data_bytes"]
    cells = [
        network,
        name,
        str(level),
        f"{apart.meta['data_bytes']:,}",
        f"{taken:,}",
        f"{memory['bound']:,}",
        f"{taken / max(1, memory['bound']):.2f}",
        f"{memory['local_used']:,}",
        f"{memory['local_bound']:,}",
        *clock,
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--targets", default="edge-4t,cv18xx,bm1684x")
    parser.add_argument("--levels", default="0,3")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    file = study.page(__file__)
    rows = {}
    if chosen.write and file.exists():
        rows = {
            tuple(c.strip() for c in r.split("|")[1:4]): r
            for r in file.read_text().splitlines()
            if r.startswith("| ")
        }
        rows = {key: r for key, r in rows.items() if key[2].isdigit()}
    print(HEAD)
    for network in chosen.networks.split(","):
        for target in chosen.targets.split(","):
            for level in chosen.levels.split(","):
                rows[network, target, level] = found = row(network, target, int(level))
                print(found, flush=True)
                if chosen.write:
                    about = (__doc__ or "").strip().split("\n\n")
                    table = "\n".join(rows[key] for key in sorted(rows))
                    study.write(__file__, f"# {about[0]}\n\n{about[-1]}\n\n{HEAD}\n{table}\n")


if __name__ == "__main__":
    main()
