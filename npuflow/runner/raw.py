"""Raw mode: the host's side of a program without a runtime.
Inputs become the bytes that lie in DATA, and bytes outputs.

A slot is an input's or output's place: its address, its bytes, padded to whole bursts. `pack` scales
real numbers to codes, puts channels where the program has them and pads; `unpack` is the way back;
`run` is the NPU's part alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import DataError, ModelError
from npuflow.input.pixels.pixels import Pixels, given
from npuflow.program.container import Program
from npuflow.program.meta import CONTAINERS
from npuflow.runner.feed import container, dequantize, quantize
from npuflow.sim.machine import SimulatedMachine

Array = npt.NDArray[Any]
Layout = Literal["as_is", "channels_last"]


@dataclass(frozen=True)
class DataSlot:
    """One tensor in DATA: `size` bytes at `address`, dense and in C order; `padded` bytes are moved."""

    name: str                 # of the program's input or output
    value: str                # of the integer tensor behind it
    address: int
    size: int
    padded: int
    shape: tuple[int, ...]
    dtype: str
    quant: Mapping[str, Any] | None
    # of an input of pixels: what they stand for in the model's own numbers
    pixels: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "shape": list(self.shape), "quant": dict(self.quant) if self.quant else None}


def inputs(program: Program) -> tuple[DataSlot, ...]:
    """The slots that the host fills; a ModelError where it would have to compute first."""
    made = {s["value"]: s["out"] for s in program.meta["steps"] if s["kind"] == "quantize"}
    return tuple(
        replace(_slot(program, e["name"], made.get(e["name"], e["name"]), "filled"), pixels=e.get("pixels"))
        for e in program.meta["inputs"]
    )


def outputs(program: Program) -> tuple[DataSlot, ...]:
    """The slots that the host reads."""
    made = {s["out"]: s["value"] for s in program.meta["steps"] if s["kind"] == "dequantize"}
    return tuple(
        _slot(program, e["name"], made.get(e["name"], e["name"]), "read") for e in program.meta["outputs"]
    )


def _slot(program: Program, name: str, value: str, what: str) -> DataSlot:
    models = [s for s in program.meta["steps"] if s["kind"] == "host"]
    if models:
        made = ", ".join(models[0]["outputs"][:3])
        raise ModelError(
            f"the program has {len(models)} parts for the host", because=f"the first makes {made}",
            hint="npuflow run runs them; raw mode is for programs that the NPU runs alone",
            code="NF-PROGRAM-015",
        )
    entry = program.meta["values"].get(value)
    if entry is None:
        raise ModelError(
            f'"{name}" is not {what} in memory: no integer tensor represents it', code="NF-PROGRAM-016",
        )
    size, burst = prod(entry["shape"]) * CONTAINERS[entry["dtype"]], program.target.memory.burst
    padded = -(-size // burst) * burst
    return DataSlot(
        name, value, entry["address"], size, padded, tuple(entry["shape"]), entry["dtype"], entry["quant"]
    )


def encoded(slot: DataSlot, array: Array, layout: Layout = "as_is") -> bytes:
    """One tensor as its padded bytes. Real numbers are scaled to codes; integers are codes already."""
    array = np.asarray(array)
    if layout == "channels_last" and len(slot.shape) >= 3:
        array = np.moveaxis(array, -1, 1)
    if array.shape != slot.shape and array.shape == slot.shape[1:]:
        array = array[None]
    if array.shape != slot.shape:
        raise DataError(
            f'"{slot.name}" has shape {array.shape}, the program expects {slot.shape}', code="NF-DATA-014",
        )
    if slot.pixels is not None:
        array = given(array, Pixels.read(slot.pixels), slot.dtype, slot.name)
    elif array.dtype.kind == "f":
        if slot.quant is None:
            raise DataError(f'"{slot.name}" takes {slot.dtype}, not real numbers', code="NF-DATA-063")
        array = quantize(array, slot.quant)
    elif array.size:
        kind = np.iinfo(slot.dtype)
        lo, hi = container(slot.quant)[:2] if slot.quant else (int(kind.min), int(kind.max))
        if array.dtype.kind not in "iub" or int(array.min()) < lo or int(array.max()) > hi:
            raise DataError(f'"{slot.name}" takes codes from {lo} to {hi}', code="NF-DATA-060")
    body = np.ascontiguousarray(array, np.dtype(slot.dtype).newbyteorder("<")).tobytes()
    return body + bytes(slot.padded - len(body))


def decoded(
    slot: DataSlot, body: bytes | memoryview, *, codes: bool = False, layout: Layout = "as_is"
) -> Array:
    """One tensor from its bytes: real numbers, or its codes."""
    if len(body) < slot.size:
        raise DataError(f'"{slot.name}" has {len(body)} bytes, {slot.size} are needed', code="NF-DATA-064")
    array = np.frombuffer(body[: slot.size], np.dtype(slot.dtype).newbyteorder("<")).reshape(slot.shape)
    found = array.astype(slot.dtype) if codes or slot.quant is None else dequantize(array, slot.quant)
    return np.moveaxis(found, 1, -1) if layout == "channels_last" and len(slot.shape) >= 3 else found


def pack(program: Program, sample: Mapping[str, Array], layout: Layout = "as_is") -> bytes:
    """All inputs behind each other, in the program's order."""
    slots = inputs(program)
    missing = [s.name for s in slots if s.name not in sample]
    if missing:
        raise DataError(
            f'no data for the input "{missing[0]}"',
            because=f"given: {', '.join(sample) or 'nothing'}", code="NF-DATA-012",
        )
    return b"".join(encoded(s, sample[s.name], layout) for s in slots)


def unpack(
    program: Program, body: bytes, *, codes: bool = False, layout: Layout = "as_is"
) -> dict[str, Array]:
    """All outputs from the bytes of their slots behind each other."""
    slots = outputs(program)
    parts = _cut(slots, body)
    return {
        s.name: decoded(s, part, codes=codes, layout=layout) for s, part in zip(slots, parts, strict=True)
    }


def run(program: Program, body: bytes) -> bytes:
    """The NPU's part, on the simulator: packed inputs to packed outputs."""
    machine, slots = SimulatedMachine(program, 1), inputs(program)
    for slot, part in zip(slots, _cut(slots, body), strict=True):
        machine.write(slot.value, decoded(slot, part, codes=True))
    for step in program.meta["steps"]:
        if step["kind"] == "npu":
            machine.run(step["segment"])
    return b"".join(encoded(s, machine.read(s.value)[0]) for s in outputs(program))


def _cut(slots: Sequence[DataSlot], body: bytes) -> list[memoryview]:
    need = sum(s.padded for s in slots)
    if len(body) != need:
        raise DataError(
            f"{len(body)} bytes; {', '.join(s.name for s in slots)} take {need}", code="NF-DATA-065",
        )
    parts, at, view = [], 0, memoryview(body)
    for slot in slots:
        parts.append(view[at : at + slot.padded])
        at += slot.padded
    return parts
