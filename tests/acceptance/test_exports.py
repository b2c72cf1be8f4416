"""What leaves npuflow for other tools: a C program, a TFLite file, golden tensors for a board, a batch."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from tests.acceptance.environments import Environment

RECIPE = """
target = "edge-4t"
[model]
path = "net.onnx"
[data]
source = "data.npz"
[simulate]
samples = 1
[rewrite_check]
samples = 0
[qdq_check]
samples = 0
[verdict]
advice = false
"""
NETWORK = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,3,9,9] x) => (float[1,5,13,13] scores, int64[1,1,13,13] place)
{
    c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w)
    r = Relu(c)
    u = Resize<mode="linear", coordinate_transformation_mode="half_pixel">(r, , s)
    scores = Conv<kernel_shape=[1,1]>(u, v)
    place = ArgMax<axis=1>(scores)
}"""
MAIN = r"""
#include <stdio.h>
#define NET_FLOAT
#include "net.h"
static unsigned char memory[NET_ARENA_BYTES + NET_ALIGN];
static float real[NET_IN_X_SIZE], found[NET_OUT_SCORES_SIZE];
static @X@ x[NET_IN_X_SIZE];
static @S@ scores[NET_OUT_SCORES_SIZE];
static @P@ place[NET_OUT_PLACE_SIZE];
int main(void)
{
    void *arena = (void *)(((uintptr_t)memory + NET_ALIGN - 1) & ~(uintptr_t)(NET_ALIGN - 1));
    while (fread(real, sizeof real, 1, stdin) == 1) {
        net_quantize_x(real, x);
        net_run(x, scores, place, arena);
        net_dequantize_scores(scores, found);
        fwrite(found, sizeof found, 1, stdout);
        fwrite(place, sizeof place, 1, stdout);
    }
    return 0;
}
"""


