"""Moves a division by positive numbers into constants above it.
It passes operators that allow it, into a weight, a factor or an addend. Exact but for float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import No, Node, Op, OpContext
from npuflow.ir.types import Array

Real = npt.NDArray[np.float64]
SUMS, PRODUCTS = ("sum", "difference"), ("product", "quotient")
LARGEST = 1 << 23  # elements of a value whose numbers are followed one by one


class Refused(Exception):
    """Why a division cannot be moved."""


@dataclass
class Edits:
    """New constants of nodes, by their first output and the input, and new operators."""

    consts: dict[tuple[str, int], Array] = field(default_factory=dict)
    ops: dict[str, Op] = field(default_factory=dict)

    def applied(self, graph: Graph) -> Graph:
        values, consts, makers = dict(graph.values), dict(graph.consts), graph.producer()
        changed: dict[str, Node] = {}
        for (out, index), array in self.consts.items():
            node = changed.get(out) or makers[out]
            name, count = f"{out}:scaled{index}", 1
            while name in values:
                name, count = f"{out}:scaled{index}_{count}", count + 1
            values[name], stored = constant(name, array.astype(np.float32))
            consts.update(stored)
            inputs = [*node.inputs, *("",) * (index + 1 - len(node.inputs))]
            inputs[index] = name
            changed[out] = replace(node, inputs=tuple(inputs), op=self.ops.get(out, node.op))
        nodes = tuple(changed.get(node.outputs[0], node) for node in graph.nodes)
        return graph.replaced(nodes=nodes, values=MappingProxyType(values), consts=MappingProxyType(consts))


@dataclass
class Fold:
    """One division on its way up. `readers`: how many nodes read each value."""

    graph: Graph
    makers: Mapping[str, Node]
    readers: Mapping[str, int]
    edits: Edits = field(default_factory=Edits)

    def up(self, value_id: str, by: Real, readers: int = 1) -> None:
        """Divide a value by `by`, of its shape; `readers` nodes know of it."""
        if self.readers[value_id] != readers:
            raise Refused(f'others read "{value_id}", too')
        node = self.makers.get(value_id)
        if node is None or value_id in self.graph.outputs or len(node.outputs) > 1:
            raise Refused(f'"{value_id}" is an input or an output of the network, or one of several results')
        site = self.graph.site(node)
        self._clip(node)
        what = node.op.algebra
        if node.op.moves_data:
            self._moved(site, by)
        elif what in (*SUMS, *PRODUCTS) and any(c is not None for c in site.consts):
            self._pair(site, what, by)
        elif len(site.consts) > 1 and site.consts[1] is not None and node.op.role(1) == "weight":
            self._layer(site, by)
        elif what == "matrices":
            self._product(site, by)
        else:
            raise Refused(f"{node.name} makes it, and channels of its inputs cannot be scaled for it")

    def _clip(self, node: Node) -> None:
        bounds = np.concatenate([np.ravel(b) for b in node.op.clip or ()] or [np.zeros(1)])
        if np.any((bounds != 0) & (np.abs(bounds) < inf)):
            raise Refused(f"{node.name} clips")

    def _moved(self, site: OpContext, by: Real) -> None:
        """An operator that moves data: every element of its one input has the number of where it goes."""
        if sum(one is not None for one in site.inputs) > 1:
            raise Refused(f"{site.node.name} has several inputs")
        shape = site.shape(0)
        index = np.arange(int(np.prod(shape))).reshape(shape)
        made = np.asarray(site.op.reference(index, *site.consts[1:])[0])
        found = np.ones(index.size)
        found[made.reshape(-1)] = by.reshape(-1)
        if not np.array_equal(found[made], by):
            raise Refused(f"{site.node.name} puts an element in several places")
        self.up(site.node.inputs[0], found.reshape(shape))

    def _pair(self, site: OpContext, what: str, by: Real) -> None:
        """A sum with a constant, or a product."""
        at = next(i for i, c in enumerate(site.consts) if c is not None)
        stored = site.consts[at]
        assert stored is not None
        real = np.broadcast_to(stored.astype(np.float64), by.shape)
        turned = what == "quotient" and at == 1
        self.edits.consts[site.node.outputs[0], at] = compact(real * by if turned else real / by)
        if what in SUMS:
            other = site.node.inputs[1 - at]
            if site.shape(1 - at) != by.shape:
                raise Refused(f"{site.node.name} broadcasts its input")
            self.up(other, by)

    def _layer(self, site: OpContext, by: Real) -> None:
        """A layer with a constant weight: its output channels."""
        node, weight, bias = site.node, site.consts[1], site.consts[2] if site.present(2) else None
        assert weight is not None
        out = node.outputs[0]
        if node.op.algebra == "matrices":
            self.edits.consts[out, 1] = weight.astype(np.float64) / along(by, by.ndim - 1, node.name)
            return
        scale = 1.0 / along(by, 1, node.name)
        found = node.op.then_scaled(weight, bias, scale, np.zeros_like(scale))
        if isinstance(found, No):
            raise Refused(f"{node.name}: {found.reason}")
        self.edits.consts[out, 1] = found[0]
        if found[1] is not None:
            self.edits.consts[out, 2] = found[1]
            self.edits.ops[out] = node.op.unit_bias()

    def _product(self, site: OpContext, by: Real) -> None:
        """A product of two computed matrices: columns of the second."""
        rows = by[..., :1, :]
        if not np.array_equal(np.broadcast_to(rows, by.shape), by) or len(site.shape(1)) != by.ndim:
            raise Refused(f"{site.node.name} is a product whose rows would be scaled")
        if site.shape(1)[:-2] != by.shape[:-2]:
            raise Refused(f"{site.node.name} repeats a matrix")
        self.up(site.node.inputs[1], np.ascontiguousarray(np.broadcast_to(rows, site.shape(1))))


def along(by: Real, axis: int, name: str) -> Real:
    """The numbers by channel, where they are alike in all places of one."""
    rows = np.moveaxis(by, axis, 0).reshape(by.shape[axis], -1)
    if not np.array_equal(np.broadcast_to(rows[:, :1], rows.shape), rows):
        raise Refused(f"{name} makes channels whose elements would be scaled differently")
    return np.asarray(rows[:, 0])


def compact(array: Real) -> Real:
    """A dimension along which nothing changes has one element."""
    for d in range(array.ndim):
        first = array.take([0], d)
        if np.array_equal(np.broadcast_to(first, array.shape), array):
            array = first
    return np.ascontiguousarray(array)
