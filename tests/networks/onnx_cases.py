"""ONNX's own node cases through npuflow: read, rewritten, exported, run, compared
with their reference outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from npuflow.base.errors import NpuflowError
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.ir.graph import Graph
from npuflow.ir.verify import verify
from npuflow.onnx.export import export_model
from npuflow.onnx.run import CannotRunError, run
from npuflow.onnx.types import PLAIN
from npuflow.rewrite.rewrite import rewrite

__all__ = ["Outcome", "cases", "feeds_of", "judge", "table", "through"]


@dataclass(frozen=True)
class Outcome:
    """How a case went; `reason` is empty when its outputs are the reference's."""

    name: str
    reason: str = ""
    # "", "runtime" (onnxruntime cannot run the original either), "differs", "refused"
    kind: str = ""

    @property
    def passed(self) -> bool:
        return not self.reason


@cache
def cases() -> tuple[Any, ...]:
    """Every node case of the installed onnx."""
    import warnings

    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(collect_testcases(None))


def case_named(name: str) -> Any:
    (case,) = (c for c in cases() if c.name == name)
    return case


def through(model: bytes, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
    """The model as npuflow's float graph, rewritten and checked."""
    reading = FRONTENDS["onnx"]().read(model, Bindings(shapes or {}))
    return rewrite(verify(reading.graph, "reading")).graph


def judge(case: Any) -> Outcome:
    """Run one case."""
    data = case.model.SerializeToString()
    try:
        feeds = feeds_of(case.model, case.data_sets[0][0])
        exported = export_model(
            through(data, {n: a.shape for n, a in feeds.items() if isinstance(a, np.ndarray)})
        )
    except NpuflowError as fault:
        original = _original(data, case)
        said = f"{fault.message}{f': {fault.because}' if fault.because else ''}"
        return Outcome(case.name, original or said, "runtime" if original else "refused")
    for inputs, expected in case.data_sets:
        feeds = feeds_of(case.model, inputs)
        try:
            found = run(exported, feeds, [o.name for o in case.model.graph.output])
        except CannotRunError as fault:
            return Outcome(case.name, str(fault), "runtime" if _original(data, case) else "refused")
        wrong = next(_differences(found, expected, case.rtol, case.atol), "")
        if wrong:
            same = not _original(data, case) and not any(
                True for _ in _differences(run(data, feeds), found, 1e-4, 1e-5)
            )
            return Outcome(case.name, wrong, "runtime" if same else "differs")
    return Outcome(case.name)


def table(outcomes: Sequence[Outcome]) -> str:
    """A page: how many cases pass, and every one that does not, with its reason."""
    import onnx
    import onnxruntime

    passed = sum(o.passed for o in outcomes)
    lines = [
        "# ONNX node cases",
        "",
        (f"{passed} of the {len(outcomes)} node cases of onnx {onnx.__version__} give their reference "
        "outputs when they are read,"),
        f"rewritten, exported and run by onnxruntime {onnxruntime.__version__}. The slow test of",
        "`tests/frontends/test_node_cases.py` writes this page when `NPUFLOW_WRITE_DOCS` is set.",
        "",
        "The others, with the reason:",
        "",
    ]
    titles = {
        "refused": "npuflow does not build the case",
        "differs": "The result differs",
        "runtime": "onnxruntime does not give the reference output for the original either, or cannot be "
        "fed its types",
    }
    for kind, title in titles.items():
        rows = sorted((o.name, o.reason) for o in outcomes if o.kind == kind)
        lines += [f"## {title} ({len(rows)})", "", "| case | reason |", "| --- | --- |"]
        lines += [f"| `{name}` | {cell(reason)} |" for name, reason in rows] + [""]
    return "\n".join(lines)


def cell(reason: str) -> str:
    """One cell: no paths of the machine that built onnxruntime, no table marks."""
    import re

    return re.sub(r"/onnxruntime_src/\S+", "", reason).replace("|", "/").replace("\n", " ")[:160].strip()


def feeds_of(model: Any, inputs: Sequence[Any]) -> dict[str, Any]:
    stored = {t.name for t in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in stored]
    given = {
        n: np.asarray(a) if isinstance(a, np.generic) else a for n, a in zip(names, inputs, strict=False)
    }
    return {n: _values(a) if hasattr(a, "data_type") else a for n, a in given.items()}


def _original(data: bytes, case: Any) -> str:
    """Why onnxruntime does not run the case as it is ("" if it does)."""
    try:
        for inputs, _ in case.data_sets:
            run(data, feeds_of(case.model, inputs))
    except CannotRunError as fault:
        return f"onnxruntime: {fault}"
    return ""


def _differences(found: Sequence[Any], expected: Sequence[Any], rtol: float, atol: float) -> Iterator[str]:
    for index, (a, b) in enumerate(zip(found, expected, strict=True)):
        if isinstance(b, (list, tuple)):
            if not isinstance(a, (list, tuple)) or len(a) != len(b):
                yield f"output {index} is another sequence"
            else:
                yield from _differences(a, b, rtol, atol)
        elif a is None or b is None:
            if a is not b:
                yield f"output {index} is {'absent' if a is None else 'there'}"
        else:
            yield from _array(index, np.asarray(a), _values(b), rtol, atol)


def _values(expected: Any) -> Any:
    """A reference output as an array; types numpy lacks come as protos."""
    if isinstance(expected, (np.ndarray, np.generic)):
        return np.asarray(expected)
    from onnx import numpy_helper

    return numpy_helper.to_array(expected) if hasattr(expected, "data_type") else np.asarray(expected)


def _array(index: int, a: Any, b: Any, rtol: float, atol: float) -> Iterator[str]:
    if b.dtype.name not in PLAIN and a.dtype.itemsize == b.dtype.itemsize and a.dtype.kind == "u":
        a = a.view(b.dtype)              # onnxruntime gives the codes of the small float types
    if a.shape != b.shape:
        yield f"output {index} has the shape {a.shape} instead of {b.shape}"
    elif b.dtype.kind in "OUS":
        if a.tolist() != b.tolist():
            yield f"output {index} differs"
    elif a.dtype.kind in "fc" and not np.allclose(a, b, rtol, atol, equal_nan=True):
        yield f"output {index} differs by {np.nanmax(np.abs(a - b)):.3g}"
    elif a.dtype.kind not in "fc" and not np.array_equal(
        a.astype(np.float64), b.astype(np.float64), equal_nan=True
    ):
        yield f"output {index} differs"
