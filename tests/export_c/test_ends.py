"""Ends of an exported C program: indices, copies, its header in C++, and the test program's memory."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import ModelError
from npuflow.hw.target import Numerics
from npuflow.quantise.config import Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.rule import graph_of
from npuflow.whole.export_c import files
from npuflow.whole.export_c.network import network_of
from tests.export_c.harness import COMPILERS, Case, case, check, needs_compiler
from tests.export_c.index_networks import NETWORKS, network
from tests.networks.onnx_text import model
from tests.networks.subjects import subject

CPP = tuple(name for name in ("g++", "clang++") if shutil.which(name))
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")


@pytest.mark.slow
@needs_compiler
def test_outputs_that_are_indices_or_copies(tmp_path: Path) -> None:
    cases = [case(network(name), Numerics(), n) for n, name in enumerate(NETWORKS)]
    check(cases, tmp_path)
    for one, (outputs, _) in zip(cases, NETWORKS.values(), strict=True):
        names = [text.split()[1] for text in outputs.split(", ")]
        assert [p.name for p in one.program.outputs] == names
    places = cases[0].samples[0][1]["y"]
    assert places.dtype == np.int16 and {*np.unique(places)} <= set(range(5)) and len(np.unique(places)) > 1


def test_a_cast_that_computes_is_refused() -> None:
    """Real numbers made whole, and whole numbers in a type that has no room for them."""
    casts = (("c = Relu(x) y = Cast<to=6>(c)", "int32"), ("a = ArgMax(x) y = Cast<to=3>(a)", "int8"))
    for body, kind in casts:
        shape = "4,6" if "Relu" in body else "1,6"
        one = subject("cast", rewrite(graph_of(model(f"float[4,6] x => {kind}[{shape}] y", body))).graph)
        integer = {i for i, n in enumerate(one.graph.nodes) if n.op.onnx_type()[1] != "Cast"}
        done = quantize_graph(one.graph, integer.__contains__, one.ranges, Quantize(), Numerics())
        with pytest.raises(ModelError, match=r"y \(Cast\)"):
            network_of(done.graph)


def written(folder: Path, large: int) -> Case:
    one = case(network("argmax and what it reads"), Numerics(), 0)
    files.write(one.program, folder, one.samples, large)
    return one


USER = """
#define NET0_FLOAT
#include "net0.h"
#include "net0.h"
static unsigned char memory[NET0_ARENA_BYTES + NET0_ALIGN];
static uint8_t image[NET0_IN_X_SIZE], scores[NET0_OUT_C_SIZE];
static float real[NET0_IN_X_SIZE], found[NET0_OUT_C_SIZE];
static int16_t place[NET0_OUT_Y_SIZE];
int main()
{
    uintptr_t at = ((uintptr_t)memory + NET0_ALIGN - 1) & ~(uintptr_t)(NET0_ALIGN - 1);
    net0_quantize_x(real, image);
    net0_run(image, place, scores, (void *)at);
    net0_dequantize_c(scores, found);
    return place[0] < 0 || place[0] > 4;
}
"""


@needs_compiler
@pytest.mark.skipif(not CPP, reason="no C++ compiler")
@pytest.mark.parametrize("standard", ["c++98", "c++17"])
def test_the_header_in_cpp(tmp_path: Path, standard: str) -> None:
    """The program is compiled as C; its header is one of C++, where `restrict` is no word."""
    written(tmp_path, files.LARGE)
    assert "restrict" not in (tmp_path / "net0.h").read_text()
    (tmp_path / "user.cc").write_text(USER)
    subprocess.run([COMPILERS[0], "-std=c99", "-O1", "-c", "net0.c"], cwd=tmp_path, check=True)
    for compiler in CPP:
        words = [compiler, f"-std={standard}", *STRICT, "user.cc", "net0.o", "-o", "user"]
        run = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        subprocess.run([str(tmp_path / "user")], check=True)


@needs_compiler
@pytest.mark.parametrize("large", [0, files.LARGE])
def test_the_test_program_frees_its_memory(tmp_path: Path, large: int) -> None:
    """On every way out: all agrees, no such file, a file that ends early."""
    written(tmp_path, large)
    words = [COMPILERS[0], "-std=c99", "-g", *STRICT, "-fsanitize=address,leak,undefined"]
    build = subprocess.run(
        [*words, "net0_test.c", "net0.c", "-o", "tested"], cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )
    if "sanitize" in build.stderr or "libasan" in build.stderr:
        pytest.skip("no sanitizers")
    assert build.returncode == 0, build.stderr
    (tmp_path / "short.bin").write_bytes((tmp_path / "net0_test.bin").read_bytes()[:-1])
    for more, code, text in (
        ((), 0, "0 codes differ"),
        (("net0_test.bin", "2"), 0, " ms"),
        (("nowhere.bin",), 2, "no nowhere.bin"),
        (("short.bin",), 2, "the file ends early"),
    ):
        run = subprocess.run(
            [str(tmp_path / "tested"), *more], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert run.returncode == code and text in run.stdout + run.stderr, run.stderr
        assert "Sanitizer" not in run.stderr, run.stderr
