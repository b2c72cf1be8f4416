"""Digests ignored: changed weights show in the sums; changed commands differ, race, fail to decode, or are proven equal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases import LOCAL, Case, random_case, wrap

from npuflow.base.errors import ModelError
from npuflow.engine.program.container import Program
from npuflow.engine.sim.hazards import hazards_of
from npuflow.engine.sim.machine import Machine
from npuflow.engine.sim.order import order_of
from npuflow.hw.encode import Command, decode
from npuflow.hw.isa import HEADER_WORDS, NONE
from npuflow.hw.numerics import requantize


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


SHADOWED = (("w_zeros", "w_zero"), ("b_zeros", "b_zero"), ("multipliers", "multiplier"), ("los", "lo"), ("his", "hi"))


def equivalent(a: Command, b: Command) -> bool:
    """Proof that two commands mean the same: what they differ in cannot matter."""
    return a.opcode == b.opcode and _meaning(a) == _meaning(b)


def _meaning(c: Command) -> dict[str, object]:
    f = dict(c.fields)
    dims = {n: f[n] for n in ("dims", "x_dims") if n in f}
    for name, extents in _extents(c).items():                     # the step of an axis of one element
        f[name] = tuple(0 if d == 1 else s for s, d in zip(f[name], extents, strict=True))
    for pointer, shadowed in SHADOWED:
        if pointer in f and shadowed in f and f[pointer] != NONE:
            f[shadowed] = 0
    if f.get("bias") == NONE:
        f["bias_type"] = f["bias_shift"] = 0
    if c.opcode in ("CONV", "MAXPOOL"):
        _windows(f)
        dims.pop("x_dims")
    if "shift" in f and f["shift"] <= 0:
        f["rounding"] = ""
    if c.opcode == "SOFTMAX" and f["high"] == NONE:
        f["low_bits"] = 0
    if c.opcode == "REQUANT" and all(f[n] == NONE for n in ("bias", "multipliers", "los", "his")):
        f["channel_axis"] = 0
    return {**f, **dims, "queue": c.queue, "core": c.core}


def _windows(f: dict[str, object]) -> None:
    """Instead of all that says where windows lie: the row and column of the tile that each of their places reads, or none."""
    read = []
    for axis, out in enumerate((f["out_height"], f["out_width"])):
        step, insert = f["stride"][axis], f.get("insert", (1, 1))[axis]
        at = np.arange(out)[:, None] * step + np.arange(f["kernel"][axis]) * f["dilation"][axis] + f["origin"][axis]
        inside = (at >= 0) & (at % insert == 0) & (at // insert < f["x_dims"][2 + axis])
        read.append(np.where(inside, at // insert, -1))
    used = [np.unique(r[r >= 0]).tolist() for r in read]
    f["x_strides"] = (*f["x_strides"][:2], *(s if u[-1:] > [0] else 0 for s, u in zip(f["x_strides"][2:], used, strict=True)))
    f["x_dims"] = f["x_dims"][:2]
    f["windows"] = [r.tolist() for r in read]
    if "w" not in f:                                              # a maximum asks not which place of the window it is in
        f["windows"] = [[sorted(set(row) - {-1}) for row in rows] for rows in f["windows"]]
        f.pop("kernel")
    for name in ("stride", "dilation", "origin", "insert"):
        f.pop(name, None)


def _domain(c: Command) -> np.ndarray | None:
    """What an element-wise command of one operand makes of every code that it can read."""
    if c.opcode != "RESCALE":
        return None
    f = c.fields
    x = np.arange(np.iinfo(f["x_type"]).min, np.iinfo(f["x_type"]).max + 1, dtype=np.int64) - f["x_zero"]
    return requantize(x, f["multiplier"], f["shift"], f["zero"], f["lo"], f["hi"], f["rounding"])


def same_function(a: Command, b: Command) -> bool:
    """Proof by all codes: the commands differ in numbers alone, and those make no difference to any."""
    numbers = {"x_zero", "multiplier", "shift", "zero", "lo", "hi", "rounding"}
    differ = {k for k in a.fields if a.fields[k] != b.fields[k]}
    made = _domain(a), _domain(b)
    return a.opcode == b.opcode and differ <= numbers and made[0] is not None and np.array_equal(*made)


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


def _extents(c: Command) -> dict[str, tuple[int, ...]]:
    f = c.fields
    if c.opcode in ("LOAD", "STORE"):
        return {"external_strides": f["dims"], "local_strides": f["dims"]}
    if c.opcode == "MATMUL":
        return {"a_strides": (f["batch"], f["m"], f["k"]), "b_strides": (f["batch"], f["k"], f["n"])}
    out = {n: f.get("dims") or f["x_dims"] for n in f if n.endswith("_strides")}
    if "out_height" in f and "y_strides" in out:
        out["y_strides"] = (*f["x_dims"][:2], f["out_height"], f["out_width"])
    return out


def passes(program: Program, mutant: Program, images: np.ndarray) -> bool:
    """Whether the mutant runs and makes the same of these memories."""
    return not hazards_of(mutant, order_of(mutant)) and np.array_equal(run(mutant, images), run(program, images))


@pytest.mark.parametrize("opcode", ["CONV", "REQUANT", "MATMUL", "RESCALE", "ADD", "MAXPOOL"])
def test_command_mutations_never_pass_silently(opcode: str) -> None:
    """Every word of the command in turn, one random bit. What stays silent must be proven equivalent by what it reads and
    computes, or show on many more memories; one in a hundred may need a rarer memory still."""
    silent: list[tuple[int, int]] = []
    tried = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        case: Case = random_case(seed, opcode)
        if opcode == "CONV":
            inside(case)
        program = wrap(case)
        images, at = memories(case, 4), len(program.commands[0]) - 2
        before = decode(program.commands[0][at])
        for word in range(HEADER_WORDS, 46):
            words = program.commands[0].copy()
            words[at, word] ^= np.uint32(1 << int(rng.integers(0, 32)))
            mutant = replace(program, commands=(words,))
            tried += 1
            try:
                if not passes(program, mutant, images):
                    continue
            except ModelError as error:
                assert f"command {at} of core 0" in (error.where.value or "")
                continue
            after = decode(words[at])
            if equivalent(before, after) or same_function(before, after):
                continue
            if all(passes(program, mutant, memories(case, 20)) for _ in range(5)):
                silent.append((seed, word))
    assert len(silent) <= 0.01 * tried, f"{len(silent)} of {tried} silent: {silent}"
