"""Digests ignored: changed weights show in the sums; changed commands differ, race, fail to decode, or are proven equal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases import LOCAL, Case, random_case, wrap

from npuflow.base.errors import ModelError
from npuflow.engine.program import Program
from npuflow.engine.sim.hazards import hazards_of
from npuflow.engine.sim.machine import Machine
from npuflow.engine.sim.order import order_of
from npuflow.hw.encode import Command, decode
from npuflow.hw.isa import HEADER_WORDS, NONE


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
    if "kernel" in f:
        out = (f["out_height"], f["out_width"])
        f["stride"] = tuple(0 if o == 1 else s for o, s in zip(out, f["stride"], strict=True))
        f["dilation"] = tuple(0 if k == 1 else d for k, d in zip(f["kernel"], f["dilation"], strict=True))
    if "shift" in f and f["shift"] <= 0:
        f["rounding"] = ""
    if c.opcode == "SOFTMAX" and f["high"] == NONE:
        f["low_bits"] = 0
    if c.opcode == "REQUANT" and all(f[n] == NONE for n in ("bias", "multipliers", "los", "his")):
        f["channel_axis"] = 0
    return {**f, **dims, "queue": c.queue, "core": c.core}


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


@pytest.mark.parametrize("opcode", ["CONV", "REQUANT", "MATMUL", "RESCALE"])
def test_command_mutations_never_pass_silently(opcode: str) -> None:
    """Every word of the command in turn, one random bit. Data are full range; what stays silent must be proven equivalent, or
    saturates: a clamp or a shift may hide it on these data, so several images are tried."""
    silent: list[tuple[int, int]] = []
    tried = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        case: Case = random_case(seed, opcode)
        if opcode == "CONV":
            inside(case)
        program = wrap(case)
        images = rng.integers(0, 256, (4, LOCAL)).astype(np.uint8)
        want, at = run(program, images), len(program.commands[0]) - 2
        before = decode(program.commands[0][at])
        for word in range(HEADER_WORDS, 46):
            words = program.commands[0].copy()
            words[at, word] ^= np.uint32(1 << int(rng.integers(0, 32)))
            mutant = replace(program, commands=(words,))
            tried += 1
            try:
                order = order_of(mutant)
                if hazards_of(mutant, order) or not np.array_equal(run(mutant, images), want):
                    continue
            except ModelError as error:
                assert f"command {at} of core 0" in (error.where.value or "")
                continue
            if not equivalent(before, decode(words[at])):
                silent.append((seed, word))
    assert len(silent) <= 0.05 * tried, f"{len(silent)} of {tried} silent: {silent}"
