"""What the pooling operators share: attributes, placement, iteration space, command operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npuflow.hw.target import Target
from npuflow.ir.graph import Site
from npuflow.ir.op import Imported, No, OnnxCall, Op, TileView, Yes, first_no, need
from npuflow.ir.space import Axis, DimMap, Operand, Space
from npuflow.ir.types import TensorType
from npuflow.ir.windows import Window, image, out_hw, pair, spatial_names, windows, within

SETTINGS = ("kernel_shape", "strides", "dilations", "pads", "auto_pad", "ceil_mode")


def pool_fields(op: Op) -> dict[str, Any]:
    """The operator's attributes as arguments of `windows`."""
    given = {name: getattr(op, name) for name in SETTINGS}
    given["kernel"] = given.pop("kernel_shape")
    given["ceil_mode"] = bool(given["ceil_mode"])
    return given


def pool_from_onnx(kind: type[Op], call: OnnxCall, extra: Sequence[str] = ()) -> Imported | No:
    """The pooling operator with every default filled in, and SAME/VALID turned into pads where the size is known."""
    a = call.attributes
    kernel = tuple(a["kernel_shape"])
    rank, x = len(kernel), call.types[0]
    strides, dilations = tuple(a.get("strides") or (1,) * rank), tuple(a.get("dilations") or (1,) * rank)
    pads, auto_pad = tuple(a.get("pads") or (0,) * (2 * rank)), a.get("auto_pad", "NOTSET")
    ceil_mode = int(a.get("ceil_mode", 0))
    if auto_pad != "NOTSET" and x is not None and -1 not in x.shape[2:]:
        spec = windows(x.shape[2:], kernel, strides, dilations, (), auto_pad)
        pads, auto_pad = (*(w.before for w in spec), *(w.after for w in spec)), "NOTSET"
        # VALID and SAME fix the output size without regard to ceil_mode, except that VALID rounds up with it.
        ceil_mode = ceil_mode if a["auto_pad"] == "VALID" else 0
    more = {name: int(a.get(name, 0)) for name in extra}
    return Imported(kind(kernel, strides, dilations, pads, auto_pad, ceil_mode, **more), (0,))  # type: ignore[call-arg]


def pool_to_onnx(op: Op, kind: str, extra: Sequence[str] = ()) -> OnnxCall:
    attributes: Mapping[str, Any] = {name: getattr(op, name) for name in (*SETTINGS, *extra)}
    if attributes["auto_pad"] != "NOTSET":
        attributes = {k: v for k, v in attributes.items() if k != "pads"}
    return OnnxCall(kind, attributes)


def pool_type(op: Op, x: TensorType | None) -> TensorType:
    assert x is not None
    return TensorType((*x.shape[:2], *(w.out for w in windows(x.shape[2:], **pool_fields(op)))), x.dtype)


def pool_accepts(op: Op, site: Site, target: Target) -> Yes | No:
    a, limits = pool_fields(op), target.limits
    rank = len(a["kernel"])
    return first_no(
        need(rank <= 2, f"a {rank}-dimensional window"),
        need(len(site.outputs) == 1, "its indices are used"),
        need(site.consts[0] is None, "its input is a constant"),
        need(site.outputs[0].type.dtype == "float32", f"dtype {site.outputs[0].type.dtype}"),
        need(min(site.out_shape) > 0, f"an empty tensor {site.out_shape}"),
        need(not any(_misses(w) for w in windows(site.shape(0)[2:], **a)), "a window that lies in the padding alone"),
        within("window", a["kernel"], limits.pool_kernel),
        within("stride", a["strides"], limits.stride),
        within("dilation", a["dilations"], limits.dilation),
        within("pad", a["pads"], limits.pad),
        within("channels", site.out_shape[1:2], limits.channels),
    )


def _misses(w: Window) -> bool:
    """Whether some window touches no element of the input."""
    rows = [[o * w.stride - w.before + i * w.dilation for i in range(w.kernel)] for o in range(w.out)]
    return any(not any(0 <= row < w.size for row in taps) for taps in rows)


def pool_space(site: Site, spec: Sequence[Window], params: tuple[Operand, ...] = ()) -> Space:
    x, y, names = site.shape(0), site.out_shape, spatial_names(len(spec))
    axes = (Axis("n", y[0]), Axis("c", y[1]), *(Axis(n, w.out) for n, w in zip(names, spec, strict=True)))
    lead = (DimMap("n"), DimMap("c"))
    x_maps = (*lead, *(w.dim_map(n) for n, w in zip(names, spec, strict=True)))
    y_maps = (*lead, *(DimMap(n) for n in names))
    area = 1
    for w in spec:
        area *= w.kernel
    return Space(axes, (Operand("x", x, x_maps),), (Operand("y", y, y_maps),), params, ops=area)


def pool_operands(site: Site, tile: TileView, spec: Sequence[Window]) -> dict[str, object]:
    """x, y, window and origin fields of MAXPOOL and AVGPOOL."""
    x, y, names = tile.input(0), tile.outputs[0], spatial_names(len(spec))
    starts = [tile.ranges[n][0] for n in names]
    origin = [a * w.stride - w.before - box[0] for a, w, box in zip(starts, spec, x.box[2:], strict=True)]
    height, width = out_hw(y)
    result = image(y, "y")
    del result["y_dims"]
    return {
        **image(x, "x"), **result, "out_height": height, "out_width": width, "kernel": pair([w.kernel for w in spec], 1),
        "stride": pair([w.stride for w in spec], 1), "dilation": pair([w.dilation for w in spec], 1), "origin": pair(origin, 0),
    }
