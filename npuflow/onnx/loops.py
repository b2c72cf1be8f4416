"""Loops in ONNX: nodes between the borders of a loop become the body of a Scan.

A model is written flat first, borders as nodes of their own domain, so that whoever adds nodes to it
(quantisers behind values) need not know of bodies. `scanned` then takes each loop into one Scan. Values of a
body that the model gives as outputs, or that nodes outside read, are stacked along the first dimension (see
`ir/loops.py`). A nested loop becomes a Scan first, which is a node of the outer body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from npuflow.base.errors import InternalError
from npuflow.ir.borders import DOMAIN, ENTERS, LEAVES
from npuflow.ir.loops import stacked
from npuflow.ir.types import TensorType
from npuflow.onnx.nodes import captured, ordered, rename
from npuflow.onnx.types import value_info

if TYPE_CHECKING:
    import onnx

INSIDE = "@step"                          # behind the names of values in a body


def scanned(model: onnx.ModelProto, types: Mapping[str, TensorType]) -> None:
    """Take the loops of a flat model into Scans, in place. `types`: of values, by name, as one step has them.
    """
    graph = model.graph
    names = _inner_first(graph)
    if not names:
        return
    types = dict(types)
    for name in names:
        scan = _Scan(graph, name, types)
        nodes = scan.nodes()
        del graph.node[:]
        graph.node.extend(nodes)
        # around an inner loop they are as all its steps have made them
        types.update((v, stacked(types[v], scan.steps)) for v in scan.own if v in types)
    kept = [one for one in model.opset_import if one.domain != DOMAIN]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def _inner_first(graph: onnx.GraphProto) -> list[str]:
    """The loops of a flat model, inner ones first."""
    ends = [(n, _said(n)["loop"]) for n in graph.node if n.domain == DOMAIN]
    names = list(dict.fromkeys(name for _, name in ends))
    bodies = {name: _values_of(graph, name) for name in names} if len(names) > 1 else {}
    around = {
        name: sum(
            any(n.op_type in ENTERS and not own.isdisjoint(n.input) for n, loop in ends if loop == name)
            for other, own in bodies.items() if other != name
        )
        for name in names
    }
    return sorted(names, key=lambda name: -around[name])


def _values_of(graph: onnx.GraphProto, loop: str) -> set[str]:
    """The values of a loop's body, with those of loops in it."""
    found: set[str] = set()
    for node in graph.node:
        border = node.op_type if node.domain == DOMAIN and _said(node)["loop"] == loop else ""
        if border not in LEAVES and (border or not found.isdisjoint(node.input)):
            found.update(o for o in node.output if o)
    return found


def _said(node: onnx.NodeProto) -> dict[str, Any]:
    import onnx

    found = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return {**found, "loop": found["loop"].decode()}


