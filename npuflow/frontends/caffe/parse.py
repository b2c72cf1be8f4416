"""Prototxt and caffemodel as plain data: the text form of protobuf, and a network of both files."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from npuflow.base.errors import ModelError
from npuflow.frontends.caffe.blobs import blobs
from npuflow.frontends.caffe.faults import damaged, not_deployed
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
    """`weighted`: the layers that the .caffemodel has numbers for, None where there is no such file. `path`:
    the .prototxt."""

    inputs: Mapping[str, tuple[int, ...]]
    layers: tuple[CaffeLayer, ...] = field(default_factory=tuple)
    weighted: tuple[str, ...] | None = None
    path: Path | None = None


def opened(path: Path) -> CaffeNetwork:
    """The network of a .prototxt and the .caffemodel beside it."""
    weights = path.with_suffix(".caffemodel")
    try:
        found = parsed(path.read_bytes(), weights.read_bytes() if weights.is_file() else None)
        return replace(found, path=path)
    except OSError as fault:
        raise ModelError(
            f"{path.name} cannot be read",
            because=fault.strerror or str(fault),
            code="NF-MODEL-001",
        ) from fault


def parsed(text: bytes, weights: bytes | None) -> CaffeNetwork:
    """The network of both files' bytes, or of the first alone; a ModelError for what is none."""
    try:
        stated = message(iter(tokens(text.decode())))
        held = {} if weights is None else dict(blobs(weights))
        return replace(_network(stated, held), weighted=None if weights is None else tuple(held))
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


def _network(stated: Mapping[str, list[Any]], held: Mapping[str, tuple[Array, ...]]) -> CaffeNetwork:
    inputs: dict[str, tuple[int, ...]] = {}
    shapes = [tuple(map(int, one["dim"])) for one in stated.get("input_shape", [])]
    sizes = list(map(int, stated.get("input_dim", [])))
    shapes = shapes or [tuple(sizes[i : i + 4]) for i in range(0, len(sizes), 4)]
    if len(shapes) < len(stated.get("input", [])):
        raise not_deployed(f'no sizes are stated of the input "{stated["input"][len(shapes)]}"')
    inputs.update(zip(stated.get("input", []), shapes, strict=True))
    layers = []
    for one in (*stated.get("layer", []), *stated.get("layers", [])):
        if not _tested(one):
            continue
        if "type" not in one and "layer" in one:
            raise ModelError(
                "the prototxt has the form of 2013",
                because="its layers are written as layers { layer { ... } }",
                hint="Caffe's upgrade_net_proto_text and upgrade_net_proto_binary write both files anew",
                code="NF-MODEL-398",
            )
        kind = str(one["type"][0])
        kind = OLD.get(kind.replace("_", ""), kind)
        tops, name = tuple(one.get("top", [])), str(one.get("name", ["layer"])[0])
        if kind == "Input":
            given = [tuple(map(int, s["dim"])) for s in one["input_param"][0]["shape"]]
            inputs.update(zip(tops, given * (len(tops) if len(given) == 1 else 1), strict=True))
            continue
        layers.append(CaffeLayer(name, kind, tuple(one.get("bottom", [])), tops, one, held.get(name, ())))
    if not layers:
        raise damaged("it states no layers")
    if not inputs:
        raise not_deployed("it states no inputs with their sizes")
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
