"""Exported range tables, read by the packages of the tools that they are for.

    python benchmarks/range_tables.py RECIPE --model ONNX [--set K=V] [--aimet PYTHON] [--tpuc-opt FILE]

Tensors that the tool reads, and the worst deviation of an end from the recipe's own range, relative to it.
onnxruntime: `load_tensors_data` of its quantiser, and `quantize_static` with the table as its calibration
cache. AIMET (PYTHON of an environment with aimet-onnx): `load_encodings_to_sim` on the recipe's ONNX model,
scales and offsets of its quantisers. TPU-MLIR (FILE: bin/tpuc-opt of its wheel, which runs by itself): its
pass import-calibration-table on a chain of multiplications, one for each tensor of the table. TensorRT's own
reader needs an NVIDIA GPU: its caches are read here as onnxruntime's TensorRT provider states the format.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

AIMET = """
import json, sys, onnx, aimet_onnx
from aimet_onnx.quantsim import QuantizationSimModel, load_encodings_to_sim
model, table, out = sys.argv[1:]
sim = QuantizationSimModel(onnx.load(model), param_type="int8", activation_type="int8")
load_encodings_to_sim(sim, table, strict=False)
rows = {n: q.get_encodings() for n, q in sim.qc_quantize_op_dict.items() if q.enabled}
held = {n: [[float(e.delta), float(e.offset)] for e in found] for n, found in rows.items() if found}
json.dump({"version": aimet_onnx.__version__, "rows": held}, open(out, "w"))
"""
LIBRARIES = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu")
CALIBRATED = re.compile(r"quant\.calibrated<f32<([-+.\deE]+):([-+.\deE]+)>>> loc\(#(loc\d*)\)$")
NAMED = re.compile(r'^#(loc\d+) = loc\("(.*)"\)$')
Rows = Mapping[str, tuple[float, float]]


def exported(given: argparse.Namespace, form: str, folder: Path) -> Path:
    path = folder / f"table.{form}"
    words = [sys.executable, "-m", "npuflow", "export", "thresholds", str(given.recipe), "-o", str(path)]
    words += ["--format", form, *(["--weights"] if form == "aimet" else [])]
    words += [w for s in given.sets for w in ("--set", s)] + (["--cache", given.cache] if given.cache else [])
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return path


def judged(own: Rows, found: Rows) -> str:
    """Tensors read, and the worst end relative to its range."""
    found = {name: ends for name, ends in found.items() if name in own}
    worst = max(
        abs(a - b) / (own[n][1] - own[n][0]) for n in found for a, b in zip(own[n], found[n], strict=True)
    )
    return f"{len(found)} of {len(own)} tensors | {worst:.1e}"


def by_onnxruntime(table: Path, own: Rows, model: Path, folder: Path) -> str:
    import onnx
    import onnxruntime
    from onnxruntime.quantization import quantize_static
    from onnxruntime.quantization.calibrate import load_tensors_data
    from onnxruntime.quantization.shape_inference import quant_pre_process

    held = load_tensors_data(table)
    rows = {n: (float(held[n].lowest), float(held[n].highest)) for n in held.keys()}  # noqa: SIM118
    folded, made = folder / "folded.onnx", folder / "static.onnx"
    quant_pre_process(str(model), str(folded), skip_symbolic_shape=True)     # as its manual asks for
    try:
        quantize_static(str(folded), str(made), None, calibration_cache_path=str(table))
        count = sum(node.op_type == "QuantizeLinear" for node in onnx.load(made).graph.node)
        said = f"quantize_static wrote {count} QuantizeLinear"
    except ValueError as error:
        said = str(error)[:90]
    return f"onnxruntime {onnxruntime.__version__} | {judged(own, rows)} | {said}"


def by_aimet(table: Path, python: str, model: Path, folder: Path) -> str:
    out = folder / "aimet.json"
    words = [python, "-c", AIMET, str(model), str(table), str(out)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"AIMET | refused | | {done.stderr.strip().splitlines()[-1][:120]}"
    said, held = json.loads(out.read_text()), json.loads(table.read_text())
    wrote = {r["name"]: r for kind in ("activation_encodings", "param_encodings") for r in held[kind]}
    worst, moved = 0.0, 0
    for name, rows in said["rows"].items():
        for scale, offset, (delta, there) in zip(
            wrote[name]["scale"], wrote[name]["offset"], rows, strict=True
        ):
            worst, moved = max(worst, abs(delta / scale - 1)), moved + (there != offset)
    read = f"{len(said['rows'])} of {len(wrote)} tensors and weights"
    return f"AIMET {said['version']} | {read} | {worst:.1e} (scales) | {moved} offsets differ"


def by_tpu_mlir(table: Path, program: str, own: Rows, folder: Path) -> str:
    """A chain whose values have the table's names."""
    kind = "tensor<1x4xf32>"
    states = 'module.chip = "ALL", module.platform = "ONNX", module.state = "TOP_F32"'
    lines = [
        "#loc = loc(unknown)",
        f'module @net attributes {{{states}, module.top_run_mode = "STATIC", module.weight_file = "w"}} {{',
        f"  func.func @main(%arg0: {kind} loc(#loc)) -> ({kind}) {{",
        f'    %0 = "top.Input"(%arg0) : ({kind}) -> {kind} loc(#loc1)',
    ]
    names = list(own)
    for i in range(1, len(names)):
        step = f'"top.MulConst"(%{i - 1}) {{const_val = 0.5 : f64}} : ({kind}) -> {kind}'
        lines.append(f"    %{i} = {step} loc(#loc{i + 1})")
    lines += [f"    return %{len(names) - 1} : {kind} loc(#loc)", "  } loc(#loc)", "} loc(#loc)"]
    lines += [f'#loc{i} = loc("{name}")' for i, name in enumerate(names, 1)]
    (folder / "net.mlir").write_text("\n".join(lines) + "\n")
    said = (f"--import-calibration-table=file={table} asymmetric=true",)
    words = [program, "net.mlir", "--init", "--processor-assign=chip=bm1684x mode=INT8", *said, "--deinit"]
    libraries = ":".join((*LIBRARIES, str(Path(program).resolve().parents[1] / "lib")))
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries}
    text = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    places = {m[1]: m[2] for m in map(NAMED.match, text) if m}
    made = [m for m in map(CALIBRATED.search, text) if m and m[3] in places]
    found = {places[m[3]]: (float(m[1]), float(m[2])) for m in made}
    return f"TPU-MLIR's tpuc-opt | {judged(own, found)} |"


