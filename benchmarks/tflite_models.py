"""Networks that were published (or converted) as TFLite files: whole builds, judged by LiteRT.

python benchmarks/tflite_models.py MODELS DATA [--count N] [--cache DIR] [NAME...]      # prints its study

MODELS holds the files, DATA a folder for each with calib.npz and eval.npz under the files' own input names.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

import npuflow
from npuflow.frontends import Bindings
from npuflow.frontends.tflite.schema import parsed
from npuflow.input.sources import gathered
from npuflow.ir.types import Array
from npuflow.onnx.export import export_model
from npuflow.run.interpret import host_session
from tests.frontends.tflite_models import apart_by_layer

KERNELS = {
    "reference": OpResolverType.BUILTIN_REF, "default": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
}
# 31-bit multipliers that round halves away from zero, as LiteRT's kernels do
WIDE = {"numerics": {"rounding": "half_away", "multiplier_bits": 31, "shift_max": 62}}
HEAD = """# Published networks as TFLite files

`benchmarks/tflite_models.py` prints this page: whole builds of `.tflite` files, {count} samples each (of
alexa {clips} clips of 99 calls, in which its variables carry the state).

## Programs

SQNR of all outputs together, in dB, against LiteRT's default kernels on the same file. *Float*: npuflow's
float graph. *Program*: what the build made, its integers on whole tensors. *Reference*: LiteRT's BUILTIN_REF
kernels. int8 files keep their scales (`[correct] bias = "off"`, a target with 31-bit multipliers). Float
files are quantised by a build with defaults on `edge-4t`. Bar of int8 files: at most 1 dB below the
reference. LiteRT cannot run selfie (an operator of MediaPipe's): its ONNX twin in onnxruntime judges.
*Seconds*: the build, as far as it was not in the cache, and the judging.

| file | input | float | program | reference | below | seconds |
| --- | --- | --- | --- | --- | --- | --- |
"""
LAYERS = """
## int8 layers

Every integer layer alone, fed with the codes of LiteRT's kernels on random inputs: share of codes that are
equal, that differ by at most 1, and the largest difference, for the reference kernels and (') for the default
ones. Bars: all within 1, and 99.5 % equal for convolutions, dense layers, Add and Mul. The reference kernel
of the int8 SUM, which basic-pitch has, does not give what the default one gives.

| file | layer | equal | within 1 | largest | equal' | within 1' | largest' |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Task:
    """`stream`: samples are sequences [clips, steps, ...]. `twin`: an ONNX file of the same network, for one
    that LiteRT cannot run."""

    file: str
    data: str
    mean: float = 0.0
    scale: float = 1.0
    stream: bool = False
    twin: str = ""


TASKS = {
    "blazeface": Task("blazeface.tflite", "box", 127.5, 127.5),
    "selfie": Task("selfie.tflite", "selfie", 0.0, 255.0, twin="selfie.onnx"),
    "basic-pitch": Task("basic-pitch.tflite", "notes", 0.0, 32768.0),
    "basic-pitch-int8": Task("basic-pitch-int8.tflite", "notes", 0.0, 32768.0),
    "alexa-int8": Task("alexa-int8.tflite", "wake", -128.0, 1 / 0.10196078568696976, stream=True),
}


def pictures(data: Path, split: str) -> Array:
    """The pictures of another task for the one that has none of its own: RGB, 256 x 256."""
    from PIL import Image

    found = []
    for image in np.load(data / "text" / f"{split}.npz")["x"]:
        picture = Image.fromarray(np.ascontiguousarray(image[::-1].transpose(1, 2, 0)))
        found.append(np.asarray(picture.resize((256, 256), Image.Resampling.BILINEAR)))
    return np.stack(found)


def samples(task: Task, data: Path, split: str, shape: tuple[int, ...]) -> Array:
    """Samples (clips) as the network takes them: [count, ...] without the batch of one."""
    if task.data == "selfie":
        stored = pictures(data, split)
    elif task.stream:       # the calibration file has single frames: the first 16 clips calibrate
        held = np.load(data / task.data / "eval.npz")
        clips = next(held[name] for name in held.files if held[name].ndim == 4)
        stored = clips[:16] if split == "calib" else clips[16:]
    else:
        held = np.load(data / task.data / f"{split}.npz")
        stored = next(held[name] for name in held.files if held[name].ndim == len(shape))
    made = (stored.astype(np.float32) - task.mean) / np.float32(task.scale)
    lead = 2 if task.stream else 1
    return np.broadcast_to(made, (*made.shape[:lead], *shape[1:])).astype(np.float32)


def litert(data: bytes, kernels: str, clip: Array) -> Iterator[list[Array]]:
    """Outputs as real numbers, call after call; variables start anew with every clip."""
    net = Interpreter(model_content=data, experimental_op_resolver_type=KERNELS[kernels])
    net.allocate_tensors()
    (given,) = net.get_input_details()
    for x in clip:
        net.set_tensor(given["index"], coded(x[None], given))
        net.invoke()
        yield [real(net.get_tensor(one["index"]), one) for one in net.get_output_details()]


def twin(path: Path, clip: Array) -> Iterator[list[Array]]:
    session = host_session(path.read_bytes())
    (given,) = session.get_inputs()
    for x in clip:
        yield [np.asarray(one, np.float64) for one in session.run(None, {given.name: x[None]})]


def coded(x: Array, detail: dict[str, Any]) -> Array:
    scale, zero = detail["quantization"]
    if not scale:
        return x.astype(detail["dtype"])
    info = np.iinfo(detail["dtype"])
    return np.clip(np.rint(x / scale) + zero, info.min, info.max).astype(detail["dtype"])


def real(held: Array, detail: dict[str, Any]) -> Array:
    scale, zero = detail["quantization"]
    return (held.astype(np.float64) - zero) * scale if scale else held.astype(np.float64)


def floats(path: Path, clip: Array) -> Iterator[list[Array]]:
    """npuflow's float graph, its states carried."""
    _, reader, source = gathered(path)
    graph = reader.read(source, Bindings()).graph
    session = host_session(export_model(graph))
    kept = dict(graph.state)
    state = {name: np.zeros(graph.type(name).shape, np.float32) for name in kept.values()}
    (fed,) = (name for name in graph.inputs if name not in state)
    for x in clip:
        made = dict(zip(graph.outputs, session.run(None, {fed: x[None], **state}), strict=True))
        state = {given: made[output] for output, given in kept.items()}
        yield [np.asarray(made[name], np.float64) for name in graph.outputs if name not in kept]


def programs(runner: npuflow.Runner, fed: str, names: list[str], clip: Array) -> Iterator[list[Array]]:
    if runner.state:
        runner.reset()
    for x in clip:
        made = runner.run({fed: x[None]})
        yield [np.asarray(made[name], np.float64) for name in names]


class Score:
    """SQNR of all outputs together."""

    def __init__(self) -> None:
        self.signal = self.noise = 0.0

    def add(self, wanted: list[Array], given: list[Array]) -> None:
        for a, b in zip(wanted, given, strict=True):
            self.signal += float((a**2).sum())
            self.noise += float(((a - b.reshape(a.shape)) ** 2).sum())

    def __str__(self) -> str:
        if not self.signal:
            return "–"
        return f"{self.value:.2f}" if np.isfinite(self.value) else "equal"

    @property
    def value(self) -> float:
        return 10 * np.log10(self.signal / self.noise) if self.noise else np.inf


def row(name: str, args: argparse.Namespace) -> str:
    started, task = time.monotonic(), TASKS[name]
    path: Path = args.models / task.file
    data, tables = path.read_bytes(), parsed(path.read_bytes())
    fed, coded_file = tables.tensors[tables.inputs[0]], name.endswith("int8")
    more: dict[str, Any] = {"correct": {"bias": "off"}} if coded_file else {}
    build = npuflow.compile(
        path, WIDE if coded_file else "edge-4t", cache=args.cache, jobs=1, until=args.until,
        data={fed.name: samples(task, args.data, "calib", fed.shape)[: args.calibrate]}, **more,
    )
    runner = npuflow.Runner(build.program)
    every = samples(task, args.data, "eval", fed.shape)
    clips = every[: args.clips] if task.stream else [every[: args.count]]
    outputs = [tables.tensors[i].name for i in tables.outputs]
    scores = {kind: Score() for kind in ("float", "program", "reference")}
    for clip in clips:
        made = floats(path, clip), programs(runner, fed.name, outputs, clip)
        if task.twin:
            rows = zip(twin(args.models / task.twin, clip), *made, strict=True)
        else:
            plain, reference = (litert(data, kind, clip) for kind in ("default", "reference"))
            rows = zip(plain, *made, reference, strict=True)
        for wanted, *others in rows:
            for kind, given in zip(scores, others, strict=not task.twin):
                scores[kind].add(wanted, given)
    below = max(scores["reference"].value - scores["program"].value, 0.0) if coded_file else 0.0
    shape = "x".join(str(s) for s in fed.shape)
    cells = [f"`{task.file}`", shape, *map(str, scores.values()), f"{below:.2f}" if coded_file else "–"]
    return f"| {' | '.join(cells)} | {time.monotonic() - started:.0f} |\n"


def layers(name: str, args: argparse.Namespace) -> str:
    data = (args.models / TASKS[name].file).read_bytes()
    plain, default = (apart_by_layer(data, args.random, plain=one) for one in (True, False))
    rows = []
    for kind, apart in sorted(plain.items()):
        cells = [f"`{TASKS[name].file}`", kind]
        for a in (apart, default[kind]):
            cells += [f"{(a == 0).mean():.2%}", f"{(a <= 1).mean():.2%}", f"{a.max()}"]
        rows.append(f"| {' | '.join(cells)} |\n")
    return "".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", default=list(TASKS))
    parser.add_argument("--count", type=int, default=32, help="samples that are judged")
    parser.add_argument("--clips", type=int, default=48, help="of alexa")
    parser.add_argument("--calibrate", type=int, default=64, help="calibration samples (clips), at most")
    parser.add_argument("--random", type=int, default=8, help="random inputs of single layers")
    parser.add_argument("--until", default="simulate")
    parser.add_argument("--cache", type=Path, default=None)
    args = parser.parse_args()
    sys.stdout.write(HEAD.format(count=args.count, clips=args.clips))
    for name in args.names:
        sys.stdout.write(row(name, args))
        sys.stdout.flush()
    coded_ones = [name for name in args.names if name.endswith("int8")]
    if coded_ones:
        sys.stdout.write(LAYERS)
    for name in coded_ones:
        sys.stdout.write(layers(name, args))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
