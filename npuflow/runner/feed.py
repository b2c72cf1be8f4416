"""What a program is fed, and what its codes stand for: arrays against the entries of its metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import DataError, ModelError
from npuflow.input.given import array_of, converted
from npuflow.input.pixels.pixels import Pixels, given
from npuflow.kernels.floats import floats

Array = npt.NDArray[Any]


def fed(entries: Iterable[Mapping[str, Any]], sample: Mapping[str, Array]) -> dict[str, Array]:
    """A program's inputs as it stores them, checked; arrays that are in that form already are not copied."""
    found = {}
    for entry in entries:
        name, shape = entry["name"], tuple(entry["shape"])
        if name not in sample:
            raise DataError(
                f'no data for the input "{name}"',
                because=f"given: {', '.join(sample) or 'nothing'}", code="NF-DATA-012",
            )
        array = array_of(name, sample[name], entry["dtype"])
        if array.ndim != len(shape) or any(
            want not in (-1, have) for have, want in zip(array.shape, shape, strict=True)
        ):
            raise DataError(
                f'the input "{name}" has shape {array.shape}, the program expects {shape}',
                code="NF-DATA-014",
            )
        if entry.get("pixels"):
            array = given(array, Pixels.read(entry["pixels"]), entry["dtype"], name)
        # real numbers for an input that takes codes
        elif entry.get("quant") and array.dtype.kind == "f":
            array = quantize(array, entry["quant"])
        elif entry.get("quant") and array.size:
            lo, hi, _ = container(entry["quant"])
            if int(array.min()) < lo or int(array.max()) > hi:
                raise DataError(
                    f'the input "{name}" has codes {array.min()}..{array.max()}, its type has {lo}..{hi}',
                    code="NF-DATA-060",
                )
        try:
            found[name] = (
                array if entry["dtype"] == "string" else converted(name, array, entry["dtype"])
            )
        except TypeError as error:
            raise ModelError(
                f'the input "{name}" has the dtype {entry["dtype"]!r}',
                code="NF-PROGRAM-019",
            ) from error
    return found


def start_of(meta: Mapping[str, Any]) -> dict[str, Array]:
    """What a program's state holds at first: zeros, as codes where the inputs take codes."""
    ports = {entry["name"]: entry for entry in meta["inputs"]}
    found = {}
    for _, name in meta.get("state", ()):
        real, quant = np.zeros(ports[name]["shape"], np.float32), ports[name].get("quant")
        found[name] = quantize(real, quant) if quant else real.astype(ports[name]["dtype"])
    return found


def quantize(real: Array, quant: Mapping[str, Any]) -> Array:
    """The container integers of a float array: nearest, ties to even, in float64;
    NaN becomes the zero point. Of a float type: its patterns."""
    if "element" in quant:
        return floats.pattern(real, quant["element"])
    scale, zero = (
        along(quant, "scale", np.float64, real.shape),
        along(quant, "zero_point", np.int64, real.shape),
    )
    lo, hi, dtype = container(quant)
    codes = real.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        np.divide(codes, scale, out=codes)
    unknown = np.isnan(codes)
    if unknown.any():
        codes[unknown] = 0.0
    np.rint(codes, out=codes)                          # IEEE: ties to even
    np.add(np.maximum(np.minimum(codes, 2.0**40), -(2.0**40)), zero, out=codes)
    return np.asarray(np.minimum(np.maximum(codes, lo), hi).astype(dtype))


def dequantize(stored: Array, quant: Mapping[str, Any]) -> Array:
    """float32(scale * (q - zero point)), the product in float64; or what patterns of floats stand for."""
    if "element" in quant:
        return floats.real(stored, quant["element"]).astype(np.float32)
    scale, zero = (
        along(quant, "scale", np.float64, stored.shape),
        along(quant, "zero_point", np.int64, stored.shape),
    )
    return np.asarray(((stored.astype(np.int64) - zero) * scale).astype(np.float32))


def container(quant: Mapping[str, Any]) -> tuple[int, int, str]:
    """Smallest and largest code, and the dtype that holds them."""
    bits, signed = quant["bits"], quant["signed"]
    width = next(w for w in (8, 16, 32) if bits <= w)
    if signed:
        return -(1 << (bits - 1)) + int(bool(quant.get("narrow"))), (1 << (bits - 1)) - 1, f"int{width}"
    return 0, (1 << bits) - 1, f"uint{width}"


def along(quant: Mapping[str, Any], name: str, dtype: type, shape: tuple[int, ...]) -> Array:
    """A per-tensor number, or per-channel numbers shaped to broadcast along their axis."""
    numbers: Array = np.asarray(quant[name], dtype)
    axis = quant.get("axis")
    if axis is None or numbers.size == 1:
        return numbers.reshape(-1)[:1].reshape(())
    numbers = np.repeat(numbers, quant.get("group") or 1)
    if axis >= len(shape) or numbers.size != shape[axis]:
        raise ModelError(
            f"{numbers.size} numbers for dimension {axis} of a value of shape {shape}", code="NF-PROGRAM-021",
        )
    return numbers.reshape([-1 if d == axis else 1 for d in range(len(shape))])