def by_tensorrt(table: Path, own: Rows) -> str:
    """A line of the version, then NAME: BITS with the name up to the first colon; a range is 127 float32
    scales to both sides."""
    head, *lines = table.read_text().splitlines()
    assert "TRT-" in head.partition(":")[0]
    peaks = {}
    for line in lines:
        name, _, rest = line.partition(":")
        peaks[name] = 127 * struct.unpack(">f", int(rest.partition(":")[0], 16).to_bytes(4))[0]
    symmetric = {name: (-max(-lo, hi), max(-lo, hi)) for name, (lo, hi) in own.items()}
    return f"TensorRT's format | {judged(symmetric, {n: (-p, p) for n, p in peaks.items()})} | symmetric ends"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--model", type=Path, required=True, help="the recipe's ONNX file")
    parser.add_argument("--set", dest="sets", action="append", default=[])
    parser.add_argument("--aimet")
    parser.add_argument("--tpuc-opt", dest="tpuc")
    parser.add_argument("--cache")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        rows = json.loads(exported(given, "json", folder).read_text())
        own = {name: (row["lo"], row["hi"]) for name, row in rows.items()}
        print("| reader | read | worst deviation | |\n| --- | --- | --- | --- |")
        print(f"| {by_onnxruntime(exported(given, 'onnxruntime', folder), own, given.model, folder)} |")
        print(f"| {by_tensorrt(exported(given, 'tensorrt', folder), own)} |")
        if given.aimet:
            print(f"| {by_aimet(exported(given, 'aimet', folder), given.aimet, given.model, folder)} |")
        if given.tpuc:
            print(f"| {by_tpu_mlir(exported(given, 'tpu_mlir', folder), given.tpuc, own, folder)} |")


if __name__ == "__main__":
    main()
