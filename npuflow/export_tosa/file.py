"""Writes the bytes of a .tosa file: tensors, shapes and operators of one block as a FlatBuffer.

The numbers below are those of the schema of TOSA 1.0: operators, element types, unions of attributes, and the
place of each field in its table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.base.extras import needs
from npuflow.ir.types import Array

IDENTIFIER, VERSION = b"TOSA", (1, 0, 0)
TYPES = {"bool": 1, "int8": 3, "int16": 4, "int32": 5, "int48": 6}
# operator: its number, which is also that of its attributes in the union, and their names in their order
OPERATORS: dict[str, tuple[int, tuple[str, ...]]] = {
    "ARGMAX": (1, ("axis", "nan_mode")),
    "CONV2D": (3, ("pad", "stride", "dilation", "local_bound", "acc_type")),
    "DEPTHWISE_CONV2D": (5, ("pad", "stride", "dilation", "local_bound", "acc_type")),
    "MATMUL": (7, ()),
    "MAX_POOL2D": (8, ("kernel", "stride", "pad", "nan_mode")),
    "TRANSPOSE_CONV2D": (10, ("out_pad", "stride", "local_bound", "acc_type")),
    "CLAMP": (11, ("min_val", "max_val", "nan_mode")),
    "ADD": (15, ()),
    "ARITHMETIC_RIGHT_SHIFT": (16, ("round",)),
    "BITWISE_AND": (17, ()),
    "LOGICAL_RIGHT_SHIFT": (23, ()),
    "MAXIMUM": (26, ("nan_mode",)),
    "MINIMUM": (27, ("nan_mode",)),
    "MUL": (28, ()),
    "SUB": (30, ()),
    "TABLE": (31, ()),
    "ABS": (32, ()),
    "BITWISE_NOT": (33, ()),
    "SELECT": (45, ()),
    "GREATER": (47, ()),
    "GREATER_EQUAL": (48, ()),
    "REDUCE_MAX": (51, ("axis", "nan_mode")),
    "REDUCE_SUM": (54, ("axis",)),
    "CONCAT": (55, ("axis",)),
    "PAD": (56, ()),
    "RESHAPE": (57, ()),
    "REVERSE": (58, ("axis",)),
    "SLICE": (59, ()),
    "TILE": (60, ()),
    "TRANSPOSE": (61, ("perms",)),
    "GATHER": (62, ()),
    "CAST": (65, ()),
    "RESCALE": (66, ("scale32", "rounding_mode", "per_channel", "input_unsigned", "output_unsigned")),
    "CONST": (67, ()),
    "IDENTITY": (68, ()),
    "CONST_SHAPE": (75, ()),
}


@dataclass(frozen=True)
class TosaTensor:
    name: str
    shape: tuple[int, ...]
    dtype: str
    data: Array | None = None


@dataclass(frozen=True)
class TosaShape:
    """A constant shape: numbers that an operator takes beside tensors."""

    name: str
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class TosaOperator:
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TosaNetwork:
    tensors: tuple[TosaTensor, ...]
    shapes: tuple[TosaShape, ...]
    operators: tuple[TosaOperator, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def written(network: TosaNetwork) -> bytes:
    """The file: one region with one block, `main`."""
    with needs(
        "writing .tosa files needs the package flatbuffers", kind=ModelError,
        hint="pip install 'npuflow[tosa]'", code="NF-PROGRAM-140",
    ):
        import flatbuffers
    return _Writer(flatbuffers.Builder(1 << 16)).file(network)


def little(array: Array) -> bytes:
    """Elements in C order, each little endian."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()


