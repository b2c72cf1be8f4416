"""Constants that are fed to sessions, files that hold arrays, and large weights taken in parts: the same
numbers as in one piece."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from npuflow.base.mapped import forget, spilled
from npuflow.hw.target import Numerics
from npuflow.ir import codes
from npuflow.ir.builder import Builder
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.ir.text import from_text, to_text
from npuflow.ir.types import QuantType, TensorType
from npuflow.onnx.export import export_model, session_model
from npuflow.onnx.fed import FED, LEAST, MOST, FedModel, fed_from
from npuflow.onnx.run import run, session
from npuflow.onnx.session import FedSession, opened
from npuflow.ops import _requant, _weighted
from npuflow.program import container
from npuflow.program.codegen.consts import ConstPool
from npuflow.program.container import Program, load_program
from npuflow.program.graph_section import encode_graph, graph_parts
from npuflow.quantise import types
from npuflow.quantise.config import Weights
from npuflow.run.footprint import footprint
from npuflow.statistics.segments import copied, segments
from npuflow.whole.execute import windows
from tests.program.test_container import example

SIZE = 64


def chain(count: int = 3, size: int = SIZE) -> Graph:
    """Products with matrices, one behind the other."""
    rng, made = np.random.default_rng(1), Builder()
    last = made.input("x", TensorType((1, size)))
    for i in range(count):
        weight = made.constant(f"w{i}", (rng.standard_normal((size, size)) / 8).astype(np.float32))
        (last,) = made.add(OPS["matmul"](), (last, weight), (f"h{i}",))
    return made.graph(("x",), (last,))


def test_which_constants_are_fed_follows_from_the_limit() -> None:
    assert fed_from(MOST) == 0 and fed_from(MOST + 1) == FED
    assert fed_from(1 << 20, 1 << 20) == 0 and fed_from((1 << 20) + 1, 1 << 20) == 512 + 4
    assert fed_from(10_000, 1000) == LEAST


def test_a_model_that_is_fed_computes_what_the_whole_one_does() -> None:
    graph, x = chain(), {"x": np.ones((1, SIZE), np.float32)}
    fed = session_model(graph.replaced(fed=1000))
    assert isinstance(fed, FedModel) and isinstance(session_model(graph), bytes)
    assert len(fed.proto) < 1000 and fed.nbytes == len(fed.proto) + 3 * 4 * SIZE * SIZE
    assert fed.digests == {f"w{i}": graph.values[f"w{i}"].const for i in range(3)}
    np.testing.assert_allclose(run(fed, x)[0], run(export_model(graph), x)[0], rtol=1e-5)
    ready = session(fed)
    assert isinstance(ready, FedSession)
    assert [i.name for i in ready.get_inputs()] == ["x"] and [o.name for o in ready.get_outputs()] == ["h2"]
    binding, out = ready.io_binding(), np.empty((1, SIZE), np.float32)
    binding.bind_cpu_input("x", x["x"])
    binding.bind_output("h2", "cpu", 0, out.dtype, out.shape, out.ctypes.data)
    ready.run_with_iobinding(binding)
    np.testing.assert_array_equal(out, ready.run(None, x)[0])


def test_graphs_keep_what_is_fed_in_their_text() -> None:
    graph = chain().replaced(fed=4096)
    assert from_text(to_text(graph), graph.consts) == graph
    assert "fed 4096" in to_text(graph) and "fed" not in to_text(chain())
    assert Builder.over(graph).fed == 4096


def test_segments_of_a_network_that_is_fed_depend_on_its_weights() -> None:
    graph = chain().replaced(fed=1000)
    names = [f"h{i}" for i in range(3)]
    (one,) = segments(graph, names).values()
    assert isinstance(one.model, FedModel) and one.weights == copied(one.model) < 1000
    other = chain()
    moved = {d: a + np.float32(i == 1) for i, (d, a) in enumerate(other.consts.items())}
    built = Builder()
    last = built.input("x", TensorType((1, SIZE)))
    for i, array in enumerate(moved.values()):
        (last,) = built.add(OPS["matmul"](), (last, built.constant(f"w{i}", array)), (f"h{i}",))
    (changed,) = segments(built.graph(("x",), (last,)).replaced(fed=1000), names).values()
    assert changed.cone != one.cone
    (same,) = segments(chain().replaced(fed=1000), names).values()
    assert same.cone == one.cone


def anonymous() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def grown() -> tuple[int, int]:
    """Bytes that a run of eight matrices of 16 MiB as bytes, 64 MiB in floats each, takes at most, and at its
    end."""
    size, count = 4096, 8
    made = Builder()
    last = made.input("x", TensorType((1, size)))
    code = np.random.default_rng(0).integers(-9, 9, (size, size)).astype(np.int8)
    scale = made.constant("s", np.array(0.01, np.float32))
    kind = TensorType((size, size))
    for i in range(count):
        weight = made.constant(f"w{i}", np.roll(code, i, 0))
        real = OPS["host"](op_type="DequantizeLinear", version=21, types=(kind,))
        (wide,) = made.add(real, (weight, scale), (f"d{i}",))
        (last,) = made.add(OPS["matmul"](), (last, wide), (f"h{i}",))
    ready = opened(session_model(made.graph(("x",), (last,)).replaced(fed=1 << 20)), float_codes=True)
    before, most, done = anonymous(), 0, threading.Event()

    def look() -> None:
        nonlocal most
        while not done.is_set():
            most = max(most, anonymous())
            time.sleep(0.002)

    watching = threading.Thread(target=look)
    watching.start()
    try:
        ready.run(None, {"x": np.ones((1, size), np.float32)})
    finally:
        done.set()
        watching.join()
    return most - before, anonymous() - before


def test_what_is_made_of_a_fed_constant_is_given_back_before_the_next() -> None:
    """Never two matrices in floats at once, and none kept; in a process where nothing else runs."""
    script = "from tests.onnx.test_fed_constants import grown; print(*grown())"
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", script]
    most, kept = map(int, subprocess.check_output(command, cwd=root, text=True).split())
    assert 60 << 20 < most < 2.5 * (64 << 20) and kept < 32 << 20


def test_a_spilled_array_lies_in_a_file_that_goes_with_it() -> None:
    array = np.random.default_rng(0).random((300, 40)).T
    held = spilled(array, 1000)
    np.testing.assert_array_equal(held, array)
    assert held is not array and not held.flags.writeable and spilled(held, 1000) is held
    forget(held)
    np.testing.assert_array_equal(held, array)
    assert spilled(array, array.nbytes + 1) is array
    assert spilled(np.zeros(0), 0).size == 0


def test_a_disk_without_room_leaves_the_array_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("npuflow.base.mapped.TemporaryFile", full)
    array = np.ones(1000)
    assert spilled(array, 10) is array


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_codes_are_the_same_in_parts(monkeypatch: pytest.MonkeyPatch, axis: int | None) -> None:
    rng = np.random.default_rng(2)
    real = rng.standard_normal((30, 20)).astype(np.float32)
    count = 1 if axis is None else real.shape[axis]
    quant = QuantType(8, True, tuple(rng.uniform(0.01, 0.1, count)), (3,) * count, axis=axis)
    whole = codes.encode(real, quant)
    back = codes.decode(whole, quant)
    monkeypatch.setattr(codes, "AT_ONCE", 50)
    np.testing.assert_array_equal(codes.encode(real, quant), whole)
    np.testing.assert_array_equal(codes.decode(whole, quant), back)
    assert codes.encode(np.float32(0.2), QuantType(8, True, (0.1,))) == 2


@pytest.mark.parametrize("group", [0, 8])
@pytest.mark.parametrize("method", ["minmax", "mse", "percentile"])
def test_scales_are_the_same_in_parts(monkeypatch: pytest.MonkeyPatch, method: str, group: int) -> None:
    real = np.random.default_rng(2).standard_normal((48, 40)).astype(np.float32)
    numerics = Numerics()
    scheme = Weights(method=method, group=group)
    whole = [types.weight_type(real, axis, scheme, numerics, 1 - axis) for axis in (0, 1)]
    monkeypatch.setattr(types, "AT_ONCE", 100)
    assert [types.weight_type(real, axis, scheme, numerics, 1 - axis) for axis in (0, 1)] == whole


@pytest.mark.parametrize("zero", [0, 3])
def test_sums_and_their_bounds_are_the_same_in_parts(monkeypatch: pytest.MonkeyPatch, zero: int) -> None:
    rng = np.random.default_rng(4)
    weight = rng.integers(-100, 100, (12, 20)).astype(np.int8)
    quant, x = QuantType(8, True, (0.1,), (zero,)), QuantType(8, False, (0.2,), (7,))
    bias, given = rng.integers(-50, 50, 12), rng.integers(-9, 9, (2, 20))

    def found() -> list[np.ndarray]:
        bounds = _requant.weight_bounds(weight, quant, lambda codes: codes, x, bias, 1)
        sums = _weighted.whole_sums(given, weight, quant, lambda a, w: a @ w.T, (0, 1, 20))
        return [*bounds, sums]

    whole = found()
    for module in (_requant, _weighted):
        monkeypatch.setattr(module, "AT_ONCE", 45)
    for a, b in zip(whole, found(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_programs_are_written_in_parts_and_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, made = chain(), example()
    whole = Program(
        made.target_fingerprint, made.meta, made.commands, made.const, made.hosts, made.tap_bytes,
        encode_graph(graph),
    )
    out = io.BytesIO()
    made.write(out, graph_parts(graph))
    assert out.getvalue() == whole.to_bytes()
    file = tmp_path / "net.npu"
    whole.save(file)
    assert file.read_bytes() == whole.to_bytes()
    monkeypatch.setattr(container, "LARGE", 1)
    read = load_program(file)
    assert isinstance(read.const, memoryview) and read.const == whole.const
    assert read.graph_bytes == whole.graph_bytes and read.to_bytes() == whole.to_bytes()


def test_a_pool_gives_out_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ConstPool(64)
    assert (pool.add(b"abc"), pool.add(b"defg"), pool.add(b"abc")) == (0, 64, 0)
    assert pool.to_bytes() == b"abc" + bytes(61) + b"defg" + bytes(60) and pool.given == 10
    monkeypatch.setattr("npuflow.program.codegen.consts.LARGE", 8)
    held = pool.to_bytes()
    assert isinstance(held, memoryview) and held == b"abc" + bytes(61) + b"defg" + bytes(60)


def test_the_footprint_of_a_network_that_is_fed_is_that_of_a_layer() -> None:
    graph = chain(20)
    whole, fed = (footprint(g, lambda _: True) for g in (graph, graph.replaced(fed=1000)))
    assert fed.weights == 3 * 4 * SIZE * SIZE < whole.weights == 20 * 4 * SIZE * SIZE
    assert fed.executed == 20 * SIZE * SIZE and whole.executed == 0


def test_weights_of_the_executor_are_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bench:
        def constant(self, *_: object) -> None:
            return None

    class Given:
        fields: ClassVar[dict[str, object]] = {"x_type": "uint8", "x_zero": 5, "w_zero": 1}

        def text(self, name: str) -> str:
            return str(self.fields[name])

        def number(self, name: str) -> int:
            return int(str(self.fields[name]))

        def pointer(self, name: str) -> None:
            return None

    weights = np.random.default_rng(0).integers(-90, 90, (10, 30)).astype(np.int8)
    one = windows.factors(Bench(), Given(), "x", "w", weights, 10)  # type: ignore[arg-type]
    monkeypatch.setattr(windows, "AT_ONCE", 70)
    two = windows.factors(Bench(), Given(), "x", "w", weights, 10)  # type: ignore[arg-type]
    assert one is not None and two is not None
    np.testing.assert_array_equal(one.weights, two.weights)
    np.testing.assert_array_equal(one.peaks, two.peaks)
    np.testing.assert_array_equal(one.correction, two.correction)
