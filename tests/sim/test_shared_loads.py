"""Shared loads: on each core what a plain load does, once over the bus; a wrong mask is an
error, a race or a deadlock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.hw.encode import again, decode, encode
from npuflow.program.container import Program, fingerprint, target_meta
from npuflow.program.order import order_of
from npuflow.sim.clock import timeline_of
from npuflow.sim.hazards import hazards_of
from npuflow.sim.machine import SimulatedMachine
from tests.sim.cases import LOCAL, TARGET
from tests.sim.programs import flat_copy

HALF = LOCAL // 2
QUEUES = {"LOAD": 0, "STORE": 1}


def program(*cores: list[tuple[str, dict, tuple[int, ...]]], banks: int = 0) -> Program:
    """A program of several cores out of (opcode, fields, waits)."""
    memory = replace(TARGET.memory, bank_ports=banks)
    target = replace(TARGET, memory=memory, compute=replace(TARGET.compute, cores=len(cores)))
    words = [
        np.array([encode(o, f, queue=QUEUES[o], core=c, wait=w) for o, f, w in commands], np.uint32).reshape(
            -1, 64
        )
        for c, commands in enumerate(cores)
    ]
    values = {"in": (0, None), "out": (LOCAL, 0)}
    meta = {
        "name": "case",
        "target": target_meta(target),
        "inputs": [{"name": "in", "shape": [LOCAL], "dtype": "uint8"}],
        "outputs": [{"name": "out", "shape": [LOCAL], "dtype": "uint8"}],
        "values": {
            k: {"address": a, "shape": [LOCAL], "dtype": "uint8", "quant": None, "node": n}
            for k, (a, n) in values.items()
        },
        "steps": [{"kind": "npu", "segment": 0, "first": [0] * len(cores), "count": [len(w) for w in words]}],
        "nodes": [{"name": "node", "op": "case", "origin": [], "macs": 0}],
        "data_bytes": 2 * LOCAL,
        "const_bytes": 0,
        "local_bytes": LOCAL,
    }
    return Program(fingerprint(target), meta, tuple(words), b"")


def load(mask: int, external: int = 0, local: int = 0, count: int = HALF, wait: tuple[int, ...] = ()):
    opcode, fields = flat_copy("LOAD", "DATA", external, local, count)
    return opcode, {**fields, "mask": mask}, wait


def store(external: int, local: int, count: int = HALF, wait: tuple[int, ...] = (1,)):
    return (*flat_copy("STORE", "DATA", LOCAL + external, local, count), wait)


def both(first: int, second: int, **more) -> Program:
    """Two cores load the same half, each to a place of its own, and store it to its
    own half of the output."""
    return program([load(first), store(0, 0)], [load(second, local=64), store(HALF, 64)], **more)


def outputs(p: Program) -> np.ndarray:
    machine = SimulatedMachine(p, batch=1)
    machine.write("in", np.random.default_rng(0).integers(0, 256, (1, LOCAL)).astype(np.uint8))
    machine.run(0)
    return machine.read("out")


def test_a_shared_load_is_a_plain_load_on_each_core() -> None:
    shared, plain = both(3, 3), both(0, 0)
    assert not hazards_of(shared, order_of(shared))
    assert np.array_equal(outputs(shared), outputs(plain))
    assert np.array_equal(outputs(shared)[0, :HALF], outputs(shared)[0, HALF:])


@pytest.mark.parametrize("banks", [0, 1])
def test_the_bytes_cross_the_bus_once(banks: int) -> None:
    shared, plain = (timeline_of(p, order_of(p)) for p in (both(3, 3, banks=banks), both(0, 0, banks=banks)))
    target = both(3, 3).target
    front = target.compute.command_cycles + target.dma.setup_cycles
    alone = front + HALF / target.memory.external_bandwidth
    assert shared.moved.sum() == 3 * HALF and plain.moved.sum() == 4 * HALF
    assert sorted(shared.end)[:2] == pytest.approx([alone, alone])
    assert sorted(plain.end)[1] == pytest.approx(front + 2 * HALF / target.memory.external_bandwidth)


def test_it_begins_when_the_last_core_has_come() -> None:
    late = program(
        [load(3), store(0, 0)], [load(2, HALF, HALF), load(3, local=64), store(HALF, 64, wait=(2,))]
    )
    found, order = timeline_of(late, order_of(late)), order_of(late)
    target = late.target
    one = target.compute.command_cycles + target.dma.setup_cycles + HALF / target.memory.external_bandwidth
    first, second, own = (order.sequence.index(c) for c in ((0, 0), (1, 1), (1, 0)))
    assert found.end[own] == pytest.approx(one)
    assert found.end[first] == found.end[second] == pytest.approx(2 * one)
    assert (found.start[first], found.start[second]) == (0.0, found.end[own])


def test_shared_loads_order_nothing_but_themselves() -> None:
    """One core stores what the other reads back behind a shared load of both: only a
    barrier would make that safe."""
    racing = program(
        [load(3), store(0, 0, 64), load(3, 64, HALF, 64, wait=(0, 1))],
        [load(3), load(3, 64, HALF, 64), load(0, LOCAL, 0, 64)],
    )
    found = hazards_of(racing, order_of(racing))
    assert {h.kind for h in found} & {"RAW", "WAR"}


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (2, 3, "must contain its own core"),
        (3, 1, "must contain its own core"),
        (7, 3, "no core that the program lacks"),
        (3, 2, "multicast load that another core never reaches"),
        (1, 3, "multicast load that another core never reaches"),
    ],
)
def test_a_wrong_mask_is_an_error(first: int, second: int, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        order_of(both(first, second))


def test_loads_that_meet_must_read_the_same_bytes() -> None:
    with pytest.raises(ModelError, match="reads other bytes than LOAD 0 of core 0"):
        order_of(program([load(3)], [load(3, 64)]))


def test_cores_that_share_in_different_orders_are_a_deadlock() -> None:
    crossed = program(
        [load(3, 0), load(7, HALF, HALF)], [load(7, HALF, HALF), load(3, 0)], [load(7, HALF, HALF)],
    )
    with pytest.raises(
        ModelError, match=r"deadlock: LOAD 0 of core 0 .* waits for core 1 to share it; LOAD 0 of core 1"
    ):
        order_of(crossed)


def test_mutations_of_a_mask_are_seen() -> None:
    """Any other mask of any of three cores' loads is refused, or waits for ever."""
    p = program(*([load(7), store(64 * c, 0, 64)] for c in range(3)))
    order_of(p)
    for core in range(3):
        for mask in (m for m in range(16) if m not in (0, 7, 1 << core)):
            words = [w.copy() for w in p.commands]
            command = decode(words[core][0])
            words[core][0] = again(replace(command, fields={**command.fields, "mask": mask}))
            with pytest.raises(ModelError) as caught:
                order_of(replace(p, commands=tuple(words)))
            assert caught.value.code.startswith(("NF-DECODE-", "NF-SIM-"))
