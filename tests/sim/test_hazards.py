"""Orders that no wait fixes are found, whatever the clock says; deadlocks come with their
cycle; waits left out are races."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.hw.encode import again, decode
from npuflow.hw.region import LOCAL as LOCAL_SPACE
from npuflow.hw.region import Region
from npuflow.program.order import order_of
from npuflow.sim.clock import timeline_of
from npuflow.sim.hazards import hazards_of, overlaps
from tests.sim.cases import LOCAL, random_case
from tests.sim.programs import flat_copy, serial, wrap


def kinds(program) -> set[str]:
    return {h.kind for h in hazards_of(program, order_of(program))}


def without_wait(program, index: int, queue: int | None = None):
    words = program.commands[0].copy()
    command = decode(words[index])
    wait = tuple(0 if queue in (None, q) else k for q, k in enumerate(command.wait))
    words[index] = again(replace(command, wait=wait))
    return replace(program, commands=(words,))


def test_a_serial_program_is_safe() -> None:
    for opcode in ("CONV", "REQUANT", "ADD"):
        assert kinds(wrap(random_case(1, opcode))) == set()


def test_missing_waits_are_races() -> None:
    load, store = flat_copy("LOAD", "DATA", 0, 0, 64), flat_copy("STORE", "DATA", LOCAL, 0, 64)
    program = serial(
        [load, store, flat_copy("LOAD", "DATA", 64, 32, 8), flat_copy("STORE", "DATA", LOCAL, 0, 64)]
    )
    assert kinds(program) == set()
    assert "RAW" in kinds(without_wait(program, 1))
    # which of the two depends on the order tried
    assert kinds(without_wait(program, 2)) & {"RAW", "WAR"}


def test_two_writers_race() -> None:
    fill = ("FILL", {"y": 0, "y_type": "int8", "y_strides": (0, 0, 0, 1), "dims": (1, 1, 1, 8), "value": 1})
    program = serial([flat_copy("LOAD", "DATA", 0, 0, 64), fill])
    assert kinds(program) == set()
    assert kinds(without_wait(program, 1)) == {"WAW"}


def test_unwritten_bytes_are_named() -> None:
    program = serial([flat_copy("LOAD", "DATA", 0, 0, 64), flat_copy("STORE", "DATA", LOCAL, 32, 64)])
    found = hazards_of(program, order_of(program))
    assert [(h.kind, h.address) for h in found] == [("unwritten", 64)]
    assert "command 1 of core 0" in found[0].text(program)


@pytest.mark.parametrize(
    ("opcode", "address", "strides", "safe"),
    [
        ("ADD", 0, (8, 4, 1), True),
        ("ADD", 0, (0, 4, 1), True),          # of a dimension of one element
        ("ADD", 0, (8, 1, 2), False),
        ("ADD", 4, (8, 4, 1), False),
        ("COPY", 0, (8, 4, 1), False),
    ],
)
def test_a_result_lies_over_the_same_bytes_in_the_same_order(
    opcode: str, address: int, strides: tuple[int, ...], safe: bool
) -> None:
    dims = 1, 2, 4
    read = Region("a", LOCAL_SPACE, False, address, 1, dims, strides)
    made = Region("y", LOCAL_SPACE, True, 0, 1, dims, (8, 4, 1))
    assert (not list(overlaps(opcode, [read, made], (0, 0)))) == safe


def test_a_deadlock_comes_with_its_cycle() -> None:
    program = serial([flat_copy("LOAD", "DATA", 0, 0, 64), flat_copy("STORE", "DATA", LOCAL, 0, 64)])
    words = program.commands[0].copy()
    words[0] = again(replace(decode(words[0]), wait=(0, 1)))
    with pytest.raises(
        ModelError, match=r"deadlock: LOAD 0 .* waits for STORE0 >= 1; STORE 1 .* waits for LOAD0 >= 1"
    ):
        order_of(replace(program, commands=(words,)))


def test_the_clock_adds_up_a_serial_program() -> None:
    program = serial([flat_copy("LOAD", "DATA", 0, 0, 128), flat_copy("STORE", "DATA", LOCAL, 0, 64)])
    target = program.target
    fixed = target.compute.command_cycles + target.dma.setup_cycles
    want = 2 * fixed + (128 + 64) / target.memory.external_bandwidth
    assert timeline_of(program, order_of(program)).cycles == pytest.approx(want)


def test_transfers_in_flight_share_bandwidth() -> None:
    program = serial([flat_copy("LOAD", "DATA", 0, 0, 128), flat_copy("STORE", "DATA", LOCAL, 128, 128)])
    together = without_wait(program, 1)
    target = program.target
    fixed = target.compute.command_cycles + target.dma.setup_cycles
    assert timeline_of(together, order_of(together)).cycles == pytest.approx(
        fixed + 256 / target.memory.external_bandwidth
    )
    assert np.all(timeline_of(together, order_of(together)).moved == 128)


def many_loads(*waits: int):
    """33,000 loads that wait for nothing, and stores that wait for as many of them as is said."""
    one = serial(
        [flat_copy("LOAD", "DATA", 0, 0, 64), *[flat_copy("STORE", "DATA", LOCAL, 0, 64)] * len(waits)]
    )
    load, *stores = one.commands[0]
    stores = [again(replace(decode(s), wait=(k,))) for s, k in zip(stores, waits, strict=True)]
    words = np.concatenate([np.tile(load, (33_000, 1)), np.array(stores, np.uint32)])
    steps = [{"kind": "npu", "segment": 0, "first": [0], "count": [len(words)]}]
    return replace(one, commands=(words,), meta=one.meta | {"steps": steps})


@pytest.mark.slow
def test_a_wait_is_counted_from_what_one_before_it_has_reported() -> None:
    order = order_of(many_loads(20_000, 32_999))
    assert [n for _, n in order.waits[-1]] == [32_999]


def test_a_wait_that_16_bits_could_misread_is_told() -> None:
    with pytest.raises(
        ModelError, match=r"LOAD0 may be 32999 commands beyond the awaited 1; 16 bits distinguish 32767"
    ):
        order_of(many_loads(1))
