"""Programs of commands that run one after the other, for the simulator and for tools that read programs."""

from __future__ import annotations

import numpy as np

from npuflow.hw.encode import encode
from npuflow.hw.isa import opcodes
from npuflow.program.container import Program, fingerprint, target_meta
from npuflow.sim.machine import SimulatedMachine
from tests.sim.cases import LOCAL, QUEUES, TARGET, Case


def flat_copy(opcode: str, space: str, external: int, local: int, count: int):
    one = (0, 0, 0, 0, 0, 1)
    fields = {
        "space": space,
        "external": external,
        "local": local,
        "element": 1,
        "dims": (1, 1, 1, 1, 1, count),
    }
    return opcode, {**fields, "external_strides": one, "local_strides": one}


def serial(commands, const: bytes = b"", data: int = 2 * LOCAL, values=None, target=TARGET) -> Program:
    """A one-core program whose commands run strictly one after the other."""
    words, counts = [], [0, 0, 0, 0]
    for opcode, fields in commands:
        queue = QUEUES[opcodes()[opcode].queue]
        wait = [0 if q == queue else n for q, n in enumerate(counts)]
        words.append(encode(opcode, fields, queue=queue, wait=wait))
        counts[queue] += 1
    if values is None:
        values = {"in": (0, LOCAL, None), "out": (LOCAL, LOCAL, 0)}
    meta = {
        "name": "case",
        "target": target_meta(target),
        "inputs": [{"name": "in", "shape": [LOCAL], "dtype": "uint8"}],
        "outputs": [{"name": "out", "shape": [LOCAL], "dtype": "uint8"}],
        "values": {
            k: {"address": a, "shape": [n], "dtype": "uint8", "quant": None, "node": p}
            for k, (a, n, p) in values.items()
        },
        "steps": [{"kind": "npu", "segment": 0, "first": [0], "count": [len(words)]}],
        "nodes": [{"name": "node", "op": "case", "origin": [], "macs": 0}],
        "data_bytes": data,
        "const_bytes": len(const),
        "local_bytes": LOCAL,
    }
    return Program(fingerprint(target), meta, (np.array(words, np.uint32).reshape(-1, 64),), const)


def wrap(*cases: Case, store: tuple[int, int] = (0, LOCAL)) -> Program:
    """Load all of local memory from DATA, constants from CONST, run the cases, store `store` back."""
    const, loads = b"", []
    for case in cases:
        for at, body in case.consts:
            loads.append(flat_copy("LOAD", "CONST", len(const), at, len(body)))
            const += body
    run = [(case.opcode, case.fields) for case in cases]
    last = flat_copy("STORE", "DATA", LOCAL + store[0], store[0], store[1] - store[0])
    return serial([flat_copy("LOAD", "DATA", 0, 0, LOCAL), *loads, *run, last], const)


def both_ways(program: Program, image: np.ndarray) -> list[np.ndarray]:
    """The outputs of the kernels, and of plain numpy."""
    found = []
    for exact_only in (False, True):
        machine = SimulatedMachine(program, len(image), exact_only=exact_only)
        machine.write("in", image)
        machine.run(0)
        found.append(machine.read("out"))
    return found
