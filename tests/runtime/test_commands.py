"""Every command in C: the bits of plain numpy, and faults of data where it has them."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import xxhash

from npuflow.base.errors import ModelError
from npuflow.hw.isa import opcodes
from npuflow.sim.machine import SimulatedMachine
from tests.runtime import isa_header
from tests.runtime.harness import CProgram, RuntimeFault
from tests.sim import cases, float_cases
from tests.sim.programs import wrap
from tests.sim.test_float_commands import image

CASES = {**cases.MAKERS, **float_cases.MAKERS}
WITHOUT = {"LOAD", "STORE", "BARRIER", "REPEAT", "ADVANCE"}     # of all programs, of several cores, of loops
FAULT = 14


def in_numpy(program, memory: np.ndarray) -> np.ndarray | None:
    machine = SimulatedMachine(program, 1, exact_only=True)
    machine.write("in", memory[None])
    try:
        machine.run(0)
    except ModelError:
        return None
    return machine.read("out")[0]


def in_c(runtime: ctypes.CDLL, program, memory: np.ndarray) -> np.ndarray | None:
    with CProgram(runtime, program.to_bytes()) as one:
        try:
            return one.run({"in": memory})["out"]
        except RuntimeFault as fault:
            assert fault.status == FAULT
            return None


def agree(runtime: ctypes.CDLL, opcode: str, seed: int) -> None:
    rng, on_floats = np.random.default_rng(seed), opcode in float_cases.MAKERS
    case = (float_cases if on_floats else cases).random_case(seed, opcode)
    memory = image(case, rng) if on_floats else rng.integers(0, 256, cases.LOCAL).astype(np.uint8)
    program = wrap(case)
    wanted, found = in_numpy(program, memory), in_c(runtime, program, memory)
    assert (wanted is None) == (found is None)
    if wanted is not None:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("opcode", sorted(CASES))
def test_a_command_has_the_simulators_bits(runtime: ctypes.CDLL, opcode: str) -> None:
    for seed in range(5):
        agree(runtime, opcode, seed)


@pytest.mark.slow
@pytest.mark.parametrize("opcode", sorted(CASES))
def test_many_commands_have_the_simulators_bits(runtime: ctypes.CDLL, opcode: str) -> None:
    for seed in range(100, 300):
        agree(runtime, opcode, seed)


def test_no_opcode_is_left_out() -> None:
    assert set(CASES) | WITHOUT == set(opcodes())


def test_the_header_is_that_of_the_instruction_set() -> None:
    """`python -m tests.runtime.isa_header` writes it."""
    assert isa_header.HEADER.read_text() == isa_header.text()


def test_digests_are_those_of_files(runtime: ctypes.CDLL) -> None:
    body, made = np.random.default_rng(1).bytes(5000), ctypes.create_string_buffer(16)
    for size in (*range(260), 511, 512, 513, 1023, 1024, 1025, 2048, 2049, 4999):
        runtime.npuflow_digest(body, size, made)
        assert made.raw == xxhash.xxh3_128_digest(body[:size]), size
