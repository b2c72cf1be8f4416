"""What the tensors of a written-out network are made of: sums of products with constants, and where rows lie.

It answers the questions that recognising a recurrent cell takes: which gates are affine in what, whichever
way a converter has split, added and reshaped them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuflow.frontends.tflite.network import real
from npuflow.frontends.tflite.schema import Operator, TfliteNetwork
from npuflow.ir.types import Array

SAME_ELEMENTS = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
Key = tuple[Any, ...]


def place_of(array: Array) -> Key:
    """Where an array's numbers lie: views of the same numbers are the same."""
    return array.__array_interface__["data"][0], array.shape, array.strides


@dataclass
class AffineSum:
    """sum(tensor @ matrix) + bias. `parts`: matrices by the tensors that they multiply; `others`: addends
    that are no such product."""

    parts: dict[int, list[Array]]
    bias: list[Array]
    others: list[int] = field(default_factory=list)

    def matrix(self, source: int) -> Array:
        found = self.parts[source]
        return found[0] if len(found) == 1 else np.sum(found, axis=0)

    def offset(self, width: int) -> Array:
        rows = [np.broadcast_to(one.reshape(-1), (width,)) for one in self.bias]
        return np.sum([np.zeros(width), *rows], axis=0)


class TensorTerms:
    """Answers about the tensors of a network, each found once. `calls`: by the tensors that they give."""

    def __init__(self, network: TfliteNetwork) -> None:
        self.network = network
        self.calls: dict[int, Operator] = {o: op for op in network.operators for o in op.outputs}
        self._root: dict[int, int] = {}
        self._affine: dict[int, AffineSum | None] = {}
        self._made: dict[Key, Array] = {}
        self._held: dict[int, Array | None] = {}

    # --- plain questions
    def shape(self, index: int) -> tuple[int, ...]:
        return self.network.tensors[index].shape

    def width(self, index: int) -> int:
        return (self.shape(index) or (1,))[-1]

    def call(self, index: int, *names: str) -> Operator | None:
        """The operator that gives a tensor, looking through reshapes, if it is one of these and nothing is
        fused with it."""
        found = self.calls.get(self.root(index))
        if found is None or found.name not in names or found.options.get("FusedActivationFunction"):
            return None
        return found

    def root(self, index: int) -> int:
        """The tensor with the same elements in the same rows that no reshape gives."""
        if index in self._root:
            return self._root[index]
        at = index
        while at in self.calls and self.calls[at].name in SAME_ELEMENTS:
            before = self.calls[at].inputs[0]
            if self.width(before) != self.width(at) or not self.shape(before) or not self.shape(at):
                break
            at = before
        self._root[index] = at
        return at

    def plain(self, indices: Iterable[int]) -> bool:
        """Whether tensors are floats without codes."""
        tensors = [self.network.tensors[i] for i in indices if i >= 0]
        return all(t.dtype == "float32" and t.codes is None and not t.refused for t in tensors)

    # --- constants
    def held(self, index: int) -> Array | None:
        """The numbers of a tensor that no data reach."""
        if index < 0:
            return None
        if index not in self._held:
            self._held[index] = None  # while it is asked for
            self._held[index] = self._numbers(index)
        return self._held[index]

    def _numbers(self, index: int) -> Array | None:
        tensor = self.network.tensors[index]
        if tensor.data is not None:
            if tensor.codes is None:
                return tensor.data
            codes = tensor.codes
            return self.made(("real", place_of(tensor.data)), lambda: real(tensor.data, codes))
        call = self.calls.get(index)
        if call is None or call.name not in FOLDED or call.options.get("FusedActivationFunction"):
            return None
        given = [self.held(i) for i in call.inputs]
        if any(one is None and i >= 0 for one, i in zip(given, call.inputs, strict=True)):
            return None
        arrays = [one for one in given if one is not None]
        if call.name == "STRIDED_SLICE" and _range(call, arrays[1:], arrays[0].shape) is None:
            return None
        place, shape = call.outputs.index(index), self.shape(index)
        key = (call.name, str(sorted(call.options.items())), place, shape, *map(place_of, arrays))
        return self.made(key, lambda: folded(call, arrays, shape, place))

    def made(self, key: Key, make: Any) -> Array:
        """An array that is made once for all tensors that are made in the same way."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def zero(self, index: int) -> bool:
        held = self.held(index)
        return held is not None and not held.any()

    # --- sums of products
    def affine(self, index: int) -> AffineSum:
        """A tensor as a sum of products with constants; itself an addend where it is none."""
        root = self.root(index)
        if root not in self._affine:
            self._affine[root] = self._sum(root)
        return self._affine[root] or AffineSum({}, [], [root])

    def _sum(self, index: int) -> AffineSum | None:
        constant = self.held(index)
        if constant is not None and constant.dtype == np.float32 and not constant.any():
            return AffineSum({}, [])
        if constant is not None:
            wide = constant.ndim and constant.size == constant.shape[-1]
            return AffineSum({}, [constant]) if wide and constant.dtype == np.float32 else None
        call = self.calls.get(index)
        if call is None or call.options.get("FusedActivationFunction") or not self.plain(call.outputs):
            return None
        if call.name == "ADD":
            one, other = (self.affine(i) for i in call.inputs)
            parts = {k: [*one.parts.get(k, []), *other.parts.get(k, [])] for k in {*one.parts, *other.parts}}
            return AffineSum(parts, [*one.bias, *other.bias], [*one.others, *other.others])
        if call.name in ("BATCH_MATMUL", "FULLY_CONNECTED"):
            return self._product(call)
        cut = self.columns(call, index)
        if cut is None or self.held(cut[0]) is not None:
            return None
        whole = self.affine(cut[0])
        if whole.others:
            return None
        low, high = cut[1:]
        return AffineSum(
            {k: [self.part(m, low, high) for m in held] for k, held in whole.parts.items()},
            [b if b.size == 1 else self.part(b, low, high) for b in whole.bias],
        )

    def part(self, array: Array, low: int, high: int) -> Array:
        return self.made(("part", place_of(array), low, high), lambda: array[..., low:high])

    def _product(self, call: Operator) -> AffineSum | None:
        matrix, dense = self.held(call.inputs[1]), call.name == "FULLY_CONNECTED"
        if matrix is None or call.options.get("AdjX"):
            return None
        matrix = matrix.reshape(matrix.shape[-2:]) if matrix.size == np.prod(matrix.shape[-2:]) else None
        if matrix is None or not self.plain(call.inputs[:1]):
            return None
        if dense or call.options.get("AdjY"):
            held = matrix
            matrix = self.made(("turned", place_of(held)), lambda: held.T)
        bias = [self.held(i) for i in call.inputs[2:] if i >= 0]
        if any(one is None for one in bias):
            return None
        parts = {} if self.zero(call.inputs[0]) else {self.root(call.inputs[0]): [matrix]}
        return AffineSum(parts, [one for one in bias if one is not None])

    def columns(self, call: Operator, index: int) -> tuple[int, int, int] | None:
        """The source and the range along the last axis that a tensor is cut from."""
        if call.name == "SPLIT":
            axis, source = self.held(call.inputs[0]), call.inputs[1]
            rank, width = len(self.shape(source)), self.width(index)
            if axis is None or int(axis.reshape(-1)[0]) % max(rank, 1) != rank - 1:
                return None
            at = call.outputs.index(index)
            return source, at * width, (at + 1) * width
        if call.name in ("STRIDED_SLICE", "SLICE"):
            source = call.inputs[0]
            taken = _range(call, [self.held(i) for i in call.inputs[1:]], self.shape(source))
            return (
                None
                if taken is None or not _all_of(taken[:-1], self.shape(source)[:-1])
                else (source, *taken[-1])
            )
        return None

    # --- rows
    def row(self, index: int) -> tuple[int, int] | None:
        """The tensor [rows, ...] that a tensor is one row of, and which."""
        at = self.root(index)
        call = self.calls.get(at)
        if call is None:
            return None
        source = call.inputs[0] if call.inputs else -1
        if call.name == "UNPACK" and not call.options.get("Axis"):
            return source, call.outputs.index(at)
        if call.name == "GATHER" and not call.options.get("Axis") and not call.options.get("BatchDims"):
            place = self.held(call.inputs[1])
            return (source, int(place.reshape(-1)[0])) if place is not None and place.size == 1 else None
        if call.name in ("STRIDED_SLICE", "SLICE") and self.shape(source):
            taken = _range(call, [self.held(i) for i in call.inputs[1:]], self.shape(source))
            if taken is None or not _all_of(taken[1:], self.shape(source)[1:]):
                return None
            return (source, taken[0][0]) if taken[0][1] - taken[0][0] == 1 else None
        return None


def _all_of(taken: Sequence[tuple[int, int]], shape: Sequence[int]) -> bool:
    return all((a, b) == (0, n) for (a, b), n in zip(taken, shape, strict=True))


def _range(
    call: Operator, given: Sequence[Array | None], shape: tuple[int, ...]
) -> list[tuple[int, int]] | None:
    """What a slice of step one takes along each axis."""
    if any(one is None for one in given):
        return None
    rows = [one.reshape(-1).tolist() for one in given if one is not None]
    if len(rows[0]) != len(shape):
        return None
    if call.name == "SLICE":
        ends = [n if s < 0 else b + s for b, s, n in zip(*rows, shape, strict=True)]
        return list(zip(rows[0], ends, strict=True))
    masks = [int(call.options.get(name, 0)) for name in ("BeginMask", "EndMask", "ShrinkAxisMask")]
    if any(call.options.get(name) for name in ("EllipsisMask", "NewAxisMask")) or set(rows[2]) - {1}:
        return None
    found = []
    for d, (begin, end, size) in enumerate(zip(rows[0], rows[1], shape, strict=True)):
        low = 0 if masks[0] >> d & 1 else begin % size if begin < 0 else min(begin, size)
        high = size if masks[1] >> d & 1 else end % size if end < 0 else min(end, size)
        found.append((low, low + 1) if masks[2] >> d & 1 else (low, high))
    return found


FOLDED = (
    *SAME_ELEMENTS,
    "TRANSPOSE",
    "SPLIT",
    "STRIDED_SLICE",
    "SLICE",
    "DEQUANTIZE",
    "FULLY_CONNECTED",
    "BATCH_MATMUL",
    "UNPACK",
)


def folded(call: Operator, given: Sequence[Array], shape: tuple[int, ...], place: int) -> Array:
    """What an operator on constants gives."""
    if call.name in (*SAME_ELEMENTS, "DEQUANTIZE"):
        return given[0].reshape(shape)
    if call.name == "TRANSPOSE":
        return given[0].transpose(given[1].reshape(-1).tolist())
    if call.name == "UNPACK":
        return np.take(given[0], place, axis=call.options.get("Axis", 0))
    if call.name == "SPLIT":
        return np.split(given[1], len(call.outputs), axis=int(given[0].reshape(-1)[0]))[place]
    if call.name in ("FULLY_CONNECTED", "BATCH_MATMUL"):
        one, other = given[0], given[1]
        one = np.swapaxes(one, -1, -2) if call.options.get("AdjX") else one
        turned = call.name == "FULLY_CONNECTED" or call.options.get("AdjY")
        found = one @ (np.swapaxes(other, -1, -2) if turned else other)
        return np.asarray(found + (given[2] if len(given) > 2 else 0.0), np.float32).reshape(shape)
    taken = _range(call, given[1:], given[0].shape) or []
    return given[0][tuple(slice(a, b) for a, b in taken)].reshape(shape)
