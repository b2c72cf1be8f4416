"""Einsum as transposes, one MatMul (or Mul) for each further operand, and a ReduceSum."""

from __future__ import annotations

from math import prod

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts

Term = tuple[str, str]                    # a value, and the label of each of its dimensions


@RULES.entry
class SpellEinsum(Decomposition):
    """Operands are contracted from left to right. A label that one operand has twice (a
    diagonal) stays on the host."""

    triggers = ("host:einsum",)
    makes = ("transpose", "reshape", "matmul", "mul", "reducesum", "expand")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        ranks = [len(parts.shape(i)) for i in parts.node.inputs]
        found = labels(str(parts.attribute("equation", "")), ranks)
        if isinstance(found, str):
            return found
        given, out = found
        terms: list[Term] = list(zip(parts.node.inputs, given, strict=True))
        left = terms.pop(0)
        while terms:
            right = terms.pop(0)
            needed = set(out).union(*(names for _, names in terms))
            left = _contracted(parts, left, right, needed)
        left = _summed(parts, left, set(out))
        return (parts.transpose(left[0], [left[1].index(name) for name in out]),)


def labels(equation: str, ranks: list[int]) -> tuple[list[str], str] | str:
    """Labels of the operands and of the result, an ellipsis spelled in labels of its own (digits)."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        return f"an equation of {len(terms)} operands for {len(ranks)}"
    widest = max((rank - len(t) + 3 for t, rank in zip(terms, ranks, strict=True) if "..." in t), default=0)
    dots = "0123456789"[:widest]
    given = [
        t.replace("...", dots[widest - (rank - len(t) + 3) :] if rank > len(t) - 3 else "")
        for t, rank in zip(terms, ranks, strict=True)
    ]
    if any(len(set(t)) != len(t) or len(t) != rank for t, rank in zip(given, ranks, strict=True)):
        return "a label twice in one operand"
    everything = "".join(given)
    usual = dots + "".join(sorted(c for c in set(everything) - set(dots) if everything.count(c) == 1))
    return given, right.replace("...", dots) if arrow else usual


def _summed(parts: Parts, term: Term, needed: set[str]) -> Term:
    """Without the dimensions that nobody asks for."""
    value, names = term
    gone = [i for i, name in enumerate(names) if name not in needed]
    if not gone:
        return term
    return parts.reduce("sum", value, gone, keep=False), "".join(n for n in names if n in needed)


def _contracted(parts: Parts, left: Term, right: Term, needed: set[str]) -> Term:
    """One term of both: what both have and nobody needs is summed, what both have
    and somebody needs is a batch."""
    a, b = _summed(parts, left, needed | set(right[1])), _summed(parts, right, needed | set(left[1]))
    sizes = dict.fromkeys(a[1] + b[1], 1)
    for value, names in (a, b):
        for name, size in zip(names, parts.shape(value), strict=True):
            sizes[name] = max(sizes[name], size)
    batch = [n for n in a[1] if n in b[1] and n in needed]
    inner = [n for n in a[1] if n in b[1] and n not in needed]
    rows, columns = [n for n in a[1] if n not in b[1]], [n for n in b[1] if n not in a[1]]
    order = "".join(batch + rows + columns)
    if not inner:
        x = _viewed(parts, a, batch + rows, [sizes[n] if n in a[1] else 1 for n in order], sizes)
        y = _viewed(parts, b, batch + columns, [sizes[n] if n in b[1] else 1 for n in order], sizes)
        return parts.mul(x, y), order
    lead = [prod(sizes[n] for n in batch)] if batch else []
    m, k, n = (prod(sizes[name] for name in group) for group in (rows, inner, columns))
    x = _viewed(parts, a, batch + rows + inner, [*lead, m, k], sizes)
    y = _viewed(parts, b, batch + inner + columns, [*lead, k, n], sizes)
    return parts.reshape(parts.matmul(x, y), [sizes[name] for name in order]), order


def _viewed(parts: Parts, term: Term, order: list[str], shape: list[int], sizes: dict[str, int]) -> str:
    """The term's dimensions in this order and repeated to full size, as a view of this shape."""
    value, names = term
    moved = parts.transpose(value, [names.index(n) for n in order])
    return parts.reshape(parts.expand(moved, [sizes[n] for n in order]), shape)
