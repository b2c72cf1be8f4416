"""Operators over more than four dimensions work on a view of fewer: neighbours that
are treated alike become one."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind
from npuflow.rules import RULES, Change, Refusal
from npuflow.rules._match import plain_float
from npuflow.rules._parts import Decomposition, Parts

_RANK = 4                                 # of the NPU's operands


@RULES.entry
class FitRank(Decomposition):
    """Runs after the rules that recognise and fuse: reshapes would stand between what they look for."""

    order = 85
    makes = ("reshape", "transpose")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        ranks = [len(graph.type(v).shape) for v in (*node.inputs, *node.outputs) if v]
        return (
            super().rewrite(graph, node)
            if max(ranks, default=0) > _RANK and plain_float(graph, node)
            else None
        )

    def spelled(self, parts: Parts) -> tuple[str, ...] | None:
        node = parts.node
        if len(node.outputs) != 1:
            return None
        made: str | None = None
        if node.op.unary:
            made = parts.op_as(node.op, (parts.reshape(node.inputs[0], (parts.type(node.inputs[0]).size,)),))
        elif node.op.elementwise:
            made = self.binary(parts)
        elif (gone := node.op.reduced(len(parts.shape(node.inputs[0])))) is not None:
            made = self.reduction(parts, gone)
        elif kind(node) == "softmax":
            made = self.softmax(parts)
        elif kind(node) == "matmul":
            made = self.matmul(parts)
        return None if made is None else (parts.reshape(made, parts.shape(node.outputs[0])),)

    def binary(self, parts: Parts) -> str | None:
        out = parts.shape(parts.node.outputs[0])
        shapes = [_led(parts.shape(i), len(out)) for i in parts.node.inputs]
        groups = _groups(out, [[size == wide for size, wide in zip(s, out, strict=True)] for s in shapes])
        if len(groups) > _RANK:
            return None
        return parts.op_as(parts.node.op, [
            parts.reshape(i, _merged(s, groups)) for i, s in zip(parts.node.inputs, shapes, strict=True)
        ])

    def reduction(self, parts: Parts, gone: tuple[int, ...]) -> str:
        op, x = parts.node.op, parts.node.inputs[0]
        shape = parts.shape(x)
        groups = _groups(shape, [[d in gone for d in range(len(shape))]])
        if kind(parts.node).startswith("global"):      # everything behind the channels, of any rank
            return parts.op_as(op, (parts.reshape(x, (*shape[:2], prod(shape[2:]))),))
        if len(groups) > _RANK:
            kept = [d for d in range(len(shape)) if d not in gone]
            rows = parts.transpose(x, (*kept, *gone))
            view = (prod(shape[d] for d in kept), prod(shape[d] for d in gone))
            return parts.op_as(op.with_(axes=(1,), keepdims=1), (parts.reshape(rows, view),))
        axes = tuple(i for i, group in enumerate(groups) if any(d in gone for d in group))
        return parts.op_as(op.with_(axes=axes, keepdims=1), (parts.reshape(x, _merged(shape, groups)),))

    def softmax(self, parts: Parts) -> str:
        x = parts.node.inputs[0]
        shape = parts.shape(x)
        axis = getattr(parts.node.op, "axis", -1) % len(shape)
        view = (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))
        return parts.op_as(parts.node.op.with_(axis=1), (parts.reshape(x, view),))

    def matmul(self, parts: Parts) -> str | None:
        a, b = parts.node.inputs
        out = parts.shape(parts.node.outputs[0])
        if min(len(parts.shape(v)) for v in (a, b)) < 2:
            return None
        batch = len(out) - 2
        leads = [_led(parts.shape(v)[:-2], batch) for v in (a, b)]
        if prod(leads[1]) == 1:           # one matrix for all: the rows of the left operand
            rows = parts.reshape(a, (prod(parts.shape(a)[:-1]), parts.shape(a)[-1]))
            return parts.op_as(parts.node.op, (rows, parts.reshape(b, parts.shape(b)[-2:])))
        groups = _groups(out[:-2], [[s == w for s, w in zip(lead, out, strict=False)] for lead in leads])
        if len(groups) > _RANK - 2:
            return None
        views = (
            parts.reshape(v, (*_merged(lead, groups), *parts.shape(v)[-2:]))
            for v, lead in zip((a, b), leads, strict=True)
        )
        return parts.op_as(parts.node.op, tuple(views))


def _led(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(shape)) + tuple(shape)


def _groups(shape: Sequence[int], alike: Sequence[Sequence[bool]]) -> list[list[int]]:
    """Dimensions in runs of neighbours that every operand treats alike; those of size 1 join any run."""
    groups: list[list[int]] = []
    last: tuple[bool, ...] | None = None
    for d, size in enumerate(shape):
        mine = tuple(flags[d] for flags in alike)
        if groups and (size == 1 or mine == last or last is None):
            groups[-1].append(d)
        else:
            groups.append([d])
        last = last if size == 1 else mine
    return groups


def _merged(shape: Sequence[int], groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(prod(shape[d] for d in group) for group in groups)
