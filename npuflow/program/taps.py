"""Taps: where in local memory a value lies that never reaches DATA, box by box.

Section `taps` of a program, canonical JSON, absent when there is nothing to say:
    values   [[id, shape, dtype, node, quant]]: values that DATA does not show, or that groups also keep in
             local memory
    cores    per core [[command, value, address, box, strides]]: after that command (its index in the core's
             stream), a box (first and end per dimension) of the value of that index lies at the byte address,
             with these byte strides
Commands mean the same without it: only checks and dumps read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from npuflow.base.errors import ModelError
from npuflow.program.meta import CONTAINERS, MAX_BYTES, MAX_RANK, check_quant, natural, need


@dataclass(frozen=True, slots=True)
class Tap:
    """After command `command` of a core, `box` of `value` lies in its local memory at
    `address` with byte `strides`."""

    command: int
    value: str
    address: int
    box: tuple[tuple[int, int], ...]
    strides: tuple[int, ...]

    @property
    def extent(self) -> tuple[int, ...]:
        return tuple(b - a for a, b in self.box)


@dataclass(frozen=True)
class Tapped:
    """A value that taps show, and the node that makes it."""

    shape: tuple[int, ...]
    dtype: str
    node: int
    quant: Mapping[str, Any]


@dataclass(frozen=True)
class ProgramTaps:
    """All taps of a program, by core, and the values that they show."""

    values: Mapping[str, Tapped]
    cores: tuple[tuple[Tap, ...], ...]


def encode_taps(taps: ProgramTaps) -> bytes:
    """The section; nothing if there are no taps."""
    if not any(taps.cores):
        return b""
    number = {name: i for i, name in enumerate(taps.values)}
    body = {
        "values": [[name, list(v.shape), v.dtype, v.node, v.quant] for name, v in taps.values.items()],
        "cores": [
            [[t.command, number[t.value], t.address, [list(d) for d in t.box], list(t.strides)] for t in core]
            for core in taps.cores
        ],
    }
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def decode_taps(body: bytes, counts: Sequence[int], nodes: int, local_bytes: int) -> ProgramTaps:
    """The section of a program with so many commands per core and nodes; whatever is
    wrong with it is a ModelError."""
    if not body:
        return ProgramTaps({}, tuple(() for _ in counts))
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"the program's taps are not JSON: {error}", code="NF-PROGRAM-014") from None
    _need(isinstance(found, dict) and set(found) == {"values", "cores"}, "not values and cores")
    _need(
        isinstance(found["values"], list) and isinstance(found["cores"], list),
        "values or cores is not a list",
    )
    _need(len(found["cores"]) == len(counts), f"{len(found['cores'])} cores of {len(counts)}")
    values: dict[str, Tapped] = {}
    for entry in found["values"]:
        _need(
            isinstance(entry, list) and len(entry) == 5 and isinstance(entry[0], str),
            "a value is not described",
        )
        name, shape, dtype, node, quant = entry
        _need(name not in values, f"{name!r} appears twice")
        _need(_naturals(shape, MAX_BYTES) and len(shape) <= MAX_RANK, f"{name!r} has no shape")
        _need(isinstance(dtype, str) and dtype in CONTAINERS, f"{name!r} has no integer dtype")
        _need(natural(node, nodes - 1), f"{name!r} names no node")
        check_quant(quant, f"tapped {name!r}")
        values[name] = Tapped(tuple(shape), dtype, node, quant)
    names, cores = list(values), []
    for core, count in zip(found["cores"], counts, strict=True):
        _need(isinstance(core, list), "a core is not a list")
        cores.append(tuple(_tap(entry, count, names, values, local_bytes) for entry in core))
    return ProgramTaps(values, tuple(cores))


def _tap(entry: Any, count: int, names: Sequence[str], values: Mapping[str, Tapped], local_bytes: int) -> Tap:
    _need(
        isinstance(entry, list) and len(entry) == 5,
        "a tap is not a command, a value, an address, a box and strides",
    )
    command, value, address, box, strides = entry
    _need(natural(command, count - 1), "a tap names no command")
    _need(natural(value, len(names) - 1), "a tap names no value")
    name = names[value]
    shape, item = values[name].shape, CONTAINERS[values[name].dtype]
    _need(isinstance(box, list) and len(box) == len(shape), f"a box of {name!r} has another rank")
    for pair, size in zip(box, shape, strict=True):
        _need(
            _naturals(pair, size) and len(pair) == 2 and pair[0] < pair[1],
            f"a box of {name!r} lies outside it",
        )
    _need(_naturals(strides, MAX_BYTES) and len(strides) == len(shape), f"a box of {name!r} has no strides")
    _need(natural(address, local_bytes), f"a box of {name!r} has no address")
    end = address + sum((b - a - 1) * s for (a, b), s in zip(box, strides, strict=True)) + item
    _need(end <= local_bytes, f"a box of {name!r} ends at {end}, outside local memory of {local_bytes} bytes")
    return Tap(command, name, address, tuple((a, b) for a, b in box), tuple(strides))


def _naturals(numbers: Any, top: int) -> bool:
    return isinstance(numbers, list) and all(natural(n, top) for n in numbers)


_need = partial(need, what="taps are")
