"""What the C runtime refuses and how, what a driver is given, and what an application sees of a program."""

from __future__ import annotations

import ctypes
import io
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from npuflow.base.errors import Where
from npuflow.cli._app import application
from npuflow.program.container import VERSION, Program, sections_of, write
from npuflow.runner import raw
from tests.networks.harness import SMALL, build
from tests.networks.small import mixed
from tests.runtime.harness import (
    COMPILERS,
    ROOT,
    CProgram,
    Error,
    Options,
    RuntimeFault,
    codes_of,
    simulated,
)
from tests.sim.programs import flat_copy, serial

USAGE, MEMORY, NO_PROGRAM, OTHER_VERSION, DAMAGED, METADATA, COMMAND, OPCODE, BOUNDS, DEADLOCK = range(1, 11)
HOST_PART, TARGET, DEVICE = 11, 13, 15


@pytest.fixture(scope="module")
def program() -> Program:
    return build(mixed(SMALL.numerics)[0], replace(SMALL, memory=replace(SMALL.memory, local_bytes=8192)))


def refused(runtime: ctypes.CDLL, file: bytes) -> tuple[int, str]:
    with pytest.raises(RuntimeFault) as fault:
        CProgram(runtime, file)
    return fault.value.status, str(fault.value)


def copying(**changed: int) -> Program:
    """A program of two commands, the second one changed."""
    opcode, fields = flat_copy("STORE", "DATA", 128, 0, 64)
    return serial([flat_copy("LOAD", "DATA", 0, 0, 64), (opcode, {**fields, **changed})])


def test_damage_is_found_wherever_it_is(runtime: ctypes.CDLL) -> None:
    file = bytearray(copying().to_bytes())
    for at in range(16, len(file), 7):
        file[at] ^= 1
        assert refused(runtime, bytes(file))[0] == DAMAGED
        file[at] ^= 1
    for size in range(80, len(file), 61):
        assert refused(runtime, bytes(file[:size]))[0] == DAMAGED
    assert refused(runtime, bytes(file) + b"\\0")[0] == DAMAGED


def test_other_files_and_versions_are_refused(runtime: ctypes.CDLL) -> None:
    file = copying().to_bytes()
    assert refused(runtime, b"PK" + file[2:])[0] == NO_PROGRAM
    assert refused(runtime, file[:40])[0] == NO_PROGRAM
    for version in (VERSION - 1, VERSION + 1):
        status, said = refused(runtime, file[:8] + version.to_bytes(4, "little") + file[12:])
        assert status == OTHER_VERSION and "build it again" in said


def test_what_a_file_says_of_itself_changes_nothing(runtime: ctypes.CDLL, program: Program) -> None:
    """A seal and a provenance are sections of their own: whoever needs them checks them before."""
    plain = program.to_bytes()
    fingerprint, parts = sections_of(memoryview(plain), Where(), True)
    made = io.BytesIO()
    more = {"provenance": b"{}", "seal": b"s"}
    write(made, fingerprint, [(name, [body]) for name, body in {**parts, **more}.items()])
    codes = {one.name: codes_of(one, np.random.default_rng(1), 1)[0] for one in raw.inputs(program)}
    found = []
    for file in (plain, made.getvalue()):
        with CProgram(runtime, file) as one:
            found.append({name: array.tobytes() for name, array in one.run(codes).items()})
    assert found[0] == found[1] and any(map(any, found[0].values()))


def test_a_command_outside_of_its_memory_is_named(runtime: ctypes.CDLL) -> None:
    status, said = refused(runtime, copying(local=1 << 20).to_bytes())
    assert status == BOUNDS and "core 0, command 1" in said


def test_an_opcode_that_nobody_knows_is_named(runtime: ctypes.CDLL) -> None:
    one = copying()
    words = one.commands[0].copy()
    words[1, 0] = words[1, 0] & ~np.uint32(0xFF) | np.uint32(250)
    status, said = refused(runtime, replace(one, commands=(words,)).to_bytes())
    assert status == OPCODE and "core 0, command 1" in said


def test_commands_that_wait_for_each_other_are_refused(runtime: ctypes.CDLL) -> None:
    one = copying()
    words = one.commands[0].copy()
    words[0, 2] |= np.uint32(1 << 16)           # the LOAD waits for the STORE, which waits for it
    assert refused(runtime, replace(one, commands=(words,)).to_bytes())[0] == DEADLOCK


def test_parts_of_the_host_are_refused(runtime: ctypes.CDLL) -> None:
    one = copying()
    step = {"kind": "host", "model": 0, "inputs": ["in"], "outputs": ["more"]}
    meta = {**one.meta, "steps": [*one.meta["steps"], step]}
    file = replace(one, meta=meta, hosts=(b"no model",)).to_bytes()
    assert refused(runtime, file)[0] == HOST_PART


