"""Exported TOSA files beside the program: the TOSA reference model, Vela, and which nodes have a form.

    python benchmarks/export_tosa.py judge [--model TOOL] [--vela TOOL] [--samples N] NETWORK ...
    python benchmarks/export_tosa.py forms [--again] FOLDER

Networks are ONNX files; ranges are those of one random sample, the target is edge-4t. `judge` prints for
each the operators of its file, how many output codes of the reference model (`tosa_reference_model` of the
package tosa-tools) differ from the integer reference, and whether Vela compiles it. `forms` takes every
network of corpus.csv (`corpus_export.py FOLDER` makes them) and writes rows to export_tosa.csv: operator
nodes, how many of them have an exact form in TOSA's integer profile, and what has none. Nodes of the host
have none; loops are written out.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from shapes import of_file, target_named

from npuflow.base.errors import NpuflowError
from npuflow.export_tosa.builder import TosaModel, to_tosa
from npuflow.export_tosa.file import written
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.unroll import written_out
from npuflow.place.partition import boundary, is_npu
from npuflow.place.place import op_name, place
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.target import scheme
from npuflow.whole.export_c.network import network_of
from npuflow.whole.export_c.vectors import Sample, random_samples
from tests.export_tosa.forms import forms_of
from tests.networks.subjects import subject

HERE = Path(__file__).resolve()
COLUMNS = ("network", "nodes", "with a form", "without a form")


def quantised(path: str, target: Target) -> Graph:
    one = subject(path, of_file(path)[0])
    placed = place(one.graph, target)
    return quantize_graph(one.graph, placed, one.ranges, scheme(target), target.numerics).graph


def differing(
    tool: str, model: TosaModel, body: bytes, one: Sample, shapes: list[tuple[int, ...]]
) -> tuple[int, int]:
    """Output codes of the reference model that differ from those expected, and how many there are."""
    given, wanted = one
    with tempfile.TemporaryDirectory() as folder:
        place_ = Path(folder)
        (place_ / "net.tosa").write_bytes(body)
        for k, end in enumerate(model.inputs):
            np.save(place_ / f"i{k}.npy", end.given(given[end.name]))
        names = [",".join(end.value.name for end in ends) for ends in (model.inputs, model.outputs)]
        sides = ("i", len(model.inputs)), ("o", len(model.outputs))
        files = [",".join(f"{side}{k}.npy" for k in range(count)) for side, count in sides]
        words = [
            tool, "--tosa_file", "net.tosa", "--flatbuffer_dir", folder, "--output_dir", folder,
            "--ifm_name", names[0], "--ifm_file", files[0], "--ofm_name", names[1], "--ofm_file", files[1],
        ]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)
        if done.returncode or not (place_ / "o0.npy").exists():
            raise RuntimeError((done.stderr + done.stdout).strip()[:400])
        found = [np.load(place_ / f"o{k}.npy") for k in range(len(model.outputs))]
    pairs = [
        (end.taken(array, shape), wanted[end.name])
        for end, array, shape in zip(model.outputs, found, shapes, strict=True)
    ]
    return sum(int((a != b).sum()) for a, b in pairs), sum(b.size for _, b in pairs)


def vela(tool: str, body: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.tosa"
        path.write_bytes(body)
        words = [tool, str(path), "--accelerator-config", "ethos-u85-256", "--output-dir", folder]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode == 0 and list(Path(folder).glob("net_vela*")):
            return "compiled"
    return (done.stderr or done.stdout).strip().splitlines()[-1][:100]


def judge(path: str, chosen: argparse.Namespace) -> str:
    target = target_named("edge-4t")
    graph = written_out(quantised(path, target))
    network, model = network_of(graph), to_tosa(graph, target.numerics)
    body = written(model.network)
    differ = codes = 0
    if chosen.model:
        shapes = [tuple(value.type.shape) for _, value in network.outputs]
        for one in random_samples(network, target.numerics, chosen.samples):
            wrong, every = differing(chosen.model, model, body, one, shapes)
            differ, codes = differ + wrong, codes + every
    placed = vela(chosen.vela, body) if chosen.vela else ""
    count, size = sum(model.operators.values()), f"{len(body) / 1e6:.2f}"
    return f"| {Path(path).stem} | {len(network.nodes)} | {count} | {size} | {codes} | {differ} | {placed} |"


def forms(path: Path, target: Target) -> dict[str, str]:
    """The row of a network. Boundaries are the quantiser's own nodes, and are not counted."""
    graph = written_out(quantised(str(path), target))
    nodes = [n for n in graph.nodes if boundary(graph, n) is None]
    npu = [n for n in nodes if is_npu(n)]
    refused = forms_of(graph, target.numerics, npu)
    reasons = Counter(f"{op_name(n)}: on the host" for n in nodes if not is_npu(n))
    reasons.update(f"{op_name(n)}: {refused[n.outputs[0]]}" for n in npu if n.outputs[0] in refused)
    listed = "; ".join(f"{reason} ({count})" for reason, count in sorted(reasons.items()))
    without = sum(reasons.values())
    return dict(zip(COLUMNS, (path.stem, str(len(nodes)), str(len(nodes) - without), listed), strict=True))


def every_form(folder: Path, again: bool) -> None:
    file, target, kept = HERE.with_suffix(".csv"), target_named("edge-4t"), dict[str, dict[str, str]]()
    if file.exists() and not again:
        with file.open(newline="") as held:
            kept = {row["network"]: row for row in csv.DictReader(held)}
    with (HERE.parent / "corpus.csv").open(newline="") as held:
        listed = {row["network"] for row in csv.DictReader(held)}
    for path in sorted(folder.glob("*.onnx"), key=lambda path: path.stat().st_size):
        if path.stem in listed and path.stem not in kept:
            try:
                kept[path.stem] = forms(path, target)
            except NpuflowError as error:
                print(path.stem, error, flush=True)
                continue
            print(*kept[path.stem].values(), sep="  ", flush=True)
            with file.open("w", newline="") as held:
                writer = csv.DictWriter(held, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(kept[name] for name in sorted(kept))
    every, have = (sum(int(row[name]) for row in kept.values()) for name in COLUMNS[1:3])
    print(f"{len(kept)} of {len(listed)} networks: {have} of {every} nodes have a form, {have / every:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    verbs = parser.add_subparsers(required=True, dest="verb")
    one = verbs.add_parser("judge")
    one.add_argument("networks", nargs="+")
    one.add_argument("--model", default="")
    one.add_argument("--vela", default="")
    one.add_argument("--samples", type=int, default=2)
    other = verbs.add_parser("forms")
    other.add_argument("folder", type=Path)
    other.add_argument("--again", action="store_true")
    chosen = parser.parse_args()
    if chosen.verb == "forms":
        every_form(chosen.folder, chosen.again)
        return
    print("| network | layers | TOSA operators | MB | output codes | differ | Vela |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for path in chosen.networks:
        try:
            print(judge(path, chosen), flush=True)
        except (NpuflowError, RuntimeError) as error:
            print(f"| {Path(path).stem} | {str(error)[:300]} |", flush=True)


if __name__ == "__main__":
    main()
