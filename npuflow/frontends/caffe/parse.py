"""Prototxt and caffemodel as plain data: the text form of protobuf, and the few fields of its wire form."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.ir.types import Array

TOKEN = re.compile(
    r'\s*(?:#[^\n]*\n\s*)*("(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[{}:<>\[\],;]|[^\s{}:<>\[\],;#"\']+)'
)
# Kinds whose name in the form of before 2014 has capitals and underlines: INNER_PRODUCT.
KINDS = (
    "AbsVal Accuracy ArgMax BNLL Concat ContrastiveLoss Convolution Data Deconvolution Dropout "
    "DummyData Eltwise EuclideanLoss Exp Flatten HDF5Data HDF5Output HingeLoss Im2col ImageData "
    "InfogainLoss InnerProduct LRN MemoryData MultinomialLogisticLoss MVN Pooling Power PReLU ReLU "
    "Sigmoid SigmoidCrossEntropyLoss Silence Slice Softmax SoftmaxLoss Split TanH Threshold "
    "WindowData "
)
OLD = {name.upper(): name for name in KINDS.split()}


@dataclass(frozen=True)
class CaffeLayer:
    """A layer: its options by name (`convolution_param` and others as mappings of lists), and its blobs."""

    name: str
    kind: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    options: Mapping[str, list[Any]]
    blobs: tuple[Array, ...] = ()

    def table(self, name: str) -> Mapping[str, list[Any]]:
        found: Mapping[str, list[Any]] = self.options.get(name, [{}])[-1]
        return found


@dataclass(frozen=True)
class CaffeNetwork:
    inputs: Mapping[str, tuple[int, ...]]
    layers: tuple[CaffeLayer, ...] = field(default_factory=tuple)


def opened(path: Path) -> CaffeNetwork:
    """The network of a .prototxt and the .caffemodel beside it."""
    weights = path.with_suffix(".caffemodel")
    try:
        return parsed(path.read_bytes(), weights.read_bytes() if weights.is_file() else b"")
    except OSError as fault:
        raise ModelError(
            f"{path.name} cannot be read",
            because=fault.strerror or str(fault),
            code="NF-MODEL-001",
        ) from fault


def parsed(text: bytes, weights: bytes) -> CaffeNetwork:
    """The network of both files' bytes; a ModelError for what is none."""
    try:
        stated = message(iter(tokens(text.decode())))
        held = dict(blobs(weights))
        return _network(stated, held)
    except ModelError:
        raise
    except (
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        StopIteration,
        struct.error,
        AttributeError,
    ) as fault:
        raise damaged(f"{type(fault).__name__}: {fault}") from fault


def damaged(because: str) -> ModelError:
    return ModelError(
        "the Caffe model is damaged",
        because=because,
        hint="is the file whole?",
        code="NF-MODEL-100",
    )


def _network(stated: Mapping[str, list[Any]], held: Mapping[str, tuple[Array, ...]]) -> CaffeNetwork:
    inputs: dict[str, tuple[int, ...]] = {}
    shapes = [tuple(map(int, one["dim"])) for one in stated.get("input_shape", [])]
    sizes = list(map(int, stated.get("input_dim", [])))
    shapes = shapes or [tuple(sizes[i : i + 4]) for i in range(0, len(sizes), 4)]
    inputs.update(zip(stated.get("input", []), shapes, strict=True))
    layers = []
    for one in (*stated.get("layer", []), *stated.get("layers", [])):
        if not _tested(one):
            continue
        kind = str(one["type"][0])
        kind = OLD.get(kind.replace("_", ""), kind)
        tops, name = tuple(one.get("top", [])), str(one.get("name", ["layer"])[0])
        if kind == "Input":
            given = [tuple(map(int, s["dim"])) for s in one["input_param"][0]["shape"]]
            inputs.update(zip(tops, given * (len(tops) if len(given) == 1 else 1), strict=True))
            continue
        layers.append(CaffeLayer(name, kind, tuple(one.get("bottom", [])), tops, one, held.get(name, ())))
    if not layers or not inputs:
        raise damaged("it states no layers" if not layers else "it states no inputs with their sizes")
    return CaffeNetwork(inputs, tuple(layers))


def _tested(layer: Mapping[str, list[Any]]) -> bool:
    """Whether a layer is there when the network runs."""
    phases = [p for rule in layer.get("include", []) for p in rule.get("phase", [])]
    never = [p for rule in layer.get("exclude", []) for p in rule.get("phase", [])]
    return (not phases or "TEST" in phases) and "TEST" not in never


# --- the text form


def tokens(text: str) -> Iterator[str]:
    at = 0
    text = text.rstrip() + "\n"
    while at < len(text.rstrip()):
        found = TOKEN.match(text, at)
        if found is None:
            if re.fullmatch(r"\s*(#[^\n]*\n?\s*)*", text[at:]):
                return
            raise damaged(f"character {at} of the prototxt is not understood")
        yield found[1]
        at = found.end()


def message(given: Iterator[str], nested: bool = False) -> dict[str, list[Any]]:
    """Fields by name, each with its values in order."""
    found: dict[str, list[Any]] = {}
    for name in given:
        if name in "}>":
            if not nested:
                raise damaged("a bracket is closed that none opens")
            return found
        if name in ";,":
            continue
        mark = next(given)
        if mark == ":":
            mark = next(given)
        if mark in "{<":
            found.setdefault(name, []).append(message(given, True))
        elif mark == "[":
            found.setdefault(name, []).extend(_list(given))
        else:
            found.setdefault(name, []).append(scalar(mark))
    if nested:
        raise damaged("a bracket is not closed")
    return found


def _list(given: Iterator[str]) -> Iterator[Any]:
    for one in given:
        if one == "]":
            return
        if one != ",":
            yield scalar(one)


def scalar(text: str) -> Any:
    if text[0] in "\"'":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text, 0)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


# --- the wire form


def fields(data: memoryview) -> Iterator[tuple[int, Any]]:
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


def blobs(data: bytes) -> Iterator[tuple[str, tuple[Array, ...]]]:
    """Name and blobs of every layer of a NetParameter."""
    for number, value in fields(memoryview(data)):
        if number in (100, 2) and isinstance(value, memoryview):  # layer, and its form of before 2014
            own, held = (1, 7) if number == 100 else (4, 6)
            rows = list(fields(value))
            names = [bytes(v).decode() for n, v in rows if n == own and isinstance(v, memoryview)]
            found = tuple(blob(v) for n, v in rows if n == held and isinstance(v, memoryview))
            if names and found:
                yield names[0], found


def blob(data: memoryview) -> Array:
    """A BlobProto: its numbers in its shape."""
    legacy, dims = {1: 1, 2: 1, 3: 1, 4: 1}, None
    parts: list[Array] = []
    for number, value in fields(data):
        if number in legacy and isinstance(value, int):
            legacy[number] = value
        elif number == 7:
            dims = _dims(value)
        elif number in (5, 8):
            kind = "<f4" if number == 5 else "<f8"
            parts.append(np.frombuffer(bytes(value), kind).astype(np.float32))
    values = np.concatenate(parts) if parts else np.zeros(0, np.float32)
    return values.reshape(dims if dims is not None else tuple(legacy.values()))


def _dims(data: memoryview) -> tuple[int, ...]:
    found: list[int] = []
    for number, value in fields(data):
        if number == 1 and isinstance(value, int):
            found.append(value)
        elif number == 1:
            at = 0
            while at < len(value):
                one, at = varint(value, at)
                found.append(one)
    return tuple(found)
