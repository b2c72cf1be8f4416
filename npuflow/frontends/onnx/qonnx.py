"""Reads QONNX models: Quant, BipolarQuant and Trunc as the float model and its codes.
Brevitas and QKeras export them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx

from npuflow.base.errors import ModelError
from npuflow.base.wording import counted
from npuflow.frontends._nodes.build import owned
from npuflow.frontends._nodes.shapes import label
from npuflow.frontends._nodes.tensors import array
from npuflow.frontends.onnx.qonnx_form import QuantForm, form_of, rounded, spelled
from npuflow.frontends.onnx.saturation import LINEAR, saturated
from npuflow.ir.types import Array, QuantType

DOMAINS = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general")
QUANT = ("Quant", "IntQuant")
KINDS = (*QUANT, "BipolarQuant", "Trunc", "FloatQuant")
LITERALS = ("value", "value_float", "value_floats", "value_int", "value_ints")
WIDEST = 16                               # bits of codes; wider ones (biases) become floats

NOTES = (
    "roundings of activations not to the nearest are computed by standard operators; their scales are kept",
    ("roundings of activations are computed by standard operators and not kept (they have several scales, a "
     "zero point that no code has, more than 16 bits, or truncate)"),
    "constants have scales that no type states: they are read as floats and get scales of their own",
)


def is_qonnx(node: onnx.NodeProto) -> bool:
    """Whether the node rounds in QONNX's way, and no installed package has an operator for it."""
    return node.domain in DOMAINS and node.op_type in KINDS and not owned(node.domain, node.op_type)


