"""Every opcode, with random fields on random memory: compiled kernels == plain numpy == the
scalar reading of the document."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.sim.machine import SimulatedMachine
from tests.sim.cases import LOCAL, MAKERS, Case, random_case, requant
from tests.sim.programs import wrap
from tests.sim.scalar import Fault, Scalar
from tests.sim.seeds import for_seeds
from tests.tiers import often

BATCH = 2
EXAMPLES = often((3, 8), 2)
"""How many cases of an opcode are drawn in every run, and in the slow suite."""


def scalar_out(program, image: np.ndarray) -> bytes | None:
    data = bytearray(image.tobytes() + bytes(program.meta["data_bytes"] - LOCAL))
    scalar = Scalar(bytearray(LOCAL), data, program.const)
    try:
        for command in program.decoded[0]:
            scalar.run(command)
    except Fault:
        return None
    return bytes(data[LOCAL : 2 * LOCAL])


def machine_out(program, image: np.ndarray, exact_only: bool) -> np.ndarray | None:
    machine = SimulatedMachine(program, len(image), exact_only=exact_only)
    machine.write("in", image)
    try:
        machine.run(0)
    except ModelError as error:
        assert error.code.startswith("NF-SIM-") and "command" in (error.where.value or "")
        return None
    return machine.read("out")


def agree(program, seed: int) -> None:
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (BATCH, LOCAL)).astype(np.uint8)
    if seed % 3 == 0:
        image = rng.choice(np.array([0, 1, 127, 128, 255], np.uint8), (BATCH, LOCAL))
    want = [scalar_out(program, one) for one in image]
    fast, exact = machine_out(program, image, False), machine_out(program, image, True)
    if None in want:
        assert fast is None and exact is None
        return
    assert fast is not None and exact is not None
    for b, one in enumerate(want):
        np.testing.assert_array_equal(exact[b], np.frombuffer(one, np.uint8), err_msg="plain numpy")
        np.testing.assert_array_equal(fast[b], np.frombuffer(one, np.uint8), err_msg="compiled")


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("opcode", sorted(MAKERS))
def test_command_means_what_the_document_says(opcode: str, examples: int) -> None:
    def agrees(seed: int) -> None:
        case = random_case(seed, opcode)
        assert case.at <= LOCAL
        agree(wrap(case), seed)

    for_seeds(examples, agrees)


def test_a_bias_next_to_the_end_of_64_bits() -> None:
    """Found by chance: the sum of the accumulator and the bias left 64 bits."""
    agree(wrap(random_case(8535, "REQUANT")), 8535)


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("opcode", ["CONV", "MATMUL", "SCALEDCONV", "SCALEDMATMUL", "GROUPMATMUL", "REDUCE"])
def test_sums_that_never_reach_memory(opcode: str, examples: int) -> None:
    """Two commands add up, REQUANT reads, only y is stored: the accumulator lives outside the byte arrays."""
    for_seeds(examples, partial(sums_agree, opcode))


def sums_agree(opcode: str, seed: int) -> None:
    first = random_case(seed, opcode)
    first.fields["accumulate"] = 0
    again = Case(first.rng, opcode, {**first.fields, "accumulate": 1})
    f = first.fields
    if opcode in ("CONV", "SCALEDCONV"):
        dims = (f["batch"], f["out_channels"], f["out_height"], f["out_width"])
    elif opcode in ("MATMUL", "SCALEDMATMUL", "GROUPMATMUL"):
        dims = (1, f["batch"], f["m"], f["n"])
    else:
        dims = (1, 1, f["dims"][0], f["dims"][2])
    last = Case(first.rng, "REQUANT", at=first.at)
    requant(last, dims, (f["acc"], f["acc_type"]))
    cases = (first, again, last) if seed % 2 else (first, last)
    agree(wrap(*cases, store=(first.at, last.at)), seed)
