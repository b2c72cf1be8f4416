"""Bytes that each allocation method needs: random sets of lives that greedy misses, and real programs.

    python benchmarks/allocation.py [--sets 40] [PROGRAM.npu ...]

A program's lives are the values in its external memory. `bound` is the most bytes that live at once, which no
layout can go below; `proven` says that the method knows of no smaller layout.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from npuflow.program.container import load_program
from npuflow.schedule.allocate import Lifetime, place
from npuflow.schedule.arrange import METHODS, arrange

ALIGN = 16


def hard_sets(count: int) -> Iterator[tuple[str, list[Lifetime], int]]:
    """Sets that greedy lays out in more bytes than live at once."""
    rng, found = random.Random(1), 0
    while found < count:
        size, length = rng.choice([6, 8, 10, 15, 20, 30, 40, 60, 100]), rng.choice([3, 5, 8])
        steps = max(3, size // rng.choice([2, 3]))
        lives = [
            Lifetime(f"v{i}", rng.randint(1, 999), t := rng.randint(0, steps), t + rng.randint(0, length))
            for i in range(size)
        ]
        if place(lives, ALIGN).gap > 1:
            found += 1
            yield f"random {found}", lives, ALIGN


def of_program(path: Path) -> tuple[str, list[Lifetime], int]:
    program = load_program(path)
    rows = program.meta["memory"]["lives"]
    lives = [Lifetime(name, size, first, last) for name, _, size, first, last in rows]
    return str(path.parent.name or path), lives, program.target.memory.burst


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=int, default=40)
    parser.add_argument("programs", nargs="*", type=Path)
    chosen = parser.parse_args()
    reached, proven, seconds = Counter[str](), Counter[str](), Counter[str]()
    print("| lives of | lives | bound | " + " | ".join(METHODS) + " |\n|" + " --- |" * (3 + len(METHODS)))
    for name, lives, align in (*map(of_program, chosen.programs), *hard_sets(chosen.sets)):
        totals = []
        for method in METHODS:
            begun = time.perf_counter()
            layout = arrange(lives, align, method)
            seconds[method] += time.perf_counter() - begun
            reached[method] += layout.total == layout.bound
            proven[method] += layout.proven
            totals.append(f"{layout.total:,}{' (proven)' if layout.proven else ''}")
        print(f"| {name} | {len(lives)} | {layout.bound:,} | {' | '.join(totals)} |", flush=True)
    for method in METHODS:
        print(f"{method}: {reached[method]} at the bound, {proven[method]} proven, {seconds[method]:.1f} s")


if __name__ == "__main__":
    main()
