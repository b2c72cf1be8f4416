"""Language models in C: commands that follow the position, over one cache of several programs."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuflow import Runner
from npuflow.hw.encode import layout
from npuflow.hw.isa import opcodes
from npuflow.program.container import Program
from npuflow.program.packing.package import of_bytes, packed
from npuflow.runner.context_model import context_model
from npuflow.runner.simulated import ProgramRunner
from tests.program.test_indices import CASES, CONTEXT, Decoder, decoder
from tests.runtime.harness import COMPILERS, ROOT, CProgram, Options, RuntimeFault
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


@pytest.mark.parametrize(("name", "chunk"), often([case[:2] for case in CASES if not case[2]], 4))
def test_every_run_of_a_sequence_is_the_simulator_s(runtime: ctypes.CDLL, name: str, chunk: int) -> None:
    """Logits and caches until the cache is full; what comes then is an error that leaves all as it was."""
    own = decoder(name, chunk)
    with CProgram(runtime, own.program.to_bytes()) as one:
        assert (one.index.name, one.index.most, one.index.added) == (b"position", CONTEXT - chunk, chunk)
        simulated = Simulated(own)
        made = [simulated.run(TOKENS[at : at + chunk]) for at in range(0, CONTEXT, chunk)]
        for _ in range(2):
            for at, wanted in zip(range(0, CONTEXT, chunk), made, strict=True):
                tokens = TOKENS[at : at + chunk]
                assert one.index.position == at
                same(one, run(one, tokens), wanted, f"behind {at}")
            with pytest.raises(RuntimeFault, match="no room for a run") as fault:
                run(one, tokens)
            assert fault.value.status == FULL and one.index.position == CONTEXT
            same(one, {n: one.at(p) for n, p in one.outputs.items() if "cache" in n}, {
                n: a for n, a in wanted.items() if "cache" in n and a.dtype.kind == "u"
            }, "behind the last run")
            one.reset()


FAMILIES = ["llama", "gpt2", "mistral", "qwen3", "gemma2", "phi3"]
SHARED = [("llama", "edge-8t")]
LONG = [pytest.param(family, target, marks=pytest.mark.slow)
        for family in FAMILIES for target in ("edge-8t", "bm1684x") if (family, target) not in SHARED]
SPLITS = ((4,) * 8, (1, 4, 4, 1, 1, 4, 4, 1, 4, 4, 4), (1,) * 13 + (4,) * 4 + (1,) * 3)


def compared_chunks(
    programs: Mapping[int, CProgram], both: tuple[Decoder, Decoder], chunks: Sequence[int]
) -> Iterator[tuple[int, Arrays]]:
    """The position and the outputs behind each chunk of a split; both equal the simulator's."""
    simulated, at = Simulated(*both), 0
    for chunk in chunks:
        tokens = TOKENS[at : at + chunk]
        found, wanted = run(programs[chunk], tokens), simulated.run(tokens)
        same(programs[chunk], found, wanted, f"behind {at} of {chunks}")
        at += chunk
        assert [one.index.position for one in programs.values()] == [at] * len(programs)
        yield at, found


@cache
def file_of(family: str, target: str, indexed: bool = True) -> tuple[bytes, tuple[Decoder, Decoder]]:
    """Programs of one and of four tokens a run, of the same codes, in one file. Not `indexed`: every run
    reads and writes all rows of the caches."""
    one, four = (decoder(target, chunk, family, calibrated=4) for chunk in (1, 4))
    if not indexed:
        one, four = (replace(o, program=o.whole()) for o in (one, four))
    return packed({f"chunk={own.chunk}": own.program for own in (one, four)}).to_bytes(), (one, four)


@pytest.mark.parametrize(("family", "target"), [*SHARED, *LONG])
def test_programs_of_one_file_go_over_one_cache(runtime: ctypes.CDLL, family: str, target: str) -> None:
    """Every split of a prompt: what the simulator gives for it, and the logits of every other split."""
    file, both = file_of(family, target)
    behind: dict[int, np.ndarray] = {}
    with beside(runtime, file, "chunk=1") as one, beside(runtime, file, "chunk=4", one) as four:
        programs = {1: one, 4: four}
        for chunks in SPLITS:
            one.reset()
            for at, found in compared_chunks(programs, both, chunks):
                np.testing.assert_array_equal(behind.setdefault(at, found["logits"]), found["logits"])
            assert at == CONTEXT


