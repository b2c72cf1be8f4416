"""What a command's fields must satisfy on their own: the faults that decoding reports, without any memory or target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

from npuflow.hw.isa import NIBBLES, NONE

Fields = Mapping[str, Any]
RANGES = {
    "int8": (-128, 127), "uint8": (0, 255), "int16": (-(1 << 15), (1 << 15) - 1), "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1), "uint32": (0, (1 << 32) - 1), "int64": (-(1 << 63), (1 << 63) - 1),
    "int4": (-8, 7), "uint4": (0, 15),
}  # fmt: skip
SHIFT = (-32, 62)
MAX_ELEMENTS = 1 << 31       # of one command's iteration space: no command can be larger than a memory
MAX_WINDOW = 1 << 16
_NARROW = ("int8", "uint8", "int16", "uint16", *NIBBLES)
_POSITIVE = (
    "dims", "x_dims", "batch", "m", "k", "n", "out_channels", "out_height", "out_width", "groups",
    "kernel", "stride", "dilation", "insert",
)  # fmt: skip
_FLAGS = ("accumulate", "maximum")


def faults(opcode: str, f: Fields) -> list[str]:
    """Every fault of the fields of one command, in words."""
    found = list(_shared(f))
    special = _SPECIAL.get(opcode)
    if special is not None:
        found += special(f)
    return found


def _shared(f: Fields) -> Iterator[str]:
    for name in _POSITIVE:
        value = f.get(name)
        numbers = value if isinstance(value, tuple) else () if value is None else (value,)
        if any(n < 1 for n in numbers):
            yield f"{name} must be at least 1"
        if numbers and prod(numbers) > MAX_ELEMENTS:
            yield f"{name} span more than 2^31 elements"
    if "kernel" in f and prod(f["kernel"]) > MAX_WINDOW:
        yield "a window above 2^16 positions"
    for name in _FLAGS:
        if f.get(name, 0) not in (0, 1):
            yield f"{name} must be 0 or 1"
    for name in ("shift", "negative_shift"):
        if not SHIFT[0] <= f.get(name, 0) <= SHIFT[1]:
            yield f"{name} {f[name]} is outside {SHIFT[0]}..{SHIFT[1]}"
    if "acc_type" in f and f["acc_type"] not in ("int32", "int64"):
        yield "an accumulator is int32 or int64"
    for name in ("x", "y", "a", "b", "slope"):
        if f.get(f"{name}_type", "int8") not in _NARROW:
            yield f"{name} is an 8- or 16-bit tensor"
    if "lo" in f and "y_type" in f:
        lo, hi = RANGES[f["y_type"]]
        if not (f.get("los", NONE) != NONE or lo <= f["lo"] <= hi) or not (f.get("his", NONE) != NONE or lo <= f["hi"] <= hi):
            yield f"the clamp {f['lo']}..{f['hi']} leaves {f['y_type']}"
        if f.get("los", NONE) == NONE and f.get("his", NONE) == NONE and f["lo"] > f["hi"]:
            yield f"the clamp {f['lo']}..{f['hi']} is empty"


def _dma(f: Fields) -> Iterator[str]:
    if f["element"] not in (1, 2, 4, 8):
        yield f"element of {f['element']} bytes"


def _store(f: Fields) -> Iterator[str]:
    yield from _dma(f)
    if f["space"] != "DATA":
        yield "STORE writes DATA only"


def _fill(f: Fields) -> Iterator[str]:
    lo, hi = RANGES[f["y_type"]]
    if not lo <= f["value"] <= hi:
        yield f"the value {f['value']} leaves {f['y_type']}"


def _conv(f: Fields) -> Iterator[str]:
    if f["w_type"] not in _NARROW:
        yield "weights have 4, 8 or 16 bits"
    if f["groups"] < 1 or f["out_channels"] % f["groups"] or f["x_dims"][1] % f["groups"]:
        yield f"{f['groups']} groups do not divide {f['out_channels']} and {f['x_dims'][1]} channels"
    if f["x_dims"][0] != f["batch"]:
        yield f"batch {f['batch']} is not the tile's {f['x_dims'][0]}"
    if f["batch"] * f["out_channels"] * f["out_height"] * f["out_width"] > MAX_ELEMENTS:
        yield "the result spans more than 2^31 elements"


def _matmul(f: Fields) -> Iterator[str]:
    if f["batch"] * f["m"] * f["n"] > MAX_ELEMENTS or f["k"] > MAX_ELEMENTS:
        yield "the result spans more than 2^31 elements"


def _requant(f: Fields) -> Iterator[str]:
    if f["channel_axis"] > 3:
        yield f"channel_axis {f['channel_axis']} of a tensor of 4 dimensions"
    if f["bias"] != NONE and f["bias_type"] not in ("int8", "int16", "int32", "int64"):
        yield "a bias is signed"
    if f["bias_shift"] > 31:
        yield f"bias_shift {f['bias_shift']} is above 31"


def _avgpool(f: Fields) -> Iterator[str]:
    if f["multipliers"] == NONE:
        yield "no multipliers"


def _lut(f: Fields) -> Iterator[str]:
    if f["bits"] > 15:
        yield f"{f['bits']} interpolation bits"
    if f["fraction"] > (15 if f["bits"] else 0):
        yield f"{f['fraction']} bits of fraction"


def _softmax(f: Fields) -> Iterator[str]:
    if f["low_bits"] > 16:
        yield f"{f['low_bits']} low bits"


def _resize(f: Fields) -> Iterator[str]:
    if f["weight_bits"] > 20 or not SHIFT[0] <= 2 * f["weight_bits"] + f["shift"] <= SHIFT[1]:
        yield f"weight_bits {f['weight_bits']} with shift {f['shift']}"


_SPECIAL: dict[str, Callable[[Fields], Iterator[str]]] = {
    "LOAD": _dma, "STORE": _store, "COPY": _dma, "FILL": _fill, "CONV": _conv, "MATMUL": _matmul, "REQUANT": _requant,
    "AVGPOOL": _avgpool, "LUT": _lut, "SOFTMAX": _softmax, "RESIZE": _resize,
}  # fmt: skip
