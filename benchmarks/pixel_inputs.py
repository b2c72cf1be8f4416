"""Inputs of bytes with and without folding of the normalisation: input codes, SQNR, cycles.

    python benchmarks/pixel_inputs.py SHARED [--tasks selfie box text photos] [--samples 64] [--cache DIR]

SHARED is a folder with models, models2, data and data2, the data with their score.py. Every network is built
three times, by the method kl at 8 bits without corrections, with its calibration data as stored bytes: `off`
(fold_normalize = false), `plain` (folded, one padding number for all channels) and `on`. Printed as JSON
lines: the share of input codes that are equal in the program and in the QDQ model on onnxruntime, SQNR of
every output against the float model, cycles, and, in `float`, the largest difference between the folded float
graph and the source model on four samples, relative to the largest output.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from npuflow.base.tables import FilePath
from npuflow.cli import main as npuflow
from npuflow.frontends import FRONTENDS
from npuflow.input.pixels.fold_pixels import fold
from npuflow.input.pixels.pixels import Pixels, of_program
from npuflow.onnx.export import export_model
from npuflow.program.container import load_program
from npuflow.report.profile.measure import profile
from npuflow.runner.simulated import ProgramRunner
from npuflow.stages import pixels as stage
from npuflow.stages.model import ModelTable
from npuflow.stages.parse import parsed

IMAGENET = "mean = [123.675, 116.28, 103.53], std = [58.395, 57.12, 57.375]"
# task: model, its bound shape, [data.steps]
TASKS = {
    "selfie": ("models2/selfie.onnx", "", ["normalize = { std = [255] }"]),
    "box": ("models2/blazeface.onnx", "", ["normalize = { mean = [127.5], std = [127.5] }"]),
    "text": ("models2/ppocrv4-det.onnx", "x = [1, 3, 320, 320]", [f"normalize = {{ {IMAGENET}, axis = 0 }}"]),
    "photos": (
        "models/efficientnet-lite0.onnx",
        "",
        ["normalize = { mean = [127], std = [128] }", 'layout = "nchw"'],
    ),
}


def scorer(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"score_{path.parent.name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stored(shared: Path, task: str, split: str) -> Iterator[Any]:
    """Bytes as the recipe's steps take them."""
    if task == "photos":
        from PIL import Image

        for path in sorted((shared / "data/photos" / split).glob("*.jpg")):
            yield np.asarray(Image.open(path).convert("RGB").resize((224, 224), Image.Resampling.BICUBIC))
        return
    score = scorer(shared / "data2/score.py")
    if task == "selfie":
        yield from score.pictures(task, split)
    elif task == "box":
        yield from (np.repeat(image, 3, 2) for image in score.load(task, split)["input"])
    else:
        yield from score.load(task, split)["x"]


def real(image: Any, task: str) -> Any:
    """What the float model takes."""
    x = image.astype(np.float32)
    if task == "selfie":
        return (x / np.float32(255))[None]
    if task == "box":
        return ((x - np.float32(127.5)) / np.float32(127.5))[None]
    if task == "photos":
        return ((x - np.float32(127)) / np.float32(128)).transpose(2, 0, 1)[None]
    mean, std = (
        np.array(v, np.float32).reshape(3, 1, 1) for v in ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
    )
    return ((x - mean) / std)[None]