def test_a_sequence_is_trimmed_and_goes_on(runtime: ctypes.CDLL) -> None:
    """A run over tokens that the cache holds writes the same rows; trimmed ones are as if never appended."""
    file, _ = file_of(*SHARED[0])
    with beside(runtime, file, "chunk=4") as four, beside(runtime, file, "chunk=1", four) as one:
        wanted = [run(one, [token])["logits"] for token in TOKENS[:9]]
        caches = {name: one.at(port).copy() for name, port in one.outputs.items() if "cache" in name}
        one.reset()
        run(four, TOKENS[:4])
        for token in TOKENS[20:27]:
            run(one, [token])
        assert four.trim(5) == 0 and four.index.position == 5 and one.trim(6) == USAGE
        assert four.trim(4) == 0
        run(four, TOKENS[4:8])
        four.trim(5)
        np.testing.assert_array_equal(run(four, TOKENS[5:9])["logits"], wanted[8])
        four.trim(8)
        np.testing.assert_array_equal(run(one, TOKENS[8:9])["logits"], wanted[8])
        for name, array in caches.items():
            np.testing.assert_array_equal(one.at(one.outputs[name]), array, err_msg=name)


def test_only_programs_that_keep_the_same_share_it(runtime: ctypes.CDLL) -> None:
    file, (decode, _) = file_of(*SHARED[0])
    other = decoder("edge-8t", 1).program             # calibrated apart: other scales
    with beside(runtime, file, "chunk=4") as four:
        with pytest.raises(RuntimeFault, match="keeps another state") as fault:
            beside(runtime, other.to_bytes(), None, four)
        assert fault.value.status == USAGE
        with beside(runtime, decode.program.to_bytes(), None, four) as one:
            run(one, TOKENS[:1])
        assert four.index.position == 1               # and the cache of the one that is closed is kept
        alone = Simulated(*file_of(*SHARED[0])[1])
        alone.run(TOKENS[:1])
        same(four, run(four, TOKENS[1:5]), alone.run(TOKENS[1:5]), "behind a closed program")


def test_networks_are_listed(runtime: ctypes.CDLL) -> None:
    file, (decode, _) = file_of(*SHARED[0])
    name = ctypes.create_string_buffer(16)
    found = []
    while not (status := runtime.npuflow_network(file, len(file), len(found), name, 16)):
        found.append(name.value)
    assert found == [b"chunk=1", b"chunk=4"] and status == NETWORK
    assert runtime.npuflow_network(file, len(file), 0, name, 3) == USAGE
    alone = decode.program.to_bytes()
    assert runtime.npuflow_network(alone, len(alone), 0, name, 16) == 0 and name.value == b""
    assert runtime.npuflow_network(alone, len(alone), 1, name, 16) == NETWORK


def with_meta(program: Program, **changed: Any) -> bytes:
    indices = [{**one, **changed} for one in program.meta["indices"]]
    return replace(program, meta={**program.meta, "indices": indices}).to_bytes()


def test_an_index_that_cannot_be_is_refused_when_the_file_is_opened(runtime: ctypes.CDLL) -> None:
    """Past the caches, where nothing says that it lies, of no input; commands that leave memory at a turn."""
    program = decoder("edge-8t", 1).program
    first, second = program.meta["indices"]
    swapped = {**program.meta, "indices": [{**first, "address": second["address"]}, second]}
    for file, said in (
        (with_meta(program, most=CONTEXT), "less rows"),
        (with_meta(program, new=2), "no integer tensor"),
        (with_meta(program, input="tokens"), "no integer tensor"),
        (with_meta(program, address=program.meta["data_bytes"]), "not described"),
        (with_meta(program, axes={"cache.0.key": 5}), "less rows"),
        (replace(program, meta=swapped).to_bytes(), "where no number of steps lies"),
    ):
        with pytest.raises(RuntimeFault, match=said):
            CProgram(runtime, file)
    found = []
    words, at = program.stored[0], {field.name: word for field, word in layout("ADVANCE")}["steps"]
    for row in np.flatnonzero(words[:, 0] & 0xFF == opcodes()["ADVANCE"].code):
        for step in np.flatnonzero(words[row, at:])[:2]:
            changed = words.copy()
            changed[row, at + step] = 0x0FFFFFF0
            try:
                CProgram(runtime, replace(program, stored=(changed,)).to_bytes()).close()
            except RuntimeFault as fault:
                found.append(fault.status)
            else:                                     # such as the stride of a dimension of 1
                found.append(0)
    assert found.count(BOUNDS) > 5 and set(found) <= {0, BOUNDS, COMMAND}


