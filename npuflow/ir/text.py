"""The graph as text that people read and diff: printed, parsed back to an equal
graph (constants by digest)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from npuflow.base.errors import InputError
from npuflow.base.step_count import StepCount
from npuflow.ir.graph import Graph
from npuflow.ir.lengths import Length
from npuflow.ir.op import OPS, Node, Op, Param
from npuflow.ir.rings import Ring
from npuflow.ir.types import UNKNOWN, UNRANKED, Array, QuantType, TensorType, Value, quant_of

_HEADER = "npuflow graph 1"
_BARE = re.compile(r"[A-Za-z0-9_./:\-$@#]+")
_SIMPLE_TYPE = re.compile(r"\w*\[[^\]]*\]")


def to_text(graph: Graph) -> str:
    """One line per input, constant, node, output and pair of state, and one for constants that are fed."""
    lines = [_HEADER]
    lines += [f"input {_value(graph.values[i])}" for i in graph.inputs]
    made = {o for n in graph.nodes for o in n.outputs} | set(graph.inputs)
    lines += [f"const {_value(v)} = {v.const}" for v in graph.values.values() if v.id not in made]
    lines += [_node(graph, node) for node in graph.nodes]
    lines += [f"output {_name(o)}" for o in graph.outputs]
    lines += [f"state {_name(output)}, {_name(given)}" for output, given in graph.state]
    lines += [f"fed {graph.fed}"] if graph.fed else []
    lines += [_length(one) for one in graph.lengths]
    lines += [f"ring {_name(one.index)} {one.rows} {one.window} {one.most}" for one in graph.rings]
    return "\n".join(lines) + "\n"


def from_text(text: str, consts: Mapping[str, Array] | None = None) -> Graph:
    """The graph of a printed text; `consts` holds the arrays by digest."""
    return _Parser(text).graph(consts or {})


def op_text(op: Op) -> str:
    """`name(...)` fields that differ from nothing: every field of an operator, as in the graph's text."""
    return " ".join(_fields(op))


def operators(graph: Graph) -> tuple[str, ...]:
    """Names of the operator files that give the graph its meaning."""
    return tuple(sorted({op_name(node.op) for node in graph.nodes}))


# --- printing
def _name(value_id: str) -> str:
    return value_id if _BARE.fullmatch(value_id) else json.dumps(value_id)


def _length(one: Length) -> str:
    counts = {port: f" by {count.stride} {count.more}" for port, count in one.counts}
    axes = "".join(f", {_name(port)} {axis}{counts.get(port, '')}" for port, axis in one.axes)
    inner = "".join(f"; {count.stride} {count.more}" for count in one.inner)
    return f"length {_name(one.name)} {one.least} {one.most}{axes}{inner}"


def _type(kind: TensorType) -> str:
    dims = "*" if kind.shape == UNRANKED else ",".join("?" if d == UNKNOWN else str(d) for d in kind.shape)
    name = kind.dtype if re.fullmatch(r"\w*", kind.dtype) else json.dumps(kind.dtype)
    return f"{name}[{dims}]"


def _value(value: Value) -> str:
    text = f"{_name(value.id)}: {_type(value.type)}"
    return f"{text} quant={_json(_quant(value.quant))}" if value.quant is not None else text


def _quant(quant: QuantType) -> dict[str, Any]:
    return {f.name: getattr(quant, f.name) for f in fields(quant) if getattr(quant, f.name) != f.default}


def _node(graph: Graph, node: Node) -> str:
    results = ", ".join(_value(graph.values[o]) if o else '""' for o in node.outputs)
    inputs = ", ".join(_name(i) for i in node.inputs)
    parts = [f"{results} = {op_name(node.op)}({inputs})", *_fields(node.op)]
    if node.params is not None:
        parts.append(f"params={_json(dict(node.params))}")
    if node.origin:
        parts.append(f"origin={_json(list(node.origin))}")
    return " ".join(parts)


def _fields(op: Op) -> Iterator[str]:
    for field in fields(op):
        value = getattr(op, field.name)
        if value != field.default:
            yield f"{field.name}={_json(_plain(value))}"


def op_name(op: Op) -> str:
    """Registered name of an operator: the stem of its file."""
    module = type(op).__module__.rpartition(".")[2]
    if module in OPS and OPS[module] is type(op):
        return module
    return next(name for name in OPS if OPS[name] is type(op))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """JSON for a field: what JSON lacks goes into one-key objects."""
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, TensorType):
        return {"type": _type(value)}
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return value


