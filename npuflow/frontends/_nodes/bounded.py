"""A Loop whose end depends on data as one of a stated number of steps, with updates under a mask.

Its condition becomes a carried truth value. What counts goes on behind the end, where no step uses it; what
it is behind the loop follows from how many steps have counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from npuflow.frontends._nodes.counters import LONGEST, Counters, followed, goes_on, number
from npuflow.frontends._nodes.loop import looped
from npuflow.frontends._nodes.loop_form import CannotLoopError
from npuflow.frontends._nodes.masked import BOUND, GUARDED, StepMask, steps_needed
from npuflow.frontends._nodes.onnx_builder import OnnxBuilder
from npuflow.ir.loops import FEW
from npuflow.ir.types import Array, TensorType
from npuflow.onnx.nodes import captured, subgraphs
from npuflow.onnx.run import EXPORT_OPSET
from npuflow.onnx.types import from_proto, value_info

FLOAT, BOOL, INT = onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL, onnx.TensorProto.INT64
INTEGERS = ("int64", "int32")
SMALL = 1 << 12                           # elements of a constant that sizes may be made of


def bounded(builder: OnnxBuilder, node: onnx.NodeProto, version: int, why: str) -> str:
    """Add a Loop whose end depends on data with as many steps as the recipe states; else say why it stays.
    `why`: what is not known of its end."""
    name = node.name or next((o for o in node.output if o), "Loop")
    most = builder.bounds.of(name)
    if most is None:
        return f"{why}; {BOUND}"
    mark = builder.mark()
    try:
        for one in _Bounded(builder, node, most).nodes():
            if one.op_type == "Loop":
                _stays_whole(builder, one, version)
            else:
                builder.node(one, version)
    except CannotLoopError as reason:
        builder.back(mark)
        return str(reason)
    return ""


def _stays_whole(builder: OnnxBuilder, node: onnx.NodeProto, version: int) -> None:
    """Add the loop; a CannotLoopError where its whole numbers cannot be carried. Written out they would be
    the host's in each step, which then is better off with the loop."""
    numbers = any(builder.type(name).dtype in INTEGERS for name in node.input[2:])
    if numbers and builder.room is None and number(builder, node.input[0]) not in range(FEW + 1):
        if why := looped(builder, node, version):
            raise CannotLoopError(why)
    else:
        builder.node(node, version)


