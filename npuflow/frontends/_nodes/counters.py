"""Follows what counts in the body of a Loop: values that the number of the step and constants alone decide.

Whole numbers and truth values that a Loop carries, beginning with constants, are followed with it. A loop of
the graph then reads them as parts of constants, and they need no arithmetic and no rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from npuflow.base.wording import first_line
from npuflow.frontends._nodes.onnx_builder import OnnxBuilder
from npuflow.ir.types import Array, TensorType
from npuflow.onnx.nodes import subgraphs
from npuflow.onnx.run import EXPORT_OPSET, CannotRunError, finished, session
from npuflow.onnx.types import value_info

LONGEST = 1 << 16                         # steps that are followed


@dataclass
class Counters:
    """`values`: of the body, an array for each step; `last`: by carried value, what it is behind the loop;
    `steps`: as many as the condition lets run, or the trip count."""

    steps: int = 0
    values: dict[str, list[Array]] = field(default_factory=dict)
    last: dict[int, Array] = field(default_factory=dict)

    def same(self, name: str) -> Array | None:
        """What a value is in all steps, if it does not change."""
        rows = self.values[name]
        return rows[0] if all(np.array_equal(rows[0], row) for row in rows) else None

    def stacked(self, name: str) -> Array | None:
        """All steps of a value; None where its shape changes."""
        rows = self.values[name]
        return np.stack(rows) if len({row.shape for row in rows}) == 1 else None


def number(builder: OnnxBuilder, name: str) -> int | None:
    """The number that a constant holds."""
    held = builder.arrays.get(name)
    return int(held.reshape(-1)[0]) if held is not None and held.size == 1 else None


def goes_on(builder: OnnxBuilder, body: onnx.GraphProto) -> bool:
    """Whether a body's condition is always true."""
    makers = {o: n for n in body.node for o in n.output}
    held = {t.name: onnx.numpy_helper.to_array(t) for t in body.initializer}
    name = body.output[0].name
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    if name == body.input[1].name:
        return True
    node = makers.get(name)
    if node is not None:
        value = next((a.t for a in node.attribute if a.name == "value"), None)
        if node.op_type != "Constant" or value is None:
            return False
        return bool(onnx.numpy_helper.to_array(value).all())
    known = held.get(name, builder.arrays.get(name))
    return known is not None and bool(known.all())


def followed(
    builder: OnnxBuilder, node: onnx.NodeProto, body: onnx.GraphProto, count: int | None
) -> Counters:
    """What counts in a Loop, and after how many steps it ends; nothing where that is not decided, or takes
    more than `LONGEST` steps. `count`: its trip count."""
    first = {
        k: builder.arrays[name] for k, name in enumerate(node.input[2:])
        if name in builder.arrays and builder.arrays[name].dtype != np.float32
    }
    while True:
        kept = _decided(builder, body, first)
        names = {o for n in kept for o in n.output} | {body.input[0].name}
        names |= {body.input[2 + k].name for k in first}
        lost = [k for k in first if body.output[1 + k].name not in names]
        if not lost:
            break
        for k in lost:
            del first[k]
    try:
        return _Followed(builder, body, kept, count).run(first)
    except CannotRunError:
        return Counters()


def _decided(builder: OnnxBuilder, body: onnx.GraphProto, first: Mapping[int, Array]) -> list[onnx.NodeProto]:
    """The nodes that counters and constants alone decide, with what these read of constants in the body."""
    counting = {body.input[0].name, *(body.input[2 + k].name for k in first)}
    known = {*builder.arrays, *(t.name for t in body.initializer), body.input[1].name} | counting
    known -= {i.name for k, i in enumerate(body.input[2:]) if k not in first}
    decided = []
    for node in body.node:
        plain = node.domain in ("", "ai.onnx") and not any(True for _ in subgraphs(node))
        if plain and all(not i or i in known for i in node.input):
            known.update(o for o in node.output if o)
            decided.append(node)
            if not counting.isdisjoint(node.input):
                counting.update(o for o in node.output if o)
    kept: list[onnx.NodeProto] = []
    read = {o.name for o in body.output}
    for node in reversed(decided):      # of constants, such as a length cast in each step, what is read
        if not (counting | read).isdisjoint(node.output):
            kept.append(node)
            read.update(node.input)
    return kept[::-1]


