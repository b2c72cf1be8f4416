"""Any ONNX node that has no operator file here, or that its file refused: kept whole
and run by onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from npuflow.hw.target import Target
from npuflow.ir.op import OPS, No, OnnxCall, Op, OpContext, Role, Yes
from npuflow.ir.types import Array, Span, TensorType
from npuflow.onnx.nodes import Frozen, rename, thawed
from npuflow.onnx.run import run_node

if TYPE_CHECKING:
    import onnx


_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))


@OPS.entry
@dataclass(frozen=True)
class Host(Op):
    """`attributes` hold numbers and texts readable, all else as the proto's bytes. `captures` are
    the names by which subgraphs call the node's trailing inputs. `types` are those of all
    outputs, absent ones included.
    """

    hosted: ClassVar[bool] = True

    op_type: str = ""
    family: str = ""                                # ONNX operator domain
    version: int = 0                                # opset that fixes the meaning
    attributes: tuple[tuple[str, Frozen], ...] = ()
    captures: tuple[str, ...] = ()
    types: tuple[TensorType, ...] = ()
    reason: str = ""                                # why no operator file took it
    kept: bool = False                              # no rule may spell it in other operators

    def respelled(self) -> bool:
        return not self.kept

    def attribute(self, name: str, default: Frozen | None = None) -> Frozen | None:
        return dict(self.attributes).get(name, default)

    def proto(self, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.NodeProto:
        """The node with these names; captured names become those of the trailing inputs."""
        import onnx

        explicit = len(inputs) - len(self.captures)
        node = onnx.NodeProto(
            op_type=self.op_type, domain=self.family, input=inputs[:explicit], output=outputs
        )
        node.attribute.extend(thawed(name, value) for name, value in self.attributes)
        rename(node, dict(zip(self.captures, inputs[explicit:], strict=True)))
        return node

    def onnx_type(self) -> tuple[str, str]:
        return self.family, self.op_type

    def onnx_attributes(self) -> Mapping[str, Any]:
        return dict(self.attributes)

    def to_onnx(self, site: OpContext) -> OnnxCall:
        node = self.proto(site.node.inputs, site.node.outputs)
        explicit = tuple(range(len(node.input)))
        attributes = {a.name: a for a in node.attribute}
        return OnnxCall(self.op_type, attributes, self.family, self.version, inputs=explicit)

    def with_results(self, types: Sequence[TensorType]) -> Host:
        return replace(self, types=tuple(types))

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        return self.types

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        if self.captures:
            raise NotImplementedError(f"{self.op_type} with subgraphs is run as part of its model")
        names = [f"i{k}" if x is not None else "" for k, x in enumerate(inputs)]
        given = [np.asarray(x) for x in inputs if x is not None]
        types = [TensorType(x.shape, "string" if x.dtype.kind in "OUS" else x.dtype.name) for x in given]
        node = self.proto(names, [f"o{k}" for k in range(len(self.types))])
        return tuple(run_node(node, self.version, types, given))

    def whole_result(self, site: OpContext, spans: Sequence[Span | None], output: int) -> Span | None:
        """Of a Cast to a type that holds all of the numbers."""
        if self.op_type != "Cast" or spans[0] is None:
            return None
        dtype = site.outputs[0].type.dtype
        if dtype in ("float32", "float64"):
            return spans[0]
        if dtype not in _INTEGERS:
            return None
        held = np.iinfo(dtype)
        return spans[0] if held.min <= spans[0][0] and spans[0][1] <= held.max else None

    def role(self, index: int) -> Role:
        return "plain"

    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        return No(self.reason or f"{self.op_type} has no integer form")
