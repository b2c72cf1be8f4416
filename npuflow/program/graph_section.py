"""The quantised graph that a program may keep: what runs it on whole tensors instead of command by command.

Section `graph` of a program, absent where the recipe leaves it out: u32 size of a JSON header, the header
{"text": the graph's text, "consts": [[digest, dtype, shape]]}, then the constants in that order, each little
endian, in C order, on a 64-byte boundary of the section. Commands mean the same without it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.base.wording import first_line
from npuflow.ir.graph import Graph, merge_consts
from npuflow.ir.text import from_text, to_text
from npuflow.ir.types import Array

ALIGN = 64
Body = bytes | memoryview
KINDS = "biuf"  # of arrays whose bytes say everything


def encode_graph(graph: Graph) -> bytes:
    """The section's bytes; none where a constant is not of numbers (strings of a host's part)."""
    return b"".join(graph_parts(graph))


def graph_parts(graph: Graph) -> list[bytes | memoryview]:
    """The same in parts, without a copy of the constants."""
    consts = {digest: np.asarray(graph.consts[digest]) for digest in sorted(graph.consts)}
    if any(array.dtype.kind not in KINDS for array in consts.values()):
        return []
    rows = [[digest, array.dtype.name, list(array.shape)] for digest, array in consts.items()]
    table = {"text": to_text(graph), "consts": rows}
    head = json.dumps(table, sort_keys=True, separators=(",", ":")).encode()
    parts: list[bytes | memoryview] = [struct.pack("<I", len(head)) + head]
    at = len(parts[0])
    for array in consts.values():
        parts.append(bytes(-at % ALIGN))
        own = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1)
        parts.append(own.view(np.uint8).data)
        at += len(parts[-2]) + len(parts[-1])
    return parts


def shared(bodies: Sequence[Body]) -> tuple[list[bytes], bytes]:
    """Sections of several graphs without their constants, and one pool of these: u32 size of a JSON header,
    the header [[digest, offset, size]], then every different constant once, on 64-byte boundaries."""
    heads, pool, known = [], bytearray(), dict[str, tuple[int, int]]()
    for body in bodies:
        end, rows = _head(body)
        at = end
        for digest, name, shape in rows if body else ():
            at += -at % ALIGN
            size = prod(shape) * np.dtype(name).itemsize
            if digest not in known:
                pool += bytes(-len(pool) % ALIGN)
                known[digest] = len(pool), size
                pool += body[at : at + size]
            at += size
        heads.append(bytes(body[:end]))
    table = json.dumps([[d, *place] for d, place in known.items()], separators=(",", ":")).encode()
    front = struct.pack("<I", len(table)) + table
    return heads, front + bytes(-len(front) % ALIGN) + bytes(pool)


def joined(head: Body, pool: Body) -> bytes:
    """The section of one graph again, with its constants out of the pool."""
    (size,) = struct.unpack_from("<I", pool)
    start = 4 + size + -(4 + size) % ALIGN
    places = {digest: (start + at, count) for digest, at, count in json.loads(bytes(pool[4 : 4 + size]))}
    out = bytearray(head)
    for digest, _, _ in _head(head)[1]:
        at, count = places[digest]
        out += bytes(-len(out) % ALIGN)
        out += pool[at : at + count]
    return bytes(out)


def _head(body: Body) -> tuple[int, list[tuple[str, str, list[int]]]]:
    """Where a section's header ends, and its table of constants."""
    if not body:
        return 0, []
    (size,) = struct.unpack_from("<I", body)
    return 4 + size, json.loads(bytes(body[4 : 4 + size]))["consts"]


def decode_graph(body: Body) -> Graph:
    """The graph of a section; a malformed one is a ModelError."""
    try:
        (size,) = struct.unpack_from("<I", body)
        head = json.loads(bytes(body[4 : 4 + size]))
        return from_text(head["text"], merge_consts(_consts(body, 4 + size, head["consts"])))
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, ModelError) as error:
        raise ModelError(
            "the program's graph is malformed",
            because=first_line(error),
            hint="build the program again",
            code="NF-RUN-001",
        ) from None


def _consts(body: Body, at: int, rows: Any) -> dict[str, Array]:
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
