"""Language models in C whose commands stand for every position: `[program] index = false`."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from npuflow.program.container import Program
from npuflow.program.packing.package import packed
from tests.program.test_indices import CONTEXT
from tests.runtime.harness import CProgram, RuntimeFault
from tests.runtime.test_language import (
    FAMILIES,
    FULL,
    SPLITS,
    TOKENS,
    USAGE,
    beside,
    compared_chunks,
    file_of,
    run,
)

HOST_PART = 11
FIRST = [("llama", "edge-8t")]
LONG = [pytest.param(family, target, marks=pytest.mark.slow)
        for family in FAMILIES for target in ("edge-8t", "bm1684x") if (family, target) not in FIRST]


@pytest.mark.parametrize(("family", "target"), [*FIRST, *LONG])
def test_every_split_of_a_sequence_is_the_simulator_s(
    runtime: ctypes.CDLL, family: str, target: str
) -> None:
    """Logits and caches until the cache is full; what comes then leaves all as it was."""
    file, both = file_of(family, target, indexed=False)
    with beside(runtime, file, "chunk=1") as one, beside(runtime, file, "chunk=4", one) as four:
        programs = {1: one, 4: four}
        for chunk, program in programs.items():
            index = program.index
            assert (index.name, index.most, index.added) == (b"position", CONTEXT - chunk, chunk)
        for chunks in SPLITS:
            one.reset()
            *_, (at, _) = compared_chunks(programs, both, chunks)
            with pytest.raises(RuntimeFault, match="no room for a run") as fault:
                run(one, TOKENS[:1])
            assert fault.value.status == FULL and one.index.position == at == CONTEXT


def test_they_give_what_programs_that_follow_the_position_give(runtime: ctypes.CDLL) -> None:
    turning, standing = (file_of(*FIRST[0], indexed=indexed)[0] for indexed in (True, False))
    with beside(runtime, turning, "chunk=4") as turned, beside(runtime, standing, "chunk=4") as fixed:
        for at in range(0, CONTEXT, 4):
            tokens = TOKENS[at : at + 4]
            found, wanted = run(fixed, tokens), run(turned, tokens)
            for name, array in wanted.items():
                np.testing.assert_array_equal(found[name], array, err_msg=f"{name} behind {at}")


def test_a_sequence_is_trimmed_and_goes_on(runtime: ctypes.CDLL) -> None:
    """Rows behind the position count for nothing, whatever another sequence left there."""
    file, _ = file_of(*FIRST[0], indexed=False)
    with beside(runtime, file, "chunk=4") as four, beside(runtime, file, "chunk=1", four) as one:
        wanted = [run(one, [token]) for token in TOKENS[:9]]
        one.reset()
        run(four, TOKENS[:4])
        for token in TOKENS[20:27]:
            run(one, [token])
        assert four.trim(4) == 0 and one.trim(5) == USAGE
        run(four, TOKENS[4:8])
        found = run(one, TOKENS[8:9])
        for name, array in wanted[8].items():
            np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_programs_of_both_kinds_share_no_state(runtime: ctypes.CDLL) -> None:
    one, four = file_of(*FIRST[0])[1][0], file_of(*FIRST[0], indexed=False)[1][1]
    mixed = packed({"chunk=1": one.program, "chunk=4": four.program}).to_bytes()
    for first, second in (("chunk=1", "chunk=4"), ("chunk=4", "chunk=1")):
        with beside(runtime, mixed, first) as opened:
            with pytest.raises(RuntimeFault, match=r"build both with \[program\] index = false") as fault:
                beside(runtime, mixed, second, opened)
            assert fault.value.status == USAGE


def stating(program: Program, rows: int | None) -> bytes:
    """A file that says another number of rows of the tables that the position picks rows of."""
    steps = [
        {**step, "rows": rows} if "heads" in step.get("out", "") and "rows" in step else step
        for step in program.meta["steps"]
    ]
    if rows is None:
        steps = [{k: v for k, v in step.items() if v is not None} for step in steps]
    return replace(program, meta={**program.meta, "steps": steps}).to_bytes()


def test_a_counter_without_an_end_is_refused(runtime: ctypes.CDLL) -> None:
    program = file_of(*FIRST[0], indexed=False)[1][1].program
    with CProgram(runtime, stating(program, 16)) as one:
        assert one.index.most == 12
    for rows, said in ((3, "behind a table"), (None, "no table says how far")):
        with pytest.raises(RuntimeFault, match=said) as fault:
            CProgram(runtime, stating(program, rows))
        assert (fault.value.status == HOST_PART) == (rows is None)
