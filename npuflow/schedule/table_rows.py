"""Rows of tables that an index picks, and what nodes make of their codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from npuflow.ir import forms
from npuflow.ir.codes import decode
from npuflow.ir.graph import Graph
from npuflow.ir.op import OpContext
from npuflow.ir.queries import kind
from npuflow.ir.types import Array
from npuflow.place.partition import boundary, is_npu
from npuflow.schedule.frame import Topology


class TableRows:
    """What is made of rows of tables in a graph. Layers share tables, and what is made of their codes."""

    def __init__(self, topology: Topology) -> None:
        self.topology, self.graph, self.numerics = topology, topology.graph, topology.numerics
        self.states = state_codes(self.graph)
        self._spread: dict[str, CodeSpread] = {}
        self._ends: dict[tuple[tuple[int, ...], float], Array] = {}

    def users(self, value: str) -> list[int]:
        return self.topology.readers.get(value, [])

    def reads(self, number: int) -> bool:
        """Whether a node takes a value to local memory."""
        return is_npu(self.graph.nodes[number]) and not self.renames(number)

    def renames(self, number: int) -> bool:
        """Whether a node's result is what it reads, and lies there."""
        site = self.topology.site(number)
        moves = number in self.topology.moving and site.op.local_space(site) is None
        return moves and len(site.inputs) == 1 and site.present(0) and site.shape(0) == site.out_shape

    def rows(self, value: str, square: bool = True) -> PickedRows | None:
        """Rows of a constant, picked by an index, of which a value is made point by point. `square`: of one
        that has as many rows as columns, else of one with more."""
        chain: list[int] = []
        while (number := self.topology.maker.get(value)) is not None:
            node = self.graph.nodes[number]
            if node.op.role(0) == "table":
                table = self.graph.const(node.inputs[0])
                at = offsets_of(self.graph, node.inputs[1])
                if table is None or at is None or table.shape[0] != 1:
                    return None
                if (table.shape[1] == table.shape[2]) is not square or table.shape[1] < table.shape[2]:
                    return None
                name = self.graph.values[node.inputs[0]].const or ""
                return PickedRows(at[0], name, table[0], tuple(reversed(chain)), at[1])
            given = [i for i in node.inputs if i and self.graph.values[i].const is None]
            if not is_npu(node) or len(given) != 1:
                return None
            chain.append(number)
            value = given[0]
        return None

    def codes(self, rows: PickedRows) -> CodeSpread:
        if rows.name not in self._spread:
            self._spread[rows.name] = CodeSpread.of(rows.table)
        return self._spread[rows.name]

    def real(self, value: str, code: Array) -> float:
        quant = self.graph.values[value].quant
        assert quant is not None
        return float(np.ravel(decode(np.asarray(code).reshape(1), quant))[0])

    def same(self, mul: int, add: int, held: str, keep: Array) -> bool:
        """Whether a row that is kept, and to which 0 is added, has the codes that it had."""
        site, sums = self.topology.site(mul), self.topology.site(add)
        quant, place = self.graph.values[held].quant, self.graph.nodes[mul].inputs.index(held)
        assert quant is not None
        if site.number:
            return self.real(self.graph.nodes[mul].inputs[1 - place], keep) == 1
        own = self.graph.nodes[add].inputs.index(self.graph.nodes[mul].outputs[0])
        codes, shape = np.arange(quant.lo, quant.hi + 1), site.shape(place)
        for at in range(0, len(codes), prod(shape)):
            given = np.resize(codes[at : at + prod(shape)], shape).astype(quant.dtype)
            old = self.results(site, {place: given, 1 - place: keep})
            zero = np.asarray(sums.quant(1 - own).zero_point[0])
            if not np.array_equal(self.results(sums, {own: old, 1 - own: zero}), given):
                return False
        return True

    def through(self, steps: Sequence[int], code: Array) -> Array:
        """What nodes make of a code."""
        key = tuple(steps), float(code)
        if key not in self._ends:
            self._ends[key] = self._of_nodes(steps, code)
        return self._ends[key]

    def _of_nodes(self, steps: Sequence[int], code: Array) -> Array:
        for number in steps:
            site = self.graph.site(self.graph.nodes[number])
            code = self.made(site, {next(i for i, c in enumerate(site.consts) if c is None): code})
        return code

    def made(self, site: OpContext, codes: Mapping[int, Array]) -> Array:
        return np.asarray(self.results(site, codes).reshape(-1)[0])

    def results(self, site: OpContext, codes: Mapping[int, Array]) -> Array:
        """What a node makes of codes, of one for all elements where there is one."""
        given = [
            np.broadcast_to(codes[i], value.type.shape).astype(value.dtype)
            if value is not None and i in codes else const
            for i, (value, const) in enumerate(zip(site.inputs, site.consts, strict=True))
        ]
        return np.asarray(forms.computed(site, given, self.numerics)[0])


@dataclass(frozen=True)
class PickedRows:
    """Rows of a table: the input that is the index, the table and its name, the nodes between them and a
    value, and the rows' offsets from the index."""

    index: str
    name: str
    table: Array
    chain: tuple[int, ...]
    offsets: Array


@dataclass(frozen=True)
class CodeSpread:
    """The one code that a square table has before its diagonal, on it, behind it, and off it; None where
    there are several, or none."""

    before: Array | None
    own: Array | None
    behind: Array | None
    off: Array | None

    @classmethod
    def of(cls, table: Array) -> CodeSpread:
        own = np.eye(len(table), dtype=bool)
        before = np.tri(len(table), k=-1, dtype=bool)
        return cls(*(_only(table[part]) for part in (before, own, ~(before | own), ~own)))


def _only(codes: Array) -> Array | None:
    return codes[0] if len(codes) and (codes == codes[0]).all() else None


def state_codes(graph: Graph) -> dict[str, str]:
    """What the next run takes over as this one makes it, by what it was: of floats the codes."""
    makers, users, found = graph.producer(), graph.consumers(), dict[str, str]()
    for output, given in graph.state:
        last, first = makers.get(output), users.get(given, [])
        made = last.inputs[0] if last is not None and boundary(graph, last) == "dequantize" else output
        held = [n.outputs[0] for n in first if boundary(graph, n) == "quantize"]
        if len(first) <= 1:
            found[made] = held[0] if held else given
    return found


def offsets_of(graph: Graph, value: str) -> tuple[str, Array] | None:
    """The input that indices are counted from, and by how much each is further."""
    makers, offsets = graph.producer(), np.zeros(1, np.int64)
    while value not in graph.inputs:
        node = makers.get(value)
        if node is None:
            return None
        given = [i for i in node.inputs if i and graph.values[i].const is None]
        held = [graph.const(i) for i in node.inputs if i and graph.values[i].const is not None]
        if len(given) != 1:
            return None
        sum_ = node.op.algebra == "sum" or kind(node) == "host:add"
        more = held[0] if sum_ and not node.is_integer and held else None
        if more is not None and 1 in (more.size, offsets.size):
            offsets = offsets + np.asarray(more, np.int64).reshape(-1)
        elif not (kind(node) == "host:cast" or node.op.moves_data or boundary(graph, node) == "quantize"):
            return None
        value = given[0]
    return (value, offsets) if graph.type(value).size == 1 else None