@dataclass
class _Bounded:
    """`begins`, `ends`: nodes of a step around those of the body; `before`, `behind`: around the loop.
    `carried`: outside, at the step, for the next one, behind the loop; `rows`: in the step and outside."""

    builder: OnnxBuilder
    node: onnx.NodeProto
    most: int
    begins: list[onnx.NodeProto] = field(default_factory=list)
    ends: list[onnx.NodeProto] = field(default_factory=list)
    before: list[onnx.NodeProto] = field(default_factory=list)
    behind: list[onnx.NodeProto] = field(default_factory=list)
    carried: list[tuple[str, str, str, str]] = field(default_factory=list)
    rows: list[tuple[str, str]] = field(default_factory=list)
    made: int = 0

    def __post_init__(self) -> None:
        self.body = next(a.g for a in self.node.attribute if a.name == "body")
        self.prefix = next(o for o in self.node.output if o)
        self.states = list(self.node.input[2:])
        self.into = self.ends
        self.guarded = not GUARDED.isdisjoint(n.op_type for n in every_node(self.body))
        self.kinds = _inferred(self.builder, self.body, self.states)

    def nodes(self) -> list[onnx.NodeProto]:
        """In place of the Loop."""
        trip = self.node.input[0]
        count = number(self.builder, trip) if trip else None
        if self.most > LONGEST:
            raise CannotLoopError(f"more than {LONGEST} steps")
        counters = followed(self.builder, self.node, self.body, min(count or self.most, self.most))
        if not counters.steps:
            raise CannotLoopError("its steps cannot be followed")
        conditions = self._conditions()
        steps = steps_needed(counters.steps, [
            [bool(row.all()) for row in counters.values[name]]
            for name in conditions if name in counters.values
        ])
        live = self._live(steps) if trip and count is None else ""
        runs, first = self._name("runs"), self._first(live)
        self.into = self.begins
        mask = StepMask[str](self, runs)
        self.into = self.ends
        for k, state in enumerate(self.states):
            self._state(k, state, counters, mask)
        goes = [self._shaped(name, (1,)) for name in conditions]
        if live:
            goes.append(self._cast(self._shaped(self._at(live, self._next()), (1,)), BOOL))
        self.carried.append((first, runs, mask.goes_on(goes), self._name("goes_on")))
        if steps != count:                # else the source ends there, too
            self.builder.bounds.going.add(self.carried[-1][3])
        self._scanned(counters, mask)
        self._counted(counters, steps)
        return [*self.before, self._loop(steps), *self.behind]

    # --- the end
    def _conditions(self) -> list[str]:
        """What has to hold for another step, each by itself."""
        makers = {o: n for n in self.body.node for o in n.output}
        found, waiting = list[str](), [] if goes_on(self.builder, self.body) else [self.body.output[0].name]
        while waiting:
            maker = makers.get(waiting[-1])
            if maker is not None and maker.op_type in ("And", "Identity"):
                waiting[-1:] = maker.input
            else:
                found.append(waiting.pop())
        return [name for name in dict.fromkeys(found) if name != self.body.input[1].name]

    def _live(self, steps: int) -> str:
        """By step, and behind the last one, 1 where a computed trip count has it: rows of a triangle."""
        self.into = self.before
        trip = self._shaped(self.node.input[0], (1,))
        least, most = self._constant(np.zeros(1, np.int64)), self._constant(np.full(1, steps + 1))
        within = self._node("Min", [self._node("Max", [trip, least]), most])
        table = self._constant(np.tri(steps + 2, steps + 1, -1, np.float32))
        return self._shaped(self._node("Gather", [table, within], axis=0), (steps + 1,))

    def _first(self, live: str) -> str:
        """Whether the first step counts."""
        self.into = self.before
        given = self.node.input[1] if len(self.node.input) > 1 else ""
        parts = [self._shaped(self._apart(given), (1,))] if given and number(self.builder, given) != 1 else []
        if live:
            at = self._constant(np.zeros(1, np.int64))
            parts.append(self._cast(self._node("Gather", [live, at], axis=0), BOOL))
        if len(parts) > 1:
            return self._node("And", parts)
        return parts[0] if parts else self._constant(np.ones(1, np.bool_))

    def _apart(self, truth: str) -> str:
        """A truth value by way of a number: of one from outside the host makes it, once, before the loop."""
        return self._cast(self._cast(truth, FLOAT), BOOL)

    def _next(self) -> str:
        return self._node("Add", [self.body.input[0].name, self._constant(np.array(1, np.int64))])

    def _at(self, table: str, place: str) -> str:
        return self._node("Gather", [table, place], axis=0)

    # --- what is carried
    def _state(self, k: int, state: str, counters: Counters, mask: StepMask[str]) -> None:
        own, new = self.body.input[2 + k].name, self.body.output[1 + k].name
        kind, made = self.builder.type(state), self.kinds.get(new)
        last = self.node.output[k] if k < len(self.node.output) else ""
        if k in counters.last:
            self.carried.append((state, own, new, self._name("counted")))
            return
        computed = kind.dtype in INTEGERS and state not in self.builder.arrays
        if kind.dtype not in ("float32", "bool", *INTEGERS) or not kind.is_static or computed:
            raise CannotLoopError(f"{state} of {kind.dtype} is carried and depends on data")
        if made is not None and made.is_static and made.shape != kind.shape:
            raise CannotLoopError(f"the shape of {state} changes from step to step")
        truth, whole = kind.dtype == "bool", kind.dtype in INTEGERS
        guarded, last = self.guarded and kind.dtype == "float32", last or self._name("last")
        self.into, now, shape = self.before, own, kind.shape
        initial = self._apart(state) if truth else state
        if not shape:
            initial, now, after = self._shaped(initial, (1,)), self._name("one"), self._name("one_behind")
            self.into = self.behind
            self._shaped(after, (), last)
            last = after
        elif guarded:
            now = self._name("state")
        if now != own:
            self.into = self.begins
            self._shaped(mask.fed(now, initial) if guarded else now, shape, own)
        self.into = self.ends
        new = new if shape else self._shaped(new, (1,))
        following = self.chosen(mask.runs, new, now) if whole else mask.held(new, now, truth)
        self.carried.append((initial, now, following, last))

    def _scanned(self, counters: Counters, mask: StepMask[str]) -> None:
        """What the steps stack, 0 behind the end."""
        first = len(self.states)
        flags = {truth: self._shaped(flag, ()) for truth, flag in mask.flags.items()}
        for name, out in zip(self.body.output[1 + first :], self.node.output[first:], strict=False):
            if not out or name.name in counters.values:
                continue
            kind = self.kinds.get(name.name, from_proto(name.type)).dtype
            if kind not in ("float32", "bool", *INTEGERS):
                raise CannotLoopError(f"{name.name} of {kind} is stacked and depends on data")
            truth = kind == "bool"
            if kind in INTEGERS:
                row = self.chosen(flags[True], name.name, self._constant(np.zeros((), kind)))
            else:
                row = mask.row(name.name, flags[truth], truth)
            self.rows.append((row, out))
        self.rows.append((mask.runs, self._name("ran")))

    # --- what counts
    def _counted(self, counters: Counters, steps: int) -> None:
        """What counters are behind the loop, and what they stacked, from the steps that counted."""
        self.into, first = self.behind, len(self.states)
        ran = self._cast(self._shaped(self.rows[-1][1], (steps,)), INT)
        count = ""
        for k, last in counters.last.items():
            if k >= len(self.node.output) or not self.node.output[k]:
                continue
            count = count or self._node("ReduceSum", [ran], keepdims=0)
            values = [*counters.values[self.body.input[2 + k].name], last][: steps + 1]
            table = self._constant(_stacked(values, self.states[k]))
            self._node("Gather", [table, count], self.node.output[k], axis=0)
        for name, out in zip(self.body.output[1 + first :], self.node.output[first:], strict=False):
            if out and name.name in counters.values:
                rows = _stacked(counters.values[name.name][:steps], name.name)
                flags = self._shaped(ran, (steps, *[1] * (rows.ndim - 1)))
                kind = onnx.helper.np_dtype_to_tensor_dtype(rows.dtype)
                both = [self._constant(rows), flags if kind == INT else self._cast(flags, kind)]
                self._node("And" if kind == BOOL else "Mul", both, out)

    # --- nodes
    def _loop(self, steps: int) -> onnx.NodeProto:
        body = onnx.GraphProto(name=self.body.name or "body", initializer=self.body.initializer)
        body.node.extend([*self.begins, *self.body.node, *self.ends])
        same = onnx.helper.make_node("Identity", [self.body.input[1].name], [self._name("on")])
        body.node.append(same)
        body.input.extend(self.body.input[:2])
        for _, own, _, _ in self.carried:
            body.input.add().name = own
        results = [same.output[0], *(one[2] for one in self.carried), *(row for row, _ in self.rows)]
        for result in results:
            body.output.add().name = result
        given = [self._constant(np.array(steps, np.int64)), self._constant(np.array(True))]
        outputs = [*(one[3] for one in self.carried), *(out for _, out in self.rows)]
        return onnx.helper.make_node(
            "Loop", [*given, *(one[0] for one in self.carried)], outputs, self.node.name or self.prefix,
            body=body,
        )

    def _name(self, what: str) -> str:
        self.made += 1
        return self.builder.free(f"{self.prefix}:{what}{self.made}")

    def _node(self, kind: str, inputs: Sequence[str], out: str = "", **more: Any) -> str:
        out = out or self._name(kind.lower())
        name = self.node.name or self.prefix
        self.into.append(onnx.helper.make_node(kind, list(inputs), [out], name, **more))
        return out

    def _constant(self, array: Array) -> str:
        return self.builder.constant(self._name("constant"), np.asarray(array))

    def _shaped(self, value: str, shape: Sequence[int], out: str = "") -> str:
        return self._node("Reshape", [value, self._constant(np.array(shape, np.int64))], out)

    def _cast(self, value: str, to: int) -> str:
        return self._node("Cast", [value], to=to)

    # --- how a step is written
    def product(self, a: str, b: str, truth: bool) -> str:
        return self._node("And" if truth else "Mul", [a, b])

    def sum(self, a: str, b: str, truth: bool) -> str:
        return self._node("Or" if truth else "Add", [a, b])

    def opposite(self, a: str, truth: bool) -> str:
        if truth:
            return self._node("Not", [a])
        return self._node("Sub", [self._constant(np.ones(1, np.float32)), a])

    def number(self, a: str) -> str:
        return self._cast(a, FLOAT)

    def chosen(self, flag: str, a: str, b: str) -> str:
        """Of whole numbers, which no product may round."""
        return self._node("Where", [flag, a, b])