class _Writer:
    """Tables are written from the innermost out, as FlatBuffers wants them."""

    def __init__(self, builder: Any) -> None:
        self.b = builder

    def file(self, network: TosaNetwork) -> bytes:
        block = self.table(
            self.b.CreateString("main"),
            self.offsets([self.operator(one) for one in network.operators]),
            self.offsets([self.tensor(one) for one in network.tensors]),
            self.offsets([self.b.CreateString(name) for name in network.inputs]),
            self.offsets([self.b.CreateString(name) for name in network.outputs]),
            self.offsets([self.shape(one) for one in network.shapes]),
        )
        region = self.table(self.b.CreateString("main"), self.offsets([block]))
        regions = self.offsets([region])
        self.b.StartObject(4)
        for slot, number in enumerate(VERSION):
            self.b.PrependInt32Slot(slot, number, -1)
        self.b.PrependBoolSlot(3, False, True)
        version = self.b.EndObject()
        graph = self.table(version, regions)
        self.b.Finish(graph, file_identifier=IDENTIFIER)
        return bytes(self.b.Output())

    def table(self, *offsets: int | None) -> int:
        """A table of what is written already, by slot."""
        self.b.StartObject(len(offsets))
        for slot, offset in enumerate(offsets):
            if offset is not None:
                self.b.PrependUOffsetTRelativeSlot(slot, offset, 0)
        return int(self.b.EndObject())

    def offsets(self, made: Sequence[int]) -> int:
        self.b.StartVector(4, len(made), 4)
        for one in reversed(made):
            self.b.PrependUOffsetTRelative(one)
        return int(self.b.EndVector())

    def numbers(self, values: Sequence[int]) -> int:
        return int(self.b.CreateNumpyVector(np.asarray(values, np.int32)))

    def raw(self, data: bytes) -> int:
        """Bytes on a boundary of 8."""
        self.b.StartVector(1, len(data), 8)
        self.b.head = self.b.head - len(data)
        self.b.Bytes[self.b.head : self.b.head + len(data)] = data
        return int(self.b.EndVector())

    def tensor(self, tensor: TosaTensor) -> int:
        name, shape = self.b.CreateString(tensor.name), self.numbers(tensor.shape)
        data = None if tensor.data is None else self.raw(little(tensor.data))
        self.b.StartObject(7)
        self.b.PrependUOffsetTRelativeSlot(0, name, 0)
        self.b.PrependUOffsetTRelativeSlot(1, shape, 0)
        self.b.PrependUint32Slot(2, TYPES[tensor.dtype], 0)
        if data is not None:
            self.b.PrependUOffsetTRelativeSlot(3, data, 0)
        return int(self.b.EndObject())

    def shape(self, shape: TosaShape) -> int:
        name = self.b.CreateString(shape.name)
        data = self.raw(np.asarray(shape.numbers, "<i8").tobytes())
        self.b.StartObject(3)
        self.b.PrependUOffsetTRelativeSlot(0, name, 0)
        self.b.PrependUint32Slot(1, len(shape.numbers), 0)
        self.b.PrependUOffsetTRelativeSlot(2, data, 0)
        return int(self.b.EndObject())

    def operator(self, one: TosaOperator) -> int:
        number, _ = OPERATORS[one.name]
        attributes = self.attributes(one)
        inputs = self.offsets([self.b.CreateString(name) for name in one.inputs])
        outputs = self.offsets([self.b.CreateString(name) for name in one.outputs])
        self.b.StartObject(6)
        self.b.PrependUint32Slot(0, number, 0)
        self.b.PrependUint8Slot(1, number, 0)
        self.b.PrependUOffsetTRelativeSlot(2, attributes, 0)
        self.b.PrependUOffsetTRelativeSlot(3, inputs, 0)
        self.b.PrependUOffsetTRelativeSlot(4, outputs, 0)
        return int(self.b.EndObject())

    def attributes(self, one: TosaOperator) -> int:
        names = OPERATORS[one.name][1]
        held = {
            name: self.raw(value) if isinstance(value, bytes) else self.numbers(value)
            for name, value in one.attributes.items() if isinstance(value, bytes | tuple | list)
        }
        self.b.StartObject(len(names))
        for slot, name in enumerate(names):
            value = one.attributes.get(name, 0)
            if name in held:
                self.b.PrependUOffsetTRelativeSlot(slot, held[name], 0)
            elif isinstance(value, bool):
                self.b.PrependBoolSlot(slot, value, False)
            elif name in ("nan_mode", "rounding_mode", "acc_type"):
                self.b.PrependUint32Slot(slot, value, 0)
            else:
                self.b.PrependInt32Slot(slot, value, 0)
        return int(self.b.EndObject())
