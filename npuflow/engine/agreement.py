"""Reference and simulator side by side: every integer tensor of some samples, element by element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npuflow.base.errors import BuildError, Where
from npuflow.engine.interpret import Interpreter
from npuflow.engine.program.container import Program
from npuflow.engine.runner import Runner
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array


@dataclass(frozen=True)
class TensorCheck:
    """One integer tensor over all compared samples."""

    value: str
    elements: int
    different: int
    max_abs: int


def compare(graph: Graph, program: Program, numerics: Numerics, feeds: Sequence[Mapping[str, Array]]) -> tuple[TensorCheck, ...]:
    """Every integer tensor that lies in external memory, and every float output, in the graph's order."""
    reference, runner = Interpreter(graph, numerics), Runner(program, batch=max(1, min(8, len(feeds))))
    found: dict[str, TensorCheck] = {}
    for feed, got in zip(feeds, runner.stream(feeds, dump=True), strict=True):
        want = reference.run(feed, keep=lambda _: True)
        for node in graph.nodes:
            for value in node.outputs:
                kept = graph.values[value].quant is not None or value in graph.outputs if value else False
                if kept and value in got and value in want:
                    _add(found, value, want[value], got[value])
    return tuple(found.values())


def _add(found: dict[str, TensorCheck], value: str, want: Array, got: Array) -> None:
    before = found.get(value, TensorCheck(value, 0, 0, 0))
    if want.shape != got.shape or want.dtype != got.dtype:
        found[value] = TensorCheck(value, before.elements + want.size, before.different + want.size, before.max_abs)
        return
    if want.dtype.kind in "iub":
        distance = np.abs(want.astype(np.int64) - got.astype(np.int64))
        wrong, most = int(np.count_nonzero(distance)), int(distance.max(initial=0))
    else:
        same = (want == got) | ((want != want) & (got != got))
        wrong, most = int(want.size - np.count_nonzero(same)), 0
    found[value] = TensorCheck(
        value, before.elements + want.size, before.different + wrong, max(before.max_abs, most)
    )  # fmt: skip


def require_equal(checks: Sequence[TensorCheck], program: Program) -> None:
    """A BuildError that names the first tensor to differ, and the node that made it."""
    wrong = [c for c in checks if c.different]
    if not wrong:
        return
    first = wrong[0]
    node = program.meta["values"].get(first.value, {}).get("node")
    name = program.meta["nodes"][node]["name"] if node is not None else None
    raise BuildError(
        f"the simulator differs from the reference in {len(wrong)} of {len(checks)} tensors",
        where=Where(node=name, value=first.value),
        because=f"first in {first.value!r}: {first.different} of {first.elements} elements, by up to {first.max_abs}",
        hint="this is a bug of npuflow: please report it with the recipe",
    )