def every_node(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph, with those of the graphs in them."""
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from every_node(inner)


def _stacked(rows: Sequence[Array], name: str) -> Array:
    if len({row.shape for row in rows}) > 1:
        raise CannotLoopError(f"the shape of {name} changes from step to step")
    return np.stack(rows)


def _inferred(
    builder: OnnxBuilder, body: onnx.GraphProto, states: Sequence[str]
) -> dict[str, TensorType]:
    """The types of a body's results, as far as ONNX infers them."""
    graph = onnx.GraphProto(name="body", node=body.node, initializer=body.initializer, output=body.output)
    types = [TensorType((), "int64"), TensorType((), "bool"), *(builder.type(name) for name in states)]
    own = {i.name for i in body.input} | {t.name for t in body.initializer}
    own |= {o for n in body.node for o in n.output}
    graph.input.extend(value_info(i.name, kind) for i, kind in zip(body.input, types, strict=True))
    read = dict.fromkeys(i for n in body.node for i in (*n.input, *captured(n)) if i and i not in own)
    for name in read:
        held = builder.arrays.get(name)
        if held is not None and held.size <= SMALL:
            graph.initializer.append(onnx.numpy_helper.from_array(held, name))
        else:
            graph.input.append(value_info(name, builder.type(name)))
    for one in graph.output:
        one.ClearField("type")
    opsets = [onnx.helper.make_opsetid(domain, v) for domain, v in builder.opsets.items() if domain]
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", EXPORT_OPSET), *opsets])
    try:
        found = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return {}
    every = [*found.input, *found.value_info, *found.output]
    return {one.name: from_proto(one.type) for one in every if one.HasField("type")}
