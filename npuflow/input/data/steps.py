"""Preprocessing steps: pixel geometry is done once and stored as bytes, point-wise
arithmetic when a tensor is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

import numpy as np

from npuflow.base.errors import DataError
from npuflow.base.tables import Config, Fault
from npuflow.ir.types import Array

GEOMETRY = ("transpose", "resize", "center_crop", "pad")
Size = tuple[int, int]
Alpha = Literal["drop", "black", "white"]      # what is done about transparency


@dataclass(frozen=True)
class Normalize(Config):
    """(x * scale - mean) / std; mean and std have one number or one per channel."""

    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    # of the channels; absent: the last or the third from the end, whichever fits
    axis: int | None = None

    def check(self) -> Iterable[Fault]:
        if any(s == 0 for s in self.std):
            yield Fault("std", "a standard deviation of 0 divides by zero", code="NF-RECIPE-016")
        if (
            not self.mean
            or not self.std
            or (min(len(self.mean), len(self.std)) > 1 and len(self.mean) != len(self.std))
        ):
            what = f"{len(self.mean)} numbers for mean and {len(self.std)} for std"
            yield Fault("std", what, hint="one number, or one per channel in both", code="NF-RECIPE-017")

    def plain(self) -> dict[str, Any]:
        """JSON-able."""
        found: dict[str, Any] = {"scale": self.scale, "mean": self.mean, "std": self.std}
        return found if self.axis is None else {**found, "axis": self.axis}


@dataclass(frozen=True)
class DataStep(Config):
    """One step; exactly one of its operations is given, with the settings that belong to it."""

    input: str = ""                       # the model input it is for; empty: every one
    transpose: tuple[int, ...] | None = None
    """The axes of a stored array in their new order, [1, 2, 0] from CHW to HWC; pictures are HWC and left
    alone.
    """
    resize: Size | None = None            # height, width
    method: Literal["nearest", "bilinear", "bicubic", "area", "lanczos"] = "bilinear"
    # short: cover the size; letterbox: fit into it and fill
    keep_ratio: Literal["no", "short", "letterbox"] = "no"
    align: Literal["center", "corner"] = "center"            # where a letterboxed picture is placed
    fill: float = 0.0
    center_crop: Size | None = None       # height, width; filled where the picture is smaller
    pad: tuple[int, int, int, int] | None = None             # top, left, bottom, right
    channels: Literal["rgb", "bgr", "grey"] | None = None    # of a picture, which is read as RGB
    normalize: Normalize | None = None
    layout: Literal["nchw", "nhwc"] | None = None            # of a picture; without this step nchw at the end
    dtype: Annotated[str, "numpy name"] | None = None

    def check(self) -> Iterable[Fault]:
        given = self.operations()
        if len(given) != 1:
            because = f"given: {', '.join(given)}" if given else "none is given"
            yield Fault(
                "", "a step is exactly one operation", because, f"one of {', '.join(OPERATIONS)}",
                code="NF-RECIPE-018",
            )
        if self.transpose is not None and sorted(self.transpose) != list(range(len(self.transpose))):
            because = f"{list(self.transpose)} does not name every axis from 0 on once"
            hint = "[1, 2, 0] makes [C, H, W] into [H, W, C]"
            yield Fault("transpose", "this is not an order of the axes", because, hint, code="NF-RECIPE-019")
        if any(d < 1 for d in (self.resize or ()) + (self.center_crop or ())):
            yield Fault(
                "resize" if self.resize else "center_crop",
                "a size must be at least 1 x 1", code="NF-RECIPE-020",
            )
        if any(d < 0 for d in self.pad or ()):
            yield Fault("pad", "pads must not be negative", hint="center_crop cuts", code="NF-RECIPE-021")
        if self.dtype is not None and not _is_dtype(self.dtype):
            yield Fault(
                "dtype", f'"{self.dtype}" is not a numpy type', hint="float32, float16, int64, uint8, ...",
                code="NF-RECIPE-022",
            )

    def operations(self) -> tuple[str, ...]:
        return tuple(name for name in OPERATIONS if getattr(self, name) is not None)

    def plain(self) -> dict[str, Any]:
        """JSON-able: only what differs from the defaults."""
        found: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Normalize):
                found[field.name] = value.plain()
            elif value != field.default:
                found[field.name] = value
        return found


OPERATIONS = ("transpose", "resize", "center_crop", "pad", "channels", "normalize", "layout", "dtype")
Plain = Mapping[str, Any]                 # a step as `DataStep.plain` gives it


def _is_dtype(name: str) -> bool:
    try:
        return np.dtype(name).kind in "fiub"
    except TypeError:
        return False


def split(steps: Sequence[Plain]) -> tuple[list[Plain], list[Plain]]:
    """The leading geometric steps, and the rest (a resize after a normalisation
    stays where the recipe has it)."""
    at = next((i for i, step in enumerate(steps) if not any(name in step for name in GEOMETRY)), len(steps))
    return list(steps[:at]), list(steps[at:])


def of_picture(steps: Iterable[Plain]) -> list[Plain]:
    """The steps that a decoded picture takes: its axes are [H, W, C] already, however arrays are stored."""
    return [step for step in steps if "transpose" not in step]


def applied(array: Array, steps: Sequence[Plain], input_name: str = "") -> Array:
    """The array after the steps that concern this input."""
    for step in steps:
        if step.get("input", "") in ("", input_name):
            name = next(n for n in OPERATIONS if n in step)
            array = _APPLY[name](array, step)
    return array


def finished(array: Array, steps: Sequence[Plain], input_name: str, picture: bool) -> Array:
    """The tensor that the model gets: remaining steps, pictures as float32 and channels
    first unless the steps say so."""
    mine = [s for s in steps if s.get("input", "") in ("", input_name)]
    array = applied(array, mine, input_name)
    if picture:
        if not any("layout" in s for s in mine):
            array = _layout(array, {"layout": "nchw"})
        if not any("dtype" in s for s in mine):
            array = array.astype(np.float32, copy=False)
    return array


# --- geometry, on [H, W] or [H, W, C]


def _resampled(array: Array, size: Size, method: str) -> Array:
    """Pillow's filters: antialiased when shrinking. 8-bit stays 8-bit; anything else goes
    channel by channel in float32."""
    from PIL import Image

    if tuple(array.shape[:2]) == size:
        return array
    how = {
        "nearest": Image.Resampling.NEAREST,
        "bilinear": Image.Resampling.BILINEAR,
        "bicubic": Image.Resampling.BICUBIC,
        "area": Image.Resampling.BOX,
        "lanczos": Image.Resampling.LANCZOS,
    }[method]
    height, width = size
    if array.dtype == np.uint8 and (array.ndim == 2 or array.shape[2] == 3):
        return np.asarray(Image.fromarray(array).resize((width, height), how))
    planes = array[:, :, None] if array.ndim == 2 else array
    done = [
        np.asarray(
            Image.fromarray(np.ascontiguousarray(planes[:, :, c], np.float32)).resize((width, height), how)
        )
        for c in range(planes.shape[2])
    ]
    stacked = np.stack(done, 2) if array.ndim == 3 else done[0]
    if array.dtype.kind in "iu":
        bounds = np.iinfo(array.dtype)
        return np.clip(np.rint(stacked), bounds.min, bounds.max).astype(array.dtype)
    return stacked


def _resize(array: Array, step: Plain) -> Array:
    _need_picture(array, "resize")
    height, width = step["resize"]
    keep, method = step.get("keep_ratio", "no"), step.get("method", "bilinear")
    if keep == "no":
        return _resampled(array, (height, width), method)
    h, w = array.shape[:2]
    choose = max if keep == "short" else min
    scale = choose(height / h, width / w)
    size = (max(1, round(h * scale)), max(1, round(w * scale)))
    array = _resampled(array, size, method)
    if keep == "short":
        return array
    rest_h, rest_w = height - size[0], width - size[1]
    top, left = (rest_h // 2, rest_w // 2) if step.get("align", "center") == "center" else (0, 0)
    return _filled(array, (top, left, rest_h - top, rest_w - left), step.get("fill", 0.0))


def _filled(array: Array, pads: Sequence[int], fill: float) -> Array:
    top, left, bottom, right = pads
    widths = ((top, bottom), (left, right)) + ((0, 0),) * (array.ndim - 2)
    return np.pad(array, widths, constant_values=np.asarray(fill).astype(array.dtype))


def _center_crop(array: Array, step: Plain) -> Array:
    _need_picture(array, "center_crop")
    height, width = step["center_crop"]
    short_h, short_w = max(0, height - array.shape[0]), max(0, width - array.shape[1])
    if short_h or short_w:
        pads = (short_h // 2, short_w // 2, short_h - short_h // 2, short_w - short_w // 2)
        array = _filled(array, pads, step.get("fill", 0.0))
    top, left = (array.shape[0] - height) // 2, (array.shape[1] - width) // 2
    return array[top : top + height, left : left + width]


def _pad(array: Array, step: Plain) -> Array:
    _need_picture(array, "pad")
    return _filled(array, step["pad"], step.get("fill", 0.0))


def _transpose(array: Array, step: Plain) -> Array:
    order = tuple(step["transpose"])
    if array.ndim != len(order):
        raise DataError(
            f"transpose = {list(order)} needs {len(order)} axes, got {list(array.shape)}", code="NF-DATA-054",
        )
    return np.ascontiguousarray(array.transpose(order))


# --- point-wise


def _channels(array: Array, step: Plain) -> Array:
    wanted = step["channels"]
    colour = array.ndim == 3 and array.shape[2] == 3
    if wanted == "bgr":
        if not colour:
            raise DataError(
                f"channels = \"bgr\" needs a picture of 3 channels, got {list(array.shape)}",
                code="NF-DATA-055",
            )
        return np.ascontiguousarray(array[:, :, ::-1])
    if wanted == "grey":
        return grey(array)[:, :, None] if colour else array if array.ndim == 3 else array[:, :, None]
    return array if colour else np.repeat(array.reshape(*array.shape[:2], 1), 3, 2)


def grey(array: Array) -> Array:
    """ITU-R 601 luma of [H, W, 3], rounded for integers, as Pillow's mode L."""
    weights = np.array([299, 587, 114], np.int64)
    if array.dtype.kind in "iu":
        return ((array.astype(np.int64) @ weights + 500) // 1000).astype(array.dtype)
    return (array.astype(np.float64) @ (weights / 1000)).astype(array.dtype)


def _normalize(array: Array, step: Plain) -> Array:
    n = step["normalize"]
    mean, std = (np.asarray(n[k], np.float32) for k in ("mean", "std"))
    count = max(mean.size, std.size)
    if count > 1:
        shape = [1] * array.ndim
        shape[channel_axis(array.shape, count, n.get("axis"))] = -1
        mean, std = (v.reshape(shape) if v.size > 1 else v for v in (mean, std))
    values = array.astype(np.float32)
    if n["scale"] != 1.0:
        values = values * np.float32(n["scale"])
    return np.asarray((values - mean) / std)


def channel_axis(shape: Sequence[int], count: int, stated: int | None) -> int:
    """The axis, counted from the end, that `count` numbers per channel belong to: the stated one, else the
    last (HWC) or the third from the end (CHW), whichever has that size.
    """
    rank = len(shape)
    tried = [axis for axis in ((-1, -3) if stated is None else (stated,)) if -rank <= axis < rank]
    fits = [axis for axis in tried if shape[axis] == count]
    if len(fits) == 1:
        return fits[0] if fits[0] < 0 else fits[0] - rank
    if fits:
        because, hint = "two axes have that size", "axis = 0 is channels first, axis = -1 channels last"
    elif stated is None:
        because = "neither the last axis nor the third from the end has that size"
        hint = "`axis` states where the channels are; one number serves all channels"
    else:
        because, hint = f"axis {stated} does not have that size", "one number serves all channels"
    message = f"normalize has {count} numbers per channel and the data are {list(shape)}"
    raise DataError(message, because=because, hint=hint, code="NF-DATA-056")


def _layout(array: Array, step: Plain) -> Array:
    if array.ndim == 2:
        array = array[:, :, None]
    if step["layout"] == "nchw" and array.ndim == 3:
        return np.ascontiguousarray(array.transpose(2, 0, 1))
    return array


def _dtype(array: Array, step: Plain) -> Array:
    return array.astype(step["dtype"])


def _need_picture(array: Array, what: str) -> None:
    if array.ndim not in (2, 3):
        raise DataError(
            f"{what} needs a picture [H, W] or [H, W, C], got {list(array.shape)}", code="NF-DATA-057",
        )


_APPLY = {
    "transpose": _transpose, "resize": _resize, "center_crop": _center_crop, "pad": _pad,
    "channels": _channels, "normalize": _normalize, "layout": _layout, "dtype": _dtype,
}
