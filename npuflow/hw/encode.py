"""Commands to words and back: everything derives from the opcodes' fields, and every
field is checked on the way in.

`encode(decode(words)) == words` for every word that decodes; whatever does not decode is
one error that names the command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import InternalError, ModelError, Where
from npuflow.hw.check import faults
from npuflow.hw.command import NONE, Command, FieldValue
from npuflow.hw.isa import HEADER_WORDS, WAIT_SLOTS, WORDS, Field, Opcode, by_code, opcodes

Words = npt.NDArray[np.uint32]


@cache
def layout(name: str) -> tuple[tuple[Field, int], ...]:
    """Fields of an opcode with the index of their first word."""
    placed, at = [], HEADER_WORDS
    for entry in opcodes()[name].fields:
        placed.append((entry, at))
        at += entry.width
    assert at <= WORDS, f"{name} needs {at} words"
    return tuple(placed)


def encode(
    opcode: str,
    values: Mapping[str, object],
    *,
    queue: int = 0,
    core: int = 0,
    node: int = 0,
    wait: Sequence[int] = (),
    flags: int = 0,
) -> Words:
    """The 64 words of a command. Enum fields take names or codes, vectors sequences; unknown
    or oversized values are bugs."""
    words = np.zeros(WORDS, np.uint32)
    unknown = set(values) - {f.name for f, _ in layout(opcode)}
    if unknown:
        raise InternalError(f"{opcode} has no field {', '.join(sorted(unknown))}", code="NF-INTERNAL-041")
    header = (opcodes()[opcode].code, 8), (queue, 8), (core, 8), (flags, 8)
    shift = 0
    for part, bits in header:
        if not 0 <= part < 1 << bits:
            raise InternalError(
                f"{opcode}: header value {part} does not fit {bits} bits", code="NF-INTERNAL-042",
            )
        words[0] |= np.uint32(part << shift)
        shift += bits
    words[1] = node
    counts = np.zeros(WAIT_SLOTS, "<u2")
    counts[: len(wait)] = np.asarray(wait, np.int64) & 0xFFFF
    words[2:HEADER_WORDS] = counts.view("<u4")
    for entry, at in layout(opcode):
        value = values.get(entry.name, NONE if entry.optional else 0)
        for i, number in enumerate(_numbers(opcode, entry, value)):
            words[at + i] = number & 0xFFFFFFFF
    return words


def _numbers(opcode: str, entry: Field, value: object) -> Iterator[int]:
    if isinstance(value, str):
        if value not in entry.enum:
            raise InternalError(
                f"{opcode}.{entry.name}: {value!r} is none of {', '.join(entry.enum)}",
                code="NF-INTERNAL-043",
            )
        yield entry.enum.index(value)
        return
    if isinstance(value, Sequence | np.ndarray):
        numbers = [int(v) for v in value]
    else:
        numbers = [int(value)] * entry.width  # type: ignore[call-overload]
    if len(numbers) != entry.width:
        raise InternalError(
            f"{opcode}.{entry.name} takes {entry.width} numbers, not {len(numbers)}", code="NF-INTERNAL-044",
        )
    lo, hi = (-(1 << 31), (1 << 31) - 1) if entry.signed else (0, NONE)
    for number in numbers:
        if not lo <= number <= hi:
            raise InternalError(
                f"{opcode}.{entry.name}: {number} is outside {lo}..{hi}", code="NF-INTERNAL-045",
            )
        yield number


def again(command: Command) -> Words:
    """The words of a decoded command."""
    return encode(
        command.opcode, command.fields, queue=command.queue, core=command.core,
        node=command.node, wait=command.wait, flags=command.flags,
    )


def decode(words: Words, *, index: int = 0, core: int | None = None) -> Command:
    """One command from its 64 words, every field checked; a fault is a ModelError that names the command."""
    raw = [int(w) for w in words]
    opcode = by_code(raw[0] & 0xFF)
    where = _where(index, core if core is not None else (raw[0] >> 16) & 0xFF, opcode)
    if opcode is None:
        raise ModelError(f"unknown opcode {raw[0] & 0xFF}", where=where, code="NF-DECODE-007")
    fields: dict[str, FieldValue] = {}
    end = HEADER_WORDS
    for entry, at in layout(opcode.name):
        numbers = raw[at : at + entry.width]
        if entry.signed:
            numbers = [n - (1 << 32) if n >> 31 else n for n in numbers]
        end = at + entry.width
        if entry.enum:
            if numbers[0] >= len(entry.enum):
                raise ModelError(
                    f"{opcode.name}.{entry.name} is {numbers[0]}, not one of 0..{len(entry.enum) - 1}",
                    where=where, code="NF-DECODE-008",
                )
            fields[entry.name] = entry.enum[numbers[0]]
        else:
            fields[entry.name] = numbers[0] if entry.width == 1 else tuple(numbers)
    command = Command(
        opcode.name, fields, raw[0] >> 8 & 0xFF, raw[0] >> 16 & 0xFF, raw[1], _counts(words), raw[0] >> 24
    )
    found = ["a reserved word is not 0"] if any(raw[end:]) else []
    found += ["flags are reserved and must be 0"] if command.flags else []
    found += [f"it says core {command.core}"] if core is not None and command.core != core else []
    found += faults(opcode.name, fields)
    if found:
        raise ModelError(f"{opcode.name}: {'; '.join(found)}", where=where, code="NF-DECODE-009")
    return command


def decode_all(words: Words, *, core: int | None = None, alike: bool = False) -> tuple[Command, ...]:
    """Commands of one core; `words` is [n, 64]. `alike`: many are the same but for their waits."""
    if not alike:
        return tuple(decode(row, index=i, core=core) for i, row in enumerate(words))
    known: dict[bytes, Command] = {}
    bodies, found = words.copy(), []
    bodies[:, 2:HEADER_WORDS] = 0
    for i, (row, body) in enumerate(zip(words, bodies, strict=True)):
        key = body.tobytes()
        if key not in known:
            known[key] = decode(body, index=i, core=core)
        found.append(replace(known[key], wait=_counts(row)))
    return tuple(found)


def _counts(row: Words) -> tuple[int, ...]:
    """The counts that a command waits for, without zeros at the end."""
    counts = [int(n) >> s & 0xFFFF for n in row[2:HEADER_WORDS] for s in (0, 16)]
    while counts and counts[-1] == 0:
        counts.pop()
    return tuple(counts)


def _where(index: int, core: int, opcode: Opcode | None) -> Where:
    return Where(value=f"command {index} of core {core}" + (f" ({opcode.name})" if opcode else ""))


def disassemble(command: Command, index: int | None = None, queues: Sequence[str] = ()) -> str:
    """One line: index, queue, opcode, fields that are not 0 or absent, waits."""
    queue = queues[command.queue] if command.queue < len(queues) else f"q{command.queue}"
    parts = []
    for entry, _ in layout(command.opcode):
        value = command.fields[entry.name]
        if value in (0, NONE) and not entry.enum:
            continue
        text = "x".join(map(str, value)) if isinstance(value, tuple) and not entry.signed else None
        text = text or (",".join(map(str, value)) if isinstance(value, tuple) else str(value))
        parts.append(f"{entry.name}={text}")
    names = [queues[i] if i < len(queues) else f"q{i}" for i in range(len(command.wait))]
    waits = [f"{n}>={k}" for n, k in zip(names, command.wait, strict=True) if k]
    head = "" if index is None else f"{index:6d}  "
    tail = f"  wait {' '.join(waits)}" if waits else ""
    return f"{head}c{command.core} {queue:7s} n{command.node:<4d} {command.opcode:8s} {' '.join(parts)}{tail}"
