"""Models with their tensors in other files: read without a copy of more than the
largest tensor, above 2 GB too."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from npuflow.base.errors import ModelError
from npuflow.base.tables import FilePath
from npuflow.flow.artifact import Reader, seal
from npuflow.flow.refs import Files
from npuflow.flow.store_writer import Writer
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.onnx.export import export_model
from npuflow.onnx.fed import FedModel
from npuflow.onnx.run import run
from npuflow.stages.hardware import Asked
from npuflow.stages.model import Model, ModelTable, listing, model
from npuflow.stages.parse import Parse, Parsed, parse

ROOT = Path(__file__).parents[2]


def layers(folder: Path, count: int, size: int, dtype: str = "float32") -> Path:
    """A chain of `count` products with matrices of `size` by `size`, in a file with holes:
    only diagonals are written."""
    kind = np.dtype(dtype)
    code = helper.np_dtype_to_tensor_dtype(kind)
    each = size * size * kind.itemsize
    nodes, tensors = [], []
    with (folder / "net.bin").open("wb") as file:
        file.truncate(count * each)
        for i in range(count):
            file.seek(i * each)
            # one row, different in each matrix
            file.write(np.full(size, (i + 1) / size, dtype).tobytes())
            tensor = onnx.TensorProto(
                name=f"w{i}", data_type=code, dims=[size, size], data_location=onnx.TensorProto.EXTERNAL
            )
            for key, value in (("location", "net.bin"), ("offset", i * each), ("length", each)):
                tensor.external_data.add(key=key, value=str(value))
            tensors.append(tensor)
            nodes.append(
                helper.make_node(
                    "MatMul", [f"h{i}" if i else "x", f"w{i}"], [f"h{i + 1}" if i < count - 1 else "y"]
                )
            )
    ports = [helper.make_tensor_value_info(name, code, [1, size]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    graph.initializer.extend(tensors)
    path = folder / "net.onnx"
    path.write_bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        ).SerializeToString()
    )
    return path


def through(path: Path, folder: Path) -> Parsed:
    """Both steps as a build does them: each artifact stored, and loaded by the next."""
    table = ModelTable(FilePath(path.name, path))
    folder.mkdir()
    held = folder / "model"
    held.mkdir()
    manifest = seal(model(Files(listing(table)), table), Writer(held))
    source = Model.load(Reader(held, manifest))
    made = folder / "parse"
    made.mkdir()
    return Parsed.load(Reader(made, seal(parse(source, Asked(), Parse()), Writer(made))))


def test_no_copy_beyond_the_largest_tensor_is_made(tmp_path: Path) -> None:
    # what is imported once is not counted
    through(layers(tmp_path, 1, 8), tmp_path / "warm")
    path, each = layers(tmp_path, 12, 1024), 4 << 20
    tracemalloc.start()
    try:
        parsed = through(path, tmp_path / "steps")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(parsed.graph.nodes) == 12 and peak < 1.5 * each + (2 << 20), f"{peak / each:.1f} tensors"


def test_they_compute_what_they_did(tmp_path: Path) -> None:
    path = layers(tmp_path, 3, 600)
    parsed = through(path, tmp_path / "steps")
    x = np.ones((1, 600), np.float32)
    np.testing.assert_allclose(
        run(export_model(parsed.graph), {"x": x})[0],
        run(onnx.load(str(path)).SerializeToString(), {"x": x})[0],
        rtol=1e-5,
    )


def test_the_source_can_be_run_beside_the_graph(tmp_path: Path) -> None:
    path, reader = layers(tmp_path, 2, 64), FRONTENDS["onnx"]()
    x = {"x": np.ones((1, 64), np.float32)}
    own = run(reader.runnable(reader.gather(path), Bindings()), x)[0]
    np.testing.assert_allclose(own, run(onnx.load(str(path)).SerializeToString(), x)[0])
    fed = reader.runnable(reader.gather(path), Bindings(), 20_000)
    assert isinstance(fed, FedModel) and set(fed.constants) == {"w0", "w1"} and len(fed.proto) < 1000
    np.testing.assert_allclose(run(fed, x)[0], own)
    assert isinstance(reader.runnable(reader.gather(path), Bindings(), 40_000), bytes)


def test_half_precision_and_small_codes_lie_in_files_too(tmp_path: Path) -> None:
    parsed = through(layers(tmp_path, 2, 64, "float16"), tmp_path / "steps")
    assert {array.dtype.name for array in parsed.graph.consts.values()} == {"float32"}
    codes = np.arange(64 * 4).reshape(64, 4) % 16 - 8
    tensor = helper.make_tensor("w", onnx.TensorProto.INT4, [64, 4], codes.ravel())
    (tmp_path / "codes.bin").write_bytes(
        onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor)).raw_data
    )
    stored = onnx.TensorProto(
        name="w", data_type=onnx.TensorProto.INT4, dims=[64, 4], data_location=onnx.TensorProto.EXTERNAL
    )
    stored.external_data.add(key="location", value="codes.bin")
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"]),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, 1, [1, size]) for name, size in (("x", 64), ("y", 4))]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], [helper.make_tensor("s", 1, [], [0.5])])
    graph.initializer.append(stored)
    path = tmp_path / "codes.onnx"
    path.write_bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
        ).SerializeToString()
    )
    reader = FRONTENDS["onnx"]()
    np.testing.assert_array_equal(
        reader.read(reader.gather(path), Bindings()).graph.const("d"), codes * np.float32(0.5)
    )


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("location", "../net.bin", "beside the model"),
        ("location", "none.bin", "beside the model"),
        ("offset", "8", "ends at byte"),
        ("length", "8", "holds 8 bytes"),
        ("offset", "much", "invalid literal"),
    ],
)
def test_files_that_do_not_fit_are_named(tmp_path: Path, key: str, value: str, said: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "net.bin").write_bytes(bytes(64 * 64 * 4))
    path = layers(inner, 1, 64)
    proto = onnx.load(str(path), load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        entry.value = value if entry.key == key else entry.value
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match=r'external data of tensor "w0"') as caught:
        FRONTENDS["onnx"]().gather(path)
    assert said in str(caught.value.because) and caught.value.where.file == str(path)


MEASURED = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.frontends.test_large_models import through
nodes = through(Path(sys.argv[2]), Path(sys.argv[3])).graph.nodes
print(len(nodes), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak(path: Path, steps: Path) -> tuple[int, int]:
    """Nodes, and peak resident kilobytes of a process of its own."""
    command = [sys.executable, "-c", MEASURED, str(ROOT), str(path), str(steps)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    nodes, kilobytes = map(int, done.stdout.split())
    return nodes, kilobytes


@pytest.mark.slow
def test_more_than_two_gigabytes_take_the_memory_of_one_tensor(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    _, base = peak(layers(small, 2, 64), small / "steps")
    # 33 tensors of 64 MiB: 2.2 GB
    nodes, kilobytes = peak(layers(tmp_path, 33, 4096), tmp_path / "steps")
    print(f"peak {kilobytes / 1024:.0f} MiB, of a small model {base / 1024:.0f} MiB")
    assert nodes == 33 and kilobytes - base < 2.5 * 64 * 1024


def test_what_does_not_fit_one_model_is_said(tmp_path: Path) -> None:
    graph = through(layers(tmp_path, 3, 64), tmp_path / "steps").graph
    assert export_model(graph, most=50_000)
    with pytest.raises(ModelError, match="does not fit one ONNX model") as caught:
        export_model(graph, most=40_000)
    assert "2 GiB" in str(caught.value.because) and "[model] outputs" in str(caught.value.hint)