@dataclass
class QonnxLifter:
    """One model being lifted, in place. `stated`: codes by value name. `done`: the value that holds each
    rounding of a value."""

    model: onnx.ModelProto
    tensors: Mapping[str, Array]
    stated: dict[str, QuantType] = field(default_factory=dict)
    consts: dict[str, Array] = field(default_factory=dict)
    added: dict[str, Array] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    unkept: list[str] = field(default_factory=list)      # roundings that operators compute, without codes
    computed: list[str] = field(default_factory=list)    # the same, with codes
    done: dict[tuple[str, tuple[int, int], QuantType], str] = field(default_factory=dict)
    whole: list[str] = field(default_factory=list)       # weights whose scales no type states

    def run(self) -> tuple[str, ...]:
        """Changes the model; notes for the user."""
        graph = self.model.graph
        # Brevitas lists its constants among the inputs: they are the values of these, as everywhere
        self.consts = {t.name: array(t, self.tensors) for t in graph.initializer}
        self.version = next((o.version for o in self.model.opset_import if o.domain in ("", "ai.onnx")), 0)
        self.outputs = {o.name for o in graph.output}
        self.maker = {o: n for n in graph.node for o in n.output if o}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        made = [part for node in graph.node for part in self.one(node)]
        for node in made:
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    names[i] = self.final(name)
        del graph.node[:]
        graph.node.extend(made)
        graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in self.added.items())
        kept = [o for o in self.model.opset_import if o.domain not in DOMAINS]
        del self.model.opset_import[:]
        self.model.opset_import.extend(kept)
        return self.notes()

    def notes(self) -> tuple[str, ...]:
        found = (
            [f"the model states the codes of {counted(len(self.stated), 'tensor')}; their scales are kept"]
            if self.stated
            else []
        )
        for names, what in zip((self.computed, self.unkept, self.whole), NOTES, strict=True):
            if names:
                found.append(f"{len(names)} {what}, {names[0]} the first")
        return tuple(found)

    def final(self, name: str) -> str:
        while name in self.renamed:
            name = self.renamed[name]
        return name

    def one(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        if is_qonnx(node):
            return self.rounding(node)
        if node.op_type == "Constant" and not node.domain and node.output:
            held = next((a for a in node.attribute if a.name in LITERALS), None)
            if held is not None:
                given = onnx.helper.get_attribute_value(held)
                self.consts[node.output[0]] = array(given) if held.name == "value" else np.array(given)
        source = node.input[0] if node.input else ""
        if node.op_type == "Transpose" and source in self.stated and source in self.consts:
            return self.transposed(node, source)
        return [node]

    def transposed(self, node: onnx.NodeProto, source: str) -> list[onnx.NodeProto]:
        """Linear layers are exported as a product with transposed weights: their codes follow."""
        held, quant = self.consts[source], self.stated[source]
        order = next((list(a.ints) for a in node.attribute if a.name == "perm"), [])
        order = order or [*reversed(range(held.ndim))]
        if sorted(order) != list(range(held.ndim)):
            return [node]
        axis = None if quant.axis is None else order.index(quant.axis)
        self.constant(node.output[0], np.ascontiguousarray(held.transpose(order)), quant.with_(axis=axis))
        if len(self.readers[source]) == 1:
            del self.stated[source], self.added[source]
        return []

    def constant(self, name: str, held: Array, quant: QuantType | None) -> None:
        self.consts[name] = self.added[name] = held
        if quant is not None:
            self.stated[name] = quant

    # --- roundings
    def rounding(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        form = form_of(node, self.consts)
        held = self.consts.get(node.input[0])
        if held is not None:
            self.weight(node, form, held)
            return []
        quant = form.quant(None)
        if quant is not None and (quant.axis is not None or quant.bits > WIDEST):
            quant = None
        if quant is not None and form.nearest:
            return self.activation(node, form, quant)
        if self.version < 11:
            raise ModelError(
                f"node {label(node)} rounds in a way that opset {self.version} has no operators for",
                hint="export the model with opset 11 or newer", code="NF-MODEL-230",
            ).at(node=label(node))
        (self.unkept if quant is None else self.computed).append(label(node))
        if quant is not None:
            self.stated[node.output[0]] = quant
        return spelled(node, form, self.added)

    def weight(self, node: onnx.NodeProto, form: QuantForm, held: Array) -> None:
        """A constant: its codes are known, whichever way they were rounded."""
        name = node.output[0]
        real = rounded(form, held.astype(np.float32), label(node))
        readers = self.readers.get(name, [])
        bias = bool(readers) and all(
            len(r.input) > 2 and r.input[2] == name and r.op_type in LINEAR for r in readers
        )
        quant = form.quant(held.ndim)
        if bias or (quant is not None and quant.bits > WIDEST):
            self.constant(name, real, None)              # added in the accumulator, at the scale of its sums
            return
        if quant is None:
            self.whole.append(label(node))
        self.constant(name, real, quant)

    def activation(self, node: onnx.NodeProto, form: QuantForm, quant: QuantType) -> list[onnx.NodeProto]:
        """The codes of a value that nothing else reads are stated of it; else those of a Clip of it."""
        value, out = node.input[0], node.output[0]
        twin = self.done.get((value, form.ends, quant))
        if twin is not None and out not in self.outputs:
            self.renamed[out] = twin
            return []
        maker, readers = self.maker.get(value), self.readers[value]
        clipped = form.narrow and not form.signed        # a range that no type states
        clipped |= maker is not None and maker.op_type in LINEAR
        clipped |= value in self.outputs or self.final(value) in self.stated
        clipped |= not all(self.equal(one, quant) for one in readers)
        if not clipped and maker is not None and len(readers) == 1:
            self.renamed[value] = out
        elif not clipped and out not in self.outputs:
            self.renamed[out] = out = value
        else:
            clipped = True
        self.stated[out] = quant
        self.done[(value, form.ends, quant)] = out
        if not clipped:
            return []
        lo, hi = (quant.scale[0] * (end - quant.zero_point[0]) for end in form.ends)
        return [saturated(value, out, (lo, hi), self.version, self.added)]

    def equal(self, node: onnx.NodeProto, quant: QuantType) -> bool:
        """Whether a node rounds to just these codes."""
        if not is_qonnx(node) or node.op_type not in QUANT:
            return False
        form = form_of(node, self.consts)
        return form.nearest and form.quant(None) == quant
