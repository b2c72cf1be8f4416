"""Images at another size: nearest or linear, every ONNX coordinate mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from npuflow.hw.numerics import shift_round
from npuflow.hw.target import Numerics, Target
from npuflow.ir.forms import FORMS
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OPS, Algebra, Imported, No, OnnxCall, Op, OpContext, OpSample, Yes, first_no, need
from npuflow.ir.space import Axis, DimMap, IterationDomain, Operand
from npuflow.ir.types import Array, IntArray, TensorType
from npuflow.ops._reshaping import static_input
from npuflow.ops._sampling import COORDINATES, ROUNDINGS, WEIGHT_BITS, Sampling, exact, table


@OPS.entry
@dataclass(frozen=True)
class Resize(Op):
    """`scales` and `sizes` are of the whole tensor; the mode's own rounding is `nearest_mode`."""

    sizes: tuple[int, ...] = ()
    scales: tuple[float, ...] = ()
    mode: str = "nearest"
    coordinate_transformation_mode: str = "half_pixel"
    nearest_mode: str = "round_prefer_floor"
    onnx: ClassVar[str] = "Resize"
    algebra: ClassVar[Algebra] = "resampling"
    shares_scale: ClassVar[bool] = True

    def forms(self) -> Mapping[str, Any]:
        return {"float": FORMS["float_resize"]}

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        x, attributes = static_input(call), call.attributes
        if isinstance(x, No):
            return x
        mode = attributes.get("mode", "nearest")
        coordinate = attributes.get("coordinate_transformation_mode", "half_pixel")
        if call.version < 11:
            coordinate = "asymmetric"
        rounding = attributes.get("nearest_mode", "round_prefer_floor") if call.version >= 11 else "floor"
        if mode not in ("nearest", "linear"):
            return No(f"mode {mode}")
        if coordinate not in COORDINATES or rounding not in ROUNDINGS:
            return No(f"coordinates {coordinate}, rounding {rounding}")
        if attributes.get("antialias", 0) or attributes.get("exclude_outside", 0):
            return No("antialias or exclude_outside")
        if attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
            return No(f"keep_aspect_ratio_policy {attributes['keep_aspect_ratio_policy']}")
        given = (*call.consts, None, None, None)
        scales = given[1] if call.version < 11 else given[2]
        sizes = given[3] if call.version >= 11 else None
        axes = [int(a) % len(x.shape) for a in attributes.get("axes", range(len(x.shape)))]
        full_scales, full_sizes = [1.0] * len(x.shape), list(x.shape)
        if sizes is not None and sizes.size:
            for a, size in zip(axes, sizes.reshape(-1).tolist(), strict=True):
                full_sizes[a], full_scales[a] = int(size), float(np.float32(size) / np.float32(x.shape[a]))
        elif scales is not None and scales.size:
            for a, scale in zip(axes, scales.reshape(-1).astype(np.float32).tolist(), strict=True):
                full_sizes[a], full_scales[a] = (
                    int(np.floor(np.float32(x.shape[a]) * np.float32(scale))),
                    scale,
                )
        else:
            return No("neither scales nor sizes is a constant")
        return Imported(cls(tuple(full_sizes), tuple(full_scales), mode, coordinate, rounding), (0,))

    def to_onnx(self, site: OpContext) -> OnnxCall:
        attributes = {
            "mode": self.mode,
            "coordinate_transformation_mode": self.coordinate_transformation_mode,
        }
        if self.mode == "nearest":
            attributes["nearest_mode"] = self.nearest_mode
        # a product just below a whole number is that number in float32 and cut in float64: runtimes differ
        pairs = list(zip(site.shape(0), np.array(self.scales, np.float32), strict=True))
        kinds = np.float32, np.float64
        if {tuple(int(np.floor(kind(d) * kind(s))) for d, s in pairs) for kind in kinds} == {self.sizes}:
            return OnnxCall("Resize", attributes, inputs=(0, None, np.array(self.scales, np.float32)))
        return OnnxCall("Resize", attributes, inputs=(0, None, None, np.array(self.sizes, np.int64)))

    def with_results(self, types: Sequence[TensorType]) -> Resize:
        return replace(self, sizes=types[0].shape)

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        assert types[0] is not None
        return (TensorType(self.sizes, types[0].dtype),)

    def _sampling(self, shape: tuple[int, ...], axis: int) -> Sampling:
        nearest = self.nearest_mode if self.mode == "nearest" else None
        return Sampling(
            shape[axis], self.sizes[axis], self.scales[axis], self.coordinate_transformation_mode, nearest
        )

    def _changed(self, shape: tuple[int, ...]) -> list[int]:
        return [
            i
            for i, (d, s, k) in enumerate(zip(shape, self.sizes, self.scales, strict=True))
            if d != s or k != 1.0
        ]

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        for axis in self._changed(x.shape):
            i0, i1, w = exact(self._sampling(x.shape, axis))
            a, b = np.take(x, i0, axis), np.take(x, i1, axis)
            weight = w.reshape([-1 if d == axis else 1 for d in range(x.ndim)])
            x = a if self.mode == "nearest" else (a * (1 - weight) + b * weight).astype(x.dtype)
        return (x,)

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        shape = site.shape(0)
        return {"rows": table(self._sampling(shape, 2)), "columns": table(self._sampling(shape, 3))}

    def weight_bits(self) -> int:
        """Of the weights of one axis."""
        return 0 if self.mode == "nearest" else WEIGHT_BITS

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        assert inputs[0] is not None
        q = site.out_quant
        x = inputs[0].astype(np.int64) - site.quant(0).zero_point[0]
        rows, columns = site.array("rows").astype(np.int64), site.array("columns").astype(np.int64)
        x = x[:, :, rows[:, 0]] * rows[:, 2, None] + x[:, :, rows[:, 1]] * rows[:, 3, None]
        x = x[..., columns[:, 0]] * columns[:, 2] + x[..., columns[:, 1]] * columns[:, 3]
        y = shift_round(x, 2 * self.weight_bits(), numerics.rounding) + q.zero_point[0]
        return (np.clip(y, q.lo, q.hi).astype(q.dtype),)

    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        shape = site.shape(0)
        changed = self._changed(shape)
        return first_no(
            need(len(shape) == 4, f"rank {len(shape)}, not 4"),
            need(all(a >= 2 for a in changed), "it resizes the batch or channel dimension"),
            need(site.consts[0] is None, "its input is a constant"),
            need(all(site.out_shape) and all(shape), "an empty tensor"),
            need(site.outputs[0].type.dtype == "float32", f"dtype {site.outputs[0].type.dtype}"),
        )

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        shape, out = site.shape(0), site.out_shape
        axes = tuple(Axis(name, size) for name, size in zip(("n", "c", "oh", "ow"), out, strict=True))
        spatial = tuple(
            _cover(name, self._sampling(shape, axis)) for name, axis in (("oh", 2), ("ow", 3))
        )
        x = Operand("x", shape, (DimMap("n"), DimMap("c"), *spatial))
        y = Operand("y", out, tuple(DimMap(a.name) for a in axes))
        params = (
            Operand("rows", (out[2], 4), (DimMap("oh"), DimMap())),
            Operand("columns", (out[3], 4), (DimMap("ow"), DimMap())),
        )
        return IterationDomain(axes, (x,), (y,), params, ops=4)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        x, y, q = tile.input(0), tile.outputs[0], site.out_quant
        height, width = y.extent[2:]
        em.emit("RESIZE", **x.as4("x"), x_dims=x.extent, x_zero=site.quant(0).zero_point[0], **y.as4("y"),
                out_height=height, out_width=width, rows=tile.params["rows"].address,
                columns=tile.params["columns"].address,
                origin=(-x.box[2][0], -x.box[3][0]), weight_bits=self.weight_bits(), multiplier=1, shift=0,
                zero=q.zero_point[0], lo=q.lo, hi=q.hi, rounding=em.numerics.rounding)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        x = rng.normal(size=(1, 2, 5, 4)).astype(np.float32)
        yield OpSample(cls((1, 2, 10, 8), (1.0, 1.0, 2.0, 2.0), "nearest", "asymmetric", "floor"), (x,))
        yield OpSample(cls((1, 2, 10, 8), (1.0, 1.0, 2.0, 2.0), "linear", "half_pixel"), (x,))
        yield OpSample(cls((1, 2, 3, 9), (1.0, 1.0, 0.6, 2.25), "linear", "align_corners"), (x,))


def _cover(axis: str, s: Sampling) -> DimMap:
    """An affine map whose window holds every row the table names, as tight as a constant margin allows."""
    t = table(s).astype(np.int64)
    base = (np.arange(s.out) * s.size) // s.out
    low = int((np.minimum(t[:, 0], t[:, 1]) - base).min())
    high = int((np.maximum(t[:, 0], t[:, 1]) - base).max())
    return DimMap(axis, s.size, s.out, low, high)
