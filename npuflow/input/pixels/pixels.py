"""Inputs that take pixels as bytes: what a byte stands for, in the model and the graph.

The model is fed pixel * scale + shift, a number each per channel. The graph holds pixel - zero in its place
and its first layers do the rest, so that bytes are codes: nothing is rounded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from npuflow.base.errors import DataError

if TYPE_CHECKING:
    import onnxruntime

    from npuflow.ir.types import Array, QuantType

TOP = 255
# numbers that are so many pixels outside 0..255 are of another preprocessing
FAR = 256


@dataclass(frozen=True)
class Pixels:
    """One input. `axis`: of the channels, counted from the end; None where one scale and shift serve all of
    them. `dtype`: of the model's own numbers; the graph's are float32.
    """

    scale: tuple[float, ...] = (1.0,)
    shift: tuple[float, ...] = (0.0,)
    axis: int | None = None
    zero: int = 0
    dtype: str = "float32"

    def plain(self) -> dict[str, Any]:
        """JSON-able."""
        return {**asdict(self), "scale": list(self.scale), "shift": list(self.shift)}

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Pixels:
        return cls(
            tuple(row["scale"]),
            tuple(row["shift"]),
            row["axis"],
            int(row["zero"]),
            row.get("dtype", "float32"),
        )

    @property
    def quant(self) -> QuantType:
        """Bytes as codes: one step a pixel."""
        from npuflow.ir.types import QuantType  # the simulator's side loads nothing of the compiler's

        return QuantType(8, False, (1.0,), (self.zero,))

    def model(self, values: Array) -> Array:
        """The model's own numbers for the graph's."""
        scale, shift = self._spread(values.ndim)
        return np.asarray(((values.astype(np.float64) + self.zero) * scale + shift).astype(self.dtype))

    def bytes(self, array: Array, name: str) -> Array:
        """Pixels for an array that a user gives: whole numbers are pixels already, real
        numbers are the model's own."""
        if array.dtype.kind == "f":
            scale, shift = self._spread(array.ndim)
            with np.errstate(invalid="ignore", over="ignore"):
                pixels = (array.astype(np.float64) - shift) / scale
            pixels[np.isnan(pixels)] = 0.0
            if pixels.size and (pixels.min() < -FAR or pixels.max() > TOP + FAR):
                raise DataError(
                    f'the input "{name}" has numbers from {array.min():.4g} to {array.max():.4g}, outside '
                    "the range of pixels",
                    because=f"real numbers are taken as pixels after the recipe's steps: {self.text()}",
                    hint="give pixels 0..255 as uint8; [data] fold_normalize = false builds an input of "
                    "real numbers",
                    code="NF-DATA-061",
                )
            return np.asarray(np.clip(np.rint(pixels), 0, TOP).astype(np.uint8))
        if array.dtype.kind not in "iub" or (
            array.size and not 0 <= int(array.min()) <= int(array.max()) <= TOP
        ):
            held = (
                f"from {array.min()} to {array.max()}"
                if array.dtype.kind in "iub" and array.size
                else str(array.dtype)
            )
            hint = "uint8, or real numbers as the model takes them"
            raise DataError(
                f'the input "{name}" takes pixels 0..255',
                because=f"the array holds {held}", hint=hint, code="NF-DATA-062",
            )
        return array.astype(np.uint8)

    def text(self) -> str:
        """The preprocessing as a formula."""
        scale, shift = (", ".join(f"{v:.6g}" for v in numbers) for numbers in (self.scale, self.shift))
        many = len(self.scale) > 1 or len(self.shift) > 1
        return f"pixel * ({scale}) + ({shift})" if many else f"pixel * {scale} + {shift}"

    def _spread(self, rank: int) -> tuple[Array, Array]:
        return self.along(self.scale, rank), self.along(self.shift, rank)

    def along(self, numbers: tuple[float, ...], rank: int) -> Array:
        """Numbers per channel, shaped to broadcast over a tensor of that rank."""
        found: Array = np.asarray(numbers, np.float64)
        if self.axis is None or found.size == 1:
            return found.reshape((1,) * rank)
        return found.reshape([-1 if d == rank + self.axis else 1 for d in range(rank)])


def given(array: Array, pixels: Pixels, dtype: str, name: str) -> Array:
    """What an input of that dtype holds for an array that a user gives. Signed bytes for
    signed codes are codes already."""
    if dtype == "int8":
        return (
            array
            if array.dtype == np.int8
            else (pixels.bytes(array, name).astype(np.int16) - 128).astype(np.int8)
        )
    found = pixels.bytes(array, name)
    return found if dtype == "uint8" else np.asarray(found.astype(np.float32) - np.float32(pixels.zero))


def of_program(meta: Mapping[str, Any]) -> dict[str, Pixels]:
    """The inputs of a program that take pixels."""
    return {entry["name"]: Pixels.read(entry["pixels"]) for entry in meta["inputs"] if entry.get("pixels")}


METADATA = "npuflow.pixels"


def metadata(pixels: Mapping[str, Pixels]) -> dict[str, str]:
    """What an exported ONNX model remembers of its inputs."""
    return (
        {METADATA: json.dumps({name: one.plain() for name, one in sorted(pixels.items())})} if pixels else {}
    )


def pixel_inputs(session: onnxruntime.InferenceSession) -> dict[str, tuple[Pixels, str]]:
    """Inputs of an exported model that take pixels, with their dtypes."""
    text = session.get_modelmeta().custom_metadata_map.get(METADATA)
    if not text:
        return {}
    types = {
        i.name: {"tensor(uint8)": "uint8", "tensor(int8)": "int8"}.get(i.type, "float32")
        for i in session.get_inputs()
    }
    return {name: (Pixels.read(row), types[name]) for name, row in json.loads(text).items() if name in types}


def model_inputs(feed: Mapping[str, Array], pixels: Mapping[str, Pixels]) -> dict[str, Array]:
    """What the source model is fed for what the graph is fed."""
    return {name: pixels[name].model(array) if name in pixels else array for name, array in feed.items()}
