"""Writes the C runtime's header of the opcodes: `python -m tests.runtime.isa_header`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from npuflow.hw.check import _FLAGS, _POSITIVE
from npuflow.hw.elements import CODED, ELEMENTS, Role
from npuflow.hw.encode import layout
from npuflow.hw.isa import HEADER_WORDS, WAIT_SLOTS, WORDS, Field, Opcode, opcodes

HEADER = Path(__file__).parents[2] / "npuflow" / "runtime" / "src" / "isa.h"
NOTE = "/* The instruction set, written by tests/runtime/isa_header.py from npuflow/isa; do not edit. */"
ROLES = get_args(Role)
SHIFTS = ("shift", "negative_shift")
ANY = 0


def text() -> str:
    """The whole header."""
    known = list(opcodes().values())
    lines = [NOTE, "#ifndef NPF_ISA_H", "#define NPF_ISA_H", "#include <stdint.h>", ""]
    numbers = {"WORDS": WORDS, "HEADER_WORDS": HEADER_WORDS, "WAIT_SLOTS": WAIT_SLOTS, "TYPES": len(CODED)}
    lines += ["enum {", *(f"    NPF_{name} = {n}," for name, n in numbers.items()), "};", "", "enum {"]
    lines += [f"    OP_{one.name} = {one.code}," for one in known] + ["};", ""]
    for one in known:
        words = [f"    {one.name}_{field.name} = {at}," for field, at in layout(one.name)]
        lines += ["enum {", *words, "};"]
    lines += ["", *_elements(), "", *_checks(known), "", "#endif", ""]
    return "\n".join(lines)


def _elements() -> Iterator[str]:
    yield "enum {"
    yield from (f"    TYPE_{name} = {ELEMENTS[name].code}," for name in CODED)
    yield "};"
    yield "enum {"
    yield from (f"    ROLE_{role} = {1 << i}," for i, role in enumerate(ROLES))
    yield "};"
    yield "typedef struct {"
    yield "    uint8_t bits, bytes, is_signed, packed, is_float, kept, of, block;"
    yield "    uint8_t exponent, pair, magnitude, both, finite;"
    yield "    int16_t least, block_bytes, roles;"
    yield "} npf_type_row;"
    yield "extern const npf_type_row NPF_TYPE[NPF_TYPES];"
    yield "#ifdef NPF_TABLES"
    yield "const npf_type_row NPF_TYPE[NPF_TYPES] = {"
    for name in CODED:
        row = ELEMENTS[name]
        kept, of = row.sparse or (0, 0)
        block = row.block
        shared = (block.size, row.exponent, block.pair, block.magnitude, block.both) if block else ()
        numbers = [row.bits, row.bytes, row.signed, row.packed, row.kind == "float", kept, of]
        numbers += [*(shared or (0, row.exponent, 0, 0, 0)), row.finite]
        numbers += [block.least, row.block_bytes] if block else [0, 0]
        numbers.append(sum(1 << i for i, role in enumerate(ROLES) if role in row.roles))
        yield f"    {{{', '.join(str(int(n)) for n in numbers)}}},  /* {name} */"
    yield "};"
    yield "#endif"


def _checks(known: list[Opcode]) -> Iterator[str]:
    yield "/* What every field must be: at least 1 each, one of `number` names, a type of the roles `number`,"
    yield "   a flag, a shift. */"
    yield "enum { CHECK_POSITIVE, CHECK_NAMES, CHECK_TYPE, CHECK_FLAG, CHECK_SHIFT };"
    yield "typedef struct { uint8_t word, width, check; uint16_t number; } npf_field_check;"
    rows: list[str] = []
    table: dict[int, str] = {}
    for one in known:
        first, queue = len(rows), {"LOAD": 0, "STORE": 1, "TENSOR": 2, "VECTOR": 3, "ANY": 4}[one.queue]
        rows += [f"    {{{at}, {field.width}, {what}}}," for field, at in layout(one.name)
                 for what in _of(field)]
        end = sum(field.width for field in one.fields) + HEADER_WORDS
        numbers = [1, end, queue, first, len(rows) - first]
        table[one.code] = f"    {{{', '.join(map(str, numbers))}}},  /* {one.name} */"
    yield "/* `queue`: LOAD, STORE, TENSOR, VECTOR, any */"
    yield "typedef struct { uint8_t known, end, queue; uint16_t first, count; } npf_opcode_row;"
    yield f"enum {{ NPF_OPCODES = {max(table) + 1} }};"
    yield "extern const npf_field_check NPF_CHECKS[];"
    yield "extern const npf_opcode_row NPF_OPCODE[NPF_OPCODES];"
    yield "#ifdef NPF_TABLES"
    yield "const npf_field_check NPF_CHECKS[] = {"
    yield from rows
    yield "};"
    yield "const npf_opcode_row NPF_OPCODE[NPF_OPCODES] = {"
    yield from (table.get(code, "    {0, 0, 0, 0, 0},") for code in range(max(table) + 1))
    yield "};"
    yield "#endif"


def _of(field: Field) -> Iterator[str]:
    if field.role is not None:
        yield f"CHECK_TYPE, {1 << ROLES.index(field.role)}"
    elif field.enum:
        yield f"CHECK_NAMES, {len(field.enum)}"
    if field.name in _POSITIVE:
        yield "CHECK_POSITIVE, 0"
    if field.name in _FLAGS:
        yield "CHECK_FLAG, 0"
    if field.name in SHIFTS:
        yield "CHECK_SHIFT, 0"


if __name__ == "__main__":
    HEADER.write_text(text())
