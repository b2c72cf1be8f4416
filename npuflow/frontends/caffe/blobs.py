"""A .caffemodel: the few fields of protobuf's wire form that hold weights, in every form of their numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from npuflow.frontends.caffe.faults import damaged
from npuflow.ir.types import Array

# A BlobProto's fields: four sizes of before 2014, the shape, and numbers in one of four forms. Fields without
# a name here hold gradients.
SIZES = (1, 2, 3, 4)
FLOATS, SHAPE, DOUBLES = 5, 7, 8
KIND = 10      # the type of RAW; in the first files of half precision the numbers themselves, 16 bits each
RAW = 12
TYPES = {0: "<f8", 1: "<f4", 2: "<f2", 3: "<i4", 4: "<u4"}


def blobs(data: bytes) -> Iterator[tuple[str, tuple[Array, ...]]]:
    """Name and blobs of every layer of a NetParameter, as float32."""
    for number, value in fields(memoryview(data)):
        if number in (100, 2) and isinstance(value, memoryview):  # layer, and its form of before 2014
            own, held = (1, 7) if number == 100 else (4, 6)
            rows = list(fields(value))
            names = [bytes(v).decode() for n, v in rows if n == own and isinstance(v, memoryview)]
            parts = [v for n, v in rows if n == held and isinstance(v, memoryview)]
            if names and parts:
                yield names[0], tuple(blob(v, f'blob {i} of layer "{names[0]}"') for i, v in enumerate(parts))


def blob(data: memoryview, called: str) -> Array:
    """The numbers of a BlobProto in its shape; without a shape, in a row."""
    found: dict[int, list[int | memoryview]] = {}
    for number, value in fields(data):
        found.setdefault(number, []).append(value)
    numbers = _numbers(found, called)
    shape = _shape(found, numbers.size)
    if int(np.prod(shape)) != numbers.size:
        raise damaged(f"{called} holds {numbers.size} numbers, and its shape is {list(shape)}")
    return numbers.reshape(shape)


def _numbers(found: dict[int, list[int | memoryview]], called: str) -> Array:
    kinds = found.get(KIND, [])
    if RAW in found:
        kind = kinds[-1] if kinds else 0
        if not isinstance(kind, int) or kind not in TYPES:
            raise damaged(f"{called} has numbers of the unknown type {kind}")
        given = [np.frombuffer(_bytes(found[RAW][-1]), TYPES[kind])]
    elif DOUBLES in found:
        given = [np.frombuffer(_bytes(value), "<f8") for value in _joined(found[DOUBLES])]
    elif FLOATS in found:
        given = [np.frombuffer(_bytes(value), "<f4") for value in _joined(found[FLOATS])]
    elif kinds:
        bits = [one for value in kinds for one in _varints(value)]
        if max(bits, default=0) >= 1 << 16:
            raise damaged(f"{called} has numbers of half precision with more than 16 bits")
        given = [np.asarray(bits, np.uint16).view(np.float16)]
    else:
        given = [np.zeros(0, np.float32)]
    return np.concatenate([part.astype(np.float32) for part in given])


def _joined(values: list[int | memoryview]) -> list[int | memoryview]:
    """A list that is not packed has a field for each number: one run of bytes is read much faster."""
    return [memoryview(b"".join(map(_bytes, values)))] if len(values) > 1 else values


def _bytes(value: int | memoryview) -> bytes:
    if isinstance(value, int):
        raise damaged("a list of numbers in the caffemodel is a single whole number")
    return bytes(value)


def _shape(found: dict[int, list[int | memoryview]], count: int) -> tuple[int, ...]:
    if SHAPE in found:
        rows = fields(memoryview(_bytes(found[SHAPE][-1])))
        return tuple(size for number, value in rows if number == 1 for size in _varints(value))
    sizes = [found.get(number, [1])[-1] for number in SIZES]
    if not any(number in found for number in SIZES):
        return (count,)
    return tuple(size for size in sizes if isinstance(size, int))


def _varints(value: int | memoryview) -> list[int]:
    """The whole numbers of a field: one, or a packed list."""
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        one, at = varint(value, at)
        found.append(one)
    return found


def fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of every field: whole numbers, or the bytes of all else."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(data, at)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            if kind != 2:
                raise damaged(f"wire type {kind} in the caffemodel")
            size, at = varint(data, at)
        if at + size > len(data):
            raise damaged("the caffemodel ends too early")
        yield number, data[at : at + size]
        at += size


def varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise damaged("the caffemodel ends too early")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
