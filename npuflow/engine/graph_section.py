"""The quantised graph that a program may keep: what runs it on whole tensors instead of command by command.

Section `graph` of a program, absent where the recipe leaves it out: u32 size of a JSON header, the header
{"text": the graph's text, "consts": [[digest, dtype, shape]]}, then the constants in that order, each little
endian, in C order, on a 64-byte boundary of the section. Commands mean the same without it.
"""

from __future__ import annotations

import json
import struct
from math import prod
from typing import Any

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.ir.graph import Graph, merge_consts
from npuflow.ir.text import from_text, to_text
from npuflow.ir.types import Array

ALIGN = 64
KINDS = "biuf"  # of arrays whose bytes say everything


def encode_graph(graph: Graph) -> bytes:
    """The section's bytes; none where a constant is not of numbers (strings of a host's part)."""
    consts = {digest: np.asarray(graph.consts[digest]) for digest in sorted(graph.consts)}
    if any(array.dtype.kind not in KINDS for array in consts.values()):
        return b""
    rows = [[digest, array.dtype.name, list(array.shape)] for digest, array in consts.items()]
    table = {"text": to_text(graph), "consts": rows}
    head = json.dumps(table, sort_keys=True, separators=(",", ":")).encode()
    out = bytearray(struct.pack("<I", len(head)) + head)
    for array in consts.values():
        out += bytes(-len(out) % ALIGN)
        out += np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    return bytes(out)


def decode_graph(body: bytes) -> Graph:
    """The graph of a section; a malformed one is a ModelError."""
    try:
        (size,) = struct.unpack_from("<I", body)
        head = json.loads(body[4 : 4 + size])
        return from_text(head["text"], merge_consts(_consts(body, 4 + size, head["consts"])))
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, ModelError) as error:
        raise ModelError(
            "the program's graph is malformed",
            because=str(error).splitlines()[0] if str(error) else "",
            hint="build the program again",
            code="NF-RUN-001",
        ) from None


def _consts(body: bytes, at: int, rows: Any) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for digest, name, shape in rows:
        at += -at % ALIGN
        dtype = np.dtype(name)
        if dtype.kind not in KINDS:
            raise ValueError(f"a constant of type {name}")
        count = prod(shape)
        array = np.frombuffer(body, dtype.newbyteorder("<"), count, at).reshape(shape)
        found[digest] = array.astype(dtype, copy=False)
        at += count * dtype.itemsize
    if at != len(body):
        raise ValueError(f"{len(body) - at} bytes after the last constant")
    return found
