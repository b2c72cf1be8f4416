"""Operators that only move data: strided copies between dense tensors, on one common scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from npuflow.hw.elements import ELEMENTS
from npuflow.hw.target import Numerics, Target
from npuflow.ir.codes import encode
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import Buffer, Emitter
from npuflow.ir.moves import Move, dense, merged
from npuflow.ir.op import No, Op, OpContext, Yes, first_no, need
from npuflow.ir.space import Axis, DimMap, IterationDomain, Operand
from npuflow.ir.types import Array, IntArray, Span, TensorType

Piece = tuple[int, int, int, int]     # count, first source index, source step, first destination index
MAX_DIMS = 6


def pieces_to_moves(
    pieces: Sequence[Sequence[Piece]], source_shape: Sequence[int], out_shape: Sequence[int]
) -> list[Move]:
    """Every combination of one piece per dimension, as moves of input 0."""
    src, dst = dense(source_shape), dense(out_shape)
    moves = []
    for combination in product(*pieces):
        if any(c[0] <= 0 for c in combination):
            continue
        moves.append(merged(Move(
            0,
            tuple(c[0] for c in combination),
            tuple(c[2] * s for c, s in zip(combination, src, strict=True)),
            tuple(dst),
            sum(c[1] * s for c, s in zip(combination, src, strict=True)),
            sum(c[3] * d for c, d in zip(combination, dst, strict=True)),
        )))
    return moves


def copy_space(
    site: OpContext, maps: Sequence[DimMap], multiples: Mapping[int, int] = MappingProxyType({})
) -> IterationDomain | None:
    """The space of a mover that one command copies in local memory: an axis "d0", "d1"... for every dimension
    of its output, `maps` of its input; tiles split a dimension on its multiple. None: it has not one
    activation."""
    shape, out = site.shape(0), site.out_shape
    if site.consts[0] is not None or len(site.inputs) != 1 or not prod(out) or len(out) > MAX_DIMS:
        return None
    axes = [Axis(f"d{d}", size, multiple=multiples.get(d, 1)) for d, size in enumerate(out)]
    y = Operand("y", out, tuple(DimMap(a.name) for a in axes))
    return IterationDomain(tuple(axes), (Operand("x", shape, tuple(maps)),), (y,), ops=1, copies=True)


def emit_copy(
    em: Emitter, y: Buffer, source: int, dims: Sequence[int], steps: Sequence[int], to: Sequence[int]
) -> None:
    """COPY from an address of local memory into a buffer, over at most six dimensions."""
    pad = (0,) * (MAX_DIMS - len(dims))
    em.emit(
        "COPY",
        x=source,
        y=y.address,
        element=ELEMENTS[y.dtype].bytes,
        dims=(*(1 for _ in pad), *dims),
        x_strides=(*pad, *steps),
        y_strides=(*pad, *to),
    )


@dataclass(frozen=True)
class DataLayoutOp(Op):
    """Base of the movers: integers go through as they are, so `integer` is `reference` on integer arrays."""

    moves_data: ClassVar[bool] = True
    shares_scale: ClassVar[bool] = True

    def forms(self) -> Mapping[str, Any]:
        return {"float": FORMS["float_move"]}

    def whole_result(self, site: OpContext, spans: Sequence[Span | None], output: int) -> Span | None:
        known = [s for s in spans if s is not None]
        return (min(s[0] for s in known), max(s[1] for s in known)) if len(known) == len(spans) else None

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        return {}

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        return tuple(np.asarray(o, order="C") for o in self.reference(*inputs))

    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        moves = self.moves(site) or ()
        widest = max((len(m.dims) for m in moves), default=0)
        return first_no(
            need(site.consts[0] is None, "its input is a constant"),
            need(all(o.type.dtype == "float32" for o in site.outputs), f"dtype {site.outputs[0].type.dtype}"),
            need(widest <= MAX_DIMS, f"a copy over {widest} dimensions, more than {MAX_DIMS}"),
            need(all(o.type.size > 0 for o in site.outputs), "an empty tensor"),
        )


@dataclass(frozen=True)
class BlockOp(DataLayoutOp):
    """Base of the operators that exchange blocks of pixels and channels: a view of
    six dimensions, permuted."""

    blocksize: int = 2

    def view(self, shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The input's shape as six dimensions, and their order in the output."""
        raise NotImplementedError

    def result(self, shape: Sequence[int]) -> tuple[int, ...]:
        raise NotImplementedError

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        assert types[0] is not None
        return (TensorType(self.result(types[0].shape), types[0].dtype),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        shape, order = self.view(x.shape)
        return (np.ascontiguousarray(x.reshape(shape).transpose(order)).reshape(self.result(x.shape)),)

    def moves(self, site: OpContext) -> tuple[Move, ...]:
        shape, order = self.view(site.shape(0))
        source, dims = dense(shape), tuple(shape[p] for p in order)
        return (merged(Move(0, dims, tuple(source[p] for p in order), dense(dims))),)


def fill_code(site: OpContext, value: float) -> int:
    """The integer that stands for a real value at the node's output."""
    return int(encode(value, site.out_quant))