def session(model: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return ort.InferenceSession(model, options)


def built(
    folder: Path, task: str, shared: Path, variant: str, target: str, cache: Path | None
) -> tuple[Path, Path]:
    model, shape, steps = TASKS[task]
    lines = [f'target = "{target}"', "[model]", f'path = "{shared / model}"']
    lines += [f"inputs = {{ {shape} }}"] if shape else []
    lines += ["[calibrate]", 'method = "kl"', "[precision]", 'strategy = "none"', "[correct]", 'bias = "off"']
    lines += ["[data]", 'source = "calib.npy"', *(["fold_normalize = false"] if variant == "off" else [])]
    for step in steps:
        lines += ["[[data.steps]]", step]
    recipe = folder / f"{task}.toml"
    recipe.write_text("\n".join(lines) + "\n")
    out = folder / f"out-{variant}"
    own = (cache or folder / "cache") / ("plain" if variant == "plain" else "default")
    for until in ("simulate", "qdq"):
        assert npuflow(["build", str(recipe), "--cache", str(own), "--out", str(out), "--until", until]) == 0
    return next(out.rglob("*.npu")), next(out.rglob("*.qdq.onnx"))


def measured(program: Path, qdq: Path, shared: Path, task: str, count: int, variant: str) -> dict[str, Any]:
    runner, loaded = ProgramRunner(program), load_program(program)
    (port,) = loaded.meta["inputs"]
    coded = next(
        (s["out"] for s in loaded.meta["steps"] if s["kind"] == "quantize" and s["value"] == port["name"]),
        port["name"],
    )
    bound = onnx.load(str(qdq))
    if coded != port["name"]:
        bound.graph.output.append(onnx.ValueInfoProto(name=coded))
    exported, plain = session(bound.SerializeToString()), _float(shared, task)
    names = [o.name for o in plain.get_outputs()]
    own = [o["name"] for o in loaded.meta["outputs"]]
    equal = total = 0
    extra: dict[str, Any] = {}
    sums = np.zeros((len(names), 2))
    for image in islice(stored(shared, task, "eval"), count):
        x = real(image, task)
        truth = plain.run(names, {plain.get_inputs()[0].name: x})
        found = runner.run({port["name"]: x}, dump=[*own, coded])
        if coded == port["name"]:
            other = image.transpose(2, 0, 1)[None] if task == "photos" else image[None]
        else:
            other = exported.run([coded], {port["name"]: x})[0]
        equal, total = equal + int((found[coded] == other).sum()), total + other.size
        for i, name in enumerate(own):
            sums[i] += (
                (truth[i].astype(np.float64) ** 2).sum(),
                ((truth[i] - found[name]).astype(np.float64) ** 2).sum(),
            )
    pixels = of_program(loaded.meta)
    if pixels:
        extra = {"float": witness(shared, task, pixels[port["name"]], variant == "on")}
    decibels = {name: round(float(10 * np.log10(a / b)), 2) for name, (a, b) in zip(names, sums, strict=True)}
    totals = profile(loaded).totals()
    return {
        "input_codes_equal": round(equal / total, 6),
        "sqnr_db": decibels,
        "cycles": round(totals["cycles"]),
        **extra,
    }


def witness(shared: Path, task: str, pixels: Pixels, copy: bool) -> float:
    """The folded float graph beside the source model."""
    table = ModelTable(FilePath(TASKS[task][0], shared), {"x": (1, 3, 320, 320)} if TASKS[task][1] else {})
    reader = FRONTENDS["onnx"]()
    graph = parsed((shared / TASKS[task][0]).read_bytes(), reader, table).graph
    made, plain = (
        session(export_model(fold(graph, {graph.inputs[0]: pixels}, copy).graph)),
        _float(shared, task),
    )
    worst = 0.0
    for image in islice(stored(shared, task, "eval"), 4):
        x = real(image, task)
        whole = (
            np.rint((x.astype(np.float64) - pixels.along(pixels.shift, 4)) / pixels.along(pixels.scale, 4))
            - pixels.zero
        )
        names = [o.name for o in plain.get_outputs()]
        truth = plain.run(names, {plain.get_inputs()[0].name: x})
        found = made.run(names, {graph.inputs[0]: whole.astype(np.float32)})
        worst = max(
            worst, *(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in zip(truth, found, strict=True))
        )
    return float(f"{worst:.2g}")


@functools.cache
def _float(shared: Path, task: str) -> ort.InferenceSession:
    model = onnx.load(str(shared / TASKS[task][0]))
    if TASKS[task][1]:
        from onnxruntime.tools.onnx_model_utils import make_input_shape_fixed

        make_input_shape_fixed(model.graph, "x", [1, 3, 320, 320])
    return session(model.SerializeToString())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shared", type=Path)
    parser.add_argument("--tasks", nargs="+", choices=tuple(TASKS), default=list(TASKS))
    parser.add_argument(
        "--variants", nargs="+", choices=("off", "plain", "on"), default=["off", "plain", "on"]
    )
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--target", default="edge-4t")
    parser.add_argument("--cache", type=Path)
    args = parser.parse_args()
    for task in args.tasks:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            np.save(folder / "calib.npy", np.stack(list(stored(args.shared, task, "calib"))))
            for variant in args.variants:
                stage.fold = functools.partial(fold, copy=False) if variant == "plain" else fold
                program, qdq = built(folder, task, args.shared.resolve(), variant, args.target, args.cache)
                line = measured(program, qdq, args.shared, task, args.samples, variant)
                print(json.dumps({"task": task, "variant": variant, **line}), flush=True)


if __name__ == "__main__":
    main()