def test_a_file_at_an_odd_address_is_refused(runtime: ctypes.CDLL) -> None:
    body = ctypes.create_string_buffer(b"\\0" + copying().to_bytes())
    made, error = ctypes.c_void_p(), Error()
    status = runtime.npuflow_open(
        ctypes.addressof(body) + 1, len(body) - 2, None, ctypes.byref(made), ctypes.byref(error)
    )
    assert status == USAGE and not made


def test_what_an_application_sees(runtime: ctypes.CDLL, program: Program) -> None:
    with CProgram(runtime, program.to_bytes()) as one:
        for slots, ports in ((raw.inputs(program), one.inputs), (raw.outputs(program), one.outputs)):
            assert [slot.name for slot in slots] == list(ports)
            for slot in slots:
                port = ports[slot.name]
                assert (port.address, port.bytes) == (slot.address, slot.size)
                assert tuple(port.shape[i] for i in range(port.rank)) == slot.shape
                assert slot.quant and port.scale[0] == slot.quant["scale"][0]
                assert port.zero_point[0] == slot.quant["zero_point"][0]


def test_numbers_become_codes_as_in_python(runtime: ctypes.CDLL, program: Program) -> None:
    (slot,), rng = raw.inputs(program), np.random.default_rng(2)
    real = (rng.normal(size=slot.shape) * 3).astype(np.float32)
    real.flat[:4] = np.nan, np.inf, -np.inf, 0
    with CProgram(runtime, program.to_bytes()) as one:
        wanted = raw.encoded(slot, real)[: slot.size]
        assert one.quantize(slot.name, real).tobytes() == wanted


ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def test_memory_is_taken_at_load_alone(runtime: ctypes.CDLL, program: Program) -> None:
    held: dict[int, ctypes.Array[ctypes.c_char]] = {}

    def allocate(_: int, size: int) -> int:
        body = ctypes.create_string_buffer(size)
        held[ctypes.addressof(body)] = body
        return ctypes.addressof(body)

    given, back = ALLOCATE(allocate), RELEASE(lambda _, place: held.pop(place) and None)
    pointers = (ctypes.cast(one, ctypes.c_void_p).value for one in (given, back))
    options = Options(None, None, None, *pointers)
    one = CProgram(runtime, program.to_bytes(), options=options)
    taken = len(held)
    assert sum(map(len, held.values())) == runtime.npuflow_memory(one.program)
    rng = np.random.default_rng(1)
    codes = {slot.name: codes_of(slot, rng, 1)[0] for slot in raw.inputs(program)}
    one.run(codes)
    one.run(codes)
    assert len(held) == taken
    one.close()
    assert not held


def test_too_little_memory_is_a_status(runtime: ctypes.CDLL, program: Program) -> None:
    file, count = program.to_bytes(), 0
    for most in range(40):
        held: dict[int, ctypes.Array[ctypes.c_char]] = {}

        def allocate(_: int, size: int, held: dict = held, most: int = most) -> int | None:
            if len(held) == most:
                return None
            body = ctypes.create_string_buffer(size)
            held[ctypes.addressof(body)] = body
            return ctypes.addressof(body)

        given, back = ALLOCATE(allocate), RELEASE(lambda _, place, held=held: held.pop(place) and None)
        pointers = (ctypes.cast(one, ctypes.c_void_p).value for one in (given, back))
        try:
            CProgram(runtime, file, options=Options(None, None, None, *pointers)).close()
        except RuntimeFault as fault:
            assert fault.status == MEMORY
            count += 1
        assert not held
    assert 5 < count < 40


class Part(ctypes.Structure):
    """`npuflow_part`."""

    _fields_ = (
        ("index", ctypes.c_uint32), ("cores", ctypes.c_uint32),
        ("words", ctypes.POINTER(ctypes.c_uint32) * 64),
        ("first", ctypes.c_uint64 * 64), ("count", ctypes.c_uint64 * 64),
    )


MAP = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.POINTER(ctypes.c_void_p)
)
SUBMIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Part))
WAIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class Driver(ctypes.Structure):
    """`npuflow_driver`."""

    _fields_ = (
        ("context", ctypes.c_void_p), ("target", ctypes.c_char_p), ("map", MAP), ("submit", SUBMIT),
        ("wait", WAIT),
    )


