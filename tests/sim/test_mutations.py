"""Digests ignored: changed weights show in the sums; changed commands differ, race, fail to
decode, or are proven equal."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.hw import blocks
from npuflow.hw.command import NONE
from npuflow.hw.elements import ELEMENTS, having
from npuflow.hw.encode import decode
from npuflow.hw.floats import encoded
from npuflow.hw.isa import HEADER_WORDS, ROUNDINGS, WORDS, opcodes
from npuflow.program.container import Program
from npuflow.program.order import order_of
from npuflow.program.repeats import expanded
from npuflow.sim.hazards import hazards_of
from npuflow.sim.machine import SimulatedMachine
from tests.sim import constant_rules, float_rules, group_rules, index_rules  # noqa: F401
from tests.sim.cases import LOCAL, MAKERS, Case, random_case
from tests.sim.equivalence import equivalent
from tests.sim.float_cases import MAKERS as FLOAT_MAKERS
from tests.sim.float_cases import random_case as float_case
from tests.sim.programs import flat_copy, serial, wrap
from tests.sim.scalar import rounded
from tests.sim.steps import Steps
from tests.sim.witnesses import judged
from tests.tiers import often, tiered

FLOAT_OPCODES = tuple(FLOAT_MAKERS)
# the others say which commands run, and how often: see tests/program/test_repeats.py
RUN = sorted(opcodes().keys() - {"REPEAT", "ADVANCE"})


def run(program: Program, image: np.ndarray) -> np.ndarray:
    machine = SimulatedMachine(program, len(image), exact_only=True)
    machine.write("in", image)
    machine.run(0)
    return machine.read("out")


def inside(case: Case) -> None:
    """A convolution whose windows all lie in the tile: nothing of it is padding, so everything matters."""
    case.fields.update(accumulate=0, origin=(0, 0), insert=(1, 1), stride=(1, 1), dilation=(1, 1))
    if case.opcode not in ("FCONV", "BCONV"):
        case.fields["acc_type"] = "int32"
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
        # the half beside an odd last code means nothing
        size //= 2 if ELEMENTS[case.fields["w_type"]].packed else 1
        for _ in range(25):
            const = bytearray(program.const)
            const[int(rng.integers(0, size))] ^= int(rng.integers(1, 256))
            tried += 1
            shown += not np.array_equal(run(replace(program, const=bytes(const)), image), want)
    assert shown >= 0.99 * tried


def memories(case: Case, each: int) -> np.ndarray:
    """Full-range bytes; numbers of every magnitude and the outermost ones, of each size; and the numbers at
    which the command's own result moves: full range alone saturates all that follows."""
    rng, found = case.rng, [case.rng.integers(0, 256, (each, LOCAL)).astype(np.uint8)]
    for size in (1, 2, 4, 8):
        shape, limits = (each, LOCAL // size), np.iinfo(f"i{size}")
        found.append(
            (np.exp2(rng.uniform(0, 8 * size - 1, shape)) * rng.choice([-1, 1], shape)).astype(f"<i{size}")
        )
        found.append(rng.choice(np.array([limits.min, limits.max, 0, -1], f"<i{size}"), shape))
    zeros = [case.fields[z] for z in ("x_zero", "a_zero", "b_zero") if z in case.fields]
    if zeros:
        for size in (1, 2):
            shape = (each, LOCAL // size)
            near = rng.choice(zeros, shape) + np.exp2(rng.uniform(-1, 8 * size - 2, shape)) * rng.choice(
                [-1, 0, 1], shape
            )
            found.append(near.astype(np.int64).astype(f"<i{size}"))
    if case.opcode in FLOAT_OPCODES:
        found += _floats(rng, each)
    if "acc" in case.fields and "shift" in case.fields:
        found.append(_steps(case, each))
    return np.concatenate([np.ascontiguousarray(f).view(np.uint8) for f in found])


def _floats(rng: np.random.Generator, each: int) -> list[np.ndarray]:
    """Floats of every type: alike in size, apart in size, and with zeros among them."""
    found = []
    for kind in (*having("float"), "float32"):
        shape = (each, LOCAL // ELEMENTS[kind].bytes)
        for spread in (0.0, 1.0, 5.0):
            numbers = rng.normal(size=shape) * np.exp(rng.normal(0, spread, shape))
            numbers[rng.random(shape) < 0.05] = 0.0
            if spread == 5.0:
                numbers[rng.random(shape) < 0.05] = rng.choice([-np.inf, np.inf, np.nan])
            with np.errstate(over="ignore"):
                found.append(numbers.astype("<f4") if kind == "float32" else encoded(numbers, kind))
    return found


def _steps(case: Case, each: int) -> np.ndarray:
    """Accumulators around those where the rounded result goes from one code to the next."""
    rng, f = case.rng, case.fields
    table = next((data for at, data in case.consts if at == f.get("multipliers")), None)
    multipliers = np.array([f["multiplier"]]) if table is None else np.frombuffer(table, np.uint32)
    dtype = np.dtype(f["acc_type"]).newbyteorder("<")
    shape = (each, LOCAL // dtype.itemsize)
    code = rng.integers(f["lo"] - f["zero"] - 2, f["hi"] - f["zero"] + 3, shape) + rng.choice(
        [0.0, 0.5, 0.25], shape
    )
    at = code * 2.0 ** f["shift"] / rng.choice(multipliers, shape) + rng.integers(-200, 200, shape)
    limits = np.iinfo(dtype)
    return np.clip(at, limits.min / 2, limits.max / 2).astype(dtype)


def passes(program: Program, mutant: Program, images: np.ndarray) -> bool:
    """Whether the mutant runs and makes the same of these memories."""
    return not hazards_of(mutant, order_of(mutant)) and np.array_equal(
        run(mutant, images), run(program, images)
    )


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
        "space": "DATA",
        "external": external,
        "local": f[inside],
        "element": f["element"],
        "dims": f["dims"],
        "external_strides": f[f"{outside}_strides"],
        "local_strides": f[f"{inside}_strides"],
    }
    case.fields = fields
    if opcode == "LOAD":
        return case, serial([load, (opcode, fields), store]), 1
    return case, serial([load, store, (opcode, fields)]), 2


def subject(seed: int, opcode: str) -> tuple[Case, Program, int]:
    """A random command in a program, and where it stands."""
    if opcode in ("LOAD", "STORE", "BARRIER"):
        return moves(seed, opcode)
    case = (float_case if opcode in FLOAT_MAKERS else random_case)(seed, opcode)
    if opcode in ("CONV", "SCALEDCONV", "FCONV", "BCONV"):
        inside(case)
    if opcode == "FROUND":  # sums as memory has them
        case.consts = [const for const in case.consts if const[0] != case.fields["acc"]]
    program = wrap(case)
    return case, program, len(program.commands[0]) - 2


def verdict(case: Case, program: Program, at: int, mutant: Program, images: np.ndarray) -> str:
    """What became of a mutation of command `at`: an error, a difference, a proof, or nothing (silent)."""
    try:
        # as a file is read: blocks that are repeated become their rounds, or an error
        mutant = replace(mutant, commands=tuple(map(expanded, mutant.commands)))
        if not passes(program, mutant, images):
            return "seen"
    except ModelError as error:
        named = error.where.value or ""
        assert "command" in named or error.code in ("NF-SIM-008", "NF-SIM-011"), (
            named,
            error.code,
            str(error),
        )
        return "error"
    before, after = decode(program.commands[0][at]), decode(mutant.commands[0][at])
    if (before.opcode, before.fields) == (after.opcode, after.fields):
        return "order"              # the same work, and no hazards: the same result in every order
    if equivalent(before, after, dict(case.consts)):
        return "rule"
    proof, image = judged(before, after, case, case.rng)
    if proof:
        return proof
    try:
        tried = [image] if image is not None else (memories(case, 20) for _ in range(5))
        seen = not all(passes(program, mutant, images) for images in tried)
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


@pytest.mark.parametrize("opcode", often(RUN, 7))
def test_command_mutations_never_pass_silently(opcode: str) -> None:
    found, silent = mutate(opcode, range(3), 1)
    assert not silent, f"{found}: {silent}"


@pytest.mark.parametrize("first", tiered(range(100, 112, 3), 1))
@pytest.mark.parametrize("opcode", RUN)
def test_many_command_mutations_never_pass_silently(opcode: str, first: int) -> None:
    found, silent = mutate(opcode, range(first, first + 3), 4)
    assert found.total() >= 750 and not silent, f"{found}: {silent}"


def same(case: Case, **fields: Any) -> tuple[bool, bool]:
    """Whether the rules prove that changed fields change nothing, and whether the results are equal."""
    other, images = replace(case, fields={**case.fields, **fields}), memories(case, 4)
    pair = [wrap(case), wrap(other)]
    before, after = (decode(program.commands[0][-2]) for program in pair)
    results = [run(program, images) for program in pair]
    return equivalent(before, after, dict(case.consts)), np.array_equal(*results)


@pytest.mark.parametrize("opcode", ["TOPK", "FTOPK"])
def test_the_place_of_a_single_element_needs_no_element(opcode: str) -> None:
    case, _, _ = subject(103, opcode)
    assert case.fields["y"] == NONE and case.fields["dims"][1] == 1
    assert same(case, x=512) == (True, True)
    case.fields["y"] = 64
    assert same(case, x=512) == (False, False)


@pytest.mark.parametrize("field", [{"x": 304}, {"w": 202}, {"bias": NONE}, {"origin": (4096, 0)}])
def test_sums_with_a_nan_weight_are_nan(field: dict[str, Any]) -> None:
    """Random blocks: of every output channel one holds a NaN. With finite weights these fields
    matter."""
    case, _, _ = subject(102, "BCONV")
    assert same(case, **field) == (True, True)
    at, size = case.fields["w"], len(dict(case.consts)[case.fields["w"]])
    numbers = np.random.default_rng(0).normal(size=(1, size // 33 * 32))
    kind = case.fields["w_type"]
    finite = blocks.packed(blocks.encoded(numbers, kind, 1), kind, 1).tobytes()
    case.consts = [(a, finite if a == at else body) for a, body in case.consts]
    assert same(case, **field) == (False, False)


def test_a_zero_point_matters_as_far_as_the_accumulator_holds_it() -> None:
    """Weights, scaled and summed, that are multiples of 4: 2^30 more is 0 modulo 2^32, 2^29 more is not."""
    case, _, _ = subject(101, "SCALEDCONV")
    zero = case.fields["x_zero"]
    assert case.fields["acc_type"] == "int32"
    assert same(case, x_zero=zero + (1 << 30)) == (True, True)
    assert same(case, x_zero=zero + (1 << 29)) == (False, False)


@pytest.mark.parametrize("opcode", often(sorted({*MAKERS, *FLOAT_OPCODES}), 6))
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


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_steps_are_where_codes_change(rounding: str) -> None:
    """The numbers that proofs compare, against every code in exact fractions."""
    rng = np.random.default_rng(5)
    for _ in range(60):
        multiplier, shift = int(rng.integers(0, 40)), int(rng.integers(-2, 7))
        lo, hi = sorted(int(v) for v in rng.integers(-20, 20, 2))
        steps = Steps(
            multiplier, shift, rounding, int(rng.integers(-9, 9)), lo, hi, int(rng.integers(-50, 50))
        )
        numbers = range(-400, 400)
        scaled = [
            rounded(Fraction((p + steps.offset) * multiplier) / Fraction(2) ** shift, rounding)
            for p in numbers
        ]
        codes = [min(max(v + steps.zero, lo), hi) for v in scaled]
        for code in range(lo - 1, hi + 2):
            reached = [p for p, c in zip(numbers, codes, strict=True) if c >= code]
            first = min(max(steps.start(code), numbers[0]), numbers[-1] + 1)
            assert reached == list(range(first, numbers[-1] + 1)), (steps, code)
