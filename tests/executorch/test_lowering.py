"""From a module to a .pte that runs: partitions, reasons, and outputs equal to those of the .npu."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("executorch", reason="the extra executorch is not installed")
pytest.importorskip("torchao", reason="the extra executorch is not installed")

import torch
from executorch.exir import to_edge, to_edge_transform_and_lower

import npuflow
from npuflow.apps.executorch import NpuflowPartitioner, NpuflowQuantizer
from npuflow.apps.executorch import runtime as runtimes
from npuflow.base.errors import BuildError, DataError, UsageError
from tests.executorch.networks import inputs, parted, quantised, small

X = (1, 3, 8, 8)


def lowered(program: Any, partitioner: NpuflowPartitioner) -> tuple[Any, bytes]:
    """The nodes that are left, and the .pte."""
    edge = to_edge_transform_and_lower(program, partitioner=[partitioner])
    nodes = [str(node.target) for node in edge.exported_program().graph.nodes if node.op == "call_function"]
    return nodes, bytes(edge.to_executorch().buffer)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def whole(cache: Path) -> tuple[Any, list[str], bytes]:
    quantizer = NpuflowQuantizer("edge-4t")
    program = quantised(small(), quantizer, inputs(4, *X))
    return program, *lowered(program, NpuflowPartitioner(quantizer, cache=cache))


def test_outputs_are_those_of_the_program(whole: tuple[Any, list[str], bytes], cache: Path) -> None:
    """Of the .npu that a build makes of the same scales, read from the exported program."""
    program, nodes, file = whole
    assert sum("call_delegate" in node for node in nodes) == 1 and not any("aten" in node for node in nodes)
    build = npuflow.compile(
        program, "edge-4t", data=np.concatenate(inputs(4, *X, seed=7)), cache=cache, out=cache / "out",
        jobs=1, until="codegen",
        precision={"strategy": "none"}, correct={"bias": "off"},
    )
    judge = npuflow.Runner(build.program)
    method, steps = runtimes.load(file), runtimes.load(file, exact="simulator")
    for x in inputs(6, *X, seed=1):
        want = judge.run({"x": x.numpy()})
        (got,) = method(x)
        np.testing.assert_array_equal(got.numpy(), next(iter(want.values())))
        assert torch.equal(steps(x)[0], got)
        assert torch.allclose(got, program.module()(x), atol=0.05)


def test_an_operator_between_two_partitions(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    quantizer = NpuflowQuantizer("edge-4t")
    program = quantised(parted(), quantizer, inputs(4, 1, 8))
    partitioner = NpuflowPartitioner(quantizer, cache=cache)
    nodes, file = lowered(program, partitioner)
    assert sum("call_delegate" in node for node in nodes) == 2
    assert [node for node in nodes if "asin" in node]
    assert list(partitioner.left_out.values()) == ["no operator of npuflow: aten.asin.default"]
    assert "4 of 5 operators for npuflow, left out:" in partitioner.report()
    assert not list(tmp_path.iterdir())   # lowering writes nothing beside the .pte
    for x in inputs(4, 1, 8, seed=1):
        assert torch.allclose(runtimes.load(file)(x)[0], program.module()(x), atol=0.05)


def test_own_calibration(cache: Path) -> None:
    """A program in floats: without samples all stays outside, with them npuflow finds the ranges."""
    program = torch.export.export(small(), (inputs(1, *X)[0],))
    idle = NpuflowPartitioner("edge-4t", cache=cache)
    nodes, _ = lowered(program, idle)
    assert not [node for node in nodes if "call_delegate" in node]
    assert all("PT2E observed no range" in reason for reason in idle.left_out.values())
    own = NpuflowPartitioner("edge-4t", samples=[(x,) for x in inputs(16, *X)], cache=cache)
    nodes, file = lowered(program, own)
    assert sum("call_delegate" in node for node in nodes) == 1 and not own.left_out
    x = inputs(1, *X, seed=1)[0]
    assert torch.allclose(runtimes.load(file)(x)[0], small()(x), atol=0.1)


def test_samples_with_other_inputs(cache: Path) -> None:
    program = torch.export.export(small(), (inputs(1, *X)[0],))
    two = [(inputs(1, *X)[0], inputs(1, *X)[0])]
    with pytest.raises(DataError, match="a sample has 2 inputs, the program 1"):
        lowered(program, NpuflowPartitioner("edge-4t", samples=two, cache=cache))


def test_samples_where_no_weights_are_seen() -> None:
    program = torch.export.export(small(), (inputs(1, *X)[0],))
    with pytest.raises(UsageError, match="samples cannot run"):
        to_edge(program).to_backend(NpuflowPartitioner("edge-4t", samples=inputs(2, *X)))


def test_other_orders_of_dimensions(whole: tuple[Any, list[str], bytes]) -> None:
    (x,) = inputs(1, *X)
    method = runtimes.load(whole[2])
    assert torch.equal(method(x.to(memory_format=torch.channels_last))[0], method(x)[0])


def test_tensors_of_other_sizes(whole: tuple[Any, list[str], bytes]) -> None:
    with pytest.raises(RuntimeError):
        runtimes.load(whole[2])(torch.zeros(1, 3, 4, 8))


def test_what_is_no_file_of_executorch(whole: tuple[Any, list[str], bytes], tmp_path: Path) -> None:
    """One error each, before anything runs."""
    wrong = tmp_path / "net.pte"
    wrong.write_bytes(b"hello")
    for path, said in ((wrong, "is no .pte file"), (tmp_path / "none.pte", "cannot be read")):
        with pytest.raises(DataError, match=said):
            runtimes.load(path)
    with pytest.raises(DataError, match='no method "backward"; because known: forward'):
        runtimes.load(whole[2], "backward")
    with pytest.raises(UsageError, match='exact="fast" is not known'):
        runtimes.load(whole[2], exact="fast")         # type: ignore[arg-type]


def test_a_program_that_is_damaged(
    whole: tuple[Any, list[str], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """A flipped byte of the .npu inside the .pte: the file does not load, and the log says why."""
    file = bytearray(whole[2])
    file[file.index(b"NPUFLOW\0") + 100] ^= 0xFF
    with pytest.raises(RuntimeError) as fault:
        runtimes.load(bytes(file))
    assert "digest" in str(fault.value.__cause__) and "Traceback" not in caplog.text
    assert "a program of the .pte file cannot be opened" in caplog.text and "digest" in caplog.text


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"needs a C\+\+ compiler"):
        runtimes.built(tmp_path)
    monkeypatch.setenv("CXX", "/bin/false")
    with pytest.raises(BuildError, match="does not compile"):
        runtimes.built(tmp_path)
