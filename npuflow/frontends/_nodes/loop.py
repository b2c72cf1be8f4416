"""Makes loops of Scan, and of Loop with a known number of steps: the body once, between borders.

Scanned tensors have their steps in front, then as equal parts of the first dimension (see `ir/loops.py`).
What a loop of the graph cannot hold is written out by `unroll.py`: few steps, whole numbers that depend on
data. What counts is followed (`counters.py`): it is read as parts of constants, or picks a step's part of a
tensor. A nested loop stays a loop, too, once. One that cannot is written out in the outer body; or the outer
loop is written out, where that makes fewer nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from npuflow.frontends._nodes import fold
from npuflow.frontends._nodes.counters import rows_read
from npuflow.frontends._nodes.loop_form import CannotLoopError, LoopForm, Scanned, loop_form, scan_form
from npuflow.frontends._nodes.onnx_builder import OnnxBuilder
from npuflow.frontends._nodes.unroll import LARGE, LOOP, MOST, RECURRENT, size_of, steps_of_layer
from npuflow.frontends._nodes.whole_numbers import WholeRanges, WholeState, fits, settled
from npuflow.ir.loops import FEW
from npuflow.ir.nesting import MAX_DEPTH, membership
from npuflow.ir.op import OPS
from npuflow.ir.types import Array, Span, TensorType
from npuflow.onnx.nodes import captured, subgraphs
from npuflow.onnx.types import ELEMENTS

INTEGERS = ("int64", "int32")
BODIES = ("Loop", "Scan", "If")


def looped(builder: OnnxBuilder, node: onnx.NodeProto, version: int) -> str:
    """Add a Loop or Scan as a loop of the graph; else say why not."""
    if builder.loop_depth == MAX_DEPTH:
        return "loops may be nested once, and this one would be the third"
    body, room = next(a.g for a in node.attribute if a.name == "body"), builder.room
    mark, singles = builder.mark(), dict(builder.singles)
    builder.loop_depth += 1
    try:
        form = (loop_form if node.op_type == "Loop" else scan_form)(builder, node, body)
        form = form.named({*membership(builder.nodes).of_node.values(), *builder.values})
        begun = builder.room = min(MOST if room is None else room, form.steps * size_of(body))
        _Looped(builder, form, version).add()
        room = None if room is None else room - begun + builder.room
        if builder.loop_depth == MAX_DEPTH and form.name not in membership(builder.nodes).outer:
            raise CannotLoopError("it depends on nothing of the outer loop")
    except CannotLoopError as why:
        builder.back(mark)
        builder.singles = singles
        return str(why)
    finally:
        builder.room = room
        builder.loop_depth -= 1
    return ""


@dataclass
class _Looped:
    """A loop on its way into the graph."""

    builder: OnnxBuilder
    form: LoopForm
    version: int
    names: dict[str, str] = field(default_factory=dict)         # of the body's values in the graph
    truths: dict[str, Scanned] = field(default_factory=dict)    # of the outside, of which steps have parts
    ranges: dict[str, Span] = field(default_factory=dict)       # of whole numbers that steps carry

    def add(self) -> None:
        form, builder = self.form, self.builder
        if form.steps <= FEW:
            raise CannotLoopError(f"{form.steps} steps")
        self._check()
        count = len(form.states)
        for name, array in form.fixed.items():
            self.names[name] = builder.constant(self._named(name), array)
        for k, (own, state) in enumerate(zip(form.own, form.states, strict=False)):
            if form.results[k] == own:
                self.names[own] = state if state in builder.arrays else self._captured(state)
                continue
            self.names[own] = self._named(own)
            self._passed("carry", state, self.names[own], k)
        for own, one in zip(form.own[count:], form.scanned, strict=True):
            self._enters(own, one)
        self._body()
        given = form.results[:count], form.results[count:]
        self._settle(given[0])
        results = [self._result(name) for name in given[0]]
        for k, (state, value) in enumerate(zip(form.states, results, strict=False)):
            if builder.type(value) != builder.type(state):
                raise CannotLoopError(f"the type of {state} changes from step to step")
            out = form.lasts[k] or builder.free(f"{form.name}/last{k}")
            if form.results[k] == form.own[k]:              # no step changes it
                self._moved(state, "reshape", out, builder.type(state).shape)
            else:
                self._passed("last", value, out, k)
        for name, row in zip(given[1], form.rows, strict=True):
            if row.name and name in form.counters.values:
                builder.constant(row.name, self._counted(name))
            elif row.name:
                self._rows(self._result(name), row)

    def _check(self) -> None:
        for node in self.form.body.node:
            if any(a.name == "ceil_mode" and a.i for a in node.attribute):
                raise CannotLoopError("windows that are rounded up have no known sizes in onnxruntime's Scan")

    def _named(self, name: str) -> str:
        """The name of a value of the body; it may be in the graph outside, too, or in another loop."""
        return self.builder.free(name)

    def _real(self, name: str, whole: bool = False) -> TensorType:
        """The type of a value that crosses the border of a loop. `whole`: it may be whole numbers of a known
        range."""
        kind = self.builder.type(name)
        known = whole and kind.dtype in INTEGERS and self._span(name) is not None
        if (kind.dtype not in ("float32", "bool") and not known) or not kind.is_static:
            raise CannotLoopError(f"{name} of {kind.dtype} goes through its steps")
        return kind

    def _crossing(
        self, source: str, out: str, cross: Callable[[str, str], object], whole: bool = False
    ) -> str:
        """What `cross(source, out)` adds between a value and what it is behind a border. Truth values cross
        as 0 and 1, whole numbers as such floats."""
        dtype = self._real(source, whole).dtype
        if dtype == "float32":
            cross(source, out)
            return out
        number, behind = (self.builder.free(f"{out}:{what}") for what in ("number", "crossed"))
        self._cast(source, number, onnx.TensorProto.FLOAT)
        cross(number, behind)
        return self._cast(behind, out, ELEMENTS[dtype])

    def _cast(self, source: str, out: str, to: int) -> str:
        self.builder.node(
            onnx.helper.make_node("Cast", [source], [out], self.form.origin[0], to=to), self.version
        )
        return out

    def _span(self, name: str) -> Span | None:
        """The range of whole numbers that are their own codes."""
        span = WholeRanges(self.builder, self.ranges).of(name)
        return span if span is not None and fits(span) else None

    def _settle(self, results: Sequence[str]) -> None:
        """State the ranges of whole numbers that are carried."""
        found = []
        for k, (own, result) in enumerate(zip(self.form.own, results, strict=False)):
            name = self.names[own]
            if name in self.ranges:
                found.append(WholeState(k, name, self.names.get(result, result), self.ranges[name]))
        self.ranges = settled(self.builder, self.form.name, self.form.steps, found)

    def _border(self, kind: str, source: str, out: str, **more: Any) -> str:
        op = OPS[f"loop{kind}"](loop=self.form.name, steps=self.form.steps, **more)
        return self.builder.add(op, (source,), (out,), self.form.origin)[0]

    def _passed(self, kind: str, source: str, out: str, index: int) -> None:
        """A value that is carried, behind a border. What has no dimension passes as a tensor of one element:
        steps copy what they carry, and commands copy elements along a dimension."""
        said: dict[str, Any] = {"index": index}
        dtype = self.builder.type(source).dtype
        if kind == "carry" and dtype in INTEGERS:
            if source not in self.builder.arrays:
                raise CannotLoopError(f"{source} of {dtype} goes through its steps, and is computed")
            self.ranges[out] = self._span(source) or (0, 0)
        if kind == "carry" and dtype != "float32":
            said["whole"] = self.ranges.get(out, (0, 1))
        if kind == "last" and out in self.builder.bounds.going:
            if self.builder.loop_depth == MAX_DEPTH:
                raise CannotLoopError("its end depends on data, which only outer loops support")
            said["goes_on"] = True

        def cross(source: str, out: str) -> None:
            if self.builder.type(source).shape:
                self._border(kind, source, out, **said)
                return
            one, behind = self._element(source, out), self.builder.free(f"{out}:behind")
            self._border(kind, one, behind, **said)
            self._moved(behind, "reshape", out, ())

        self._crossing(source, out, cross, whole=True)

    def _element(self, source: str, out: str) -> str:
        """A number as a tensor of one element, on its way to `out`."""
        return self._moved(source, "reshape", self.builder.free(f"{out}:element"), (1,))

    def _moved(self, source: str, kind: str, out: str, setting: tuple[int, ...]) -> str:
        return self.builder.add(OPS[kind](setting), (source,), (out,), self.form.origin)[0]

    def _part(self, one: Scanned, own: str) -> str:
        """What a step has of a tensor."""
        return self._crossing(one.name, own, lambda source, out: self._cut(replace(one, name=source), out))

    def _cut(self, one: Scanned, own: str) -> str:
        shape = self.builder.type(one.name).shape
        axis, source = one.axis % len(shape), one.name
        if shape[axis] != self.form.steps:
            raise CannotLoopError("its tensors have several numbers of steps")
        part = (*shape[:axis], *shape[axis + 1 :])
        if axis:
            order = (axis, *(d for d in range(len(shape)) if d != axis))
            source = self._moved(source, "transpose", self.builder.free(f"{own}:turned"), order)
        if not part:
            lone = self._border("slice", source, self.builder.free(f"{own}:row"), reverse=one.back)
            return self._moved(lone, "reshape", own, ())
        whole = (shape[axis] * part[0], *part[1:])
        source = self._moved(source, "reshape", self.builder.free(f"{own}:whole"), whole)
        return self._border("slice", source, own, reverse=one.back)

    # --- truth values of the outside
    def _enters(self, own: str, one: Scanned) -> None:
        """A step's part of a tensor comes in, under a name of the body; one of truth values where a node
        reads it."""
        if self.builder.type(one.name).dtype == "bool":
            self.truths[own] = one
        else:
            self.names[own] = self._part(one, self._named(own))

    def _ahead(self, node: onnx.NodeProto) -> bool:
        """Whether a node changes a step's truth values alone; it then does so in front of the loop, for all
        steps."""
        one = self.truths.get(node.input[0]) if node.op_type in ("Not", "Cast") else None
        if one is None or any(a.name == "to" and a.i != onnx.TensorProto.FLOAT for a in node.attribute):
            return False
        copy = onnx.NodeProto.FromString(node.SerializeToString())
        copy.input[0], copy.output[0] = one.name, self.builder.free(f"{node.output[0]}:all")
        copy.name = self.form.origin[0]
        self.builder.node(copy, self.version)
        self._enters(node.output[0], replace(one, name=copy.output[0]))
        return True

    def _captured(self, name: str) -> str:
        """A value of the outside that no step changes."""
        out = self._named(name)
        return self._crossing(name, out, lambda source, out: self._border("capture", source, out))

    def _body(self) -> None:
        """The nodes of a step, with values of the outside behind borders."""
        builder, body = self.builder, self.form.body
        made = {o for n in body.node for o in n.output if o}
        nodes = self._left(made)
        for tensor in body.initializer:
            self.names[tensor.name] = self._named(tensor.name)
            builder.tensor(self.names[tensor.name], tensor)
        read = dict.fromkeys(i for n in nodes for i in (*n.input, *captured(n)) if i)
        for name in (*read, *self.form.results):
            if name not in made and name not in self.names and name not in builder.arrays:
                self.names[name] = self._captured(name)
        self.names.update({o: self._named(o) for n in nodes for o in n.output if o})
        copies = [onnx.NodeProto.FromString(inner.SerializeToString()) for inner in nodes]
        fold.rename_all(copies, self.names)
        for copy in copies:
            copy.name = self._called(copy)      # reports name the node of the source
            plain, begun = copy.domain in ("", "ai.onnx"), len(builder.nodes)
            builder.node(copy, self.version if plain else builder.version(copy.domain))
            self._inner(copy, begun)

    def _called(self, node: onnx.NodeProto) -> str:
        """The name of a node of the body, behind the loop's."""
        own = node.name.lstrip("/") or next((o for o in node.output if o), node.op_type)
        return f"{self.form.origin[0]}/{own}"

    # --- what counts
    def _left(self, made: Collection[str]) -> list[onnx.NodeProto]:
        """The nodes of the body that do more than count."""
        known, nodes = self.form.counters.values, self.form.body.node
        more = [n for n in nodes if not all(o in known for o in n.output if o)]
        left = [n for n in more if not (self._picks(n, made) or self._ahead(n))]
        read = dict.fromkeys(i for n in left for i in (*n.input, *captured(n)))
        for name in read:
            if name in known:
                self.names[name] = self._at_step(name)
        for name in dict.fromkeys((*read, *self.form.results)):
            if name in self.truths:
                self.names[name] = self._part(self.truths[name], self._named(name))
        return left

    def _picks(self, node: onnx.NodeProto, made: Collection[str]) -> bool:
        """Whether a node takes the step's part of a tensor of the outside, which then enters the body."""
        known, builder, steps = self.form.counters.values, self.builder, self.form.steps
        source, *places = (i for i in node.input if i) if node.op_type in ("Gather", "Slice") else ("",)
        given = [known[i] if i in known else [builder.arrays[i]] * steps
                 for i in places if i in known or i in builder.arrays]
        outside = source and source not in made and source not in self.names and source in builder.values
        outside = outside and source not in self.truths
        if not outside or len(given) < len(places) or known.keys().isdisjoint(places):
            return False
        found = rows_read(node, given, self._real(source).shape)
        if found is None:
            return False
        axis, rows = found
        back = np.array_equal(rows, np.arange(steps)[::-1])
        if self._real(source).shape[axis] != steps or not (back or np.array_equal(rows, np.arange(steps))):
            at = builder.constant(builder.free(f"{node.output[0]}:places"), rows)
            taken, back = builder.free(f"{node.output[0]}:rows"), False
            gather = onnx.helper.make_node("Gather", [source, at], [taken], self.form.origin[0], axis=axis)
            builder.node(gather, self.version)
            source = taken
        self._enters(node.output[0], Scanned(source, axis, back))
        return True

    def _at_step(self, name: str) -> str:
        """What counts, as a value of the body."""
        builder, held = self.builder, self.form.counters.same(name)
        if held is not None:
            return builder.constant(self._named(name), held)
        rows = self._counted(name)
        if rows.dtype not in (np.float32, np.bool_):
            raise CannotLoopError("its body asks for the number of its step")
        whole = builder.constant(builder.free(f"{name}:steps"), rows.astype(np.float32))
        if rows.dtype == np.float32:
            return self._part(Scanned(whole), self._named(name))
        part = self._part(Scanned(whole), builder.free(f"{name}:number"))
        return self._cast(part, self._named(name), onnx.TensorProto.BOOL)

    def _counted(self, name: str) -> Array:
        rows = self.form.counters.stacked(name)
        if rows is None:
            raise CannotLoopError(f"the shape of {name} changes from step to step")
        return rows

    def _inner(self, node: onnx.NodeProto, begun: int) -> None:
        """Check what became of a node of the body that is a loop or a branch itself: nothing is left of it,
        and all of them have not more nodes than there is room for. `begun`: its first node."""
        builder = self.builder
        assert builder.room is not None
        steps = steps_of_layer(builder, node)
        if steps > FEW:
            stays = builder.loop_depth < MAX_DEPTH and not any(node.input[4:5])     # no lengths of sequences
            builder.room -= LOOP if stays else steps * RECURRENT[node.op_type]
        elif any(True for _ in subgraphs(node)):
            for op in (made.op for made in builder.nodes[begun:]):
                kind, reason = getattr(op, "op_type", ""), getattr(op, "reason", "")
                if kind in BODIES:
                    raise CannotLoopError(
                        LARGE if reason == LARGE else f"its body has a {kind} that stays: {reason}"
                    )
            builder.room -= len(builder.nodes) - begun
        if builder.room < 0:
            raise CannotLoopError(LARGE)

    def _result(self, name: str) -> str:
        if name in self.form.counters.values and name not in self.names:
            self.names[name] = self._at_step(name)
        value = self.names.get(name, name)
        self._real(value, whole=True)
        return value

    def _rows(self, value: str, row: Scanned) -> None:
        """What all steps made, under the node's name of it."""
        self._crossing(
            value, row.name, lambda source, out: self._stack(source, replace(row, name=out)), whole=True
        )

    def _stack(self, value: str, row: Scanned) -> None:
        shape, steps = self.builder.type(value).shape, self.form.steps
        axis = row.axis % (len(shape) + 1)
        if not shape:
            value = self._element(value, row.name)
        made = self._border("stack", value, self.builder.free(f"{row.name}:rows"), reverse=row.back)
        target = self.builder.free(f"{row.name}:steps") if axis else row.name
        self._moved(made, "reshape", target, (steps, *shape))
        if axis:
            order = (*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1))
            self._moved(target, "transpose", row.name, order)
