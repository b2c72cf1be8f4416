"""ONNX nodes one by one into a float graph: types inferred, constants folded,
operators from their files or Host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from npuflow.base.errors import ModelError
from npuflow.frontends._nodes import floats, fold
from npuflow.frontends._nodes.bounded import bounded
from npuflow.frontends._nodes.fit import fit
from npuflow.frontends._nodes.inputs import another_batch
from npuflow.frontends._nodes.loop import looped
from npuflow.frontends._nodes.masked import ENDLESS
from npuflow.frontends._nodes.microsoft import MICROSOFT, UNLISTED
from npuflow.frontends._nodes.onnx_builder import OnnxBuilder
from npuflow.frontends._nodes.shapes import label, output_types, short
from npuflow.frontends._nodes.tensors import array
from npuflow.frontends._nodes.unroll import LARGE, unrolled
from npuflow.frontends._nodes.upgrade import schema, upgraded
from npuflow.ir.op import OPS, No, OnnxCall
from npuflow.ir.types import UNRANKED, TensorType
from npuflow.onnx.nodes import captured, plain, rename_inputs, subgraphs
from npuflow.onnx.run import EXPORT_OPSET
from npuflow.onnx.types import ELEMENTS, PLAIN, is_tensor


class NodeBuilder(OnnxBuilder):
    """A graph made of nodes in ONNX's vocabulary."""

    def call(
        self, kind: str, inputs: Sequence[str], outputs: Sequence[str], name: str = "", **attributes: Any
    ) -> None:
        """An operator by its name and attributes in ONNX's default domain, opset `EXPORT_OPSET`."""
        made = onnx.helper.make_node(kind, list(inputs), list(outputs), name or None, **attributes)
        self.node(made, EXPORT_OPSET)

    def add_all(self, nodes: Iterable[onnx.NodeProto]) -> None:
        for node in nodes:
            self.node(node, self.version(node.domain))

    def node(self, node: onnx.NodeProto, version: int) -> None:
        if node.domain == "ai.onnx":
            node.domain = ""
        if node.op_type in UNLISTED and not node.domain:
            node.domain, version = MICROSOFT, self.version(MICROSOFT)
        for name in (*node.input, *captured(node)):
            if name and name not in self.values:
                raise ModelError(
                    f'node {label(node)} reads "{name}", which nothing produces', code="NF-MODEL-013",
                ).at(node=label(node), value=name)
        self.check(node, version)
        if node.op_type == "Constant" and node.domain == "" and self.literal(node):
            return
        self.narrow(node)
        types = {n: self.type(n) for n in (*node.input, *captured(node)) if n}
        parts, now = upgraded(node, version, types, next((o for o in node.output if o), "node"))
        for part in parts:
            self.one(part, now)

    def check(self, node: onnx.NodeProto, version: int) -> None:
        """What ONNX itself demands of a node: known operator, attribute names and
        types, numbers of inputs."""
        if any(True for _ in subgraphs(node)):
            # alone it cannot see what its subgraphs take from outside; inference judges it
            return
        context = onnx.checker.C.CheckerContext()
        context.ir_version, context.opset_imports = 13, {"": self.opsets.get("", 21), node.domain: version}
        try:
            onnx.checker.check_node(node, context)
        except (onnx.checker.ValidationError, RuntimeError, ValueError) as fault:
            raise ModelError(
                f"node {label(node)} is not valid ONNX", because=short(fault), code="NF-MODEL-014",
            ).at(node=label(node)) from fault

    def literal(self, node: onnx.NodeProto) -> bool:
        """A Constant node whose value numpy can hold."""
        if len(node.attribute) != 1 or not node.output or not node.output[0]:
            return False
        attribute = node.attribute[0]
        kinds = {
            "value_float": np.float32,
            "value_floats": np.float32,
            "value_int": np.int64,
            "value_ints": np.int64,
        }
        if attribute.name == "value":
            values = array(attribute.t)
        elif attribute.name in kinds:
            values = np.array(onnx.helper.get_attribute_value(attribute), kinds[attribute.name])
        else:
            return False
        if values.dtype.name not in PLAIN:
            return False
        self.constant(node.output[0], values)
        return True

    def one(self, node: onnx.NodeProto, version: int) -> None:
        """One up-to-date node: fold it, inline it, give it to its operator file, or keep it for the host."""
        if node.op_type == "Constant" and node.domain == "" and self.literal(node):
            return
        self.narrow(node)
        known = {n: self.type(n) for n in (*node.input, *captured(node)) if n}
        branch = fold.chosen_branch(node, self.arrays)
        if branch is not None:
            self.inline(node, branch, version)
            return
        stays = ""
        if node.op_type in ("Loop", "Scan"):
            mark, singles = self.mark(), dict(self.singles)
            why = looped(self, node, version)
            stays = unrolled(self, node, version) if why else ""
            if stays in ENDLESS and node.op_type == "Loop":
                self.back(mark)
                self.singles = singles
                stays = bounded(self, node, version, stays)
            if not stays:
                if why == LARGE:
                    self.notes.append(f"{label(node)} is written out: {why}")
                return
        if node.op_type == "Range" and not node.domain:
            known = self.scalars(node, known)
        if self.registered(node, version):
            self.whole(node, version)
            return
        try:
            types = output_types(node, version, known, self.arrays)
            fit(node, known, types)
        except ModelError as fault:
            raise another_batch(fault, self.batches) from fault
        folded = fold.folded(node, version, known, self.arrays, types)
        if folded is None and self.narrow(node, constant=True):         # constants that no fold computes
            types = output_types(node, version, {n: self.type(n) for n in known}, self.arrays)
        if folded is not None:
            for name, values in zip((o for o in node.output if o), folded, strict=True):
                self.constant(name, values)
            return
        origin = (node.name,) if node.name else (next((o for o in node.output if o), node.op_type),)
        native = self.native(node, version, types, origin)
        if isinstance(native, str):
            self.host(node, version, types, stays or native, origin)

    def registered(self, node: onnx.NodeProto, version: int) -> bool:
        """Whether an installed package has the operator, of a domain of its own."""
        return bool(node.domain) and owned(node.domain, node.op_type) and (
            schema(node.op_type, version, node.domain) is None
        )

    def whole(self, node: onnx.NodeProto, version: int) -> None:
        """An operator that only its file knows: it states the types of what it gives."""
        origin = (node.name,) if node.name else (next((o for o in node.output if o), node.op_type),)
        try:
            reason = self.native(node, version, None, origin)
        except (ValueError, TypeError, AssertionError, IndexError) as fault:
            reason = str(fault) or type(fault).__name__
        if reason is not None:
            raise ModelError(
                f"node {label(node)} is not what its operator takes",
                because=f"{node.domain}::{node.op_type}: {reason}", code="NF-MODEL-083",
            ).at(node=label(node))

    # --- other floating-point types
    def port(self, name: str, kind: TensorType) -> None:
        """An input of the network; one of half or double precision keeps its type, and is cast."""
        if kind.dtype == "bfloat16":                     # numpy has none to feed it
            self.counts["bfloat16"] += 1
            kind = TensorType(kind.shape, "float32")
        self.input(name, kind)
        if floats.is_other(kind.dtype):
            self.singles[name] = self.cast(name, self.free(f"{name}:float32"), "float32")
            self.counts[kind.dtype] += 1

    def narrow(self, node: onnx.NodeProto, constant: bool = False) -> bool:
        """A node that meets data computes in float32, and reads the float32 forms; constants
        alone keep their precision."""
        inputs = [n for n in dict.fromkeys((*node.input, *captured(node))) if n]
        if node.op_type in floats.BITS:
            return False
        if not constant and all(n in self.arrays for n in inputs) and not any(True for _ in subgraphs(node)):
            return False
        changed = floats.narrow(node)
        forms = {
            n: self.single(n) for n in inputs if n in self.singles or floats.is_other(self.type(n).dtype)
        }
        if forms:
            rename_inputs(node, forms)
        return changed or bool(forms)

    def single(self, name: str) -> str:
        """The float32 form of a value."""
        if name not in self.singles:
            form = self.singles[name] = self.free(f"{name}:float32")
            self.counts[self.type(name).dtype] += 1
            if name in self.arrays:
                self.constant(form, floats.single(self.arrays[name]))
            else:
                self.cast(name, form, "float32")
        return self.singles[name]

    def cast(self, source: str, result: str, dtype: str) -> str:
        """A Cast of the host."""
        node = onnx.helper.make_node("Cast", [source], [result], to=ELEMENTS[dtype])
        self.host(
            node,
            EXPORT_OPSET,
            [TensorType(self.type(source).shape, dtype)],
            "a type that no NPU knows",
            (result,),
        )
        return result

    def give(self, name: str, dtype: str) -> None:
        """An output of the network in its declared type; the value that it was goes on under another name.
        numpy has no bfloat16 to give: such an output is float32, rounded to what bfloat16 holds."""
        if (
            name in self.arrays
            or name not in self.values
            or not floats.is_other(dtype)
            or self.type(name).dtype != "float32"
        ):
            return
        form = self.singles[name] = self.free(f"{name}:float32")
        self.rename(name, form)
        if dtype == "bfloat16":
            form, dtype = self.cast(form, self.free(f"{name}:bfloat16"), dtype), "float32"
        self.cast(form, name, dtype)

    def rename(self, old: str, new: str) -> None:
        """Another name for a value, wherever it is read or made."""
        self.define(replace(self.values.pop(old), id=new))
        self.nodes = [
            replace(n, inputs=_renamed(n.inputs, old, new), outputs=_renamed(n.outputs, old, new))
            for n in self.nodes
        ]
        if old in self.stated:
            self.stated[new] = self.stated.pop(old)

    def scalars(self, node: onnx.NodeProto, known: dict[str, TensorType]) -> dict[str, TensorType]:
        """One-element constants as the scalars Range asks for: computed ones pass
        onnxruntime, stated ones do not."""
        for index, name in enumerate(node.input):
            if name in self.arrays and self.arrays[name].ndim and self.arrays[name].size == 1:
                scalar = f"{name}:scalar"
                if scalar not in self.values:
                    self.constant(scalar, self.arrays[name].reshape(()))
                node.input[index] = scalar
                known = {**known, scalar: self.type(scalar)}
        return known

    def inline(self, node: onnx.NodeProto, branch: onnx.GraphProto, version: int) -> None:
        """The nodes of an If's branch, which are up to date already, in place of the If."""
        prefix = node.name or node.output[0]
        names = {n: f"{prefix}/{n}" for b in branch.node for n in b.output if n}
        names |= {t.name: f"{prefix}/{t.name}" for t in branch.initializer}
        for tensor in branch.initializer:
            self.tensor(names[tensor.name], tensor)
        fold.rename_all(branch.node, names)
        for part in branch.node:
            self.node(part, version if part.domain in ("", "ai.onnx") else self.version(part.domain))
        for inner, outer in zip(branch.output, node.output, strict=True):
            if outer:
                source = names.get(inner.name, inner.name)
                self.node(onnx.helper.make_node("Identity", [source], [outer]), version)

    def native(
        self,
        node: onnx.NodeProto,
        version: int,
        types: Sequence[TensorType] | None,
        origin: tuple[str, ...],
    ) -> str | None:
        """Add the node through its operator file; else say why not. `types`: what ONNX infers, if known."""
        if node.op_type == "If" and not node.domain:
            return fold.undecided(node.input[0], self.nodes, self.values, self.arrays)
        name = node.op_type.lower()
        if name not in OPS or name == "host":
            return f"{node.domain + '::' if node.domain else ''}{node.op_type} has no operator file"
        entry = OPS[name]
        if node.domain != ("" if not entry.onnx else entry.domain) or any(True for _ in subgraphs(node)):
            return f"{node.domain}::{node.op_type} is not the operator of that file"
        ins = [self.values[i] if i else None for i in node.input]
        if not all(is_tensor(t) for t in (*(types or ()), *(v.type for v in ins if v))):
            return "a value that is no tensor or of unknown type"
        if any(v.type.shape == UNRANKED for v in ins if v):
            return "an input of unknown rank"
        call = OnnxCall(
            node.op_type, {a.name: plain(a) for a in node.attribute}, node.domain, version,
            tuple(v.type if v else None for v in ins), tuple(self.arrays.get(i) for i in node.input),
        )
        imported = entry.from_onnx(call)
        if isinstance(imported, No):
            return imported.reason
        inputs = tuple(node.input[i] if i < len(node.input) else "" for i in imported.inputs)
        own = imported.op.infer(*(self.type(i) if i else None for i in inputs))
        outputs = list(node.output)
        while outputs and not outputs[-1]:
            outputs.pop()
        if len(own) != len(outputs) or not all(outputs):
            return f"{len(outputs)} outputs are used, the operator gives {len(own)}"
        for mine, theirs in zip(own, types or (), strict=False):
            if not _agree(mine, theirs):
                return f"output type {mine} instead of {theirs}"
        self.add(imported.op, _trim(inputs), outputs, origin, own)
        return None


def owned(domain: str, kind: str) -> bool:
    """Whether there is an operator file for a kind of node of that domain."""
    name = kind.lower()
    return name in OPS and (OPS[name].domain, OPS[name].onnx) == (domain, kind)


def _renamed(names: tuple[str, ...], old: str, new: str) -> tuple[str, ...]:
    return tuple(new if name == old else name for name in names)


def _agree(mine: TensorType, theirs: TensorType) -> bool:
    """Whether two inferences can both be right."""
    if mine.dtype != theirs.dtype:
        return False
    if theirs.shape == UNRANKED:
        return True
    return len(mine.shape) == len(theirs.shape) and all(
        a == b or a < 0 or b < 0 for a, b in zip(mine.shape, theirs.shape, strict=True)
    )


def _trim(inputs: tuple[str, ...]) -> tuple[str, ...]:
    """Without trailing absent inputs."""
    while inputs and not inputs[-1]:
        inputs = inputs[:-1]
    return inputs
