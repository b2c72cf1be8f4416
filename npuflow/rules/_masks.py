"""Truth values as masks of 0 and 1: comparisons of floats, logic, constants, and moves of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from npuflow.ir.op import Node
from npuflow.ir.queries import kind, maker
from npuflow.ir.types import INDEX_BITS, Array
from npuflow.ir.whole import code_type, whole_span
from npuflow.rules._infinities import infinities
from npuflow.rules._match import attribute
from npuflow.rules._numbers import INTEGERS, found, number
from npuflow.rules._parts import Parts

MAKES = ("sub", "sign", "abs", "clip", "mul", "max", "reshape", "host")
_BOOL = 9                                 # onnx's number of the type
# pick elements by constants, as `spell_selection` then spells them
_MOVES = ("reversesequence", "gatherelements", "gathernd", "compress", "trilu")


class NoMask(str):
    """Why there is no mask."""


_DEPENDS = NoMask("a comparison with infinity that depends on data")


def mask(parts: Parts, value_id: str) -> str | NoMask:
    """The mask of a truth value, all that it is made of spelled in operators on floats."""
    held = parts.array(value_id)
    if held is not None:
        return parts.const(held.astype(bool), "mask")
    node = maker(parts.graph, value_id)
    if node is None:
        # of other operators rows that attend to nothing are zeros or not numbers, as the host has them
        if kind(parts.node) == "host:where":
            return number(parts, value_id)
        return NoMask(f'the truth value "{value_id}" comes from outside')
    same = _same_everywhere(parts, value_id)
    if same is not None:
        return parts.const(np.full(parts.shape(value_id), same), "mask")
    if node.op.moves_data and len(node.outputs) == 1:
        return _combined(parts, node, lambda *m: parts.op_as(node.op, m, "mask"))
    name = kind(node).removeprefix("host:")
    if name in _MOVES and all(parts.array(v) is not None for v in node.inputs[1:]):
        moved = mask(parts, node.inputs[0])
        if isinstance(moved, NoMask):
            return moved
        real = tuple(replace(t, dtype="float32") for t in node.op.types)  # type: ignore[attr-defined]
        op = replace(node.op, types=real)  # type: ignore[call-arg]
        return parts.op_as(op, (moved, *node.inputs[1:]), "mask")
    if name in _COMPARISONS:
        return _compared(parts, node, name)
    if name in _TESTS:
        found = infinities(parts.graph, node.inputs[0])
        return _DEPENDS if found is None else parts.const(_TESTS[name](found), "mask")
    if name == "cast" and parts.type(node.inputs[0]).dtype == "float32" and attribute(node, "to") == _BOOL:
        if _carries_truth(parts, node.inputs[0]):
            return node.inputs[0]
        return parts.op("abs", (parts.op("sign", (node.inputs[0],)),), "mask")
    if name == "cast" and parts.type(node.inputs[0]).dtype in INTEGERS and attribute(node, "to") == _BOOL:
        return parts.op("abs", (parts.op("sign", (number(parts, node.inputs[0]),)),), "mask")
    if name in _LOGIC:
        return _combined(parts, node, lambda *m: _LOGIC[name](parts, *m))
    return NoMask(f"a truth value made by {getattr(node.op, 'op_type', '') or name}")


def _carries_truth(parts: Parts, value_id: str) -> bool:
    """Whether the numbers are truth values that a loop carries."""
    node = maker(parts.graph, value_id)
    return node is not None and kind(node) == "loopcarry" and whole_span(parts.graph, value_id) == (0, 1)


def opposite(parts: Parts, m: str) -> str:
    """1 - mask."""
    held = parts.array(m)
    return parts.sub(1.0, m, "mask") if held is None else parts.const(1.0 - held, "mask")


def _same_everywhere(parts: Parts, value_id: str) -> bool | None:
    """The truth value of all elements, where moves and a Gather take them from equal constants."""
    held, node = parts.array(value_id), maker(parts.graph, value_id)
    if held is not None:
        return bool(held.min()) if held.size and held.min() == held.max() else None
    if node is None or len(node.outputs) > 1:
        return None
    if node.op.moves_data and node.op.algebra != "border":
        found = {_same_everywhere(parts, v) for v in node.inputs}
        return found.pop() if len(found) == 1 else None
    picks = kind(node).removeprefix("host:") == "gather"
    return _same_everywhere(parts, node.inputs[0]) if picks else None


def _combined(parts: Parts, node: Node, made: Callable[..., str]) -> str | NoMask:
    masks = [mask(parts, i) for i in node.inputs]
    return next((m for m in masks if isinstance(m, NoMask)), None) or made(*masks)


def _compared(parts: Parts, node: Node, name: str) -> str | NoMask:
    a, b = node.inputs
    if all(parts.type(v).dtype in INTEGERS for v in (a, b)):
        return _compared_integers(parts, a, b, name)
    if any(parts.type(v).dtype != "float32" for v in (a, b)):
        return NoMask(f"a comparison of {parts.type(a).dtype}")
    held = parts.array(b)
    if held is not None and held.size == 1 and np.isinf(held).all():
        found = infinities(parts.graph, a)       # any finite number compares as 0 does
        return _DEPENDS if found is None else parts.const(getattr(np, _NUMPY[name])(found, held), "mask")
    return _COMPARISONS[name](parts, a, b)


def _compared_integers(parts: Parts, a: str, b: str, name: str) -> str | NoMask:
    """Whole numbers that differ do so by 1 or more."""
    if not (found(parts, a) or found(parts, b)):
        return NoMask(f"a comparison of {parts.type(a).dtype}")
    spans = whole_span(parts.graph, a), whole_span(parts.graph, b)
    if spans[0] is None or spans[1] is None:
        return NoMask("a comparison of integers of an unknown range")
    if code_type((spans[0][0] - spans[1][1], spans[0][1] - spans[1][0])) is None:
        return NoMask(f"a comparison of integers whose differences exceed {INDEX_BITS} bits")
    return _COMPARISONS[name](parts, number(parts, a), number(parts, b))


def _greater(parts: Parts, a: str, b: str) -> str:
    return parts.clip(parts.op("sign", (parts.sub(a, b, "difference"),)), 0.0, 1.0, "mask")


_COMPARISONS: dict[str, Callable[[Parts, str, str], str]] = {
    "greater": _greater,
    "less": lambda parts, a, b: _greater(parts, b, a),
    "greaterorequal": lambda parts, a, b: opposite(parts, _greater(parts, b, a)),
    "lessorequal": lambda parts, a, b: opposite(parts, _greater(parts, a, b)),
    "equal": lambda parts, a, b: opposite(
        parts, parts.op("abs", (parts.op("sign", (parts.sub(a, b, "difference"),)),), "mask")
    ),
}
_NUMPY = {
    "greater": "greater",
    "less": "less",
    "greaterorequal": "greater_equal",
    "lessorequal": "less_equal",
    "equal": "equal",
}
_TESTS: dict[str, Callable[[Array], Array]] = {"isnan": np.isnan, "isinf": np.isinf}
_LOGIC: dict[str, Callable[..., str]] = {
    "not": opposite,
    "and": lambda parts, a, b: parts.mul(a, b, "mask"),
    "or": lambda parts, a, b: parts.op("max", (a, b), "mask"),
    "xor": lambda parts, a, b: parts.op("abs", (parts.sub(a, b, "difference"),), "mask"),
}
