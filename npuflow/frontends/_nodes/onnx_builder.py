"""A graph under construction in ONNX's vocabulary: stored tensors, operator versions, nodes of the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import onnx

from npuflow.base.errors import ModelError
from npuflow.base.mapped import forget
from npuflow.frontends._nodes import floats
from npuflow.frontends._nodes.masked import StepBounds
from npuflow.frontends._nodes.shapes import output_types
from npuflow.frontends._nodes.tensors import EXTERNAL, array
from npuflow.frontends._nodes.upgrade import schema, stated_opset
from npuflow.ir.builder import Builder
from npuflow.ir.op import OPS
from npuflow.ir.types import Array, TensorType
from npuflow.onnx.nodes import captured, frozen, subgraphs
from npuflow.onnx.run import newest_opset
from npuflow.onnx.types import PLAIN


class OnnxBuilder(Builder):
    """What loops and their bodies are written with; `build.NodeBuilder` says what becomes of a node."""

    def __init__(
        self,
        opsets: dict[str, int],
        taken: Collection[str] = (),
        tensors: Mapping[str, Array] = MappingProxyType({}),
    ) -> None:
        super().__init__(taken)
        self.opsets = opsets
        self.tensors = tensors                      # initialisers kept apart from the model
        # values of other floating-point types -> their float32 form
        self.singles: dict[str, str] = {}
        self.counts: Counter[str] = Counter()       # how many values of each such type there were
        # shapes of inputs whose batch is 1 only because nobody states it
        self.batches: dict[str, tuple[int, ...]] = {}
        # nodes that the body of a loop may have while it is made, loops in it written out; None outside loops
        self.room: int | None = None
        self.loop_depth = 0                         # nested loops in whose body nodes are added
        self.bounds = StepBounds()

    # --- values
    def tensor(self, name: str, tensor: onnx.TensorProto) -> None:
        """A stored tensor; element types numpy lacks stay ONNX Constant nodes."""
        values = array(tensor, self.tensors)
        if values.dtype.name == "bfloat16":
            self.counts["bfloat16"] += 1
            values = floats.single(values)
        if values.dtype.name in PLAIN:
            self.constant(name, values)
            forget(values)
        else:
            whole = onnx.numpy_helper.from_array(values, name) if tensor.data_location == EXTERNAL else tensor
            node = onnx.helper.make_node("Constant", [], [name], value=whole)
            # onnxruntime has such types in operators of its own
            newest = max(self.opsets.get("", 0), newest_opset())
            types = output_types(node, newest, {}, {})
            self.host(node, newest, types, f"a constant of {values.dtype}", (name,))

    def version(self, domain: str) -> int:
        for name in (domain, "ai.onnx" if domain == "" else "" if domain == "ai.onnx" else domain):
            if name in self.opsets:
                return self.opsets[name]
        if domain in ("com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"):
            return 1
        raise ModelError(f'the model uses domain "{domain}" and states no version of it', code="NF-MODEL-012")

    def node(self, node: onnx.NodeProto, version: int) -> None:
        """A node of a version of its domain's operators."""
        raise NotImplementedError

    def host(
        self,
        node: onnx.NodeProto,
        version: int,
        types: Sequence[TensorType],
        reason: str,
        origin: tuple[str, ...],
        kept: bool = False,
    ) -> None:
        """A node of the host. `kept`: no rule may spell it in other operators."""
        captures = captured(node)
        if node.domain == "":
            known = {n: self.type(n) for n in node.input if n} | dict(zip(node.output, types, strict=True))
            version = stated_opset(node, version, known)
        found = schema(node.op_type, version, node.domain)
        whole = any(True for _ in subgraphs(node))       # its opset is that of what its subgraphs hold
        since = found.since_version if found is not None and not whole else version
        attributes = tuple(sorted((a.name, frozen(a)) for a in node.attribute))
        op = OPS["host"](node.op_type, node.domain, since, attributes, captures, tuple(types), reason, kept)
        self.add(op, (*node.input, *captures), node.output, origin, types)