RUNTIME_MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include "npuflow.h"
static double file[1 << 17];
static float real[1 << 12];
int main(int count, char **words)
{
    FILE *from = fopen(words[count - 1], "rb");
    const size_t size = fread(file, 1, sizeof file, from);
    npuflow_program *program;
    npuflow_error error;
    const npuflow_tensor *in, *out;
    uint32_t n, i;
    if (npuflow_open(file, size, NULL, &program, &error) != NPUFLOW_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    in = npuflow_inputs(program, &n);
    out = npuflow_outputs(program, &n);
    while (fread(real, sizeof *real, in->elements, stdin) == in->elements) {
        npuflow_quantize(in, real, npuflow_at(program, in));
        if (npuflow_run(program, &error) != NPUFLOW_OK)
            return 1;
        for (i = 0; i < n; i++) {
            npuflow_dequantize(&out[i], npuflow_at(program, &out[i]), real);
            fwrite(real, sizeof *real, out[i].elements, stdout);
        }
    }
    npuflow_close(program);
    return 0;
}
"""


@pytest.fixture(scope="module")
def built(installed: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network with a Resize by 1.5 and an index output, and its program."""
    folder, rng = tmp_path_factory.mktemp("exports"), np.random.default_rng(1)
    proto = parser.parse_model(NETWORK)
    for name, array in {
        "w": rng.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "v": rng.normal(size=(5, 4, 1, 1)).astype(np.float32),
        "s": np.array([1, 1, 1.5, 1.5], np.float32),
    }.items():
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(proto, folder / "net.onnx")
    np.savez(folder / "data.npz", x=rng.normal(size=(16, 3, 9, 9)).astype(np.float32))
    (folder / "net.toml").write_text(RECIPE)
    installed.npuflow("build", "net.toml", "--cache", "cache", cwd=folder)
    return folder


def outputs(installed: Environment, folder: Path, program: str) -> dict[str, np.ndarray]:
    made = folder / "outputs.npz"
    installed.npuflow("run", program, "data.npz", "-o", made, cwd=folder)
    with np.load(made) as held:
        return {name: held[name] for name in held.files}


@pytest.mark.promise("c-runtime-bit-exact")
def test_the_c_runtime_gives_what_the_program_gives(installed: Environment, built: Path) -> None:
    compilers = [name for name in ("gcc", "clang") if shutil.which(name)]
    if not compilers or not shutil.which("make"):
        pytest.skip("no C compiler or make")
    installed.npuflow("export", "runtime", "-o", "runtime", cwd=built)
    wanted = outputs(installed, built, "out/net/model.npu")
    (built / "runtime/main.c").write_text(RUNTIME_MAIN)
    with np.load(built / "data.npz") as held:
        given = held["x"].tobytes()
    dtype = np.dtype([("scores", "<f4", (5, 13, 13)), ("place", "<f4", (13, 13))])
    for compiler in compilers:
        subprocess.run(["make", "-s", "clean", "all", f"CC={compiler}"], cwd=built / "runtime", check=True)
        words = [compiler, "-std=c99", "-Iinclude", "main.c", "build/libnpuflow.a", "-lm", "-o", compiler]
        subprocess.run(words, cwd=built / "runtime", check=True)
        run = subprocess.run(
            [built / "runtime" / compiler, built / "out/net/model.npu"], input=given, capture_output=True,
            check=True,
        )
        found = np.frombuffer(run.stdout, dtype)
        np.testing.assert_array_equal(found["scores"], wanted["scores"])
        np.testing.assert_array_equal(found["place"], wanted["place"].reshape(-1, 13, 13))


@pytest.mark.promise("export-c-bit-exact")
def test_a_c_program_gives_what_the_program_gives(installed: Environment, built: Path) -> None:
    compilers = [name for name in ("gcc", "clang") if shutil.which(name)]
    if not compilers:
        pytest.skip("no C compiler")
    installed.npuflow("export", "c", "net.toml", "-o", "c", "--cache", "cache", cwd=built)
    wanted = outputs(installed, built, "out/net/model.npu")
    header = (built / "c/net.h").read_text()
    (entry,) = (line for line in header.splitlines() if line.startswith("void net_run("))
    kinds = {a.split("*")[1]: a.split("*")[0].replace("const", "").strip() for a in entry[13:].split(", ")}
    types = {"@X@": kinds["in_x"], "@S@": kinds["out_scores"], "@P@": kinds["out_place"]}
    text = MAIN
    for mark, kind in types.items():
        text = text.replace(mark, kind)
    (built / "c/main.c").write_text(text)
    with np.load(built / "data.npz") as held:
        given = held["x"].tobytes()
    dtype = np.dtype([("scores", "<f4", (5, 13, 13)), ("place", types["@P@"].removesuffix("_t"), (13, 13))])
    flags = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror")
    for compiler in compilers:
        words = [compiler, *flags, "main.c", "net.c", "-lm", "-o", compiler]
        subprocess.run(words, cwd=built / "c", check=True)
        subprocess.run(["make", "-s", "test", f"CC={compiler}"], cwd=built / "c", check=True)
        run = subprocess.run([built / "c" / compiler], input=given, capture_output=True, check=True)
        found = np.frombuffer(run.stdout, dtype)
        np.testing.assert_array_equal(found["scores"], wanted["scores"])
        np.testing.assert_array_equal(found["place"], wanted["place"].reshape(-1, 13, 13))
        (built / "c/net.o").unlink()
    in_cpp(built / "c", given, run.stdout)


def in_cpp(folder: Path, given: bytes, wanted: bytes) -> None:
    """The same main program as one in C++, with the network compiled as C."""
    (folder / "main.cc").write_bytes((folder / "main.c").read_bytes())
    subprocess.run(["gcc" if shutil.which("gcc") else "clang", "-c", "net.c"], cwd=folder, check=True)
    for compiler in [name for name in ("g++", "clang++") if shutil.which(name)]:
        flags = ("-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic")
        words = [compiler, *flags, "main.cc", "net.o", "-lm", "-o", f"{compiler}.cpp"]
        subprocess.run(words, cwd=folder, check=True)
        run = subprocess.run([folder / f"{compiler}.cpp"], input=given, capture_output=True, check=True)
        assert run.stdout == wanted


@pytest.mark.promise("verify-real-numbers")
def test_a_boards_dumps(installed: Environment, built: Path) -> None:
    """Real numbers agree to half a code; codes of other types, and codes with a fraction, do not pass."""
    program = "out/net/model.npu"
    installed.npuflow("golden", program, "data.npz", "-o", "golden", cwd=built)
    rows = json.loads((built / "golden/golden.json").read_text())["tensors"]
    with np.load(built / "golden/golden.npz") as held:
        codes = {row["name"]: held[row["name"]] for row in rows}
    real = {
        row["name"]: ((codes[row["name"]] - float(row["zero_point"][0])) * row["scale"][0]).astype(np.float32)
        for row in rows
    }
    middle = rows[len(rows) // 2]["name"]
    other = np.uint8 if codes[middle].dtype == np.int8 else np.int8
    exchanged = codes[middle].view(other)
    blank = codes[middle].copy()
    blank.reshape(-1)[blank.size // 2 :] = 0xCC - 256 * (blank.dtype.kind == "i")
    for dump, code, words in (
        (real, 0, "as real numbers to half a code"),
        (codes, 0, "all of them agree"),
        ({**codes, middle: codes[middle].astype(np.float32) + np.float32(0.9)}, 1, "first difference"),
        ({**codes, middle: codes[middle].astype(np.int64) + 256}, 2, "holds int64"),
        ({**codes, middle: exchanged}, 2, "signed and unsigned are exchanged"),
        ({**codes, middle: blank}, 1, "stale memory"),
        ({**real, middle: real[middle] * np.float32(np.nan)}, 1, "not a number"),
    ):
        np.savez(built / "board.npz", **dump)
        done = installed.npuflow("verify", program, "golden", "--dump", "board.npz", cwd=built, check=False)
        told = done.stdout + done.stderr
        assert done.returncode == code and words in told and "Warning" not in told, told


@pytest.mark.promise("export-tflite-checked")
def test_a_tflite_file_is_checked_before_it_is_written(installed: Environment, built: Path) -> None:
    pytest.importorskip("tflite")
    pytest.importorskip("ai_edge_litert")
    words = ("export", "tflite", "net.toml", "-o", "net.tflite", "--cache", "cache")
    told = installed.npuflow(*words, cwd=built).stdout
    assert "LiteRT on 2 random samples: " in told and "codes by 1 at most" in told.replace("by 0", "by 1")
    assert "output place: 1x1x13x13, int32, indices" in told
    assert "LiteRT" not in installed.npuflow(*words, "--check", "0", cwd=built).stdout


EPCONTEXT = """
import sys
import numpy as np
import npuflow.ort as onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
names = [port.name for port in session.get_outputs()]
with np.load("data.npz") as held:
    found = [session.run(names, {"x": one[None]}) for one in held["x"]]
np.savez("context.npz", **{name: np.concatenate(rows) for name, rows in zip(names, zip(*found))})
"""


@pytest.mark.promise("epcontext-bit-exact")
def test_an_epcontext_model_gives_what_the_program_gives(installed: Environment, built: Path) -> None:
    wanted = outputs(installed, built, "out/net/model.npu")
    (built / "context.py").write_text(EPCONTEXT)
    for more in ((), ("--external",)):
        words = ("export", "epcontext", "out/net/model.npu", "-o", "ctx.onnx", *more)
        assert "EPContext node" in installed.npuflow(*words, cwd=built).stdout
        installed.run("python", "context.py", "ctx.onnx", cwd=built)
        with np.load(built / "context.npz") as found:
            assert set(found.files) == set(wanted)
            for name, array in wanted.items():
                np.testing.assert_array_equal(found[name], array)
    (built / "ctx_context.npu").unlink()
    done = installed.npuflow("run", "ctx.onnx", "data.npz", "-o", "no.npz", cwd=built, check=False)
    assert done.returncode != 0 and "NF-PROGRAM-133" in done.stderr and "ctx_context.npu" in done.stderr


@pytest.mark.slow
@pytest.mark.promise("batch-same-results")
def test_a_batch_from_a_file_that_says_1(installed: Environment, built: Path) -> None:
    wanted = outputs(installed, built, "out/net/model.npu")
    build = ("build", "net.toml", "--batch", "4", "--cache", "cache", "--out", "four")
    installed.npuflow(*build, cwd=built)
    found = outputs(installed, built, "four/net/model.npu")
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)
