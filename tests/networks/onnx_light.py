"""The `light` models that ship with onnx, end to end: read, compared with their published
outputs, quantised, simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType

import numpy as np

from npuflow.base.errors import NpuflowError
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph, constant
from npuflow.ir.macs import graph_macs
from npuflow.onnx.export import export_model
from npuflow.place.partition import npu_share
from npuflow.place.place import place
from npuflow.quantise.config import Quantize
from npuflow.run.interpret import host_session
from npuflow.testing.op import check_program
from npuflow.testing.quantised import quantize_graph
from tests.networks.onnx_cases import through


@dataclass(frozen=True)
class Outcome:
    """How a model went; `reason` is empty when its float output was the published one and
    every integer the reference's."""

    name: str
    macs: int = 0
    share: float = 0.0
    integer: int = 0
    nodes: int = 0
    reason: str = ""


def light_models() -> tuple[Path, ...]:
    """Files of the installed onnx, smallest file first."""
    import onnx

    folder = Path(str(onnx.__file__)).parent / "backend" / "test" / "data" / "light"
    return tuple(sorted(folder.glob("light_*.onnx"), key=lambda path: path.stat().st_size))


def filled(graph: Graph, seed: int = 0) -> Graph:
    """The graph with random weights where it has fills of one number: the models come without any."""
    rng, values, consts = np.random.default_rng(seed), dict(graph.values), dict(graph.consts)
    for name, value in graph.values.items():
        array = graph.const(name)
        if array is None or array.dtype != np.float32 or array.ndim < 2 or array.min() != array.max():
            continue
        fan = prod(array.shape[1:]) if array.ndim > 2 else min(array.shape)
        made, found = constant(
            name, rng.normal(0.0, (2.0 / max(fan, 1)) ** 0.5, array.shape).astype(np.float32), value.quant
        )
        values[name] = made
        consts.update(found)
    return graph.replaced(values=MappingProxyType(values), consts=MappingProxyType(consts))


def published(path: Path) -> tuple[np.ndarray, ...]:
    """The outputs that onnx publishes beside a model, for an input that counts evenly from 0 to
    1 (its `fills` as weights)."""
    from onnx import TensorProto, numpy_helper

    files = sorted(path.parent.glob(f"{path.stem}_output_*.pb"))
    return tuple(np.asarray(numpy_helper.to_array(TensorProto.FromString(f.read_bytes()))) for f in files)


def counted(shape: tuple[int, ...]) -> np.ndarray:
    """The input of the published outputs."""
    return (np.arange(prod(shape)).reshape(shape) / prod(shape)).astype(np.float32)


def judge(path: Path, target: Target, config: Quantize) -> Outcome:
    """One model: its float output beside the published one, then integers on random
    weights and one random image."""
    name = path.stem.removeprefix("light_")
    try:
        read = through(path.read_bytes())
        found = host_session(export_model(read)).run(
            read.outputs, {i: counted(read.type(i).shape) for i in read.inputs}
        )
        for one, expected in zip(found, published(path), strict=True):
            # onnx's own bounds for these models
            np.testing.assert_allclose(one, expected, rtol=1e-3, atol=1e-7)
        graph = filled(read)
        rng = np.random.default_rng(1)
        feeds = {i: rng.normal(size=graph.type(i).shape).astype(np.float32) for i in graph.inputs}
        names = [o for n in graph.nodes for o in n.outputs if o and graph.type(o).dtype == "float32"]
        arrays = (
            dict(zip(names, host_session(export_model(graph, names)).run(names, feeds), strict=True)) | feeds
        )
        ranges = {n: (float(a.min()), float(a.max())) for n, a in arrays.items()}
        done = quantize_graph(graph, place(graph, target).on_npu, ranges, config, target.numerics).graph
        check_program(done, feeds, target, name)
        integer = sum(n.is_integer for n in done.nodes)
        return Outcome(name, graph_macs(graph), npu_share(done), integer, len(done.nodes))
    except AssertionError as fault:
        return Outcome(name, reason=f"differs: {fault}")
    except NpuflowError as fault:
        return Outcome(name, reason=f"refused: {fault.message}")


def table(outcomes: Sequence[Outcome]) -> str:
    """A page: what each model came to."""
    import onnx

    exact = sum(not o.reason for o in outcomes)
    lines = [
        "# ONNX's light models",
        "",
        (f"onnx {onnx.__version__} ships {len(outcomes)} well-known networks with fills for weights. {exact} "
        "of them, read and"),
        ("rewritten, give the outputs that onnx publishes; and with random weights, at 8 bits, are "
        "quantised, compiled and"),
        ("simulated with every integer tensor equal to the reference interpreter's, bit for bit. The slow "
        "test of"),
        "`tests/frontends/test_light_models.py` writes this page when `NPUFLOW_WRITE_DOCS` is set.",
        "",
        "| model | MACs | on the NPU | integer nodes | result |",
        "| --- | --- | --- | --- | --- |",
    ]
    for o in sorted(outcomes, key=lambda o: o.name):
        figures = (
            f"{o.macs / 1e6:,.0f} M | {100 * o.share:.1f} % | {o.integer} of {o.nodes}"
            if o.nodes
            else " | | "
        )
        lines.append(f"| {o.name} | {figures} | {o.reason or 'bit exact'} |")
    return "\n".join(lines) + "\n"
