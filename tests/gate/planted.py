"""Twenty changes that make a small network worse, each with the figure that shows it and the key to blame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import parser

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,24,24] x) => (float[1,6] y) {
    a = Conv<pads=[1,1,1,1]>(x, k1) b = Relu(a) c = Conv<pads=[1,1,1,1], strides=[2,2]>(b, k2)
    d = HardSwish(c) e = Conv<pads=[1,1,1,1]>(d, k3) f = Relu(e) h = Add(d, f)
    m = GlobalAveragePool(h) n = Flatten(m) y = Gemm(n, w, v) }"""
SHAPES = {"k1": (16, 3, 3, 3), "k2": (32, 16, 3, 3), "k3": (32, 32, 3, 3), "w": (32, 6), "v": (6,)}
RECIPE = """target = "edge-4t"
[model]
path = "net.onnx"
[data]
source = "calib.npz"
[calibrate]
method = "mse"
[precision]
strategy = "none"
[program]
graph = false
[evaluate]
source = "test.npz"
metric = "top1"
label = "label"
"""


def weights() -> dict[str, np.ndarray]:
    """Their channels differ much in size."""
    rng, found = np.random.default_rng(0), {}
    for name, shape in SHAPES.items():
        fan = max(1, int(np.prod(shape[1:])))
        sizes = np.geomspace(0.05, 2.0, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
        found[name] = (rng.normal(size=shape) * sizes / np.sqrt(fan)).astype(np.float32)
    return found


def save(folder: Path, arrays: Mapping[str, np.ndarray], text: str = TEXT) -> None:
    proto = parser.parse_model(text)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in arrays.items())
    onnx.save_model(proto, str(folder / "net.onnx"))


def saved(folder: Path) -> dict[str, np.ndarray]:
    proto = onnx.load_model(str(folder / "net.onnx"))
    return {one.name: np.array(onnx.numpy_helper.to_array(one)) for one in proto.graph.initializer}


def lay_out(folder: Path) -> None:
    """The network, whose classes are about as frequent and near to each other; its data and the recipe."""
    from npuflow.onnx.session import opened

    rng, arrays = np.random.default_rng(2), weights()
    pictures = np.kron(rng.normal(size=(424, 3, 6, 6)), np.ones((1, 1, 4, 4))).astype(np.float32)
    pictures += 0.1 * rng.normal(size=pictures.shape).astype(np.float32)
    np.savez(folder / "calib.npz", x=pictures[:24])
    arrays["v"] = np.zeros(6, np.float32)
    save(folder, arrays)
    run = opened(folder / "net.onnx")
    logits = np.concatenate([run.run(None, {"x": one[None]})[0] for one in pictures])
    arrays["v"] = -logits.mean(0)
    save(folder, arrays)
    labels = (logits - logits.mean(0)).argmax(1)[24:]
    np.savez(folder / "test.npz", x=pictures[24:], label=labels)
    (folder / "net.toml").write_text(RECIPE)


@dataclass(frozen=True)
class Planted:
    """A change of the recipe (`sets`) or of its files (`edit`), the figure that it makes worse, and what the
    gate must name first among the changed keys."""

    name: str
    figure: str
    key: str
    sets: tuple[str, ...] = ()
    edit: Callable[[Path], None] | None = None


def retrained(folder: Path) -> None:
    """Other weights, as of another training."""
    rng = np.random.default_rng(1)
    save(folder, {n: (a * rng.normal(1, 0.8, a.shape)).astype(np.float32) for n, a in saved(folder).items()})


def relabelled(folder: Path) -> None:
    held = dict(np.load(folder / "test.npz"))
    held["label"] = np.roll(held["label"], 1)
    np.savez(folder / "test.npz", **held)


def shifted(folder: Path) -> None:
    """A calibration set of another camera: much brighter."""
    held = np.load(folder / "calib.npz")["x"]
    np.savez(folder / "calib.npz", x=held * 12 + 40)


def deeper(folder: Path) -> None:
    """One more layer than the network had."""
    longer = TEXT.replace("h = Add(d, f)", "i = Conv<pads=[1,1,1,1]>(f, k3) h = Add(d, i)")
    save(folder, saved(folder), longer)


def of_key(name: str, figure: str, text: str) -> Planted:
    """A change of one key."""
    return Planted(name, figure, text.partition("=")[0], (text,))


PLANTED = (
    # accuracy
    Planted("percentile", "score", "calibrate.method",
            ('calibrate.method="percentile"', "calibrate.percentile.percentile=80.0")),
    of_key("narrow-weights", "score", "quantize.weights.bits=3"),
    of_key("narrow-activations", "score", "quantize.activations.bits=4"),
    of_key("one-scale-a-weight", "score", 'quantize.weights.per="tensor"'),
    Planted("narrow-layer", "score", "quantize.overrides",
            ('quantize.overrides=[{layers=["gemm"], weight_bits=2}]',)),
    Planted("other-camera", "score", "(of samples)", edit=shifted),
    Planted("retrained", "score", "model.path.file", edit=retrained),
    Planted("relabelled", "score", "(of evaluate)", edit=relabelled),
    Planted("fewer-samples", "score", "(of samples)", ("data.count=1",)),
    # time
    of_key("every-layer-alone", "cycles", "tiling.level=0"),
    of_key("fewer-rows", "cycles", "target.compute.array_rows=4"),
    of_key("fewer-columns", "cycles", "target.compute.array_cols=8"),
    of_key("fewer-lanes", "cycles", "target.compute.vector_lanes=2"),
    of_key("narrow-bus", "cycles", "target.memory.external_bandwidth=2.0"),
    of_key("slow-transfers", "cycles", "target.dma.setup_cycles=2000"),
    of_key("slow-commands", "cycles", "target.compute.command_cycles=400"),
    of_key("slow-fill", "cycles", "target.compute.fill_cycles=4000"),
    Planted("one-more-layer", "cycles", "model.path.file", edit=deeper),
    # bytes
    of_key("small-memory", "external_bytes", "target.memory.local_bytes=8192"),
    of_key("wide-weights", "external_bytes", "quantize.weights.bits=16"),
    of_key("wide-activations", "external_bytes", "quantize.activations.bits=16"),
    of_key("long-bursts", "external_bytes", "target.memory.burst=4096"),
    of_key("graph-kept", "program_bytes", "program.graph=true"),
    # energy
    of_key("dear-traffic", "energy_uj", "target.energy.external_byte=400.0"),
    # two keys, of which one is to blame
    Planted("plan-and-evaluation", "cycles", "tiling.level", ("evaluate.count=300", "tiling.level=0")),
    Planted("thresholds-and-simulation", "score", "calibrate.method",
            ("simulate.samples=1", 'calibrate.method="percentile"', "calibrate.percentile.percentile=80.0")),
)