# --- parsing
class _Parser:
    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.at = 0
        self.rest = ""
        self.values: dict[str, Value] = {}

    def graph(self, consts: Mapping[str, Array]) -> Graph:
        if not self.lines or self.lines[0] != _HEADER:
            raise InputError(
                "not a graph's text", because=f'its first line is not "{_HEADER}"', code="NF-MODEL-033",
            )
        inputs, outputs, nodes, state, fed = [], [], [], [], 0
        lengths: list[Length] = []
        rings: list[Ring] = []
        for number, line in enumerate(self.lines[1:], 2):
            self.at = number
            word, _, self.rest = line.partition(" ")
            if not line:
                continue
            if word == "input":
                inputs.append(self.value().id)
            elif word == "const":
                value = self.value()
                self.take(r" = ")
                self.values[value.id] = Value(value.id, value.type, value.quant, self.take(r"\S+"))
            elif word == "output":
                outputs.append(self.name())
            elif word == "state":
                output = self.name()
                self.take(", ")
                state.append((output, self.name()))
            elif word == "fed":
                fed = int(self.take(r"\d+"))
            elif word == "length":
                lengths.append(self.length())
            elif word == "ring":
                rings.append(Ring(self.name(), *(int(self.take(r" \d+")) for _ in range(3))))
            else:
                self.rest = line
                nodes.append(self.node())
            if self.rest:
                raise self.fault("the line should end here")
        return Graph(
            tuple(inputs),
            tuple(outputs),
            tuple(nodes),
            MappingProxyType(self.values),
            MappingProxyType(dict(consts)),
            tuple(state),
            fed,
            lengths=tuple(lengths),
            rings=tuple(rings),
        )

    def length(self) -> Length:
        name = self.name()
        least, most = int(self.take(r" \d+")), int(self.take(r" \d+"))
        axes, counts, inner = [], [], []
        while self.rest.startswith(", "):
            self.take(", ")
            port = self.name()
            axes.append((port, int(self.take(r" \d+"))))
            if self.rest.startswith(" by "):
                self.take(" by")
                counts.append((port, self.step_count()))
        while self.rest:
            self.take(";")
            inner.append(self.step_count())
        return Length(name, least, most, tuple(axes), tuple(counts), tuple(inner))

    def step_count(self) -> StepCount:
        return StepCount(int(self.take(r" \d+")), int(self.take(r" -?\d+")))

    def fault(self, message: str) -> InputError:
        return InputError(
            f"line {self.at} of the graph's text: {message}",
            because=f"found {self.rest[:40]!r}", code="NF-MODEL-034",
        )

    def take(self, pattern: str) -> str:
        found = re.match(pattern, self.rest)
        if found is None:
            raise self.fault(f"expected {pattern}")
        self.rest = self.rest[found.end() :]
        return found.group(0)

    def json(self) -> Any:
        try:
            value, end = json.JSONDecoder().raw_decode(self.rest)
        except ValueError as fault:
            raise self.fault(f"not JSON: {fault}") from fault
        self.rest = self.rest[end:]
        return value

    def name(self) -> str:
        if self.rest.startswith('"'):
            return str(self.json())
        text = self.take(_BARE.pattern)
        if text.endswith(":") and self.rest.startswith(" "):     # the colon that ends a definition
            self.rest, text = ":" + self.rest, text[:-1]
        return text

    def type(self) -> TensorType:
        dtype = str(self.json()) if self.rest.startswith('"') else self.take(r"\w*")
        dims = self.take(r"\[[^\]]*\]")[1:-1]
        if dims == "*":
            return TensorType(UNRANKED, dtype)
        return TensorType(tuple(UNKNOWN if d == "?" else int(d) for d in dims.split(",") if d), dtype)

    def value(self) -> Value:
        name = self.name()
        self.take(": ")
        kind, quant = self.type(), None
        if self.rest.startswith(" quant="):
            self.take(" quant=")
            quant = quant_of(self.json())
        self.values[name] = Value(name, kind, quant)
        return self.values[name]

    def node(self) -> Node:
        outputs = [self.output()]
        while self.rest.startswith(", "):
            self.take(", ")
            outputs.append(self.output())
        self.take(" = ")
        name = self.take(r"\w+")
        self.take(r"\(")
        inputs = []
        while not self.rest.startswith(")"):
            inputs.append(self.name())
            if not self.rest.startswith(")"):
                self.take(", ")
        self.take(r"\)")
        return self.built(name, tuple(inputs), tuple(outputs))

    def output(self) -> str:
        if self.rest.startswith('""'):
            self.take('""')
            return ""
        return self.value().id

    def built(self, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Node:
        given: dict[str, Any] = {}
        while self.rest.startswith(" "):
            key = self.take(r" \w+=")[1:-1]
            given[key] = self.json()
        params: tuple[tuple[str, Param], ...] | None = None
        if "params" in given:
            found = given.pop("params").items()
            params = tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in found)
        origin = tuple(given.pop("origin", ()))
        try:
            op = OPS[name](**{k: _restored(v) for k, v in given.items()})
        except TypeError as fault:
            raise self.fault(f"{name}: {fault}") from fault
        return Node(op, inputs, outputs, origin, params)


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_restored(v) for v in value)
    if isinstance(value, dict):
        if "bytes" in value:
            return base64.b64decode(value["bytes"])
        parser = _Parser("")
        parser.rest = value["type"]
        return parser.type()
    return value
