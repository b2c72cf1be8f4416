"""Digests ignored: changed weights show in the sums; changed commands differ, race, fail to decode, or are proven equal."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from cases import LOCAL, MAKERS, SIZES, TARGET, Case, flat_copy, random_case, serial, wrap

from npuflow.base.errors import ModelError
from npuflow.engine.program.container import Program
from npuflow.engine.sim.hazards import hazards_of
from npuflow.engine.sim.machine import Machine
from npuflow.engine.sim.order import order_of
from npuflow.hw.encode import Command, decode
from npuflow.hw.isa import BY_NAME, HEADER_WORDS, WORDS
from npuflow.testing.equivalence import equivalent


def run(program: Program, image: np.ndarray) -> np.ndarray:
    machine = Machine(program, len(image), exact_only=True)
    machine.write("in", image)
    machine.run(0)
    return machine.read("out")


def inside(case: Case) -> None:
    """A convolution whose windows all lie in the tile: nothing of it is padding, so everything matters."""
    case.fields.update(accumulate=0, origin=(0, 0), insert=(1, 1), stride=(1, 1), dilation=(1, 1), acc_type="int32")
    _, _, height, width = case.fields["x_dims"]
    kernel = tuple(min(k, s) for k, s in zip(case.fields["kernel"], (height, width), strict=True))
    case.fields.update(kernel=kernel, out_height=height - kernel[0] + 1, out_width=width - kernel[1] + 1)


def test_weight_bytes_show_at_the_accumulator() -> None:
    rng = np.random.default_rng(1)
    image = rng.integers(0, 256, (2, LOCAL)).astype(np.uint8)
    shown = tried = 0
    for seed in range(12):
        case = random_case(seed, "CONV")
        inside(case)
        channels, kernel = case.fields["x_dims"][1], case.fields["kernel"]
        program = wrap(case)
        want = run(program, image)
        size = case.fields["out_channels"] * channels // case.fields["groups"] * kernel[0] * kernel[1]
        size *= 2 if case.fields["w_type"] == "int16" else 1
        for _ in range(25):
            const = bytearray(program.const)
            const[int(rng.integers(0, size))] ^= int(rng.integers(1, 256))
            tried += 1
            shown += not np.array_equal(run(replace(program, const=bytes(const)), image), want)
    assert shown >= 0.99 * tried


ELEMENTWISE = {"RESCALE": ("x",), "LUT": ("x",), "ADD": ("a", "b"), "MUL": ("a", "b"), "DIV": ("a", "b"), "MINMAX": ("a", "b")}


def same_function(a: Command, b: Command, case: Case) -> bool:
    """Proof by all codes: element-wise commands that differ in numbers alone, and these change no result of any operands."""
    operands = ELEMENTWISE.get(a.opcode)
    if operands is None or a.opcode != b.opcode:
        return False
    fixed = [n for n in a.fields if n in ("dims", "table") or n.endswith(("_strides", "_type")) or n in (*operands, "y")]
    bits = [8 * SIZES[a.fields[f"{o}_type"]] for o in operands]
    if sum(bits) > 16 or any(a.fields[n] != b.fields[n] for n in fixed):
        return False
    return all_codes(a, bits, case) == all_codes(b, bits, case)


def all_codes(c: Command, bits: list[int], case: Case) -> bytes | str:
    """What an element-wise command makes of every code, or pair of codes, that it can read; or that it faults."""
    operands, size = ELEMENTWISE[c.opcode], 1 << sum(bits)
    grids = np.meshgrid(*(np.arange(1 << n, dtype=f"u{n // 8}") for n in bits), indexing="ij")
    image, fields, at = b"", dict(c.fields), 0
    for name, grid in zip(operands, grids, strict=True):
        fields[name], at = at, at + grid.nbytes
        fields[f"{name}_strides"] = (0, 0, 0, SIZES[fields[f"{name}_type"]])
        image += grid.tobytes()
    step = SIZES[fields["y_type"]]
    fields.update(y=at, y_strides=(0, 0, 0, step), dims=(1, 1, 1, size))
    local = at + size * step
    constants = [body for start, body in case.consts if start == c.fields.get("table")]
    if constants:
        fields["table"] = local
    table = b"".join(constants)
    try:
        machine = Machine(alone(c.opcode, fields, local + len(table)), 1, exact_only=True)
        machine.memory.local[0][0, local : local + len(table)] = np.frombuffer(table, np.uint8)
        machine.memory.local[0][0, : len(image)] = np.frombuffer(image, np.uint8)
        machine.run(0)
    except ModelError as error:
        return error.message
    return machine.memory.local[0][0, at:local].tobytes()


def alone(opcode: str, fields: dict, size: int) -> Program:
    """One command by itself in a local memory that its operands fill."""
    target = replace(TARGET, memory=replace(TARGET.memory, local_bytes=-(-size // 64) * 64))
    program = serial([(opcode, fields)], target=target)
    return replace(program, meta={**program.meta, "local_bytes": target.memory.local_bytes})


def memories(case: Case, each: int) -> np.ndarray:
    """Full-range bytes; numbers of every magnitude and the outermost ones, of each size; and the numbers at which the command's
    own result moves: full range alone saturates all that follows."""
    rng, found = case.rng, [case.rng.integers(0, 256, (each, LOCAL)).astype(np.uint8)]
    for size in (1, 2, 4, 8):
        shape, limits = (each, LOCAL // size), np.iinfo(f"i{size}")
        found.append((np.exp2(rng.uniform(0, 8 * size - 1, shape)) * rng.choice([-1, 1], shape)).astype(f"<i{size}"))
        found.append(rng.choice(np.array([limits.min, limits.max, 0, -1], f"<i{size}"), shape))
    zeros = [case.fields[z] for z in ("x_zero", "a_zero", "b_zero") if z in case.fields]
    if zeros:
        for size in (1, 2):
            shape = (each, LOCAL // size)
            near = rng.choice(zeros, shape) + np.exp2(rng.uniform(-1, 8 * size - 2, shape)) * rng.choice([-1, 0, 1], shape)
            found.append(near.astype(np.int64).astype(f"<i{size}"))
    if "acc" in case.fields and "shift" in case.fields:
        found.append(_steps(case, each))
    return np.concatenate([np.ascontiguousarray(f).view(np.uint8) for f in found])


def _steps(case: Case, each: int) -> np.ndarray:
    """Accumulators around those where the rounded result goes from one code to the next."""
    rng, f = case.rng, case.fields
    table = next((data for at, data in case.consts if at == f.get("multipliers")), None)
    multipliers = np.array([f["multiplier"]]) if table is None else np.frombuffer(table, np.uint32)
    dtype = np.dtype(f["acc_type"]).newbyteorder("<")
    shape = (each, LOCAL // dtype.itemsize)
    code = rng.integers(f["lo"] - f["zero"] - 2, f["hi"] - f["zero"] + 3, shape) + rng.choice([0.0, 0.5, 0.25], shape)
    at = code * 2.0 ** f["shift"] / rng.choice(multipliers, shape) + rng.integers(-200, 200, shape)
    limits = np.iinfo(dtype)
    return np.clip(at, limits.min / 2, limits.max / 2).astype(dtype)


def passes(program: Program, mutant: Program, images: np.ndarray) -> bool:
    """Whether the mutant runs and makes the same of these memories."""
    return not hazards_of(mutant, order_of(mutant)) and np.array_equal(run(mutant, images), run(program, images))


def moves(seed: int, opcode: str) -> tuple[Case, Program, int]:
    """A LOAD or STORE of a random shape after whole copies of the memories, or a BARRIER between them."""
    case = Case(np.random.default_rng(seed), "COPY" if opcode != "BARRIER" else opcode)
    load, store = flat_copy("LOAD", "DATA", 0, 0, LOCAL), flat_copy("STORE", "DATA", LOCAL, 0, LOCAL)
    if opcode == "BARRIER":
        return case, serial([load, (opcode, {"id": 3, "mask": 1}), store]), 1
    MAKERS["COPY"](case)
    f = case.fields
    outside, inside = ("x", "y") if opcode == "LOAD" else ("y", "x")
    external = f[outside] + (LOCAL if opcode == "STORE" else 0)
    fields = {
        "space": "DATA", "external": external, "local": f[inside], "element": f["element"],
        "dims": f["dims"], "external_strides": f[f"{outside}_strides"], "local_strides": f[f"{inside}_strides"],
    }  # fmt: skip
    case.fields = fields
    if opcode == "LOAD":
        return case, serial([load, (opcode, fields), store]), 1
    return case, serial([load, store, (opcode, fields)]), 2


def subject(seed: int, opcode: str) -> tuple[Case, Program, int]:
    """A random command in a program, and where it stands."""
    if opcode in ("LOAD", "STORE", "BARRIER"):
        return moves(seed, opcode)
    case = random_case(seed, opcode)
    if opcode == "CONV":
        inside(case)
    program = wrap(case)
    return case, program, len(program.commands[0]) - 2


def verdict(case: Case, program: Program, at: int, mutant: Program, images: np.ndarray) -> str:
    """What became of a mutation of command `at`: an error, a difference, a proof, or nothing (silent)."""
    try:
        if not passes(program, mutant, images):
            return "seen"
    except ModelError as error:
        named = error.where.value or ""
        assert "command" in named or error.code in ("deadlock", "hazard"), (named, error.code, str(error))
        return "error"
    before, after = decode(program.commands[0][at]), decode(mutant.commands[0][at])
    if (before.opcode, before.fields) == (after.opcode, after.fields):
        return "order"              # the same work, and no hazards: the same result in every order
    if equivalent(before, after, dict(case.consts)):
        return "rule"
    if same_function(before, after, case):
        return "all codes"
    try:
        seen = not all(passes(program, mutant, memories(case, 20)) for _ in range(5))
    except ModelError:
        return "error"
    return "seen" if seen else "silent"


def mutate(opcode: str, seeds: range, bits: int) -> tuple[Counter[str], list[tuple[int, int, int]]]:
    """Every word of the command in turn, some random bits of each."""
    found: Counter[str] = Counter()
    silent = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        case, program, at = subject(seed, opcode)
        images = memories(case, 4)
        for word in range(WORDS):
            for bit in rng.choice(32, bits, replace=False):
                words = program.commands[0].copy()
                words[at, word] ^= np.uint32(1 << int(bit))
                became = verdict(case, program, at, replace(program, commands=(words,)), images)
                found[became] += 1
                if became == "silent":
                    silent.append((seed, word, int(bit)))
    return found, silent


@pytest.mark.parametrize("opcode", sorted(BY_NAME))
def test_command_mutations_never_pass_silently(opcode: str) -> None:
    """One in a hundred may need a rarer memory than those tried here to show."""
    found, silent = mutate(opcode, range(3), 1)
    assert len(silent) <= 1 + 0.01 * found.total(), f"{found}: {silent}"


@pytest.mark.slow
@pytest.mark.parametrize("opcode", sorted(BY_NAME))
def test_many_command_mutations_never_pass_silently(opcode: str) -> None:
    found, silent = mutate(opcode, range(100, 112), 4)
    assert found.total() >= 3000 and len(silent) <= 0.01 * found.total(), f"{found}: {silent}"


@pytest.mark.parametrize("opcode", sorted(MAKERS))
def test_proofs_hold(opcode: str) -> None:
    """Commands that the rules make equal compute the same, on memories of every magnitude."""
    used = 0
    for seed in range(6):
        case, program, at = subject(seed, opcode)
        rng, before = np.random.default_rng(seed), decode(program.commands[0][at])
        images, tables = memories(case, 1), dict(case.consts)
        for word in range(HEADER_WORDS, 46):
            words = program.commands[0].copy()
            words[at, word] ^= np.uint32(1 << int(rng.integers(0, 12)))
            try:
                if not equivalent(before, decode(words[at]), tables):
                    continue
                used += 1
                mutant = replace(program, commands=(words,))
                assert np.array_equal(run(mutant, images), run(program, images)), (seed, word)
            except ModelError:
                continue
    assert used > 0
