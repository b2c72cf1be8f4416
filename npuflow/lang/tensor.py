"""Tensors of a network that is being written: what they are, and the call that gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from npuflow.base.errors import UsageError
from npuflow.ir.op import Node
from npuflow.ir.types import Array, QuantType, TensorType, Value


@dataclass(frozen=True, eq=False)
class Call:
    """Operators that were applied to tensors, in names of their own. `inputs`: the tensors by those names."""

    name: str
    function: str
    nodes: tuple[Node, ...]
    values: Mapping[str, Value]
    arrays: Mapping[str, Array]
    inputs: Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Tensor:
    """A value of the network: an input, a constant, or a result of a call. `quant`: the codes that it is
    stated to be rounded to."""

    type: TensorType
    name: str = ""
    array: Array | None = None
    call: Call | None = None
    result: str = ""                      # its name within the call
    quant: QuantType | None = None
    of: Tensor | None = None              # the same value without stated codes

    # what `npuflow.lang` sets: a function by its name, applied; the page of a notebook
    apply: ClassVar[Callable[..., Any]]
    page: ClassVar[Callable[[Tensor], str]]

    @property
    def base(self) -> Tensor:
        """The value, whatever codes it is stated to have."""
        return self.of or self

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> str:
        return self.type.dtype

    def __repr__(self) -> str:
        what = "constant" if self.array is not None else self.call.function if self.call else "input"
        sizes = ", ".join(map(str, self.shape))
        return f"<{what}{f' {self.name}' if self.name else ''}: {self.dtype}[{sizes}]>"

    def _repr_html_(self) -> str:
        """For notebooks: the network up to here."""
        return Tensor.page(self)

    def __add__(self, other: Any) -> Tensor:
        return Tensor.apply("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return Tensor.apply("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return Tensor.apply("sub", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return Tensor.apply("sub", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return Tensor.apply("mul", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return Tensor.apply("mul", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return Tensor.apply("div", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return Tensor.apply("div", other, self)

    def __matmul__(self, other: Any) -> Tensor:
        return Tensor.apply("matmul", self, other)

    def __neg__(self) -> Tensor:
        return Tensor.apply("neg", self)


def input(name: str, shape: Sequence[int], dtype: str = "float32") -> Tensor:  # noqa: A001
    """An input of the network."""
    sizes = tuple(int(size) for size in shape)
    if not name or any(size < 1 for size in sizes):
        raise UsageError(
            f'an input "{name}" of shape {list(sizes)} is not possible',
            because="an input has a name, and an NPU program fixed shapes",
            hint='lang.input("x", (1, 3, 32, 32))',
            code="NF-USAGE-090",
        )
    return Tensor(TensorType(sizes, np.dtype(dtype).name), name)


def constant(values: Any, name: str = "", dtype: str = "") -> Tensor:
    """A constant. Python numbers with a fraction are float32, others int64, unless `dtype` says otherwise."""
    array = np.asarray(values, dtype or None)
    if not dtype and not isinstance(values, np.ndarray | np.generic):
        array = array.astype({"f": np.float32, "i": np.int64}.get(array.dtype.kind, array.dtype))
    if array.dtype.kind not in "fiub":
        raise UsageError(
            f"a constant of {array.dtype} is not possible", hint="numbers, or an array of them",
            code="NF-USAGE-091",
        )
    return Tensor(TensorType(array.shape, array.dtype.name), name, array)


def stated(tensor: Tensor, quant: QuantType) -> Tensor:
    """The tensor, stated to be rounded to these codes; a build keeps them."""
    return replace(tensor, quant=quant, of=tensor.base)
