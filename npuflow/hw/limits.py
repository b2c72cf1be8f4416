"""Inequalities over an operator's numbers: how a target file writes its limits, and
how a refusal states them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import ceil, floor

from npuflow.base import syntax

Numbers = Mapping[str, int]
VARIABLES = {
    "kernel_h": "kernel rows",
    "kernel_w": "kernel columns",
    "stride_h": "step over rows",
    "stride_w": "step over columns",
    "dilation_h": "distance of kernel rows",
    "dilation_w": "distance of kernel columns",
    "pad_top": "padding rows before",
    "pad_left": "padding columns before",
    "pad_bottom": "padding rows after",
    "pad_right": "padding columns after",
    "groups": "groups of a convolution",
    "depthwise": "1 if every group has one input channel, else 0",
    "batch": "first dimension of the output",
    "in_channels": "channels of input 0",
    "out_channels": "channels of output 0",
    "in_h": "rows of input 0",
    "in_w": "columns of input 0",
    "out_h": "rows of output 0",
    "out_w": "columns of output 0",
    "m": "rows of a matrix product",
    "k": "terms of a matrix product's sums",
    "n": "columns of a matrix product",
    "rank": "dimensions of the output",
    "elements": "elements of the output",
}
_CALLS: dict[str, Callable[..., float]] = {"ceil": ceil, "floor": floor, "min": min, "max": max, "abs": abs}
_BINARY: dict[type, Callable[[float, float], float]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b, ast.FloorDiv: lambda a, b: a // b, ast.Mod: lambda a, b: a % b,
}
_COMPARE: dict[type, Callable[[float, float], bool]] = {
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
}


def faults(text: str) -> list[str]:
    """What is wrong with a rule's text: its form, and every name that does not exist."""
    try:
        tree = _parse(text)
    except SyntaxError as error:
        return [f'"{text}" is no inequality: {error.msg}']
    found = [
        f"{ast.unparse(n)} is not allowed in a rule" for n in ast.walk(tree) if not isinstance(n, _ALLOWED)
    ]
    if not isinstance(tree.body, ast.Compare):
        found.append(f'"{text}" compares nothing')
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            found += [f"a rule compares with <, <=, >, >=, == and !=, not with {type(o).__name__}"
                      for o in node.ops if type(o) not in _COMPARE]
        if isinstance(node, ast.Call) and (not isinstance(node.func, ast.Name) or node.func.id not in _CALLS):
            found.append(f"{ast.unparse(node.func)} is no function of rules, they are {', '.join(_CALLS)}")
        if isinstance(node, ast.Constant) and type(node.value) is not int:
            found.append(f"{node.value!r} is no whole number")
    found += [f'there is no "{name}"' for name in names(text) if name not in VARIABLES and name not in _CALLS]
    return list(dict.fromkeys(found))


def names(text: str) -> tuple[str, ...]:
    """The variables and functions that a rule names, in order."""
    return tuple(dict.fromkeys(n.id for n in ast.walk(_parse(text)) if isinstance(n, ast.Name)))


def variables(text: str) -> frozenset[str]:
    return frozenset(n for n in names(text) if n in VARIABLES)


def broken(text: str, numbers: Numbers) -> str:
    """Empty if the rule holds; else the failing comparison with the values of both
    sides and of every variable."""
    tree = _parse(text).body
    assert isinstance(tree, ast.Compare)
    terms = [tree.left, *tree.comparators]
    try:
        values = [_value(t, numbers) for t in terms]
    except ZeroDivisionError:
        return f"{text} divides by zero"
    for i, op in enumerate(tree.ops):
        if not _COMPARE[type(op)](values[i], values[i + 1]):
            sign = ast.unparse(ast.Compare(ast.Name("a"), [op], [ast.Name("b")])).split()[1]
            sides = " ".join((_side(terms[i], values[i]), f"{sign}", _side(terms[i + 1], values[i + 1])))
            inner = {n for t in (terms[i], terms[i + 1]) if not _plain(t) for n in names(ast.unparse(t))}
            given = ", ".join(f"{n} = {numbers[n]}" for n in names(text) if n in inner and n in VARIABLES)
            return f"{sides} does not hold" + (f" ({given})" if given else "")
    return ""


def _plain(term: ast.expr) -> bool:
    return isinstance(term, ast.Name | ast.Constant)


def _side(term: ast.expr, value: float) -> str:
    text = ast.unparse(term)
    return (
        text
        if isinstance(term, ast.Constant)
        else f"{text} = {value:g}"
        if isinstance(value, float)
        else f"{text} = {value}"
    )


@lru_cache(maxsize=1024)
def _parse(text: str) -> ast.Expression:
    return syntax.expression(" ".join(text.split()))


def _value(node: ast.expr, numbers: Numbers) -> float:
    if isinstance(node, ast.Constant):
        return int(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.Name):
        return numbers[node.id]
    if isinstance(node, ast.UnaryOp):
        return -_value(node.operand, numbers)
    if isinstance(node, ast.BinOp):
        return _BINARY[type(node.op)](_value(node.left, numbers), _value(node.right, numbers))
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return _CALLS[node.func.id](*(_value(a, numbers) for a in node.args))


_ALLOWED = (
    ast.Expression, ast.Compare, ast.BinOp, ast.UnaryOp, ast.USub, ast.Call, ast.Name, ast.Load, ast.Constant,
    *_BINARY, *_COMPARE,
)
