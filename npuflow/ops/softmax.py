"""exp(x) / sum(exp(x)) along an axis, with integer tables for exp and one integer division."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from npuflow.hw.elements import wide
from npuflow.hw.target import Numerics, Target
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import Emitter, TileView, blocks3
from npuflow.ir.op import OPS, Algebra, Imported, No, OnnxCall, Op, OpContext, OpSample, Yes, first_no, need
from npuflow.ir.space import Axis, DimMap, IterationDomain, Operand, whole
from npuflow.ir.types import Array, IntArray, TensorType

LOW_BITS = 8          # 16-bit inputs: exp(-s * d) = low[d mod 256] * high[d // 256]
LOW_ONE, HIGH_ONE = 1 << 15, 1 << 31


@OPS.entry
@dataclass(frozen=True)
class Softmax(Op):
    axis: int = -1
    onnx: ClassVar[str] = "Softmax"
    algebra: ClassVar[Algebra] = "shares"
    bounded: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    answers: ClassVar[Literal["", "argmax", "threshold"]] = "argmax"
    whole_steps: ClassVar[bool] = True

    def forms(self) -> Mapping[str, Any]:
        return {"float": FORMS["float_softmax"]}

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        x = call.types[0]
        if x is None:
            return No("the input's rank is unknown")
        rank = len(x.shape)
        axis = int(call.attributes.get("axis", -1 if call.version >= 13 else 1)) % max(rank, 1)
        if call.version < 13 and any(d != 1 for d in x.shape[axis + 1 :]):
            return No(f"opset {call.version} Softmax over several dimensions")
        return Imported(cls(axis), (0,))

    def answer_axis(self, rank: int) -> int:
        return self.axis

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        assert types[0] is not None
        return (types[0],)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        assert inputs[0] is not None
        x = inputs[0].astype(np.float64)
        e = np.exp(x - x.max(self.axis, keepdims=True))
        return ((e / e.sum(self.axis, keepdims=True)).astype(inputs[0].dtype),)

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        x, y = site.quant(0), site.out_quant
        params: dict[str, int | Array] = {"multiplier": int(np.rint(1.0 / y.scale[0]))}
        scale = x.scale[0]
        if not wide(x.bits):
            params["low"] = np.rint(HIGH_ONE * np.exp(-scale * np.arange(256.0))).astype(np.uint32)
        else:
            low = np.arange(float(1 << LOW_BITS))
            high = np.arange(float(1 << (x.bits - LOW_BITS)))
            params["low"] = np.rint(LOW_ONE * np.exp(-scale * low)).astype(np.uint32)
            params["high"] = np.rint(HIGH_ONE * np.exp(-scale * high * (1 << LOW_BITS))).astype(np.uint32)
        return params

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        assert inputs[0] is not None
        x, q = inputs[0].astype(np.int64), site.out_quant
        d = x.max(self.axis, keepdims=True) - x
        low = site.array("low").astype(np.int64)
        if "high" in site.params:
            high = site.array("high").astype(np.int64)
            e = (low[d & ((1 << LOW_BITS) - 1)] * high[d >> LOW_BITS]) >> 15
        else:
            e = low[d]
        total = e.sum(self.axis, keepdims=True)
        y = (2 * e * site.param("multiplier") + total) // (2 * total) + q.zero_point[0]
        return (np.clip(y, q.lo, q.hi).astype(q.dtype),)

    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        size = site.shape(0)[self.axis] if site.shape(0) else 1
        return first_no(
            need(len(site.out_shape) <= 4, f"rank {len(site.out_shape)} > 4"),
            need(site.consts[0] is None, "its input is a constant"),
            need(0 < size < 1 << 20, f"{size} elements along the axis"),
            need(site.outputs[0].type.dtype == "float32", f"dtype {site.outputs[0].type.dtype}"),
        )

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        shape = site.out_shape
        axis = self.axis % len(shape)
        axes = tuple(Axis(f"d{i}", d, "whole" if i == axis else "par") for i, d in enumerate(shape))
        maps = tuple(DimMap(a.name) for a in axes)
        tables = tuple(
            whole(name, tuple(site.array(name).shape)) for name in ("low", "high") if name in site.params
        )
        x, y = (Operand(name, shape, maps) for name in "xy")
        return IterationDomain(axes, (x,), (y,), tables, ops=4)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        axis, q = self.axis % len(site.out_shape), site.out_quant
        high = {"high": tile.params["high"].address} if "high" in tile.params else {}
        for source, target in blocks3(axis, tile.input(0), tile.outputs[0]):
            x, dims = source.as3("x", axis, axis + 1)
            y, _ = target.as3("y", axis, axis + 1)
            em.emit("SOFTMAX", **x, **y, dims=dims, low=tile.params["low"].address, **high, low_bits=LOW_BITS,
                    entries=site.array("high" if high else "low").size,
                    multiplier=site.param("multiplier"), zero=q.zero_point[0], lo=q.lo, hi=q.hi)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        yield OpSample(cls(-1), (rng.normal(size=(2, 10)).astype(np.float32) * 3,))
        yield OpSample(cls(1), (rng.normal(size=(1, 6, 4, 3)).astype(np.float32) * 3,))
