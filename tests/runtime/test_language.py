"""Language models in C: commands that follow the position, over one cache of several programs, bit for bit."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npuflow.program.container import Program
from npuflow.program.packing.package import packed
from npuflow.runner.simulated import ProgramRunner
from tests.program.test_indices import CASES, CONTEXT, Decoder, decoder
from tests.runtime.harness import CProgram, Options, RuntimeFault
from tests.tiers import often

USAGE, METADATA, COMMAND, BOUNDS, NETWORK, FULL = 1, 6, 7, 9, 12, 19
TOKENS = np.random.default_rng(1).integers(3, 80, CONTEXT).tolist()
Arrays = dict[str, np.ndarray]


def beside(runtime: ctypes.CDLL, file: bytes, network: str | None, of: CProgram | None = None) -> CProgram:
    """A program over the state of another one."""
    options = Options(network.encode() if network else None)
    options.state_of = None if of is None else of.program
    return CProgram(runtime, file, options=options)


def run(one: CProgram, tokens: list[int]) -> Arrays:
    """One run; outputs as the model has them."""
    made = one.run({"tokens": np.array([tokens])})
    return {name: array if one.outputs[name].scales == 0 else real(one, name, array)
            for name, array in made.items()}


def real(one: CProgram, name: str, array: np.ndarray) -> np.ndarray:
    return one.dequantize(name, array)


class Simulated:
    """The same on the simulator: programs of several chunks over one state, from outputs to inputs."""

    def __init__(self, *decoders: Decoder) -> None:
        self.runners = {one.chunk: ProgramRunner(one.program) for one in decoders}
        self.state, self.held = decoders[0].graph.state, decoders[0].start()

    def run(self, tokens: list[int]) -> Arrays:
        found = self.runners[len(tokens)].run({**self.held, "tokens": np.array([tokens])})
        self.held = {given: found[made] for made, given in self.state}
        return found


def same(one: CProgram, found: Arrays, wanted: Arrays, said: str) -> None:
    """Codes of the cache, and real numbers of the rest."""
    for name, array in wanted.items():
        made = found[name]
        if array.dtype.kind == "u" and made.dtype.kind == "f":
            made = one.at(one.outputs[name])
        np.testing.assert_array_equal(made.reshape(array.shape), array, err_msg=f"{name} {said}")


@pytest.mark.parametrize(("name", "chunk"), often(CASES, 2))
def test_every_run_of_a_sequence_is_the_simulator_s(runtime: ctypes.CDLL, name: str, chunk: int) -> None:
    """Logits and caches until the cache is full; what comes then is an error that leaves all as it was."""
    own = decoder(name, chunk)
    with CProgram(runtime, own.program.to_bytes()) as one:
        assert (one.index.name, one.index.most, one.index.added) == (b"position", CONTEXT - chunk, chunk)
        for _ in range(2):
            simulated = Simulated(own)
            for at in range(0, CONTEXT, chunk):
                tokens = TOKENS[at : at + chunk]
                assert one.index.position == at
                wanted = simulated.run(tokens)
                same(one, run(one, tokens), wanted, f"behind {at}")
            with pytest.raises(RuntimeFault, match="no room for a run") as fault:
                run(one, tokens)
            assert fault.value.status == FULL and one.index.position == CONTEXT
            same(one, {n: one.at(p) for n, p in one.outputs.items() if "cache" in n}, {
                n: a for n, a in wanted.items() if "cache" in n and a.dtype.kind == "u"
            }, "behind the last run")
            one.reset()