def test_a_run_that_fails_leaves_the_state_as_it_was(runtime: ctypes.CDLL) -> None:
    """An index that the caller has put anywhere."""
    own = file_of(*SHARED[0])[1][0]
    with CProgram(runtime, own.program.to_bytes()) as one:
        wanted = [run(one, [token])["logits"] for token in TOKENS[:3]]
        one.trim(2)
        for odd in (-1, CONTEXT, 1 << 30, -(1 << 31)):
            one.at(one.inputs["position"])[...] = odd
            with pytest.raises(RuntimeFault) as fault:
                run(one, TOKENS[:1])
            assert fault.value.status == FULL
        one.at(one.inputs["position"])[...] = 2
        np.testing.assert_array_equal(run(one, TOKENS[2:3])["logits"], wanted[2])


def test_the_program_of_an_epcontext_node_is_given_caches_and_index(runtime: ctypes.CDLL) -> None:
    """It keeps no state: what ONNX Runtime gives a node."""
    own = file_of(*SHARED[0])[1][1]
    program = of_bytes(context_model(own.program).context)
    assert isinstance(program, Program) and "state" not in program.meta
    simulated = Simulated(own)
    with CProgram(runtime, program.to_bytes()) as one:
        for at in range(0, CONTEXT, 4):
            new, places = TOKENS[at : at + 4], range(at, at + 4)
            rows = {"embedding:rows:numbers": new, "layers.0.heads:numbers": places}
            codes = {n: np.reshape([*row], one.at(one.inputs[n]).shape) for n, row in rows.items()}
            held = {name: simulated.held[name] for name in one.inputs if name in simulated.held}
            found, wanted = one.run({**codes, **held}), simulated.run(TOKENS[at : at + 4])
            for name, array in found.items():
                made = real(one, name, array) if name == "logits" else array
                np.testing.assert_array_equal(made, wanted[name], err_msg=f"{name} behind {at}")
        with pytest.raises(RuntimeFault) as fault:
            one.run({"position": np.array([CONTEXT - 3])})
        assert fault.value.status == FULL


@pytest.mark.skipif(not COMPILERS or not shutil.which("make"), reason="no C compiler or make")
@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.slow
def test_the_example_goes_on_with_a_text_and_the_fuzzer_damages_its_file(
    tmp_path: Path, indexed: bool
) -> None:
    """The tokens of `Runner.session`, until the cache is full; damage under the sanitizers."""
    file = tmp_path / "net.npu"
    file.write_bytes(file_of(*SHARED[0], indexed=indexed)[0])
    make = ["make", "-s", "-C", str(ROOT), f"CC={COMPILERS[0]}", f"BUILD={tmp_path}"]
    subprocess.run([*make, f"{tmp_path}/generate"], check=True)
    words = [tmp_path / "generate", file, "-", "40"]
    given = " ".join(map(str, TOKENS[:7])).encode()
    said = subprocess.run(words, input=given, capture_output=True, check=True).stdout
    session = Runner(file, exact="simulator").session()
    made = [int(session.append(TOKENS[:7]).argmax())]
    while session.position < CONTEXT:
        made.append(int(session.append(made[-1:]).argmax()))
    assert [int(line) for line in said.split()] == made
    for wrong in (b"", b"81", b"5 " * (CONTEXT + 1)):
        assert subprocess.run(words, input=wrong, capture_output=True, check=False).returncode == 1
    fuzzed = subprocess.run([*make, "fuzz", "COUNT=300", f"PROGRAM={file}"], capture_output=True, text=True,
                            check=False)
    assert fuzzed.returncode == 0, fuzzed.stderr[-2000:]
    assert fuzzed.stdout.startswith("300 damaged files:") and "the caches are full" in fuzzed.stdout
