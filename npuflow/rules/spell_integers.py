"""Arithmetic of integers whose ranges are known: on whole numbers in float32, with a Cast behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.queries import kind
from npuflow.ir.types import INDEX_BITS, Span
from npuflow.ir.whole import code_type, spans_made, whole_span
from npuflow.onnx.run import EXPORT_OPSET
from npuflow.rules import RULES, Change, Refusal
from npuflow.rules._masks import MAKES, NoMask, mask, opposite
from npuflow.rules._numbers import found, number
from npuflow.rules._parts import Decomposition, Parts

# onnx's numbers of the types
_TYPES = {"int32": 6, "int64": 7, "uint8": 2, "uint16": 4, "uint32": 12, "uint64": 13}
_SAME = ("add", "sub", "mul", "min", "max", "reducesum", "reducemax")  # operators that are the same on floats


@RULES.entry
class SpellIntegers(Decomposition):
    """Where an operand is positions, or counts, or was made of such. All that is computed on the way has to
    fit the codes of whole numbers; what is larger, or of an unknown range, stays integers."""

    triggers = (*_SAME, "div", "abs", "neg", "clip", "host:mod", "host:bitshift", "host:where", "host:cast")
    makes = (*MAKES, "add", "min", "quotient", "lookup", "expand", "reducesum", "reducemax")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        made = graph.type(node.outputs[0])
        if not made.is_static or not made.size:
            return None
        parts = Parts(graph, node)
        if kind(node) == "host:cast":
            return _cast(parts)
        if made.dtype not in _TYPES:
            return None
        if not any(found(parts, i) for i in node.inputs):
            return None
        result = self.spelled(parts)
        if isinstance(result, tuple):
            return _fitted(parts, result[0])
        return None if result is None else Refusal("spell_integers", node.name, result)

    def spelled(self, parts: Parts) -> tuple[str, ...] | str | None:
        name = kind(parts.node).removeprefix("host:")
        sides = parts.node.inputs[1:] if name == "where" else parts.node.inputs
        spans = [whole_span(parts.graph, i) for i in sides]
        known = [s for s in spans if s is not None]
        if len(known) < len(spans):
            return "integers of an unknown range"
        if name in _SAME:
            return (parts.op_as(parts.node.op, [number(parts, i) for i in sides], name),)
        return _SPELLED[name](parts, [number(parts, i) for i in sides], known)


def _cast(parts: Parts) -> Change | Refusal | None:
    """Truth values as 0 and 1; positions in float32 as they were before they became integers."""
    source, made = (parts.type(v).dtype for v in (parts.input(0), parts.output(0)))
    if made == "float32" and source in _TYPES and found(parts, parts.input(0)):
        result = number(parts, parts.input(0))
        same = any(result in n.outputs and kind(n) == "host:cast" for n in parts.nodes)
        return None if same else parts.done(result)
    if source != "bool" or made not in _TYPES:
        return None
    flags = mask(parts, parts.input(0))
    if isinstance(flags, NoMask):
        return Refusal("spell_integers", parts.node.name, str(flags))
    return _integers(parts, flags)


def _fitted(parts: Parts, result: str) -> Change | Refusal:
    """The change, where all that is computed fits the codes and the result its own type."""
    rule, node, dtype = "spell_integers", parts.node.name, parts.type(parts.node.outputs[0]).dtype
    spans = spans_made(parts.graph, parts.nodes, parts.values, parts.consts)
    for value_id, span in spans.items():
        if span is None or code_type(span) is None:
            said = "of an unknown range" if span is None else f"from {span[0]} to {span[1]}"
            return Refusal(rule, node, f"{value_id} is integers {said}; codes have {INDEX_BITS} bits")
    ends, own = np.iinfo(dtype), spans.get(result)
    if own is not None and not (ends.min <= own[0] and own[1] <= ends.max):
        return Refusal(rule, node, f"integers from {own[0]} to {own[1]} leave {dtype}")
    return _integers(parts, result)


def _integers(parts: Parts, result: str) -> Change:
    kept = parts.type(parts.node.outputs[0])
    whole = parts.reshape(result, kept.shape)
    to = (("to", _TYPES[kept.dtype]),)
    cast = OPS["host"](op_type="Cast", version=EXPORT_OPSET, attributes=to, types=(kept,))
    return parts.done(parts.op_as(cast, (whole,), "integers"))


def _floor(parts: Parts, x: list[str], spans: list[Span]) -> tuple[str, str]:
    """The quotient downwards by positive numbers, and the rest; clips say how large that can be."""
    (a, b), most = x, float(spans[1][1] - 1)
    shares = parts.op("quotient", x, "shares")
    rest = parts.sub(a, parts.mul(shares, b), "rest")
    if spans[0][0] >= 0:
        return shares, parts.clip(rest, 0.0, most, "rest")
    below = parts.clip(parts.sub(0.0, rest), 0.0, 1.0, "below")
    up = parts.add(rest, parts.mul(below, b), "rest")
    return parts.sub(shares, below), parts.clip(up, 0.0, most, "rest")


def _div(parts: Parts, x: list[str], spans: list[Span]) -> tuple[str, ...] | str:
    if spans[1][0] <= 0 <= spans[1][1]:
        return "the divisor may be 0"
    return (parts.op("quotient", x),)


def _mod(parts: Parts, x: list[str], spans: list[Span]) -> tuple[str, ...] | str:
    if spans[1][0] <= 0:
        return "the divisor is not known to be positive"
    if parts.integer("fmod", 0):
        most, rest = float(spans[1][1] - 1), parts.sub(x[0], parts.mul(parts.op("quotient", x), x[1]))
        return (parts.clip(rest, -most if spans[0][0] < 0 else 0.0, most),)
    return (_floor(parts, x, spans)[1],)


def _shifted(parts: Parts, x: list[str], spans: list[Span]) -> tuple[str, ...] | str:
    if spans[1][0] < 0 or spans[1][1] >= INDEX_BITS:
        return f"shifts by {spans[1][0]} to {spans[1][1]} bits"
    factor = _power(parts, x[1], spans[1][1])
    if parts.attribute("direction") == b"LEFT" or parts.attribute("direction") == "LEFT":
        return (parts.mul(x[0], factor),)
    return (_floor(parts, [x[0], factor], [spans[0], (1, 1 << spans[1][1])])[0],)


def _power(parts: Parts, by: str, most: int) -> str:
    """2 to the power of whole numbers."""
    held = parts.array(by)
    if held is not None:
        return parts.const(np.exp2(held), "factor")
    table = parts.const(np.exp2(np.arange(most + 1, dtype=np.float32)).reshape(1, -1, 1), "powers")
    flat = parts.reshape(by, (parts.type(by).size,))
    return parts.reshape(parts.op("lookup", (table, flat)), parts.shape(by))


def _where(parts: Parts, x: list[str], spans: list[Span]) -> tuple[str, ...] | str:
    chosen = mask(parts, parts.input(0))
    if isinstance(chosen, NoMask):
        return str(chosen)
    a, b = spans
    between = b[0] + min(0, a[0] - b[1]), b[1] + max(0, a[1] - b[0])
    if code_type(between) is None and min(a[0], b[0]) >= 0:        # a sum would leave the codes
        y = parts.op("max", (parts.mul(chosen, x[0]), parts.mul(opposite(parts, chosen), x[1])))
    else:
        y = parts.add(x[1], parts.mul(chosen, parts.sub(*x)))
    return (parts.expand(y, parts.shape(parts.node.outputs[0])),)


def _clip(parts: Parts, x: list[str], spans: list[Span]) -> tuple[str, ...] | str:
    return (parts.op_as(parts.node.op, x[:1], "clip"),)


_SPELLED: Mapping[str, Callable[[Parts, list[str], list[Span]], tuple[str, ...] | str]] = {
    "div": _div,
    "mod": _mod,
    "bitshift": _shifted,
    "where": _where,
    "clip": _clip,
    "abs": lambda parts, x, spans: (parts.op("max", (x[0], parts.sub(0.0, x[0]))),),
    "neg": lambda parts, x, spans: (parts.sub(0.0, x[0]),),
}
