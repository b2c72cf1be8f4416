"""ONNX's own node cases on the NPU: quantised, interpreted, compiled, simulated;
counted apart from the float ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx

from npuflow.base.errors import NpuflowError
from npuflow.hw.target import Memory, Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.ir.types import Array
from npuflow.ir.unroll import written_out
from npuflow.onnx.export import export_model
from npuflow.place.partition import is_npu
from npuflow.place.place import place
from npuflow.quantise.config import Quantize
from npuflow.rules import RULES
from npuflow.run.interpret import host_session, interpret
from npuflow.testing.op import check_program, distance
from npuflow.testing.quantised import quantize_graph
from tests.networks.onnx_cases import cell, feeds_of, through

Feeds = dict[str, Array]
TARGET = Target(memory=Memory(local_bytes=1 << 16))


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
        # each step of a loop has numbers of its own
        steps = written_out(done.graph)
        kept = interpret(steps, feeds, target.numerics, keep=lambda _: True)
        integer = [n for n in steps.nodes if is_npu(n)]
        operators = tuple(sorted({type(n.op).__name__ for n in integer}))
        worst = max((distance(steps, n, kept) for n in integer), default=0)
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


def operator(case: Any) -> str:
    """The operator that a case is of; "" where that is spelled out already, in several nodes."""
    nodes = [node for node in case.model.graph.node if node.op_type != "Constant"]
    return nodes[0].op_type if len(nodes) == 1 and nodes[0].domain in ("", "ai.onnx") else ""


def is_float(case: Any) -> bool:
    """Whether the case has a result in float32."""
    return any(isinstance(a, np.ndarray) and a.dtype == np.float32 for a in case.data_sets[0][1])


@cache
def with_integers() -> frozenset[str]:
    """ONNX operators that have an integer form: a file of their own, or a rule that spells them."""
    own = {OPS[name].onnx for name in OPS.names()} - {"", "QuantizeLinear", "DequantizeLinear"}
    spelled = {
        kind.removeprefix("host:")
        for rule in RULES.names()
        if rule.startswith(("spell_", "unroll_", "batchnorm"))
        for kind in RULES[rule].triggers
    }
    names = {schema.name for schema in onnx.defs.get_all_schemas()}
    return frozenset(n for n in names if n in own or n.lower() in spelled)


def judged(case: Any) -> bool:
    """Whether the case counts: a float result of one operator with an integer form."""
    return is_float(case) and operator(case) in with_integers()


def section(verdicts: Iterable[tuple[str, Verdict]]) -> str:
    """A part of the page: operator by operator, how many cases run on the NPU, and why others do not."""
    rows: dict[str, list[Verdict]] = {}
    for name, verdict in verdicts:
        rows.setdefault(name, []).append(verdict)
    whole = [v for found in rows.values() for v in found]
    done = sum(v.passed for v in whole)
    lines = [
        "## On the NPU",
        "",
        f"{done} of {len(whole)} cases with a float32 result, of operators with an integer form, run on the",
        f"NPU ({100 * done / len(whole):.1f} %): every node quantised to 8 bits, compiled and simulated, bit",
        "for bit as the reference. *Codes*: the largest distance from the float operator on the same",
        "quantised inputs. A case whose operator takes weights or indices only as constants is run with all",
        "inputs but the first constant. `python docs/node_cases.py` writes this part.",
        "",
        "| operator | cases | on the NPU | codes |",
        "| --- | --- | --- | --- |",
    ]
    for name, found in sorted(rows.items()):
        passed = [v for v in found if v.passed]
        codes = str(max(v.codes for v in passed)) if passed else ""
        lines.append(f"| {name} | {len(found)} | {len(passed)} | {codes} |".replace("|  |", "| |"))
    lines += ["", "Why the others do not:", "", "| case | reason |", "| --- | --- |"]
    failed = sorted((v.name, v.reason) for v in whole if not v.passed)
    return "\n".join([*lines, *(f"| `{n}` | {cell(r)} |" for n, r in failed), ""])
