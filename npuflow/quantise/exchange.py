"""Finds rows of a foreign calibration table in the graph, and writes a quantised graph's table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from npuflow.base.errors import DataError, nearest
from npuflow.base.tables import Config, FilePath
from npuflow.base.wording import counted
from npuflow.exchange import EXCHANGE, Table, TensorEntry, exact
from npuflow.ir.graph import Graph
from npuflow.ir.types import QuantType
from npuflow.place.place import op_name

BY_HAND = "by hand"
# bits of weights; wider constants are biases, whose scales follow from the others
WIDEST = 16


@dataclass(frozen=True)
class Ranges(Config, table="ranges"):
    """A calibration table that replaces what [calibrate] chooses, for the tensors that it names."""

    file: FilePath
    """The table, of npuflow's own or of another tool."""
    format: Annotated[str, EXCHANGE] | None = None
    """Its format; absent: recognised by what it looks like."""
    names: dict[str, str] = field(default_factory=dict)
    """Tensor of the graph = its name in the table, where the two differ."""
    exact: bool = True
    """Scales and zero points that the table states are kept as they are; else it gives ranges only."""
    missing: Literal["calibrate", "error"] = "calibrate"
    """What happens to tensors that the table does not name."""


@dataclass(frozen=True)
class Taken:
    """Ranges, methods and codes by value id after a table has been taken in; what of it
    was used, and what was not."""

    ranges: dict[str, tuple[float, float]]
    methods: dict[str, str]
    codes: dict[str, QuantType]
    used: int
    unknown: tuple[str, ...]
    absent: tuple[str, ...]


def taken(
    graph: Graph,
    ranges: Mapping[str, tuple[float, float]],
    methods: Mapping[str, str],
    table: Table,
    name: str,
    config: Ranges,
) -> Taken:
    """The table's rows in place of the chosen ranges. A range that the recipe states by hand stays."""
    found = Taken(dict(ranges), dict(methods), {}, 0, (), ())
    homes = dict(_homes(graph, table, config.names))
    used = 0
    for row, home in homes.items():
        entry = table[row]
        if home in ranges and methods.get(home) != BY_HAND:
            found.ranges[home] = (min(entry.lo, 0.0), max(entry.hi, 0.0))
            found.methods[home] = f"{name}: {entry.method}" if entry.method and entry.method != name else name
        elif home in ranges:
            continue
        used += 1
        if config.exact and entry.quant is not None and entry.quant.bits <= WIDEST:
            found.codes[home] = _oriented(graph, home, entry.quant)
    unknown = tuple(row for row in table if row not in homes)
    absent = tuple(v for v in ranges if v not in homes.values() and methods.get(v) != BY_HAND)
    if not used:
        first = next(iter(table), "nothing")
        near = nearest(first, list(ranges)) or next(iter(ranges), "")
        raise DataError(
            "no row of the table is a tensor of this network",
            because=f"the table's first is {first!r}; the network has {near!r}",
            hint="[ranges] names = { TENSOR = \"NAME IN THE TABLE\" }", code="NF-TABLE-001",
        )
    if absent and config.missing == "error":
        raise DataError(
            f"the table has no entry for {counted(len(absent), 'tensor')}",
            because=f"the first is {absent[0]!r}", code="NF-TABLE-002",
        )
    return Taken(found.ranges, found.methods, found.codes, used, unknown, absent)


def _homes(graph: Graph, table: Table, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(row, value id): by the recipe's names, the value's own name, its node's, or
    NAME_OPERATOR as some tools write it."""
    for value_id, row in names.items():
        if value_id not in graph.values or row not in table:
            what = (
                f'the network has no tensor "{value_id}"'
                if value_id not in graph.values
                else f'the table has no row "{row}"'
            )
            raise DataError(
                f"[ranges] names: {what}",
                hint=nearest(row if value_id in graph.values else value_id,
                            list(table) if value_id in graph.values else list(graph.values)) or "",
                code="NF-TABLE-003",
            )
        yield row, value_id
    settled, rows = set(names), set(names.values())
    for value_id in graph.values:
        if value_id in table and value_id not in rows and value_id not in settled:
            settled.add(value_id)
            rows.add(value_id)
            yield value_id, value_id
    for node in graph.nodes:
        outputs = [o for o in node.outputs if o]
        if len(outputs) != 1 or outputs[0] in settled:
            continue
        kind = (node.op.onnx or op_name(node)).lower()
        wanted = [
            *reversed(node.origin),
            *(row for row in table if row.lower() == f"{outputs[0].lower()}_{kind}"),
        ]
        match = next((w for w in wanted if w in table and w not in rows), None)
        if match is not None:
            rows.add(match)
            yield match, outputs[0]


def _oriented(graph: Graph, value_id: str, quant: QuantType) -> QuantType:
    """The axis of per-channel scales, which some formats do not say: the one of that
    size, the first of several. A negative one counts from the last."""
    if quant.axis is None:
        return quant
    shape = graph.type(value_id).shape
    axis = quant.axis + len(shape) if quant.axis < 0 else quant.axis
    if 0 <= axis < len(shape) and shape[axis] == len(quant.scale):
        return quant.with_(axis=axis)
    fitting = [axis for axis, size in enumerate(shape) if size == len(quant.scale)]
    if not fitting:
        raise DataError(
            f'{len(quant.scale)} scales do not fit "{value_id}" of {list(shape)}', code="NF-TABLE-004",
        ).at(value=value_id)
    return quant.with_(axis=fitting[0])


def table_of_graph(
    graph: Graph,
    ranges: Mapping[str, tuple[float, float]],
    methods: Mapping[str, str],
    codes: bool,
    weights: bool,
) -> dict[str, TensorEntry]:
    """Rows of a quantised graph: its activations with ranges and methods, and codes and
    weights where these are wanted."""
    producer = graph.producer()
    table: dict[str, TensorEntry] = {}
    for value in graph.values.values():
        name = value.id.removesuffix(":q")
        if value.quant is None or name in table or (value.const is None and name not in ranges and not codes):
            continue
        if value.const is not None:
            # no format has scales by groups
            plain = value.quant.bits <= WIDEST and value.quant.group is None
            if weights and value.id.endswith(":q") and plain:
                table[name] = exact(value.quant, "", True)
            continue
        # made by the quantiser, unknown to the source model
        if ":" in value.id and name not in ranges:
            continue
        node = producer.get(value.id)
        said = exact(value.quant) if name not in ranges else TensorEntry(*ranges[name])
        table[name] = TensorEntry(
            said.lo, said.hi, value.quant if codes else None, methods.get(name, ""), False,
            node.origin[0] if node is not None and node.origin else "",
        )
    return table