@dataclass
class _Scan:
    """One loop on its way into a Scan."""

    graph: onnx.GraphProto
    loop: str
    types: Mapping[str, TensorType]
    mine: list[onnx.NodeProto] = field(default_factory=list)
    rest: list[onnx.NodeProto] = field(default_factory=list)    # of other loops and of none
    body: list[onnx.NodeProto] = field(default_factory=list)
    made: list[onnx.NodeProto] = field(default_factory=list)    # around the Scan
    own: dict[str, None] = field(default_factory=dict)          # values of the body
    steps: int = 1

    def __post_init__(self) -> None:
        made = {o for n in self.graph.node for o in n.output}
        self.taken = {*made, *(one.name for one in (*self.graph.input, *self.graph.initializer))}
        self.inside: dict[str, str] = {}

    def unused(self, name: str) -> str:
        """The name, with marks behind it where the model has it."""
        while name in self.taken:
            name += "'"
        self.taken.add(name)
        return name

    def nodes(self) -> list[onnx.NodeProto]:
        """All nodes of the graph, the loop as a Scan with reshapes around it, in an order that runs."""
        for node in self.graph.node:
            border = node.op_type if node.domain == DOMAIN and _said(node)["loop"] == self.loop else ""
            if border or any(i in self.own for i in (*node.input, *captured(node))):
                self.mine.append(node)
                if border not in LEAVES:
                    self.own.update(dict.fromkeys(o for o in node.output if o))
            else:
                self.rest.append(node)
        order = ordered([*self.rest, *self._scan()], ())
        if order is None:
            raise InternalError(
                "the loops of a model wait for each other", because=self.loop, code="NF-INTERNAL-095",
            )
        return order

    def _borders(self, kind: str) -> list[tuple[onnx.NodeProto, dict[str, Any]]]:
        found = [(n, _said(n)) for n in self.mine if n.domain == DOMAIN and n.op_type == kind]
        return sorted(found, key=lambda one: one[1]["index"]) if kind in ("carry", "last") else found

    def _scan(self) -> list[onnx.NodeProto]:
        import onnx

        carries, lasts, slices = self._borders("carry"), self._borders("last"), self._borders("slice")
        if len(carries) != len(lasts):
            raise InternalError(
                f'the loop "{self.loop}" is not whole: {len(carries)} values carried in, {len(lasts)} out',
                code="NF-INTERNAL-094",
            )
        self.steps = next(said["steps"] for kind in (*ENTERS, *LEAVES) for _, said in self._borders(kind))
        for node in self.mine:
            if node.domain != DOMAIN:
                inner = onnx.NodeProto()
                inner.CopyFrom(node)
                rename(inner, {i: self.inner(i) for i in captured(node)})
                inner.input[:] = [self.inner(i) for i in node.input]
                inner.output[:] = [self.inner(o) for o in node.output]
                self.body.append(inner)
        for node, _ in self._borders("capture"):
            same = onnx.helper.make_node("Identity", [node.input[0]], [self.inner(node.output[0])])
            self.body.insert(0, same)
        inputs = [n.input[0] for n, _ in carries]
        inputs += [self.parted(n.input[0], n.output[0]) for n, _ in slices]
        entering = [n.output[0] for n, _ in (*carries, *slices)]
        given = [value_info(self.inner(v), self.type(v)) for v in entering]
        if not slices:
            given.append(value_info(self.unused(f"{self.loop}:step{INSIDE}"), TensorType((), "float32")))
            inputs.append(self.counted())
        results = [self.result(n.input[0], k) for k, (n, _) in enumerate(lasts)]
        outputs, ways = [n.output[0] for n, _ in lasts], list[int]()
        for value, target, back in self._stacked():
            results.append(self.result(value, len(results)))
            ways.append(back)
            outputs.append(self.joined(value, target))
        body = onnx.helper.make_graph(
            self.body, f"{self.loop}:body", given, [onnx.ValueInfoProto(name=r) for r in results]
        )
        said: dict[str, Any] = {"scan_output_directions": ways} if ways else {}
        if slices:
            said["scan_input_directions"] = [int(own["reverse"]) for _, own in slices]
        self.made.append(onnx.helper.make_node(
            "Scan", inputs, outputs, f"{self.loop}:scan", body=body, num_scan_inputs=len(slices) or 1, **said
        ))
        return self.made

    def _stacked(self) -> list[tuple[str, str, int]]:
        """What leaves the body stacked: the value, its name outside, whether the last step comes first."""
        found = [(n.input[0], n.output[0], int(said["reverse"])) for n, said in self._borders("stack")]
        wanted = {o.name for o in self.graph.output}
        wanted |= {i for n in self.rest for i in (*n.input, *captured(n))}
        return found + [(v, v, 0) for v in self.own if v in wanted]

    def inner(self, name: str) -> str:
        """A value's name in the body: no name of the outside may come again there."""
        if name not in self.own:
            return name
        if name not in self.inside:
            self.inside[name] = self.unused(f"{name}{INSIDE}")
        return self.inside[name]

    def type(self, value: str) -> TensorType:
        return self.types[value]

    def result(self, value: str, number: int) -> str:
        """A result of the body with a name of its own."""
        import onnx

        name = self.unused(f"{self.loop}:result{number}{INSIDE}")
        self.body.append(onnx.helper.make_node("Identity", [self.inner(value)], [name]))
        return name

    def counted(self) -> str:
        """Something to scan, for a loop that reads nothing step by step: the steps need to be counted."""
        import onnx

        name = self.unused(f"{self.loop}:count")
        steps = np.zeros(self.steps, np.float32)
        self.graph.initializer.append(onnx.numpy_helper.from_array(steps, name))
        return name

    def parted(self, source: str, part: str) -> str:
        """A tensor with its steps as the first dimension."""
        return self._reshaped(source, self.unused(f"{part}:whole"), (self.steps, *self.type(part).shape))

    def joined(self, value: str, target: str) -> str:
        """The name of what the Scan gives: steps are a dimension of their own there, and not in `target`."""
        shape = self.type(value).shape if value in self.types else ()
        first, rest = (shape[0], shape[1:]) if shape else (1, ())
        name = self.unused(f"{target}:steps")
        self._reshaped(name, target, (self.steps * first, *rest))
        return name

    def _reshaped(self, source: str, target: str, shape: Sequence[int]) -> str:
        import onnx

        at = self.unused(f"{target}:shape")
        self.graph.initializer.append(onnx.numpy_helper.from_array(np.array(shape, np.int64), at))
        self.made.append(onnx.helper.make_node("Reshape", [source, at], [target], allowzero=1))
        return target
