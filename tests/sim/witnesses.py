"""Operands at which two commands make different results, searched for with arithmetic, or
the proof that there are none."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.hw.command import NONE, Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.floats import encoded
from npuflow.program.container import Program
from npuflow.sim.machine import SimulatedMachine
from tests.sim.cases import LOCAL, SIZES, TARGET, Case
from tests.sim.equivalence import span_of
from tests.sim.programs import serial
from tests.sim.steps import alike, operands, sums

ELEMENTWISE = {
    "RESCALE": ("x",),
    "LUT": ("x",),
    "ADD": ("a", "b"),
    "ABSDIFFERENCE": ("a", "b"),
    "MUL": ("a", "b"),
    "DIV": ("a", "b"),
    "MINMAX": ("a", "b"),
    "PRELU": ("x", "slope"),
    "FCAST": ("x",),
    "FLUT": ("x",),
    "FUNARY": ("x",),
    "FARITH": ("a", "b"),
}
# with the first operand held, the result goes one way with the second
RISING = ("ADD", "MUL", "MINMAX", "PRELU")
PLAIN = ("dims", "table")
# of codes of the second operand, each with one code of the first
ROWS = 48
# commands whose results are rounded from float32: the operand, and the field that only moves its last bits
ROUNDED = {"FROUND": ("acc", "divisor"), "FSOFTMAX": ("x", "chunk")}
COLUMNS = 1 << 18


def _codes(dtype: str) -> np.ndarray:
    """Every number of a type; of floats every pattern."""
    if ELEMENTS[dtype].kind == "float":
        return np.arange(1 << ELEMENTS[dtype].bits).astype(ELEMENTS[dtype].numpy)
    lo, hi = ELEMENTS[dtype].range
    return np.arange(lo, hi + 1).astype(dtype)


def judged(a: Command, b: Command, case: Case, rng: np.random.Generator) -> tuple[str, np.ndarray | None]:
    """("all codes", None): proved equal; ("", image): a memory that shows the
    difference; ("", None): neither."""
    if a.opcode != b.opcode:
        return "", None
    if a.opcode in ELEMENTWISE:
        same = not a.opcode.startswith("F") and alike(a.opcode, a.fields, b.fields)
        return ("steps", None) if same else _pointwise(a, b, case, rng)
    if a.opcode in ROUNDED:
        return "", _rare(a, b, rng)
    found = sums(a.opcode, a.fields, b.fields, dict(case.consts))
    if found is None:
        return "", None
    proved, image = True, np.zeros((1, LOCAL), np.uint8)
    name = "acc" if a.opcode == "REQUANT" else "x"
    span = ELEMENTS[a.fields["acc_type"]].range if name == "acc" else span_of(a.fields, "x")
    for one in found:
        made = operands(one, span, rng)
        if isinstance(made, dict):
            view = _view(image[0], a, name)
            for place, number in made.items():
                view[place] = number + a.fields.get(f"{name}_zero", 0)
            return "", image
        proved = proved and made is None
    return ("steps" if proved else ""), None


def _pointwise(a: Command, b: Command, case: Case, rng: np.random.Generator) -> tuple[str, np.ndarray | None]:
    names = ELEMENTWISE[a.opcode]
    same = [n for n in a.fields if n in PLAIN or n.endswith("_type") or n in ("y", "y_strides")]
    if any(a.fields[n] != b.fields[n] for n in same):
        return "", None
    moved = [n for n in names if any(a.fields[k] != b.fields[k] for k in (n, f"{n}_strides"))]
    if any(_matters(a, n, case) or _matters(b, n, case) for n in moved):
        return "", None
    complete, batches = _batches(a, rng)
    for codes in batches:
        made, other = (codes_of(c, codes, case) for c in (a, b))
        if isinstance(made, str) or isinstance(other, str):
            return ("all codes", None) if complete and made == other else ("", None)
        different = np.flatnonzero(made != other)
        if len(different):
            at, image = int(different[0]), np.zeros((1, LOCAL), np.uint8)
            for name in names:
                _view(image[0], a, name)[...] = codes[name][at]
            return "", image
    return ("all codes" if complete else ""), None


def _batches(c: Command, rng: np.random.Generator):
    """Whether these are all codes, or pairs of codes, and the codes by operand; many
    where they are too many for all."""
    names = ELEMENTWISE[c.opcode]
    every = [_codes(t) for t in (c.fields[f"{n}_type"] for n in names)]
    if np.prod([len(e) for e in every]) <= 1 << 16:
        grids = np.meshgrid(*every, indexing="ij")
        return True, [{n: g.ravel() for n, g in zip(names, grids, strict=True)}]
    return False, _rows(names, every, rng)


def _rows(names, every, rng: np.random.Generator):
    """All codes of one operand with one code of the other: the outermost ones, those around zero, and any."""
    for _ in range(ROWS):
        for held, free in ((0, 1), (1, 0)):
            codes = every[held]
            edge = int(rng.choice([0, 1, len(codes) // 2, len(codes) - 2, len(codes) - 1]))
            one = codes[edge if rng.random() < 0.5 else int(rng.integers(len(codes)))]
            yield {names[held]: np.full(len(every[free]), one), names[free]: every[free]}


def _matters(c: Command, name: str, case: Case) -> bool:
    """Whether some code of this operand makes another result than some other,
    whatever is in the other operand."""
    names = ELEMENTWISE[c.opcode]
    if len(names) == 1:
        return True
    other = names[1 - names.index(name)]
    mine, others = (_codes(t) for t in (c.fields[f"{n}_type"] for n in (name, other)))
    if len(mine) * len(others) > 1 << 16:
        if c.opcode not in RISING or (c.opcode, name) == ("PRELU", "x"):
            return True
        mine = mine[[0, -1]]
    grids = np.meshgrid(mine, others, indexing="ij")
    made = codes_of(c, {name: grids[0].ravel(), other: grids[1].ravel()}, case)
    return isinstance(made, str) or bool(
        (made.reshape(grids[0].shape) != made.reshape(grids[0].shape)[0]).any()
    )


def codes_of(c: Command, codes: dict[str, np.ndarray], case: Case) -> np.ndarray | str:
    """What the command makes of one code of each operand after the other; or what is wrong."""
    fields, at, image = dict(c.fields), 0, b""
    size = len(next(iter(codes.values())))
    for name, values in codes.items():
        step = SIZES[fields[f"{name}_type"]]
        fields[name], fields[f"{name}_strides"] = at, (0, 0, 0, step)
        image += values.tobytes() + bytes(-size * step % 8)
        at = len(image)
    step = SIZES[fields["y_type"]]
    fields.update(y=at, y_strides=(0, 0, 0, step), dims=(1, 1, 1, size))
    local = at + size * step
    local += -local % 8
    table = next((body for start, body in case.consts if start == c.fields.get("table")), b"")
    if table:
        fields["table"] = local
    try:
        machine = SimulatedMachine(_alone(c.opcode, fields, local + len(table)), 1, exact_only=True)
        machine.memory.local[0][0, local : local + len(table)] = np.frombuffer(table, np.uint8)
        machine.memory.local[0][0, : len(image)] = np.frombuffer(image, np.uint8)
        machine.run(0)
    except ModelError as error:
        return error.message
    return machine.memory.local[0][0, at : at + size * step].view(ELEMENTS[fields["y_type"]].numpy).copy()


def _rare(a: Command, b: Command, rng: np.random.Generator) -> np.ndarray | None:
    """A memory that shows a difference in the last bits of float32, which a result of 16 bits seldom does:
    many columns at once; None: not looked for, or not found."""
    name, only = ROUNDED[a.opcode]
    if any(a.fields[k] != b.fields[k] for k in a.fields if k != only):
        return None
    kind, rows = a.fields[f"{name}_type"], a.fields["dims"][1] if name == "x" else 1
    numbers = rng.normal(0, 1, (rows, COLUMNS))
    if name == "acc":
        numbers *= np.exp(rng.normal(0, 4, COLUMNS)) * a.fields["divisor"]
    body = numbers.astype(np.float32) if kind == "float32" else encoded(numbers, kind)
    made = [_columns(c, name, body) for c in (a, b)]
    at = np.flatnonzero((made[0] != made[1]).any(0))
    if not len(at):
        return None
    image = np.zeros((1, LOCAL), np.uint8)
    view, dims = _view(image[0], a, name), a.fields["dims"]
    for place in product(*map(range, dims)):
        line = np.ravel_multi_index(place, dims) if name == "acc" else place[0] * dims[2] + place[2]
        view[place] = body[place[1] if name == "x" else 0, at[line % len(at)]]
    return image


def _columns(c: Command, name: str, body: np.ndarray) -> np.ndarray:
    """What the command makes of columns, each by itself."""
    rows, count = body.shape
    dims = (1, rows, count) if name == "x" else (1, 1, 1, count)
    strides = (0, 2 * count, 2) if name == "x" else (0, 0, 0, 2)
    fields = {**c.fields, name: 0, "y": body.nbytes, "y_strides": strides, "dims": dims}
    if name == "x":
        fields["x_strides"] = strides
    else:
        fields.update(lows=NONE, highs=NONE, channel_axis=0)
        fields.update({k: 0x7FFF for k in ("low", "high") if c.fields[f"{k}s"] != NONE})  # NaN bounds nothing
    size = body.nbytes + 2 * rows * count
    machine = SimulatedMachine(_alone(c.opcode, fields, size), 1, exact_only=True)
    machine.memory.local[0][0, : body.nbytes] = np.ascontiguousarray(body).view(np.uint8).ravel()
    machine.run(0)
    return machine.memory.local[0][0, body.nbytes : size].view(np.uint16).reshape(rows, count).copy()


def _alone(opcode: str, fields: dict, size: int) -> Program:
    """One command by itself in a local memory that its operands fill."""
    target = replace(TARGET, memory=replace(TARGET.memory, local_bytes=-(-size // 64) * 64))
    program = serial([(opcode, fields)], target=target)
    return replace(program, meta={**program.meta, "local_bytes": target.memory.local_bytes})


def _view(image: np.ndarray, c: Command, name: str):
    """An operand as the command sees it, to be written."""
    f = c.fields
    dtype = np.dtype(ELEMENTS[f[f"{name}_type"]].numpy)
    if name == "acc":
        strides = [dtype.itemsize * int(np.prod(f["dims"][d + 1 :])) for d in range(4)]
    else:
        strides = list(f[f"{name}_strides"])
    return _Places(image, dtype, f[name], strides, f["dims"] if "dims" in f else f["x_dims"])


class _Places:
    """Elements of a strided tensor of bytes that need not be aligned."""

    def __init__(
        self, image: np.ndarray, dtype: np.dtype, start: int, strides: list[int], dims: tuple[int, ...]
    ) -> None:
        self.image, self.dtype, self.start, self.strides, self.dims = image, dtype, start, strides, dims

    def __setitem__(self, place, value) -> None:
        places = product(*map(range, self.dims)) if place is Ellipsis else [place]
        body = np.frombuffer(np.array(value).astype(self.dtype).tobytes(), np.uint8)
        for index in places:
            at = self.start + sum(i * s for i, s in zip(index, self.strides, strict=True))
            self.image[at : at + len(body)] = body
