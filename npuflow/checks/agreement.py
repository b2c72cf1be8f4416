"""Compares reference, simulator and whole-tensor executor on every integer tensor of some samples.
It also compares inferences that run at the same time with the same ones alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import product
from typing import Any

import numpy as np

from npuflow.base.errors import BuildError, Where
from npuflow.base.wording import counted
from npuflow.compare.difference import unequal
from npuflow.hw.target import Numerics
from npuflow.input.pixels.pixels import model_inputs, of_program
from npuflow.ir.graph import Graph
from npuflow.ir.loops import LEAVES, Loop, loops, side_of
from npuflow.ir.types import Array
from npuflow.ir.unroll import step_name, unnested
from npuflow.program.container import Program, instances_of
from npuflow.program.copies import Copies
from npuflow.run.interpret import Interpreter
from npuflow.runner.simulated import ProgramRunner
from npuflow.sim.hazards import hazards_of, require_safe
from npuflow.whole.execute.executor import Executor

SMALLEST = 2.0**-24                       # numbers nearer to 0 may have the code of -0.0


@dataclass(frozen=True)
class TensorCheck:
    """One integer tensor over all compared samples: elements of the simulator's compared, and those that no
    command of the program makes. `executor`: elements in which the whole-tensor executor differs."""

    value: str
    elements: int
    different: int
    max_abs: int
    unseen: int = 0
    executor: int = 0


@dataclass(frozen=True)
class _Seen:
    """What the simulator showed of a tensor of one sample: everywhere, or where `mask`; `torn`
    is wrong whatever was wanted."""

    array: Array
    mask: Array | None = None
    torn: Array | None = None


def compare(
    graph: Graph, program: Program, numerics: Numerics, feeds: Sequence[Mapping[str, Array]]
) -> tuple[TensorCheck, ...]:
    """Every integer tensor, in external memory or in local memory alone, and every
    float output, in the graph's order: the simulator's and the executor's beside the reference's.

    A tensor that the simulator shows nothing of has a check with 0 elements. Of a loop's body there are
    checks of the steps that the program shows, of loops in each other as a plan has them: see `unnested`."""
    graph = graph if program.meta.get("nested") else unnested(graph)
    alone = bool(program.meta.get("indices"))       # what taps show is of samples at one index
    runner = ProgramRunner(program, batch=1 if alone else max(1, min(8, len(feeds))))
    reference = Interpreter(graph, numerics)
    executor = Executor(graph, numerics, runner.batch)
    pixels, told = of_program(program.meta), list(_told(graph, program))
    found: dict[str, TensorCheck] = {}
    for start in range(0, len(feeds), runner.batch):
        batch = [as_in_sequences(feed, program.meta) for feed in feeds[start : start + runner.batch]]
        wanted = [reference.run(feed, keep=lambda _: True) for feed in batch]
        outputs = runner.run_many([model_inputs(feed, pixels) for feed in batch], dump=True)
        for sample, (want, got) in enumerate(zip(wanted, outputs, strict=True)):
            for value, name, step in told:
                if value in want:
                    _add(found, name, step.of(want[value]), list(_seen(runner, name, got, sample)))
        # free the simulator's tensors before the executor makes as many
        del outputs, got
        runner.forget()
        for want, fast in zip(wanted, executor.run_many(batch, keep=lambda _: True), strict=True):
            for value, name, step in told:
                if value in want:
                    apart = _apart(step.of(want[value]), step.of(fast[value]))
                    found[name] = replace(found[name], executor=found[name].executor + apart)
    return tuple(found.values())


def as_in_sequences(feed: Mapping[str, Array], meta: Mapping[str, Any]) -> dict[str, Array]:
    """What a run is fed as it is in a sequence: of caches that follow an index zeros behind that, which a
    program leaves as it finds them, and an index that there can be. Random samples have neither. A cache that
    a run has made holds no -0.0, since it is a sum with 0.0; the float network's may."""
    found = dict(feed)
    for one in meta.get("indices", ()):
        at = np.clip(found[one["input"]], 0, one["most"])
        found[one["input"]] = at
        for port, axis in one["axes"].items():
            if port in found:
                behind = (slice(None),) * axis + (slice(int(at.reshape(-1)[0]), None),)
                held = found[port].copy()
                held[behind] = 0
                if held.dtype.kind == "f":
                    held[np.abs(held) < SMALLEST] = 0
                found[port] = held
    return found


