"""What a command's fields must satisfy on their own: the faults that decoding reports,
without any memory or target."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from npuflow.hw.command import NONE
from npuflow.hw.elements import ELEMENTS, having
from npuflow.hw.isa import BOUNDS, Fields, Opcode, opcodes

SHIFT = (-32, 62)
MAX_ELEMENTS = 1 << 31       # of one command's iteration space: no command can be larger than a memory
MAX_WINDOW = 1 << 16
_POSITIVE = (
    "dims", "x_dims", "batch", "m", "k", "n", "out_channels", "out_height", "out_width", "groups", "group",
    "kernel", "stride", "dilation", "insert",
)
_FLAGS = ("accumulate", "maximum")


def faults(opcode: str, f: Fields) -> list[str]:
    """Every fault of the fields of one command, in words."""
    known = opcodes()[opcode]
    return list(_types(known, f)) or [*_shared(f), *_bounds(known, f), *known.problems(f)]


def _types(opcode: Opcode, f: Fields) -> Iterator[str]:
    for entry in opcode.fields:
        if entry.role is not None and f[entry.name] not in having(entry.role):
            yield f"{entry.name} is {f[entry.name]}, not one of {', '.join(having(entry.role))}"


def _shared(f: Fields) -> Iterator[str]:
    for name in _POSITIVE:
        value = f.get(name)
        numbers = value if isinstance(value, tuple) else () if value is None else (value,)
        if any(n < 1 for n in numbers):
            yield f"{name} must be at least 1"
        if numbers and prod(numbers) > MAX_ELEMENTS:
            yield f"{name} span more than 2^31 elements"
    if "kernel" in f and prod(f["kernel"]) > MAX_WINDOW:
        yield "a window above 2^16 positions"
    for name in _FLAGS:
        if f.get(name, 0) not in (0, 1):
            yield f"{name} must be 0 or 1"
    for name in ("shift", "negative_shift"):
        if not SHIFT[0] <= f.get(name, 0) <= SHIFT[1]:
            yield f"{name} {f[name]} is outside {SHIFT[0]}..{SHIFT[1]}"
    if "lo" in f and "y_type" in f:
        lo, hi = ELEMENTS[f["y_type"]].range
        if not (f.get("los", NONE) != NONE or lo <= f["lo"] <= hi) or not (
            f.get("his", NONE) != NONE or lo <= f["hi"] <= hi
        ):
            yield f"the clamp {f['lo']}..{f['hi']} leaves {f['y_type']}"
        if f.get("los", NONE) == NONE and f.get("his", NONE) == NONE and f["lo"] > f["hi"]:
            yield f"the clamp {f['lo']}..{f['hi']} is empty"


def _bounds(opcode: Opcode, f: Fields) -> Iterator[str]:
    """Of commands on floats: patterns of y's type, or its codes."""
    if not set(BOUNDS) <= set(opcode.fields):
        return
    kind = ELEMENTS[f["y_type"]]
    least, most = kind.range if kind.kind == "int" else (0, (1 << kind.bits) - 1)
    for name in ("low", "high"):
        if f.get(f"{name}s", NONE) == NONE and not least <= f[name] <= most:
            yield f"{name} {f[name]} is outside {least}..{most}, what {f['y_type']} holds"
    if kind.kind == "int" and f["low"] > f["high"]:
        yield f"the clamp {f['low']}..{f['high']} is empty"
