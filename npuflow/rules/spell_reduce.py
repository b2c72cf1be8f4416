"""ReduceL1, L2, SumSquare, LogSum, LogSumExp, Min and Prod in sums, maxima, products
and functions of one number."""

from __future__ import annotations

from math import prod

from npuflow.ir.queries import kind
from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts

_MOST = 1 << 12      # factors of a product: log2 of it multiplications


@RULES.entry
class SpellReduce(Decomposition):
    """A product multiplies one half of its factors with the other, so that it takes
    log2(n) multiplications."""

    triggers = tuple(
        f"host:reduce{n}" for n in ("l1", "l2", "sumsquare", "logsum", "logsumexp", "min", "prod")
    )
    makes = (
        "abs",
        "mul",
        "reducesum",
        "reducemax",
        "sqrt",
        "log",
        "exp",
        "neg",
        "sub",
        "add",
        "transpose",
        "reshape",
        "slice",
    )

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        x, given = parts.input(0), parts.attribute("axes")
        rank = len(parts.shape(x))
        if parts.input(1):
            held = parts.number(1)
            if held is None:
                return "the axes are not a constant"
            given = tuple(held.reshape(-1).tolist())
        if not given and parts.integer("noop_with_empty_axes", 0):
            return "no axes: it reduces nothing"
        chosen = given if isinstance(given, tuple) and given else range(rank)
        axes = tuple(sorted({int(a) % rank for a in chosen}))
        form = kind(parts.node).removeprefix("host:reduce")
        if form == "prod" and prod(parts.shape(x)[a] for a in axes) > _MOST:
            return f"a product of more than {_MOST} factors"
        y = _reduced(parts, form, x, axes)
        return (y if parts.integer("keepdims", 1) else parts.reshape(y, parts.shape(parts.node.outputs[0])),)


def _reduced(parts: Parts, form: str, x: str, axes: tuple[int, ...]) -> str:
    if form == "l1":
        return parts.reduce("sum", parts.op("abs", (x,)), axes)
    if form in ("l2", "sumsquare"):
        total = parts.reduce("sum", parts.mul(x, x, "square"), axes)
        return total if form == "sumsquare" else parts.op("sqrt", (total,))
    if form == "logsum":
        return parts.op("log", (parts.reduce("sum", x, axes),))
    if form == "logsumexp":
        largest = parts.reduce("max", x, axes, what="largest")
        total = parts.reduce("sum", parts.op("exp", (parts.sub(x, largest, "below"),)), axes)
        return parts.add(parts.op("log", (total,)), largest)
    if form == "min":
        return parts.op("neg", (parts.reduce("max", parts.op("neg", (x,)), axes),))
    return _product(parts, x, axes)


def _product(parts: Parts, x: str, axes: tuple[int, ...]) -> str:
    shape = parts.shape(x)
    kept = tuple(d for d in range(len(shape)) if d not in axes)
    rows = prod(shape[d] for d in kept)
    y = parts.reshape(parts.transpose(x, (*axes, *kept)), (prod(shape[d] for d in axes), rows))
    rest = ""                             # the odd one of each step
    while (count := parts.shape(y)[0]) > 1:
        half = count // 2
        if count % 2:
            last = parts.slice(y, 0, count - 1, count)
            rest = parts.mul(rest, last) if rest else last
        y = parts.mul(parts.slice(y, 0, 0, half), parts.slice(y, 0, half, 2 * half))
    y = parts.mul(y, rest) if rest else y
    return parts.reshape(y, tuple(1 if d in axes else size for d, size in enumerate(shape)))
