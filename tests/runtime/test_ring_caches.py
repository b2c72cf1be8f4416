"""Language models in C whose caches are rings: one row for each token, and how far a state goes back."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from npuflow.program.container import Program
from npuflow.program.packing.package import of_bytes, packed
from npuflow.runner.context_model import context_model
from tests.program.test_indices import Decoder
from tests.program.test_ring_rows import own
from tests.runtime.harness import CProgram, RuntimeFault
from tests.runtime.test_language import FULL, METADATA, Simulated, beside, run, same

CONTEXT, ROWS = 48, 16
WINDOWS = {"mistral": 7, "gemma3": 6}
TOKENS = np.random.default_rng(2).integers(3, 80, CONTEXT).tolist()
FIRST = [("mistral", "edge-8t")]
LONG = [pytest.param(f, t, marks=pytest.mark.slow) for f in WINDOWS for t in ("edge-8t", "bm1684x")
        if (f, t) not in FIRST]
SPLITS = ((1, 4, 4, 1, 1, 4, 4, 1) * 2 + (4, 4), (4,) * 12, (1,) * 20 + (4,) * 7)


@cache
def file_of(family: str, target: str, indexed: bool = True) -> tuple[bytes, tuple[Decoder, Decoder]]:
    """Programs of one and of four tokens a run, of the same codes, in one file."""
    one, four = (own(family, target, chunk) for chunk in (1, 4))
    if not indexed:
        one, four = (replace(o, program=o.whole()) for o in (one, four))
    return packed({f"chunk={o.chunk}": o.program for o in (one, four)}).to_bytes(), (one, four)


@pytest.mark.parametrize("indexed", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("family", "target"), [*FIRST, *LONG])
def test_every_split_over_three_turns_is_the_simulator_s(
    runtime: ctypes.CDLL, family: str, target: str, indexed: bool
) -> None:
    file, both = file_of(family, target, indexed)
    behind: dict[int, np.ndarray] = {}
    with beside(runtime, file, "chunk=1") as one, beside(runtime, file, "chunk=4", one) as four:
        programs = {1: one, 4: four}
        assert [program.index.most for program in programs.values()] == [CONTEXT - 1, CONTEXT - 4]
        for chunks in SPLITS:
            one.reset()
            simulated, at = Simulated(*both), 0
            for chunk in chunks:
                tokens = TOKENS[at : at + chunk]
                found, wanted = run(programs[chunk], tokens), simulated.run(tokens)
                same(programs[chunk], found, wanted, f"behind {at} of {chunks}")
                at += chunk
                np.testing.assert_array_equal(behind.setdefault(at, found["logits"]), found["logits"])
            assert at == CONTEXT
            with pytest.raises(RuntimeFault, match="no room for a run") as fault:
                run(one, TOKENS[:1])
            assert fault.value.status == FULL


@pytest.mark.parametrize(("family", "target"), FIRST)
def test_a_state_goes_back_as_far_as_the_rings_hold(runtime: ctypes.CDLL, family: str, target: str) -> None:
    file, _ = file_of(family, target)
    back = ROWS - WINDOWS[family] + 1
    with beside(runtime, file, "chunk=4") as four, beside(runtime, file, "chunk=1", four) as one:
        wanted = [run(one, [token])["logits"] for token in TOKENS]
        one.reset()
        for at in range(0, 28, 4):
            run(four, TOKENS[at : at + 4])
        for token in [9] * back:
            run(one, [token])
        assert one.trim(27) == FULL and one.index.position == 28 + back and one.trim(28) == 0
        assert four.trim(27) == FULL                  # it is as far back as it was
        for at in range(28, 36):
            np.testing.assert_array_equal(run(one, TOKENS[at : at + 1])["logits"], wanted[at])
        one.at(one.inputs["position"])[...] = 20      # a caller may put it anywhere
        with pytest.raises(RuntimeFault, match="do not hold the rows before the position") as fault:
            run(one, TOKENS[:1])
        assert fault.value.status == FULL
        one.at(one.inputs["position"])[...] = 36
        np.testing.assert_array_equal(run(four, TOKENS[36:40])["logits"], wanted[39])
        assert one.trim(0) == 0
        np.testing.assert_array_equal(run(four, TOKENS[:4])["logits"], wanted[3])
        assert one.trim(2) == 0                       # nothing was replaced yet
        np.testing.assert_array_equal(run(one, TOKENS[2:3])["logits"], wanted[2])


def test_rings_that_cannot_be_are_refused_when_the_file_is_opened(runtime: ctypes.CDLL) -> None:
    _, (decode, _) = file_of("mistral", "edge-8t")
    program = decode.program
    (ring,), (index,) = program.meta["rings"], program.meta["indices"]
    for changed, said in (
        ({"rings": [{**ring, "window": 17}]}, "a ring is not described"),
        ({"rings": [{**ring, "window": 0}]}, "a ring is not described"),
        ({"rings": [ring] * 9}, "a ring is not described"),
        ({"indices": [{**index, "modulo": 15}]}, "where no number of steps lies"),
    ):
        file = replace(program, meta={**program.meta, **changed}).to_bytes()
        with pytest.raises(RuntimeFault, match=said) as fault:
            CProgram(runtime, file)
        assert fault.value.status == METADATA


@pytest.mark.parametrize("chunk", [1, 4])
def test_the_program_of_an_epcontext_node_is_given_rings_and_index(runtime: ctypes.CDLL, chunk: int) -> None:
    """It keeps no state, so that it knows of no turn: what ONNX Runtime gives a node."""
    _, both = file_of("mistral", "edge-8t")
    program = of_bytes(context_model(both[chunk == 4].program).context)
    assert isinstance(program, Program) and "state" not in program.meta and "rings" not in program.meta
    with CProgram(runtime, program.to_bytes()) as one:
        assert ("position" in one.inputs) is (chunk == 1)
