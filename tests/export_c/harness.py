"""Networks as C, many in one shared library, run by ctypes and compared with the reference interpreter."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.whole.export_c import files
from npuflow.whole.export_c.compiler import compilers
from npuflow.whole.export_c.files import Sample
from npuflow.whole.export_c.network import IntegerNetwork, network_of
from npuflow.whole.export_c.program import CProgram, program_of
from npuflow.whole.export_c.vectors import random_samples

STRICT = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fPIC")
UB = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
COMPILERS = compilers()
needs_compiler = pytest.mark.skipif(not COMPILERS, reason="no C compiler (CC, cc, gcc, clang) on the path")


@dataclass
class Case:
    program: CProgram
    network: IntegerNetwork
    samples: list[Sample]
    apart: bool


def case(graph: Graph, numerics: Numerics, number: int, count: int = 2, large: int = files.LARGE) -> Case:
    network = network_of(graph)
    program = program_of(network, numerics, f"net{number}")
    samples = random_samples(network, numerics, count, seed=number)
    return Case(program, network, samples, program.constant_bytes > large)


def check(
    cases: Sequence[Case], folder: Path, flags: Iterable[str] = ("-O1",), compiler: str | None = None
) -> None:
    """All outputs of all samples, bit for bit."""
    for one in cases:
        large = 0 if one.apart else 1 << 40
        files.write(one.program, folder / one.program.name, one.samples, large)
    sources = [str(folder / c.program.name / f"{c.program.name}.c") for c in cases]
    library = folder / "all.so"
    words = [compiler or COMPILERS[0], *STRICT, *flags, "-shared", "-o", str(library), *sources]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[:4000]
    loaded = ctypes.CDLL(str(library))
    for one in cases:
        _compare(one, loaded, folder)


def _compare(one: Case, library: ctypes.CDLL, folder: Path) -> None:
    program = one.program
    arena = _aligned(np.random.default_rng(1).integers(0, 256, program.arena + 64).astype(np.uint8))
    more: list[Any] = []
    if one.apart:
        body = np.fromfile(folder / program.name / "weights.bin", np.uint8)
        weights = _aligned(np.concatenate([body, np.zeros(64, np.uint8)]))
        weights[: body.size] = body
        more = [weights.ctypes.data_as(ctypes.c_void_p)]
    for given, expected in one.samples:
        inputs = [np.ascontiguousarray(given[p.name]) for p in program.inputs]
        outputs = [np.full(p.value.type.shape, 77, p.value.dtype) for p in program.outputs]
        pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (*inputs, *outputs, arena)]
        library[f"{program.name}_run"](*pointers, *more)
        for port, made in zip(program.outputs, outputs, strict=True):
            where = f"{program.name}: {[n.name for n in one.network.nodes]}"
            np.testing.assert_array_equal(made, expected[port.name], err_msg=where)


def _aligned(memory: np.ndarray) -> np.ndarray:
    """The same memory from its first 64-byte boundary on, and 64 bytes that nobody may touch behind it."""
    return memory[-memory.ctypes.data % 64 :]
