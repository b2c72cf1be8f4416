"""Requests and responses of the KServe v2 protocol, with the binary tensor extension; no HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npuflow.apps.serve.tensors import (
    DATATYPES,
    NAMES,
    ProtocolError,
    datatype_of,
    named,
    of_bytes,
    of_json,
    parameters,
    shape_of,
    to_bytes,
)
from npuflow.runner.ports import Array, Port

EXTENSIONS = ("binary_tensor_data", "statistics", "model_repository", "model_configuration")
VERSION = "1"  # of every model
TIMEOUT = "timeout"  # of a request, in microseconds


@dataclass(frozen=True)
class Request:
    """What is to be computed: arrays by input, and the outputs with whether each goes back as bytes."""

    id: str
    inputs: Mapping[str, Array]
    outputs: Mapping[str, bool]
    timeout: float | None = None  # seconds


def decode(body: bytes, header: int | None, outputs: Sequence[Port]) -> Request:
    """A request's body: JSON of `header` bytes (None: all of it), then the bytes of binary tensors."""
    size = len(body) if header is None else header
    if size > len(body) or size < 0:
        raise ProtocolError(f"Inference-Header-Content-Length is {header}, the body has {len(body)} bytes")
    table = json_object(body[:size])
    said = parameters(table, "the request")
    inputs = _inputs(table, memoryview(body)[size:])
    plain = bool(said.get("binary_data_output", False))
    wanted = {port.name: plain for port in outputs}
    if "outputs" in table:
        wanted = {}
        for row in named(table["outputs"], "outputs"):
            if row["name"] not in {port.name for port in outputs}:
                raise ProtocolError(f'there is no output "{row["name"]}"')
            wanted[row["name"]] = bool(parameters(row, row["name"]).get("binary_data", plain))
    name = table.get("id", "")
    if not isinstance(name, str):
        raise ProtocolError("id is not a string")
    return Request(name, inputs, wanted, _timeout(said))


def encode(request: Request, found: Mapping[str, Array], model: str) -> tuple[bytes, int | None]:
    """A response's body, and the size of its JSON where bytes follow it."""
    rows, parts = [], []
    for name, binary in request.outputs.items():
        array = found[name]
        row: dict[str, Any] = {"name": name, "datatype": datatype_of(array), "shape": list(array.shape)}
        if binary:
            part = to_bytes(array)
            row["parameters"] = {"binary_data_size": len(part)}
            parts.append(part)
        else:
            row["data"] = array.reshape(-1).tolist()
        rows.append(row)
    table = {"model_name": model, "model_version": VERSION, "outputs": rows}
    head = json.dumps({**table, **({"id": request.id} if request.id else {})}).encode()
    return b"".join([head, *parts]), len(head) if parts else None


def described(name: str, inputs: Sequence[Port], outputs: Sequence[Port], batched: bool) -> dict[str, Any]:
    """A model's metadata. `batched`: requests may hold any number of samples along the first axis."""
    return {
        "name": name,
        "versions": [VERSION],
        "platform": "npuflow",
        "inputs": [_port(port, batched) for port in inputs],
        "outputs": [_port(port, batched) for port in outputs],
    }


def _port(port: Port, batched: bool) -> dict[str, Any]:
    shape = list(port.shape) if port.ranked else [-1]
    return {
        "name": port.name,
        "datatype": NAMES.get(port.dtype, port.dtype),
        "shape": [-1, *shape[1:]] if batched else shape,
    }


def json_object(text: bytes) -> dict[str, Any]:
    """The object that a body is; ProtocolError for any other text."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the request is not JSON: {error}") from None
    if not isinstance(table, dict):
        raise ProtocolError("the request is not an object")
    return table


def _inputs(table: Mapping[str, Any], rest: memoryview) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for row in named(table.get("inputs"), "inputs"):
        name, kind = row["name"], row.get("datatype")
        what = f'the input "{name}"'
        if not isinstance(kind, str) or kind not in DATATYPES:
            raise ProtocolError(f"{what}: datatype {kind!r} is not one of {', '.join(DATATYPES)}")
        shape, size = shape_of(row.get("shape"), what), parameters(row, what).get("binary_data_size")
        if size is None:
            found[name] = of_json(row.get("data"), kind, shape, what)
            continue
        if type(size) is not int or not 0 <= size <= len(rest) or "data" in row:
            raise ProtocolError(f"{what}: binary_data_size is {size!r}, {len(rest)} bytes are left")
        found[name], rest = of_bytes(rest[:size], kind, shape, what), rest[size:]
    if len(rest):
        raise ProtocolError(f"{len(rest)} bytes after the last tensor")
    return found


def _timeout(said: Mapping[str, Any]) -> float | None:
    value = said.get(TIMEOUT)
    if value is None:
        return None
    if type(value) is not int or value <= 0:
        raise ProtocolError(f"timeout is {value!r}, not microseconds")
    return value / 1e6
