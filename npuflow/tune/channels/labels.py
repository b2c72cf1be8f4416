"""Finds which channels of all values can only be removed together.
They are found node by node from the operator contract and checked by running each operator with and without
some channels.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node, OpContext
from npuflow.ir.types import Array
from npuflow.tune.channels.shrink import Cut, shrunk

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Labels:
    """Of a value or a constant: the dimension of its channels, and the label of every index along it."""

    axis: int
    each: Ints


@dataclass
class ChannelLabels:
    """The labels of a network. `values`: by value id; `consts`: of constants that shrink with their node, by
    the node's first output and the input; `blocked`: labels that must stay, with the reason."""

    graph: Graph
    values: dict[str, Labels] = field(default_factory=dict)
    consts: dict[tuple[str, int], tuple[Labels, ...]] = field(default_factory=dict)
    blocked: dict[int, str] = field(default_factory=dict)
    _parent: list[int] = field(default_factory=list)
    _probed: dict[object, bool] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph) -> ChannelLabels:
        """All labels, equal ones for channels that can only go together."""
        made = cls(graph)
        for node in graph.nodes:
            made._visit(node)
        for name in graph.outputs:
            made._stop([name], "it reaches an output of the network")
        for name, _ in graph.state:
            made._stop([name], "it is a state that the next run reads")
        found: dict[int, str] = {}
        for label, why in made.blocked.items():
            found.setdefault(made.find(label), why)
        values = {name: made._final(one) for name, one in made.values.items()}
        consts = {key: tuple(map(made._final, some)) for key, some in made.consts.items()}
        return replace(made, values=values, consts=consts, blocked=found)

    def find(self, label: int) -> int:
        """The label that stands for all that are coupled with one."""
        while self._parent[label] != label:
            self._parent[label] = self._parent[self._parent[label]]
            label = self._parent[label]
        return label

    def cut(self, node: Node, gone: frozenset[int] | set[int]) -> Cut:
        """What remains of a node's constants and results without some labels."""
        out = self.values.get(node.outputs[0])
        return Cut(
            {i: [(one.axis, self._kept(one, gone)) for one in self.consts.get((node.outputs[0], i), ())]
             for i in range(len(node.inputs))},
            {o: (one.axis, self._kept(one, gone)) for o in node.outputs if (one := self.values.get(o))},
            None if out is None else self._kept(out, gone),
        )

    def _kept(self, one: Labels, gone: frozenset[int] | set[int]) -> Ints:
        return np.flatnonzero([self.find(int(label)) not in gone for label in one.each])

    def _final(self, one: Labels) -> Labels:
        return Labels(one.axis, np.array([self.find(int(label)) for label in one.each], np.int64))

    def _new(self, count: int) -> Ints:
        first = len(self._parent)
        self._parent += range(first, first + count)
        return np.arange(first, first + count)

    def _join(self, a: Ints, b: Ints) -> None:
        for x, y in zip(a, b, strict=True):
            p, q = self.find(int(x)), self.find(int(y))
            self._parent[max(p, q)] = min(p, q)

    def _stop(self, names: list[str], why: str) -> None:
        for name in names:
            one = self.values.get(name)
            for label in [] if one is None else one.each:
                self.blocked.setdefault(int(label), why)

    def _fixed(self, name: str, axis: int, why: str) -> Labels:
        """Labels of channels that always stay."""
        one = Labels(axis, self._new(self.graph.type(name).shape[axis]))
        self.blocked.update(dict.fromkeys(map(int, one.each), why))
        return one

    def _visit(self, node: Node) -> None:
        site = self.graph.site(node)
        read = [v for v in dict.fromkeys(node.inputs) if v and self.graph.const(v) is None]
        static = all(v.type.is_static for v in (*site.inputs, *site.outputs) if v is not None)
        if static and not node.op.hosted and node.inputs and _is_layer(site):
            if not self._layer(site):
                self._stop(read, f"{node.name} reads it, whose channels are in groups")
            return
        if not any(v in self.values for v in read):
            return
        spread = static and not node.op.hosted and self._spread(site)
        if not spread or not self._commutes(site):
            for o in node.outputs:
                self.values.pop(o, None)
            for i in range(len(node.inputs)):
                self.consts.pop((node.outputs[0], i), None)
            self._stop(read, f"{node.name} reads it, and does not take channels away one by one")

    def _layer(self, site: OpContext) -> bool:
        """A layer with a constant weight: its outputs are new channels, or those of its input where each has
        weights of its own."""
        node, weight = site.node, site.consts[1]
        assert weight is not None
        out, own = node.outputs[0], node.op.channel_axis(site, 1)
        if own is None or any(c is None for c in site.consts[2:]):
            return False
        axis, along = node.op.group_axis(site, 0), node.op.group_axis(site, 1)
        count = weight.shape[own]
        if axis is not None and along is not None and weight.ndim >= 2:
            made = Labels(axis, self._new(count))
            seen = self.values.get(node.inputs[0])
            if seen is not None and seen.axis != axis:
                return False
            shrinks = [Labels(own, made.each)] + ([Labels(along, seen.each)] if seen is not None else [])
        else:
            seen = self.values.get(node.inputs[0])
            groups = node.op.column_groups()
            channels = site.shape(0)[1]
            if groups != channels or own != 0 or seen is None or seen.axis != 1:
                return False
            made = Labels(1, np.repeat(seen.each, count // groups))
            shrinks = [Labels(0, made.each)]
        self.values[out] = made
        self.consts[out, 1] = tuple(shrinks)
        if site.present(2):
            assert site.consts[2] is not None
            if site.consts[2].size == count:
                self.consts[out, 2] = (Labels(site.consts[2].ndim - 1, made.each),)
        return True

    def _spread(self, site: OpContext) -> bool:
        """The labels of the results of an operator without weights, as far as its kind says."""
        node = site.node
        if node.op.elementwise:
            return self._aligned(site)
        if node.op.moves_data:
            return self._moved(site)
        seen = [v for v in node.inputs if v and self.graph.const(v) is None]
        if len(set(seen)) != 1 or seen[0] != node.inputs[0]:
            return False
        own = self.values[seen[0]]
        ranks = len(site.out_shape)
        for axis in dict.fromkeys((own.axis, own.axis - 1, 0, *range(ranks))):
            if 0 <= axis < ranks and site.out_shape[axis] == len(own.each):
                self.values[node.outputs[0]] = Labels(axis, own.each)
                if self._commutes(site):
                    return len(node.outputs) == 1
        return False

    def _aligned(self, site: OpContext) -> bool:
        """Operands element by element, with broadcasting."""
        rank = len(site.out_shape)
        found: Labels | None = None
        for i, name in enumerate(site.node.inputs):
            if name in self.values:
                one = Labels(self.values[name].axis + rank - len(site.shape(i)), self.values[name].each)
                if len(one.each) != site.out_shape[one.axis]:
                    return False
                if found is not None and found.axis != one.axis:
                    return False
                if found is not None:
                    self._join(found.each, one.each)
                found = one
        assert found is not None
        for i, name in enumerate(site.node.inputs):
            at = found.axis - (rank - len(site.shape(i))) if name else -1
            if not name or name in self.values or at < 0 or site.shape(i)[at] == 1:
                continue
            if site.consts[i] is None:
                return False
            self.consts[site.node.outputs[0], i] = (Labels(at, found.each),)
        self.values[site.node.outputs[0]] = found
        return len(site.node.outputs) == 1

    def _moved(self, site: OpContext) -> bool:
        """An operator that moves data: labels go where their elements go. Operands whose elements come to lie
        in one place of their dimensions (behind each other along another one) have the same labels."""
        own = [i for i, v in enumerate(site.node.inputs) if v and site.consts[i] is None]
        names = [site.node.inputs[i] for i in own]
        at = {self.values[v].axis for v in names if v in self.values}
        if len(at) != 1 or any(len(self.graph.type(v).shape) <= min(at) for v in names):
            return False
        parts = [
            self.values.get(v) or self._fixed(v, min(at), f"{site.node.name} joins what no layer makes")
            for v in names
        ]
        if self._traced(site, own, parts, np.concatenate([one.each for one in parts])):
            return True
        if len({len(one.each) for one in parts}) != 1 or len(parts) == 1:
            return False
        for one in parts[1:]:
            self._join(parts[0].each, one.each)
        return self._traced(site, own, parts, parts[0].each)

    def _traced(self, site: OpContext, own: list[int], parts: list[Labels], labels: Ints) -> bool:
        """Follow a number for each label from the operands to the results."""
        first, real = 0, list(site.consts)
        for i, one in zip(own, parts, strict=True):
            shape, count = site.shape(i), len(one.each)
            numbers = np.arange(first, first + count) % len(labels) + 1.0
            first += count
            along = [-1 if d == one.axis else 1 for d in range(len(shape))]
            real[i] = np.broadcast_to(numbers.reshape(along), shape)
        for name, made in zip(site.node.outputs, site.op.reference(*real), strict=True):
            found = _along(np.asarray(made), len(labels))
            if found is None:
                return False
            self.values[name] = Labels(found[0], labels[found[1] - 1])
        return True

    def _commutes(self, site: OpContext) -> bool:
        """Whether the operator without some channels makes its results without these: tried out."""
        node = site.node
        known = [self.values.get(v) for v in (*node.inputs, *node.outputs)]
        ends = [
            None if one is None else (one.axis, tuple(map(self.find, map(int, one.each)))) for one in known
        ]
        order: dict[int, int] = {}
        alike = tuple(
            e and (e[0], tuple(order.setdefault(label, len(order)) for label in e[1])) for e in ends
        )
        consts = tuple(v.const if v is not None else None for v in site.inputs)
        types = tuple(v.type for v in (*site.inputs, *site.outputs) if v is not None)
        key = (node.op, types, consts, alike)
        if key not in self._probed:
            self._probed[key] = self._tried(site, set(order))
        return self._probed[key]

    def _tried(self, site: OpContext, labels: set[int]) -> bool:
        node, rng = site.node, np.random.default_rng(0)
        ordered = sorted(labels)
        gone = set(rng.permutation(ordered)[: len(ordered) // 2].tolist())
        real: list[Array | None] = list(site.consts)
        less: list[Array | None] = []
        cut = self.cut(node, gone)
        for i, value in enumerate(site.inputs):
            if value is not None and real[i] is None:
                real[i] = rng.normal(size=value.type.shape).astype(np.float32)
            array, one = real[i], self.values.get(node.inputs[i])
            axes = [(one.axis, self._kept(one, gone))] if one is not None else cut.consts[i]
            for axis, kept in axes if array is not None else ():
                assert array is not None
                array = array.take(kept, axis)
            less.append(array)
        try:
            with np.errstate(all="ignore"):
                whole = node.op.clipped(*real)
                op = shrunk(node.op, cut, [o.shape for o in whole])
                part = op.clipped(*less)
        except (NotImplementedError, ValueError, TypeError, IndexError):
            return False
        for name, a, b in zip(node.outputs, whole, part, strict=True):
            if name not in self.values:
                return False
            axis, kept = cut.outputs[name]
            if a.take(kept, axis).shape != b.shape or not np.allclose(a.take(kept, axis), b, 1e-4, 1e-5):
                return False
        return True


def _is_layer(site: OpContext) -> bool:
    return len(site.consts) > 1 and site.node.op.role(1) == "weight" and site.consts[1] is not None


def _along(made: Array, count: int) -> tuple[int, Ints] | None:
    """The dimension along which numbers 1 to `count` differ, and those of each index; elements that are none
    of them are constants."""
    numbers = np.where((made >= 1) & (made <= count), made, 0).astype(np.int64)
    for axis in range(numbers.ndim):
        others = tuple(d for d in range(numbers.ndim) if d != axis)
        each = numbers.max(axis=others) if others else numbers
        spread = each.reshape([-1 if d == axis else 1 for d in range(numbers.ndim)])
        if (each > 0).all() and len(set(each.tolist())) > 1 and ((numbers == spread) | (numbers == 0)).all():
            return axis, each
    return None
