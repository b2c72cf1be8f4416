"""The container: deterministic bytes, every changed byte found, hostile files one clear
error, words that come back."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuflow.base.errors import ModelError
from npuflow.hw.encode import again, decode, disassemble
from npuflow.hw.isa import WORDS
from npuflow.program.container import Program
from npuflow.sim.machine import SimulatedMachine
from tests.sim.cases import MAKERS, random_case
from tests.sim.programs import wrap

SEEDS = st.integers(0, 2**32 - 1)


def example() -> Program:
    return wrap(random_case(3, "CONV"), random_case(5, "LUT"))


def test_bytes_are_deterministic_and_come_back() -> None:
    program = example()
    data = program.to_bytes()
    again_ = Program.from_bytes(data)
    assert again_.to_bytes() == data == example().to_bytes()
    assert again_.target == program.target


def test_every_changed_byte_is_found() -> None:
    data = example().to_bytes()
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 1 + at % 255
        with pytest.raises(ModelError):
            Program.from_bytes(bytes(broken))


@settings(max_examples=200, deadline=None)
@given(seed=SEEDS)
def test_damaged_files_are_one_clear_error(seed: int) -> None:
    """With the digests ignored: cut off, overwritten, or with huge numbers in the table; never a
    crash or a huge allocation."""
    rng = np.random.default_rng(seed)
    data = bytearray(example().to_bytes())
    kind = seed % 4
    if kind == 0:
        data = data[: int(rng.integers(0, len(data)))]
    elif kind == 1:
        entry = 80 + 48 * int(rng.integers(0, 3)) + 16 + 8 * int(rng.integers(0, 2))
        struct.pack_into("<Q", data, entry, int(rng.integers(0, 2**62)))
    elif kind == 2:
        data += bytes(int(rng.integers(1, 9)))
    else:
        for _ in range(int(rng.integers(1, 20))):
            data[int(rng.integers(0, len(data)))] = int(rng.integers(0, 256))
    try:
        program = Program.from_bytes(bytes(data), check=False)
        machine = SimulatedMachine(program, 1, exact_only=True)
        machine.run(0)
    except ModelError as error:
        assert error.message


@pytest.mark.parametrize("opcode", sorted(MAKERS))
def test_encode_of_decode_is_the_word(opcode: str) -> None:
    for seed in range(20):
        for words in wrap(random_case(seed, opcode)).commands[0]:
            command = decode(words)
            np.testing.assert_array_equal(again(command), words)
            assert command.opcode in disassemble(command, 0)


@settings(max_examples=300, deadline=None)
@given(seed=SEEDS)
def test_random_words_decode_or_name_the_command(seed: int) -> None:
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 2**32, WORDS, dtype=np.uint32)
    if seed % 2:
        words = np.where(rng.random(WORDS) < 0.7, 0, words).astype(np.uint32)
        words[0] = int(rng.integers(1, 21))
    try:
        np.testing.assert_array_equal(again(decode(words, index=7)), words)
    except ModelError as error:
        assert error.code.startswith("NF-DECODE-") and "command 7" in (error.where.value or "")
