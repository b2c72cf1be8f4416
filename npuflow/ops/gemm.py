"""alpha * A * B + beta * C with constant B and C.
B has either orientation; C is one value per column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from npuflow.hw.target import Numerics, Target
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OPS, Algebra, No, OpContext, OpSample, Weights, Yes, first_no, need
from npuflow.ir.space import Axis, DimMap, IterationDomain, Operand
from npuflow.ir.types import Array, TensorType
from npuflow.ir.windows import Taps
from npuflow.ops._draw import draw
from npuflow.ops._grouped import scale_operands, sum_axis
from npuflow.ops._matrix import MatrixOp
from npuflow.ops._requant import channel_params, emit_requant
from npuflow.ops._weighted import WeightedOp, emit_products, moved_bias, scaled_bias
from npuflow.ops._windows import within


@OPS.entry
@dataclass(frozen=True)
class Gemm(MatrixOp, WeightedOp):
    alpha: float = 1.0
    beta: float = 1.0
    transA: int = 0  # noqa: N815 (named as in ONNX)
    transB: int = 0  # noqa: N815

    onnx: ClassVar[str] = "Gemm"
    algebra: ClassVar[Algebra] = "affine"

    def sides(self, a: Sequence[int], b: Sequence[int]) -> tuple[int, int, int]:
        """M, K, N."""
        m, k = (a[1], a[0]) if self.transA else (a[0], a[1])
        return m, k, b[0] if self.transB else b[1]

    # --- float
    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        a, b = types[0], types[1]
        assert a is not None and b is not None
        m, _, n = self.sides(a.shape, b.shape)
        return (TensorType((m, n), a.dtype),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        a, b = inputs[0], inputs[1]
        assert a is not None and b is not None
        wide = np.float64 if a.dtype.kind == "f" else a.dtype
        y = self.alpha * self.products(a.astype(wide), b.astype(wide))
        if len(inputs) > 2 and inputs[2] is not None:
            y = y + self.beta * inputs[2].astype(wide)
        return (y.astype(a.dtype),)

    def products(self, x: Array, weight: Array) -> Array:
        a, b = self.matrices(x, weight)
        return a @ b

    # --- integers
    def channel_axis(self, site: OpContext, index: int) -> int | None:
        return 0 if index == 2 or self.transB else 1

    def group_axis(self, site: OpContext, index: int) -> int | None:
        return (0 if self.transA else 1, 1 if self.transB else 0)[index] if index < 2 else None

    def block_axis(self, site: OpContext, index: int, size: int) -> int | None:
        return self.group_axis(site, index)

    def rows(self, weight: Array) -> Array:
        return weight if self.transB else weight.T

    def gain(self) -> float:
        return self.alpha

    def bias_factor(self) -> float:
        return self.beta

    def input_channels(self) -> int:
        return 0 if self.transA else 1

    def of_scaled(self, weight: Array, bias: Array | None, scale: Array, shift: Array) -> Weights | No:
        if self.transA or self.alpha != 1.0 or self.beta != 1.0:
            return No("the Gemm is transposed or scaled")
        rows = weight.astype(np.float64) if self.transB else weight.astype(np.float64).T
        more, rows = rows @ shift, rows * scale
        return rows if self.transB else rows.T, moved_bias(bias, more, shift)

    def then_scaled(self, weight: Array, bias: Array | None, scale: Array, shift: Array) -> Weights | No:
        wide = weight.astype(np.float64) * (scale.reshape(-1, 1) if self.transB else scale)
        if bias is None:
            return wide, scaled_bias(None, scale, shift)
        spread = bias.astype(np.float64).reshape((1,) * (2 - bias.ndim) + bias.shape)
        if spread.shape[0] != 1:
            return No("the bias differs from row to row")
        return wide, scaled_bias(np.broadcast_to(spread[0], scale.shape) * self.beta, scale, shift)

    def unit_gain(self) -> Self:
        return self.with_(alpha=1.0)

    def unit_bias(self) -> Self:
        return self.with_(beta=1.0)

    def measures(self, site: OpContext) -> Mapping[str, int]:
        return dict(zip("mkn", self.sides(site.shape(0), site.shape(1)), strict=True))

    def places(self, site: OpContext) -> int:
        return self.sides(site.shape(0), site.shape(1))[0]

    def columns(self, shape: tuple[int, ...], at: npt.NDArray[np.int64]) -> Taps:
        if self.transA:
            return Taps(at[:, None], shape[1], shape[0])
        return Taps(at[:, None] * shape[1], 1, shape[1])

    # --- target
    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        c, n = site.shape(2) if site.present(2) else (), site.out_shape[1]
        per_column = not site.present(2) or c in ((), (1,), (n,), (1, 1), (1, n))
        return first_no(
            need(site.consts[1] is not None, "B is not a constant"),
            need(site.consts[0] is None, "A is a constant"),
            need(not site.present(2) or site.consts[2] is not None, "C is not a constant"),
            need(per_column, f"C of shape {c} differs by row"),
            need(
                self.alpha > 0 and (self.beta > 0 or not site.present(2)),
                f"alpha {self.alpha:g}, beta {self.beta:g}",
            ),
            need(site.outputs[0].type.dtype == "float32", f"dtype {site.outputs[0].type.dtype}"),
            need(min((*site.out_shape, *site.shape(0))) > 0, f"an empty tensor {site.out_shape}"),
            within("K", self.sides(site.shape(0), site.shape(1))[1:2], target.limits.matmul_k),
        )

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        m, k, n = self.sides(site.shape(0), site.shape(1))
        a_map, b_map = (DimMap("m"), DimMap("k")), (DimMap("k"), DimMap("n"))
        y_map = (DimMap("m"), DimMap("n"))
        inputs = (
            Operand("a", site.shape(0), a_map[::-1] if self.transA else a_map),
            Operand("b", site.shape(1), b_map[::-1] if self.transB else b_map),
            *((Operand("bias", site.shape(2), (DimMap("n"),)),) if site.present(2) else ()),
        )
        y = Operand("y", site.out_shape, y_map)
        return IterationDomain(
            (Axis("m", m), Axis("n", n), sum_axis(site, "k", k)), inputs, (y,),
            (*channel_params(site, "n"), *scale_operands(site, "k", "n")), macs=1, ops=1,
            accumulator=Operand("acc", site.out_shape, y_map),
        )

    @property
    def turned(self) -> bool:
        return bool(self.transB)

    def matrices(self, a: Array, b: Array) -> tuple[Array, Array]:
        return a.T if self.transA else a, b.T if self.transB else b

    def commands(self, site: OpContext, tile: TileView) -> Iterator[dict[str, object]]:
        a, acc = tile.input(0), tile.acc
        b = tile.params["blocks"] if "blocks" in site.params else tile.input(1)
        assert acc is not None
        m, n = tile.outputs[0].extent
        k0, k1 = tile.ranges["k"]
        yield {
            "a": a.address,
            "a_type": a.dtype,
            "a_strides": (0, *(a.strides[::-1] if self.transA else a.strides)),
            "b": b.address,
            "b_type": b.dtype,
            "b_strides": (0, *(b.strides[::-1] if self.transB else b.strides)),
            "acc": acc.address,
            "acc_type": acc.dtype,
            "batch": 1,
            "m": m,
            "k": k1 - k0,
            "n": n,
            "accumulate": int(not tile.first("k")),
        }

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        emit_products(self, site, tile, em)
        if tile.last("k"):
            emit_requant(site, tile, em, 1, bias=2)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        yield OpSample(cls(transB=1), (draw(rng, 1, 20), draw(rng, 7, 20), draw(rng, 7)), (1, 2))
        yield OpSample(cls(clip=(0.0, 2.0)), (draw(rng, 5, 9), draw(rng, 9, 6)), (1,))
        yield OpSample(cls(clip=((-1.0, -2.0, 0.0), 2.0)), (draw(rng, 5, 9), draw(rng, 9, 3)), (1,))
        yield OpSample(
            cls(alpha=0.5, beta=2.0, transA=1), (draw(rng, 9, 4), draw(rng, 9, 6), draw(rng, 1, 6)), (1, 2)
        )
        yield OpSample(cls(transB=1), (draw(rng, 2, 8), draw(rng, 3, 8), draw(rng, 1)), (1, 2))
