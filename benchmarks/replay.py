"""Plans and programs of networks on targets, recorded and compared: what a change of the
compiler's code must leave alone.

    python benchmarks/replay.py record FILE [SUBJECT ...]       # on the tree before the change
    python benchmarks/replay.py compare FILE [SUBJECT ...]      # on the tree after it
    python benchmarks/replay.py ablate [SUBJECT ...]            # what each strategy of the search wins

A subject is NETWORK:TARGET, or NETWORK for all its targets; without any, the whole table below. Networks have
random weights and made-up ranges. `drawn` are random networks with random plans on random machines: no
search, every kind of group. A network from a file is named by the file's stem, for example `python
benchmarks/replay.py record out.json selfie.onnx:edge-4t`.

Of each subject a record has: digests of the plan (default level), of the command words, of the constants and
of the rest of the program; predicted cycles, groups, commands; and the seconds that the search and the code
generator took, which are shown but not compared. A comparison prints every difference in numbers and ends
with status 1 if there is any. `ablate` plans every subject once with all strategies and once without each
(`[tiling] without`); docs/studies/0023-strategies.md has a run.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from shapes import NETWORKS, of_file, quantised, target_named

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from npuflow.base.errors import NpuflowError, TargetError
from npuflow.flow.memory import collect_rarely
from npuflow.hw.target import Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.place.place import place
from npuflow.program.codegen.generate import generate
from npuflow.schedule.machine import Machine
from npuflow.search.plan import TilingPlan, plan_network
from npuflow.search.strategies import usable
from npuflow.search.tilings import DEFAULT_LEVEL
from tests.networks import random_groups, random_networks
from tests.networks.small import mixed

FASHION = Path(__file__).resolve().parent.parent / "examples" / "fashion" / "fashion.onnx"
TARGETS = sorted(
    p.stem for p in (Path(__file__).resolve().parent.parent / "npuflow" / "targets").glob("*.toml")
)
FEW = ("edge-4t", "ethos-u65-256", "server-32t", "cv18xx", "aries")
DRAWN = 150
TABLE = {
    "mixed": TARGETS,
    "fashion": TARGETS,
    "mobilenet_v2": FEW,
    "resnet50": FEW[:2],
    "drawn": [str(i) for i in range(DRAWN)],
}
TIMES = ("search seconds", "codegen seconds")
Row = dict[str, Any]


def subjects(arguments: list[str]) -> Iterator[tuple[str, str]]:
    for argument in arguments or TABLE:
        name, _, target = argument.partition(":")
        for each in [target] if target else TABLE.get(name, FEW):
            yield name, each


def network(name: str, numerics: Numerics, target: Target) -> Graph:
    """The quantised graph of a network."""
    if name == "mixed":
        return mixed(numerics)[0]
    if name in NETWORKS:
        return quantised(*NETWORKS[name](), numerics)
    graph, ranges = of_file(str(FASHION) if name == "fashion" else name)
    return quantised(graph, ranges, numerics, place(graph, target).on_npu)


def digest(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True, default=str).encode()
    return sha256(data).hexdigest()[:16]


def measured(name: str, target_name: str) -> Row:
    """The row of one subject; of a refused one, the reason."""
    if name == "drawn":
        rng = random.Random(int(target_name))
        target = random_networks.target(rng)
    else:
        rng, target = random.Random(0), target_named(target_name)
    machine = Machine(target.compute, target.memory, target.dma)
    gc.collect()
    try:
        begin = time.process_time()
        if name == "drawn":
            graph, _ = random_networks.network(rng, target.numerics)
            plan, _ = random_groups.plan(graph, machine, target.numerics, rng)
        else:
            graph = network(name, target.numerics, target)
            begin = time.process_time()
            plan = plan_network(graph, machine, target.numerics)
        planned = time.process_time()
        return {**described(graph, plan, target), TIMES[0]: round(planned - begin, 3),
                TIMES[1]: round(time.process_time() - planned, 3)}
    except (NpuflowError, TargetError) as fault:
        return {"refused": str(fault).splitlines()[0]}


def described(graph: Graph, plan: TilingPlan, target: Target) -> Row:
    program = generate(graph, plan, target)
    meta = dict(program.meta)
    schedule = meta.pop("plan")
    return {
        "plan": digest({k: v for k, v in plan.to_json().items() if k != "tried"}),
        "groups": len(plan.groups),
        "searched cycles": plan.cycles,
        "origin": plan.origin,
        "words": digest(b"".join(w.tobytes() for w in program.commands)),
        "commands": sum(map(len, program.commands)),
        "const": digest(program.const),
        "meta": digest(meta),
        "schedule": digest(schedule),
        "cycles": schedule["cycles"],
        "bytes": schedule["bytes"],
    }


def differences(before: Row, after: Row) -> list[str]:
    found = []
    for key in sorted({*before, *after} - set(TIMES)):
        a, b = before.get(key), after.get(key)
        if a != b:
            change = (
                f" ({b / a - 1:+.3%})"
                if isinstance(a, int | float) and isinstance(b, int | float) and a
                else ""
            )
            found.append(f"{key}: {a} -> {b}{change}")
    return found


def ablated(name: str, target_name: str) -> dict[str, float]:
    """Cycles of the plan without each strategy, relative to the plan with all, where it applies."""
    target = target_named(target_name)
    machine = Machine(target.compute, target.memory, target.dma)
    graph = network(name, target.numerics, target)
    best = plan_network(graph, machine, target.numerics).cycles
    return {
        s.name: plan_network(graph, machine, target.numerics, without=[s.name]).cycles / best
        for s in usable(target.compute.cores, DEFAULT_LEVEL)
    }


def ablate(rest: list[str]) -> int:
    found: dict[str, list[tuple[float, str]]] = {}
    for name, target in subjects(rest or ["mixed", "fashion"]):
        try:
            row = ablated(name, target)
        except (NpuflowError, TargetError) as fault:
            print(f"{Path(name).stem}:{target}: refused: {str(fault).splitlines()[0]}")
            continue
        label = f"{Path(name).stem}:{target}"
        print(label, *(f"{k} {v:.4f}" for k, v in row.items()), sep="  ", flush=True)
        for strategy, ratio in row.items():
            found.setdefault(strategy, []).append((ratio, label))
    for strategy, rows in found.items():
        slower = [r for r in rows if r[0] > 1]
        ratio, where = max(rows)
        print(f"{strategy}: slower without it on {len(slower)} of {len(rows)}, at most {ratio:.4f} ({where})")
    return 0


def main(arguments: list[str]) -> int:
    collect_rarely()                      # as a step of a build does
    if arguments[:1] == ["ablate"]:
        return ablate(arguments[1:])
    verb, file, *rest = arguments
    path, known, different = Path(file), {}, 0
    if path.exists():
        known = json.loads(path.read_text())
    spent = {key: [0.0, 0.0] for key in TIMES}
    for name, target in subjects(rest):
        label = f"{Path(name).stem}:{target}"
        row = measured(name, target)
        if verb == "record":
            known[label] = row
            print(label, *(f"{k} {v}" for k, v in row.items()), sep="  ", flush=True)
            path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
            continue
        if label not in known:
            print(f"{label}: not in the record")
            continue
        changed = differences(known[label], row)
        different += bool(changed)
        for key in TIMES:
            for side, of in enumerate((known[label], row)):
                spent[key][side] += of.get(key, 0.0)
        seconds = ", ".join(f"{k} {known[label].get(k, 0)} -> {row.get(k, 0)}" for k in TIMES)
        print(f"{label}: " + ("; ".join(changed) if changed else "same") + f"  [{seconds}]", flush=True)
    if verb == "compare":
        print(
            f"{different} subjects differ; "
            + ", ".join(f"{k} {a:.1f} -> {b:.1f}" for k, (a, b) in spent.items())
        )
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
