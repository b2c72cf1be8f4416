"""What the pooling operators share: attributes, placement, iteration space, command operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from npuflow.hw.target import Target
from npuflow.ir.lowering import TileView
from npuflow.ir.op import Imported, No, OnnxCall, Op, OpContext, Yes, first_no, need
from npuflow.ir.space import Axis, DimMap, IterationDomain, Operand
from npuflow.ir.types import TensorType
from npuflow.ir.windows import Window, tap_places, windows
from npuflow.ops._windows import framed, out_hw, pair, spatial_names, window_measures, within

SETTINGS = ("kernel_shape", "strides", "dilations", "pads", "auto_pad", "ceil_mode")


@dataclass(frozen=True)
class PoolOp(Op):
    """Base of the pooling operators with a sliding window; further attributes of a subclass are integers."""

    kernel_shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    auto_pad: str = "NOTSET"
    ceil_mode: int = 0

    fuses_clip: ClassVar[bool] = True

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        """Every default filled in, and SAME/VALID turned into pads where the size is known."""
        a = call.attributes
        kernel = tuple(a["kernel_shape"])
        rank, x = len(kernel), call.types[0]
        strides, dilations = tuple(a.get("strides") or (1,) * rank), tuple(a.get("dilations") or (1,) * rank)
        pads, auto_pad = tuple(a.get("pads") or (0,) * (2 * rank)), a.get("auto_pad", "NOTSET")
        ceil_mode = int(a.get("ceil_mode", 0))
        if auto_pad != "NOTSET" and x is not None and -1 not in x.shape[2:]:
            spec = windows(x.shape[2:], kernel, strides, dilations, (), auto_pad)
            pads, auto_pad = (*(w.before for w in spec), *(w.after for w in spec)), "NOTSET"
            # VALID and SAME fix the output size without regard to ceil_mode, except
            # that VALID rounds up with it.
            ceil_mode = ceil_mode if a["auto_pad"] == "VALID" else 0
        own = (f.name for f in fields(cls) if not f.kw_only)
        more = {name: int(a.get(name, 0)) for name in own if name not in SETTINGS}
        op = cls(kernel, strides, dilations, pads, auto_pad, ceil_mode, **more)  # type: ignore[arg-type]
        return Imported(op, (0,))

    def to_onnx(self, site: OpContext) -> OnnxCall:
        call = super().to_onnx(site)
        attributes: Mapping[str, Any] = call.attributes
        if all(d == 1 for d in self.dilations):  # onnxruntime fuses Q/DQ around a pool and then knows no such
            attributes = {k: v for k, v in attributes.items() if k != "dilations"}
        if self.auto_pad != "NOTSET":
            attributes = {k: v for k, v in attributes.items() if k != "pads"}
        return OnnxCall(call.op_type, attributes)

    def windows(self, spatial: Sequence[int]) -> tuple[Window, ...]:
        return windows(
            spatial,
            self.kernel_shape,
            self.strides,
            self.dilations,
            self.pads,
            self.auto_pad,
            bool(self.ceil_mode),
        )

    def border(self, site: OpContext) -> tuple[tuple[int, ...], float] | No:
        return No("windows that leave the image are counted apart")

    def framed(self, axis: int, before: int, behind: int) -> Self | None:
        pads = framed(self.pads, axis, before, behind) if self.auto_pad == "NOTSET" else None
        return None if pads is None else self.with_(pads=pads)

    def measures(self, site: OpContext) -> Mapping[str, int]:
        spec = self.windows(site.shape(0)[2:])
        pads = (*(w.before for w in spec), *(w.after for w in spec))
        return window_measures(self.kernel_shape, self.strides, self.dilations, pads, site.shape(0))

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = types[0]
        assert x is not None
        return (TensorType((*x.shape[:2], *(w.out for w in self.windows(x.shape[2:]))), x.dtype),)

    def tap_places(self, site: OpContext, places: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        return tap_places(self.windows(site.shape(0)[2:]), places)

    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        limits, rank = target.limits, len(self.kernel_shape)
        return first_no(
            need(rank <= 2, f"a {rank}-dimensional window"),
            need(len(site.outputs) == 1, "its indices are used"),
            need(site.consts[0] is None, "its input is a constant"),
            need(site.outputs[0].type.dtype == "float32", f"dtype {site.outputs[0].type.dtype}"),
            need(min(site.out_shape) > 0, f"an empty tensor {site.out_shape}"),
            need(
                not any(_misses(w) for w in self.windows(site.shape(0)[2:])),
                "a window entirely in the padding",
            ),
            within("window", self.kernel_shape, limits.pool_kernel),
            within("stride", self.strides, limits.stride),
            within("dilation", self.dilations, limits.dilation),
            within("pad", self.pads, limits.pad),
            within("channels", site.out_shape[1:2], limits.channels),
        )


def _misses(w: Window) -> bool:
    """Whether some window touches no element of the input."""
    rows = [[o * w.stride - w.before + i * w.dilation for i in range(w.kernel)] for o in range(w.out)]
    return any(not any(0 <= row < w.size for row in taps) for taps in rows)


def pool_space(site: OpContext, spec: Sequence[Window], params: tuple[Operand, ...] = ()) -> IterationDomain:
    x, y, names = site.shape(0), site.out_shape, spatial_names(len(spec))
    axes = (Axis("n", y[0]), Axis("c", y[1]), *(Axis(n, w.out) for n, w in zip(names, spec, strict=True)))
    lead = (DimMap("n"), DimMap("c"))
    x_maps = (*lead, *(w.dim_map(n) for n, w in zip(names, spec, strict=True)))
    y_maps = (*lead, *(DimMap(n) for n in names))
    area = 1
    for w in spec:
        area *= w.kernel
    return IterationDomain(axes, (Operand("x", x, x_maps),), (Operand("y", y, y_maps),), params, ops=area)


def pool_operands(site: OpContext, tile: TileView, spec: Sequence[Window]) -> dict[str, object]:
    """x, y, window and origin fields of MAXPOOL and AVGPOOL."""
    x, y, names = tile.input(0), tile.outputs[0], spatial_names(len(spec))
    starts = [tile.ranges[n][0] for n in names]
    origin = [a * w.stride - w.before - box[0] for a, w, box in zip(starts, spec, x.box[2:], strict=True)]
    height, width = out_hw(y)
    result = y.image("y")
    del result["y_dims"]
    return {
        **x.image("x"),
        **result,
        "out_height": height,
        "out_width": width,
        "kernel": pair([w.kernel for w in spec], 1),
        "stride": pair([w.stride for w in spec], 1),
        "dilation": pair([w.dilation for w in spec], 1),
        "origin": pair(origin, 0),
    }
