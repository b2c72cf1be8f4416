"""A stored conversion judged: npuflow's float graph, or its integer network, against LiteRT's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from npuflow.frontends import FRONTENDS, Bindings
from npuflow.frontends.tflite.schema import parsed as tables
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.place.place import place
from npuflow.quantise.config import Activations, Quantize
from npuflow.run.interpret import Interpreter
from npuflow.stages.model import ModelTable
from npuflow.stages.parse import parsed
from npuflow.testing.quantised import quantize_graph


def integers(data: bytes, target: Target, feeds: Sequence[np.ndarray] = ()) -> Graph:
    """The integer network. Values that the file leaves in float have the range that they have on `feeds`;
    without feeds one that nothing depends on."""
    found = parsed(data, FRONTENDS["tflite"](), ModelTable(None))  # type: ignore[arg-type]
    placed = place(found.graph, target)
    ranges = dict.fromkeys(found.graph.values, (-1.0, 1.0))
    if feeds:
        every = tuple(o for node in found.graph.nodes for o in node.outputs)
        inputs = dict(zip(found.graph.inputs, feeds, strict=True))
        made = run(export_model(found.graph.replaced(outputs=every)), inputs)
        ranges |= {k: (float(np.min(v)), float(np.max(v))) for k, v in zip(every, made, strict=True)}
    sixteen = any(quant.bits > 8 for quant in found.stated.values())
    config = Quantize(activations=Activations(bits=16), constants=16) if sixteen else Quantize()
    return quantize_graph(found.graph, placed.on_npu, ranges, config, target.numerics, found.stated).graph


def wide_multipliers(rounding: str = "half_away") -> Target:
    """A target that multiplies as LiteRT's kernels do: 31 bits, halves away from zero."""
    target = Target()
    numerics = replace(target.numerics, rounding=rounding, multiplier_bits=31, shift_max=62)
    return replace(target, numerics=numerics)


def off_by(case: dict[str, np.ndarray]) -> float:
    """The largest difference of a case's outputs: over the largest value for floats, in steps for codes.
    Results without scale (places, truths, shapes) have to be equal; else it is infinite."""
    data = case["model"].tobytes()
    network = tables(data)
    feeds, wanted, steps = [], [], []
    for n, index in enumerate(network.inputs):
        feeds.append(_real(case[f"x{n}"], network.tensors[index].codes)[0])
    for n, index in enumerate(network.outputs):
        value, step = _real(case[f"y{n}"], network.tensors[index].codes)
        wanted.append(value)
        steps.append(step)
    coded = any(t.codes is not None and t.data is None for t in network.tensors)
    got = _integer(data, feeds) if coded else _float(data, feeds)
    worst = 0.0
    for mine, theirs, step in zip(got, wanted, steps, strict=True):
        if mine.shape != theirs.shape:
            return np.inf
        if theirs.dtype.kind != "f":
            worst = max(worst, 0.0 if (mine == theirs).all() else np.inf)
            continue
        apart = float(np.abs(mine.astype(np.float64) - theirs).max(initial=0))
        worst = max(worst, apart / (step or float(np.abs(theirs).max(initial=1e-6))))
    return worst


def _real(held: np.ndarray, codes: object) -> tuple[np.ndarray, float]:
    """The numbers that an input or output stands for, and its step; 0 where it has none."""
    if codes is None or held.dtype.kind not in "iu" or held.dtype.itemsize > 2:
        return held, 0.0
    scale, zero = np.float32(codes.scale[0]), codes.zero[0]
    return ((held.astype(np.int64) - zero) * scale).astype(np.float32), float(scale)


def _float(data: bytes, feeds: list[np.ndarray]) -> list[np.ndarray]:
    graph = FRONTENDS["tflite"]().read(data, Bindings()).graph
    return [np.asarray(v) for v in run(export_model(graph), dict(zip(graph.inputs, feeds, strict=True)))]


def _integer(data: bytes, feeds: list[np.ndarray]) -> list[np.ndarray]:
    target = wide_multipliers()
    graph = integers(data, target, feeds)
    made = Interpreter(graph, target.numerics).run(dict(zip(graph.inputs, feeds, strict=True)))
    return [np.asarray(made[name]) for name in graph.outputs]
