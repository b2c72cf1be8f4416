"""ONNX's own node cases on the NPU: quantised, interpreted, compiled, simulated;
counted apart from the float ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from npuflow.base.errors import NpuflowError
from npuflow.engine.interpret import host_session, interpret
from npuflow.engine.partition import is_npu
from npuflow.engine.place import place
from npuflow.engine.quantize.config import Quantize
from npuflow.engine.quantize.graph import quantize_graph
from npuflow.engine.to_onnx import export_model
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.testing.op import check_program, distance
from tests.networks.onnx_cases import feeds_of, through

Feeds = dict[str, Array]


@dataclass(frozen=True)
class Verdict:
    """How a case went on the NPU. `reason` is empty when every node ran there within `codes`
    <= 1, and simulated exactly."""

    name: str
    operators: tuple[str, ...] = ()
    codes: int = 0
    reason: str = ""

    @property
    def passed(self) -> bool:
        return not self.reason


def judge(case: Any, target: Target, config: Quantize) -> Verdict:
    """As the case states it; if its operator then stays on the host, with all inputs but the first held
    constant, as a model holds its weights."""
    first = _attempt(case, target, config, held=False)
    if first.passed or not first.reason.startswith("host"):
        return first
    second = _attempt(case, target, config, held=True)
    return second if second.passed or not second.reason.startswith("host") else first


def _attempt(case: Any, target: Target, config: Quantize, held: bool) -> Verdict:
    try:
        model, feeds = _model(case, held)
        graph = through(model, {n: a.shape for n, a in feeds.items()})
        placed = place(graph, target)
        away = [p for p in placed.places if not p.on_npu]
        if away or not placed.places:
            return Verdict(
                case.name,
                reason=f"host: {away[0].op}: {away[0].reason}" if away else "host: nothing left to run",
            )
        ranges = _ranges(graph, feeds)
        done = quantize_graph(graph, placed.on_npu, ranges, config, target.numerics)
        refused = [note for note in done.notes if note.on_host]
        if refused:
            return Verdict(case.name, reason=f"refused: {refused[0].reason}")
        kept = interpret(done.graph, feeds, target.numerics, keep=lambda _: True)
        integer = [n for n in done.graph.nodes if is_npu(n)]
        operators = tuple(sorted({type(n.op).__name__ for n in integer}))
        worst = max((distance(done.graph, n, kept) for n in integer), default=0)
        if worst > 1:
            return Verdict(case.name, operators, worst, f"{worst} codes from the quantised float reference")
        check_program(done.graph, feeds, target, case.name)
        return Verdict(case.name, operators, worst)
    except AssertionError as fault:
        return Verdict(case.name, reason=f"differs: {fault}")
    except NpuflowError as fault:
        return Verdict(case.name, reason=f"refused: {fault.message}")


def _model(case: Any, held: bool) -> tuple[bytes, Feeds]:
    """The case's model and data; `held`: every input but the first becomes an initializer."""
    import onnx

    feeds = feeds_of(case.model, case.data_sets[0][0])
    if any(not isinstance(a, np.ndarray) for a in feeds.values()):
        raise NpuflowError("an input is not a tensor", code="NF-MODEL-038")
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    if held:
        for name in list(feeds)[1:]:
            model.graph.initializer.append(onnx.numpy_helper.from_array(feeds.pop(name), name))
        rest = [i for i in model.graph.input if i.name in feeds]
        del model.graph.input[:]
        model.graph.input.extend(rest)
    return model.SerializeToString(), feeds


def _ranges(graph: Graph, feeds: Feeds) -> dict[str, tuple[float, float]]:
    wanted = [o for n in graph.nodes for o in n.outputs if o and graph.type(o).dtype == "float32"]
    found = {k: a for k, a in feeds.items() if a.dtype == np.float32}
    found.update(zip(wanted, host_session(export_model(graph, wanted)).run(wanted, feeds), strict=True))
    ranges = {}
    for name, array in found.items():
        finite = array[np.isfinite(array)]
        ranges[name] = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    return ranges
