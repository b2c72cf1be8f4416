"""Ranges of whole numbers in a graph that is being read, before rules make positions and look-ups of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from npuflow.frontends._nodes.loop_form import CannotLoopError
from npuflow.frontends._nodes.onnx_builder import OnnxBuilder
from npuflow.ir.borders import border
from npuflow.ir.op import Node
from npuflow.ir.queries import title
from npuflow.ir.types import INDEX_BITS, Span
from npuflow.ir.whole import code_type, constant_span

FAR = 200                                 # nodes that are looked back
_PAIRS: dict[str, Callable[[int, int], int]] = {
    "Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b, "Min": min, "Max": max,
}
_FIRST = ("Cast", "ReduceSum", "ReduceMax", "ReduceMin")    # the others of their inputs are axes
_ALIKE = (*_FIRST, "Concat")              # what they give is of the range of what they read


def hull(*spans: Span) -> Span:
    return min(lo for lo, _ in spans), max(hi for _, hi in spans)


def fits(span: Span) -> bool:
    """Whether whole numbers of a range have a type in which they are their own codes, one for all of them."""
    codes = code_type(span)
    return codes is not None and codes.signed


@dataclass(frozen=True)
class WholeState:
    """Whole numbers that a loop carries: which of its values, their names at the step and for the next one,
    and the range of what they begin with."""

    index: int
    own: str
    following: str
    first: Span


def settled(builder: OnnxBuilder, loop: str, steps: int, states: Sequence[WholeState]) -> dict[str, Span]:
    """The ranges of whole numbers that a loop carries, by name at the step, which its borders state then:
    from what they begin with, those that steps make of them, up to the last one. A CannotLoopError where
    there are none."""
    ranges = {one.own: one.first for one in states}
    for _ in range(steps if states else 0):
        found, spans = WholeRanges(builder, ranges), dict(ranges)
        for one in states:
            made = found.of(one.following)
            if made is None:
                raise CannotLoopError("it carries whole numbers of no known range")
            spans[one.own] = hull(ranges[one.own], made)
            if not fits(spans[one.own]):
                raise CannotLoopError(f"it carries whole numbers that leave {INDEX_BITS} bits")
        if spans == ranges:
            break
        ranges = spans
    stated = {one.index: ranges[one.own] for one in states}
    for i, node in enumerate(builder.nodes if states else ()):
        if node.op.border_of_loop == "carry" and border(node)[1].loop == loop:
            own = border(node)[1]
            if own.index in stated:
                builder.nodes[i] = replace(node, op=replace(own, whole=stated[own.index]))
    return ranges


class WholeRanges:
    """`known`: ranges that are stated, as of what a loop carries."""

    def __init__(self, builder: OnnxBuilder, known: Mapping[str, Span]) -> None:
        self.builder, self.known = builder, known
        self.makers = {o: node for node in builder.nodes for o in node.outputs}

    def of(self, name: str, far: int = FAR) -> Span | None:
        """None: not whole numbers, or no range of them is known."""
        if name in self.known:
            return self.known[name]
        if name in self.builder.arrays:
            return constant_span(self.builder.arrays[name])
        if self.builder.type(name).dtype == "bool":
            return 0, 1
        node = self.makers.get(name)
        return self._made(node, name, far - 1) if node is not None and far else None

    def _made(self, node: Node, name: str, far: int) -> Span | None:
        kind, inputs = title(node), [i for i in node.inputs if i]
        if kind in ("ArgMax", "ArgMin") or (kind == "TopK" and name == node.outputs[1]):
            axis = node.op.onnx_attributes().get("axis", -1 if kind == "TopK" else 0)
            assert isinstance(axis, int)
            shape = self.builder.type(inputs[0]).shape
            return (0, shape[axis] - 1) if shape and shape[axis] > 0 else None
        read = inputs[1:] if kind == "Where" else inputs[:1] if _moves(node) or kind in _FIRST else inputs
        spans = [self.of(i, far) for i in read]
        known = [span for span in spans if span is not None]
        if len(known) < len(spans) or not known:
            return None
        if kind == "ReduceSum":
            whole, parts = (self.builder.type(v) for v in (inputs[0], name))
            count = whole.size // max(parts.size, 1) if whole.is_static and parts.is_static else 0
            return (count * known[0][0], count * known[0][1]) if count else None
        if kind == "Where" or _moves(node) or kind in _ALIKE:
            return hull(*known)
        if kind in _PAIRS and len(known) == 2:
            found = [_PAIRS[kind](a, b) for a in known[0] for b in known[1]]
            return min(found), max(found)
        return None


def _moves(node: Node) -> bool:
    return node.op.moves_data or title(node) in ("Identity", "Gather")