@dataclass(frozen=True)
class _Step:
    """Which part of a stacked tensor one step made, or which chunk of a tensor along an axis, and where it
    begins; None: all of a tensor that is not of a loop's body."""

    shape: tuple[int, ...] | None = None
    first: int = 0
    axis: int = 0

    def of(self, array: Array) -> Array:
        if self.shape is None:
            return array
        part = slice(self.first, self.first + (self.shape[self.axis] if self.shape else 1))
        return array[(slice(None),) * self.axis + (part,)].reshape(self.shape)


def _told(graph: Graph, program: Program) -> Iterator[tuple[str, str, _Step]]:
    """The tensors to compare: a value of the graph, its name in the program, and the step."""
    inner: dict[str, tuple[Loop, ...]] = {v: (loop,) for loop in loops(graph) for v in _body(graph, loop)}
    inner |= {v: (one, loop) for loop in loops(graph) for one in loop.inner for v in _body(graph, one)}
    known = program.meta["values"].keys() | program.taps.values.keys()
    for node in graph.nodes:
        for value in filter(None, node.outputs):
            if graph.values[value].quant is None and value not in graph.outputs:
                continue
            within = inner.get(value)
            if within is None:
                yield value, value, _Step()
                if value not in known:
                    yield from _in_chunks(graph, program, value)
                continue
            shape = graph.type(value).shape
            for k, steps in enumerate(product(*(range(loop.steps) for loop in within[::-1]))):
                name = reduce(partial(step_name, graph), steps[::-1], value)
                if name in known:
                    yield value, name, _Step(shape, k * (shape[0] if shape else 1))


def _body(graph: Graph, loop: Loop) -> Iterator[str]:
    """The values of a loop's steps, and those of loops in it."""
    for node in (graph.nodes[i] for i in loop.nodes):
        if side_of(node, loop) not in LEAVES:
            yield from filter(None, node.outputs)


def _in_chunks(graph: Graph, program: Program, value: str) -> Iterator[tuple[str, str, _Step]]:
    """The same of a value that a program has in chunks of a free length only."""
    whole, stored = graph.type(value).shape, program.meta["values"]
    found = dict[int, tuple[str, tuple[int, ...]]]()
    for k in range(max((length.most for length in graph.lengths), default=0)):
        name = step_name(graph, value, k)
        tap = program.taps.values.get(name)
        shape = tuple(stored[name]["shape"]) if name in stored else () if tap is None else tap.shape
        if len(shape) == len(whole) and sum(a != b for a, b in zip(whole, shape, strict=True)) == 1:
            found[k] = name, shape
    if len(found) < 3 or 0 not in found:
        return
    axis = next(d for d, (a, b) in enumerate(zip(whole, found[0][1], strict=True)) if a != b)
    sizes, last = {k: shape[axis] for k, (_, shape) in found.items()}, max(found)
    # the first chunk lacks what the next ones have before their own steps, and the last one ends the tensor
    before = next(size for k, size in sizes.items() if k) - sizes[0]
    apart, rest = divmod(whole[axis] - sizes[last] + max(before, 0), last)
    for k, (name, shape) in found.items() if not rest else ():
        first = 0 if k == 0 else k * apart - max(before, 0)
        yield value, name, _Step(shape, first, axis)


def _seen(runner: ProgramRunner, value: str, got: Mapping[str, Array], sample: int) -> Iterator[_Seen]:
    """From external memory and from local memory, where it is in both."""
    shadow = runner.shadows.get(value)
    if shadow is not None:
        yield _Seen(shadow.array[sample], shadow.seen, None if shadow.torn is None else shadow.torn[sample])
    if value in got and (shadow is None or value in runner.program.meta["values"]):
        yield _Seen(got[value])


