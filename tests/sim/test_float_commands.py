"""Every command on floats, with random fields on random memory: plain numpy == the scalar reading."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from npuflow.hw.floats import encoded
from npuflow.hw.isa import opcodes
from npuflow.sim.machine import SimulatedMachine
from tests.sim.cases import LOCAL, Case
from tests.sim.float_cases import MAKERS, random_case
from tests.sim.float_scalar import FloatScalar
from tests.sim.programs import wrap
from tests.sim.seeds import for_seeds
from tests.tiers import often


def image(case: Case, rng: np.random.Generator) -> np.ndarray:
    """Local memory full of numbers of the case's types, or of any bytes."""
    if rng.random() < 0.3:
        return rng.integers(0, 256, LOCAL).astype(np.uint8)
    kind = next(case.fields[k] for k in ("x_type", "a_type", "y_type") if k in case.fields)
    numbers = rng.normal(size=LOCAL // 2) * np.exp(rng.normal(0, rng.choice([0.1, 4.0]), LOCAL // 2))
    numbers[rng.random(LOCAL // 2) < 0.1] = 0.0
    return encoded(numbers, kind if kind.endswith("float16") else "bfloat16").view(np.uint8)


@pytest.mark.parametrize("examples", often((3, 6), 2))
@pytest.mark.parametrize("opcode", sorted(MAKERS))
def test_command_means_what_the_document_says(opcode: str, examples: int) -> None:
    for_seeds(examples, partial(agree, opcode))


def agree(opcode: str, seed: int) -> None:
    case, rng = random_case(seed, opcode), np.random.default_rng(seed)
    assert case.at <= LOCAL
    program, memory = wrap(case), image(case, rng)
    scalar = FloatScalar(bytearray(LOCAL), bytearray(memory.tobytes() + bytes(LOCAL)), program.const)
    for command in program.decoded[0]:
        scalar.run(command)
    want = np.frombuffer(bytes(scalar.data[LOCAL:]), np.uint8)
    for exact_only in (True, False):
        machine = SimulatedMachine(program, 2, exact_only=exact_only)
        machine.write("in", np.stack([memory, memory]))
        machine.run(0)
        for found in machine.read("out"):
            np.testing.assert_array_equal(found, want, err_msg=f"exact_only {exact_only}")


def test_every_command_on_floats_has_a_maker() -> None:
    floats = {name for name, one in opcodes().items() if any(f.role == "float" for f in one.fields)}
    assert floats | {"FCAST"} == set(MAKERS)
