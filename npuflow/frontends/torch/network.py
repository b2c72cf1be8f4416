"""An exported program in the making: values of its nodes, constants that torch itself computes, names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuflow.frontends._nodes.build import NodeBuilder
from npuflow.ir.types import Array, TensorType
from npuflow.onnx.run import EXPORT_OPSET

DTYPES = {"float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"}


class TorchOperatorError(Exception):
    """An operator that cannot be converted, with the reason."""


@dataclass
class TorchNetwork:
    """`values`: by node of the program, a value, a torch tensor (a constant), a number, or several
    of them. Operators whose operands are all constant are computed by torch."""

    torch: Any
    graph: NodeBuilder = field(default_factory=lambda: NodeBuilder({"": EXPORT_OPSET}))
    values: dict[Any, Any] = field(default_factory=dict)
    stored: dict[int, str] = field(default_factory=dict)  # by identity of a kept constant
    kept: list[Any] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)  # of parameters
    origin: str = ""
    nodes: list[Any] = field(default_factory=list)  # as they were added, in ONNX's form
    newest: int = EXPORT_OPSET  # the opset that has all of them

    # --- reading
    def __getitem__(self, one: Any) -> Any:
        """What stands for an argument."""
        if isinstance(one, self.torch.fx.Node):
            return self.values[one]
        if isinstance(one, list | tuple):
            return [self[part] for part in one]
        return one

    def is_constant(self, one: Any) -> bool:
        return not isinstance(one, TorchValue | TorchComplex)

    def type(self, value: Any) -> TensorType:
        return self.graph.type(self.name(value))

    def dtype(self, value: Any) -> str:
        """The element type of a value or a constant."""
        return self.type(value).dtype if isinstance(value, TorchValue) else str(value.dtype).split(".")[-1]

    def shape(self, value: Any) -> tuple[int, ...]:
        if isinstance(value, TorchValue):
            return self.graph.type(value.name).shape
        if isinstance(value, TorchComplex):
            return self.shape(value.real)
        return tuple(value.shape) if hasattr(value, "shape") else ()

    def name(self, value: Any, like: Any = None) -> str:
        """The name of a value; a constant is stored. `like`: numbers take its element type."""
        if isinstance(value, TorchValue):
            return value.name
        if isinstance(value, self.torch.Tensor):
            key = id(value)
            if key not in self.stored:
                self.kept.append(value)
                self.stored[key] = self.constant(self.array(value), self.names.get(key, ""))
            return self.stored[key]
        dtype = self.graph.type(like.name).dtype if isinstance(like, TorchValue) else None
        return self.constant(np.asarray(value, dtype or ("float32" if isinstance(value, float) else "int64")))

    def array(self, value: Any) -> Array:
        """A torch tensor as an array; half precision as float32."""
        held = value.detach().cpu()
        if held.dtype in (self.torch.float16, self.torch.bfloat16):
            held = held.float()
        return np.ascontiguousarray(held.numpy())

    # --- writing
    def constant(self, array: Any, name: str = "") -> str:
        return self.graph.constant(self.free(name or f"{self.origin}:constant"), np.asarray(array))

    def ints(self, values: Sequence[int]) -> str:
        return self.constant(np.asarray(values, np.int64))

    def free(self, name: str) -> str:
        return self.graph.free(name)

    def apply(self, kind: str, *inputs: Any, version: int = EXPORT_OPSET, **attributes: Any) -> TorchValue:
        """An operator of one result."""
        return self.several(kind, inputs, 1, version, **attributes)[0]

    def several(
        self, kind: str, inputs: Sequence[Any], count: int, version: int = EXPORT_OPSET, **attributes: Any
    ) -> list[TorchValue]:
        """An operator of ONNX's vocabulary; "" and None are absent inputs, texts are names."""
        import onnx

        like = next((i for i in inputs if isinstance(i, TorchValue)), None)
        given = [i if isinstance(i, str) else "" if i is None else self.name(i, like) for i in inputs]
        while given and not given[-1]:
            given.pop()
        base = (
            self.origin
            if self.free(self.origin) == self.origin
            else self.free(f"{self.origin}:{kind.lower()}")
        )
        outputs = [base] + [self.free(f"{base}:{i}") for i in range(1, count)]
        node = onnx.helper.make_node(kind, given, outputs, self.origin, **attributes)
        self.nodes.append(node)
        self.newest = max(self.newest, version)
        self.graph.node(onnx.NodeProto.FromString(node.SerializeToString()), version)
        return [TorchValue(name) for name in outputs]


@dataclass(frozen=True)
class TorchValue:
    """A value that depends on the network's inputs, by its name."""

    name: str


@dataclass(frozen=True)
class TorchComplex:
    """A complex value that depends on the network's inputs: its parts are values, constants or numbers;
    `imag` is None where it is zero."""

    real: Any
    imag: Any
