"""Every network on every shipped target: compiled, judged for hazards, one sample's integers compared.

    python benchmarks/models_targets.py [NETWORK | MODEL.onnx ...] [TARGET ...] [--again] [--compile]

Rows go to models_targets.csv, the table to its study. What has a row is not done again, unless
--again says so: a run that was stopped goes on where it was. --compile: nothing is simulated, and no rows are
written. Networks: ONNX's light models and MobileNetV2 by their shapes, with random weights; the fashion
example; other networks from files. Ranges are those of the one random sample.

Nodes: those of the quantised graph that the NPU runs, of all. Tensors: integer tensors, every element of
which the simulator has as the reference interpreter does. `gap` is to the lower bound of cycles, `schedule`
the schedule time beside the clock.
"""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path

import study
from shapes import NETWORKS, for_target, of_file, target_named

from npuflow.ir.graph import Graph
from tests.networks.onnx_cases import through
from tests.networks.onnx_light import filled, light_models
from tests.networks.subjects import judge, subject

HERE = Path(__file__).resolve()
FASHION = HERE.parent.parent / "examples" / "fashion" / "fashion.onnx"
COLUMNS = (
    "network",
    "target",
    "MMACs",
    "on the NPU",
    "nodes",
    "tensors",
    "commands",
    "Mcycles",
    "gap",
    "MB",
    "schedule",
    "seconds",
    "result",
)
LIGHT = {p.stem.removeprefix("light_"): p for p in light_models()}
KNOWN = sorted({"fashion", "mobilenet_v2", *LIGHT})
TARGETS = sorted(p.stem for p in (HERE.parent.parent / "npuflow" / "targets").glob("*.toml"))


def network(name: str) -> Graph:
    if name in LIGHT:
        return filled(through(LIGHT[name].read_bytes()))
    if name in NETWORKS:
        return NETWORKS[name]()[0]
    return of_file(str(FASHION) if name == "fashion" else name)[0]


def row(name: str, graph: Graph, target_name: str, *, exact: bool = True) -> dict[str, str]:
    begin, target = time.process_time(), target_named(target_name)
    v = judge(subject(name, for_target(graph, target)), target, exact=exact)
    return {
        "network": name,
        "target": target_name,
        "MMACs": f"{v.macs / 1e6:,.0f}",
        "on the NPU": f"{v.share:.1%}",
        "nodes": f"{v.integer}/{v.nodes}",
        "tensors": str(v.tensors),
        "commands": f"{v.commands:,}",
        "Mcycles": f"{v.cycles / 1e6:.3f}",
        "gap": f"{v.cycles / v.bound:.2f}" if v.bound else "",
        "MB": f"{v.moved / 1e6:.2f}",
        "schedule": f"{v.schedule:+.1%}",
        "seconds": f"{time.process_time() - begin:.0f}",
        "result": v.reason or "exact",
        "host": "; ".join(v.host),
    }


def page(rows: list[dict[str, str]]) -> str:
    first, *rest = (__doc__ or "").strip().split("\n\n")
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += ["| " + " | ".join(r[c] for c in COLUMNS) + " |" for r in rows]
    reported = (
        f"{len(rows)} programs, {sum(r['result'] == 'exact' for r in rows)} of them exact in every tensor."
    )
    reasons: dict[str, list[str]] = {}
    for r in rows:
        for reason in filter(None, r["host"].split("; ")):
            reasons.setdefault(reason, []).append(f"{r['network']} on {r['target']}")
    host = [f"- {reason}: {', '.join(found)}" for reason, found in sorted(reasons.items())]
    parts = [
        f"# {first}",
        rest[-1],
        "\n".join(lines),
        reported,
        "## What runs on the host, and why",
        "\n".join(host),
    ]
    return "\n\n".join(parts) + "\n"


def main(arguments: list[str]) -> None:
    exact = "--compile" not in arguments
    targets = [a for a in arguments if a in TARGETS] or TARGETS
    networks = [a for a in arguments if a in KNOWN or a in NETWORKS or a.endswith(".onnx")] or KNOWN
    file, kept = HERE.with_suffix(".csv"), {}
    if file.exists():
        with file.open(newline="") as held:
            kept = {(r["network"], r["target"]): r for r in csv.DictReader(held)}
    for name in networks:
        label = Path(name).stem
        todo = [t for t in targets if "--again" in arguments or not exact or (label, t) not in kept]
        graph = network(name) if todo else None
        for target in todo:
            assert graph is not None
            found = row(label, graph, target, exact=exact)
            print(*found.values(), sep="  ", flush=True)
            if not exact:
                continue
            if file.exists():                        # another process may have written rows meanwhile
                with file.open(newline="") as held:
                    kept |= {(r["network"], r["target"]): r for r in csv.DictReader(held)}
            kept[label, target] = found
            rows = [kept[key] for key in sorted(kept) if key[1] in TARGETS]
            with file.open("w", newline="") as out:
                writer = csv.DictWriter(out, (*COLUMNS, "host"), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            study.write(__file__, page(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