def _add(found: dict[str, TensorCheck], value: str, want: Array, seen: Sequence[_Seen]) -> None:
    before = found.get(value, TensorCheck(value, 0, 0, 0))
    wrong, known, most = np.zeros(want.shape, bool), np.zeros(want.shape, bool), 0
    for one in seen:
        if want.shape != one.array.shape or want.dtype != one.array.dtype:
            wrong[...] = known[...] = True
            continue
        mask = np.ones(want.shape, bool) if one.mask is None else one.mask
        if want.dtype.kind in "iub":
            distance = np.abs(want.astype(np.int64) - one.array.astype(np.int64)) * mask
            most = max(most, int(distance.max(initial=0)))
        other = unequal(want, one.array) & mask
        wrong |= other if one.torn is None else other | one.torn
        known |= mask
    count = int(np.count_nonzero(known))
    found[value] = TensorCheck(
        value,
        before.elements + count,
        before.different + int(np.count_nonzero(wrong)),
        max(before.max_abs, most),
        before.unseen + want.size - count,
        before.executor,
    )


def _apart(want: Array, found: Array) -> int:
    """How many elements differ; all of them where shape or type do."""
    if want.shape != found.shape or want.dtype != found.dtype:
        return max(want.size, 1)
    return int(np.count_nonzero(unequal(want, found)))


def require_equal(checks: Sequence[TensorCheck], program: Program) -> None:
    """A BuildError that names the first tensor to differ, and the node that made it."""
    wrong = [c for c in checks if c.different]
    if wrong:
        first = wrong[0]
        raise BuildError(
            f"the simulator differs from the reference in {len(wrong)} of "
            f"{counted(sum(1 for c in checks if c.elements), 'tensor')}",
            where=_where(first.value, program),
            because=f"first in {first.value!r}: {first.different} of {first.elements} elements, by up to "
            f"{first.max_abs}",
            hint="this is a bug of npuflow: please report it with the recipe",
            code="NF-BUILD-001",
        )
    wrong = [c for c in checks if c.executor]
    if wrong:
        first = wrong[0]
        raise BuildError(
            f"the whole-tensor executor differs from the reference in {len(wrong)} of "
            f"{counted(len(checks), 'tensor')}",
            where=_where(first.value, program),
            because=f"first in {first.value!r}: {first.executor} elements; the program is right",
            hint='this is a bug of npuflow: please report it with the recipe. [evaluate] by = "simulator" '
            "does without the executor",
            code="NF-BUILD-002",
        )


def _where(value: str, program: Program) -> Where:
    """A tensor, and the node that made it."""
    node = program.meta["values"].get(value, {}).get("node")
    if node is None and value in program.taps.values:
        node = program.taps.values[value].node
    return Where(node=program.meta["nodes"][node]["name"] if node is not None else None, value=value)


def require_same(program: Program, samples: Sequence[Mapping[str, Array]]) -> int:
    """Runs as many inferences as there are instances, two rounds of them where they overlap, on the samples
    in turn; how many tensors were compared. A hazard or a difference is an error."""
    copies = Copies(program, instances_of(program), 2)
    if copies.obstacle():
        copies = Copies(program, copies.instances)
    merged, number = copies.merged(), copies.number
    runner = ProgramRunner(merged, batch=1)
    require_safe(merged, hazards_of(merged, runner.order))
    alone = [ProgramRunner(program, batch=1).run(sample, dump=True) for sample in samples]
    given = {f"{name}@{k}": a for k in range(number) for name, a in samples[k % len(samples)].items()}
    found = runner.run(given, dump=True)
    compared = 0
    for k in range(number):
        for name, want in alone[k % len(samples)].items():
            got = found.get(f"{name}@{k}")
            if got is None:
                continue
            compared += 1
            wrong = unequal(want, got)
            if wrong.any():
                raise BuildError(
                    f"inference {k} of {number} at the same time differs from the same inference alone",
                    where=Where(value=name),
                    because=f"{np.count_nonzero(wrong)} of {want.size} elements",
                    hint="this is a bug of npuflow: please report it with the recipe", code="NF-BUILD-030",
                )
    return compared