@dataclass
class _Followed:
    builder: OnnxBuilder
    body: onnx.GraphProto
    nodes: Sequence[onnx.NodeProto]
    count: int | None

    def run(self, first: Mapping[int, Array]) -> Counters:
        found, body, now = Counters(), self.body, dict(first)
        going = body.output[0].name
        ends = {o.name for o in body.output}
        made = [o for n in self.nodes for o in n.output if o and (n.op_type != "Constant" or o in ends)]
        most = LONGEST + 1 if self.count is None else self.count
        if most > LONGEST and going not in made:
            return found
        ready = self._session(now, made) if made else None
        while found.steps < most:
            held = {body.input[0].name: np.array(found.steps, np.int64)}
            held |= {body.input[2 + k].name: array for k, array in now.items()}
            held |= dict(zip(made, ready(held), strict=True)) if ready else {}
            for name, array in held.items():
                found.values.setdefault(name, []).append(np.asarray(array))
            now = {k: held[body.output[1 + k].name] for k in now}
            found.steps += 1
            if going in made and not held[going].all():
                break
        else:
            if most > LONGEST:
                return Counters()
        found.last = now
        return found

    def _session(
        self, first: Mapping[int, Array], made: Sequence[str]
    ) -> Callable[[Mapping[str, Array]], list[Array]]:
        """What computes one step."""
        body, own = self.body, {t.name for t in self.body.initializer}
        graph = onnx.GraphProto(name="counters", node=self.nodes)
        read = {i for n in self.nodes for i in n.input if i}
        graph.initializer.extend(t for t in body.initializer if t.name in read)
        defined = own | set(made) | {o for n in self.nodes for o in n.output}
        for name in sorted(read - defined):
            if name in self.builder.arrays:
                graph.initializer.append(onnx.numpy_helper.from_array(self.builder.arrays[name], name))
        if body.input[1].name in read:
            graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), body.input[1].name))
        inputs = {body.input[0].name: np.array(0, np.int64)}
        inputs |= {body.input[2 + k].name: array for k, array in first.items()}
        graph.input.extend(
            value_info(name, TensorType(a.shape, a.dtype.name)) for name, a in inputs.items() if name in read
        )
        for name in made:
            graph.output.add().name = name
        opsets = {"": self.builder.opsets.get("", EXPORT_OPSET)}
        ready = session(finished(onnx.ModelProto(graph=graph), opsets).SerializeToString(), optimised=False)
        given = [i.name for i in graph.input]

        def step(held: Mapping[str, Array]) -> list[Array]:
            try:
                found: list[Array] = ready.run(made, {name: held[name] for name in given})
            except Exception as fault:      # onnxruntime raises its own classes
                raise CannotRunError(first_line(fault)) from fault
            return found

        return step


def rows_read(
    node: onnx.NodeProto, places: Sequence[Sequence[Array]], shape: Sequence[int]
) -> tuple[int, Array] | None:
    """Of a Gather or Slice whose places are known at each step, the dimension, and the elements along it by
    step; None: it is none of these, or takes parts of several lengths. `shape`: of what it reads."""
    if node.op_type == "Gather" and shape:
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0) % len(shape)
        rows = [np.asarray(p, np.int64) for p in places[0]]
    elif node.op_type == "Slice" and len(places) > 2 and places[0][0].size == 1:
        axis = int(places[2][0].reshape(-1)[0]) % len(shape)
        ends = zip(*(places[0], places[1], *places[3:]), strict=True)
        rows = [np.arange(shape[axis])[slice(*(int(p.reshape(-1)[0]) for p in one))] for one in ends]
    else:
        return None
    size = shape[axis]
    if len({row.shape for row in rows}) > 1 or not rows[0].size:
        return None
    whole = np.stack(rows)
    return (axis, whole % size) if -size <= whole.min() and whole.max() < size else None