def test_a_driver_is_given_memory_and_commands(runtime: ctypes.CDLL, program: Program) -> None:
    """The device is the simulator: it sees what was mapped and submitted, and nothing else."""
    spaces: dict[int, np.ndarray] = {}
    waiting: list[np.ndarray] = []
    done: list[int] = []

    def mapped(_: int, space: int, size: int, host) -> int:
        spaces[space] = np.zeros(size + 64, np.uint8)
        host[0] = spaces[space].ctypes.data
        return 0

    def submit(_: int, part) -> int:
        one = part.contents
        words = np.ctypeslib.as_array(one.words[0], (one.first[0] + one.count[0], 64))[one.first[0] :]
        waiting.append(words.copy())
        return 0

    def wait(_: int) -> int:
        (words,) = waiting
        waiting.clear()
        assert (words == program.commands[0]).all()
        assert spaces[1][: len(program.const)].tobytes() == bytes(program.const)
        codes = {
            slot.name: spaces[0][slot.address :][: slot.size].view(slot.dtype).reshape(1, *slot.shape)
            for slot in raw.inputs(program)
        }
        for slot in raw.outputs(program):
            made = simulated(program, codes)[slot.name][0]
            spaces[0][slot.address : slot.address + slot.size] = made.reshape(-1).view(np.uint8)
        done.append(1)
        return 0

    driver = Driver(None, program.target_fingerprint.encode(), MAP(mapped), SUBMIT(submit), WAIT(wait))
    options, rng = Options(None, ctypes.addressof(driver)), np.random.default_rng(1)
    with CProgram(runtime, program.to_bytes(), options=options) as one:
        codes = {slot.name: codes_of(slot, rng, 1) for slot in raw.inputs(program)}
        found = one.run({name: array[0] for name, array in codes.items()})
        for name, array in simulated(program, codes).items():
            np.testing.assert_array_equal(found[name], array[0])
    assert done == [1]
    other = Driver(None, b"another", MAP(mapped), SUBMIT(submit), WAIT(wait))
    with pytest.raises(RuntimeFault) as fault:
        CProgram(runtime, program.to_bytes(), options=Options(None, ctypes.addressof(other)))
    assert fault.value.status == TARGET


def test_a_driver_that_fails_is_a_status(runtime: ctypes.CDLL) -> None:
    driver = Driver(None, None, MAP(), SUBMIT(lambda _, part: 1), WAIT(lambda _: 0))
    one = CProgram(runtime, copying().to_bytes(), options=Options(None, ctypes.addressof(driver)))
    with pytest.raises(RuntimeFault) as fault:
        one.run({})
    assert fault.value.status == DEVICE
    one.close()


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command line writes."""
    folder = tmp_path_factory.mktemp("exported") / "runtime"
    run = CliRunner().invoke(application(), ["export", "runtime", "-o", str(folder)])
    assert run.exit_code == 0, run.output
    return folder


def test_the_command_line_writes_all_sources(sources: Path) -> None:
    wanted = {p.relative_to(ROOT) for p in ROOT.rglob("*") if p.is_file() and "build" not in p.parts}
    assert {p.relative_to(sources) for p in sources.rglob("*") if p.is_file()} == wanted


@pytest.mark.skipif(not COMPILERS or not shutil.which("make"), reason="no C compiler or make")
@pytest.mark.slow
def test_the_example_runs_programs_and_the_fuzzer_damages_them(sources: Path, program: Program) -> None:
    """Under the sanitizers: a process that reads outside of the file or its memories ends with a status."""
    (sources / "one.npu").write_bytes(program.to_bytes())
    (sources / "two.npu").write_bytes(copying().to_bytes())
    make = ["make", "-s", "-C", str(sources), f"CC={COMPILERS[0]}", "CFLAGS=-O0"]
    subprocess.run(make, check=True)
    said = subprocess.run(
        [sources / "build/run", sources / "one.npu"], capture_output=True, text=True, check=True
    ).stdout
    rng = np.random.default_rng(1)
    codes = {slot.name: codes_of(slot, rng, 3) for slot in raw.inputs(program)}
    assert all(f"input {name}: " in said for name in codes)
    given = b"".join(array[k].tobytes() for k in range(3) for array in codes.values())
    run = subprocess.run(
        [sources / "build/run", sources / "one.npu", "-"], input=given, capture_output=True, check=True
    )
    wanted = simulated(program, codes)
    assert run.stdout == b"".join(array[k].tobytes() for k in range(3) for array in wanted.values())
    fuzzed = subprocess.run(
        [*make, "fuzz", "COUNT=400", f"PROGRAM={sources / 'one.npu'} {sources / 'two.npu'}"],
        capture_output=True, text=True, check=False,
    )
    assert fuzzed.returncode == 0, fuzzed.stderr[-2000:]
    assert fuzzed.stdout.startswith("400 damaged files:") and "a damaged file" in fuzzed.stdout


CPP = """
#include <cstdio>
#include "npuflow.h"
int main()
{
    npuflow_program *program = nullptr;
    npuflow_error error;
    alignas(8) const char file[9] = "12345678";
    const npuflow_status status = npuflow_open(file, 8, nullptr, &program, &error);
    std::printf("%d %s", status, npuflow_message(status));
    return 0;
}
"""


@pytest.mark.skipif(not COMPILERS or not shutil.which("g++"), reason="no C++ compiler")
def test_the_header_is_one_for_cpp(sources: Path, tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(CPP)
    objects = tmp_path / "objects"
    objects.mkdir()
    files = sorted(map(str, (sources / "src").glob("*.c")))
    subprocess.run([COMPILERS[0], "-std=c99", "-c", *files], cwd=objects, check=True)
    words = ["g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{sources / 'include'}"]
    made = sorted(map(str, objects.glob("*.o")))
    subprocess.run([*words, "main.cpp", *made, "-o", "main"], cwd=tmp_path, check=True)
    said = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    assert said == "3 not an .npu file"
