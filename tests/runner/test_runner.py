"""The runner: executor and simulator agree; futures, deadlines, batches, buffers, state, preprocessing."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import npuflow
from npuflow.base.errors import DataError, ModelError, RecipeError, UsageError
from npuflow.ir.types import Array
from npuflow.program.container import Program
from npuflow.program.graph_section import decode_graph, encode_graph
from npuflow.runner.requests import Requests
from tests.frontends.tflite_models import Net
from tests.runner.programs import accumulating, convolutions, feeds, split


def same(a: dict[str, Array], b: dict[str, Array]) -> None:
    assert a.keys() == b.keys()
    for name, array in b.items():
        np.testing.assert_array_equal(a[name], array, err_msg=name)
        assert a[name].dtype == array.dtype


def test_the_graph_that_a_program_keeps_is_the_graph() -> None:
    program = split()
    again = Program.from_bytes(program.to_bytes())
    graph = decode_graph(again.graph_bytes)
    assert encode_graph(graph) == program.graph_bytes and again.to_bytes() == program.to_bytes()
    for damaged in (b"", b"\xff" * 8, program.graph_bytes[:-1], program.graph_bytes + b"x"):
        with pytest.raises(ModelError, match="graph is malformed"):
            decode_graph(damaged)


@pytest.mark.parametrize("made", ["convolutions", "split"])
@pytest.mark.parametrize("count", [1, 3, 11])
def test_whole_tensors_and_commands_give_the_same_bits(made: str, count: int) -> None:
    program, shape = convolutions() if made == "convolutions" else (split(), (4, 32))
    fast, exact = npuflow.Runner(program), npuflow.Runner(program, exact="simulator")
    assert fast.exact == "executor" and exact.exact == "simulator"
    samples = feeds(count, shape)
    for a, b in zip(fast.run_many(samples), exact.run_many(samples), strict=True):
        same(a, b)
    inner = fast.run(samples[0], dump=True)
    for name, array in exact.run(samples[0], dump=True).items():
        np.testing.assert_array_equal(inner[name], array, err_msg=name)
    assert len(inner) > len(fast.run(samples[0]))


def test_a_program_without_its_graph_runs_by_its_commands() -> None:
    program = replace(split(), graph_bytes=b"")
    assert npuflow.Runner(program).exact == "simulator"
    with pytest.raises(UsageError, match="keeps no graph") as raised:
        npuflow.Runner(program, exact="executor")
    assert "simulator" in raised.value.hint
    with pytest.raises(UsageError, match="is of models"):
        npuflow.Runner(program, exact="onnxruntime")
    with pytest.raises(UsageError, match="is of programs"):
        npuflow.Runner(accumulating(), exact="simulator")


def test_threads_share_a_runner() -> None:
    runner, samples = npuflow.Runner(split(), batch=4), feeds(60)
    want = runner.run_many(samples)
    found: dict[int, Any] = {}

    def work(start: int) -> None:
        found[start] = [runner.run(one) for one in samples[start : start + 15]]

    threads = [threading.Thread(target=work, args=(start,)) for start in range(0, 60, 15)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for a, b in zip([one for start in sorted(found) for one in found[start]], want, strict=True):
        same(a, b)


@pytest.mark.parametrize("workers", [1, 3])
def test_futures_are_computed_together(workers: int) -> None:
    samples = feeds(40)
    with npuflow.Runner(split(), workers=workers, linger=0.02) as runner:
        want = runner.run_many(samples)
        futures = [runner.submit(one) for one in samples]
        for future, outputs in zip(futures, want, strict=True):
            same(future.result(10), outputs)
        assert sum(size * times for size, times in runner.requests.sizes.items()) == 40
        assert max(runner.requests.sizes) == 8
    with pytest.raises(UsageError, match="closed"):
        runner.submit(samples[0])


def test_a_closed_runner_runs_nothing() -> None:
    """Every way to run a sample, after the `with` block and after close(): one error."""
    (sample,) = feeds(1)
    with npuflow.Runner(split()) as runner:
        sequence = runner.steps()
        pending = runner.submit(sample)
        stream = runner.stream([sample] * 20)
        next(stream)
    assert pending.result(0)  # what waited was computed
    runner.close()
    ways = (
        lambda: runner.run(sample),
        lambda: runner.run_many([]),
        lambda: runner.run_batch(sample),
        lambda: list(runner.stream([])),
        lambda: list(stream),
        lambda: runner.submit(sample),
        lambda: asyncio.run(runner.run_async(sample)),
        lambda: runner.outcomes([sample]),
        lambda: runner.steps().run(sample),
        lambda: sequence.run(sample),
        lambda: runner.requests,
        lambda: runner.__enter__(),
    )
    for way in ways:
        with pytest.raises(UsageError, match="the runner is closed") as raised:
            way()
        assert raised.value.code == "NF-RUN-007" and "with" in raised.value.hint
    assert runner.inputs[0].name == "x" and runner.buffers()


def test_a_callback_may_close_its_runner() -> None:
    runner, done = npuflow.Runner(split()), threading.Event()

    def close(future: Future[Any]) -> None:
        runner.close()
        done.set()

    runner.submit(feeds(1)[0]).add_done_callback(close)
    assert done.wait(10)


def test_a_callback_that_exits_ends_no_other_request() -> None:
    """It ended the thread that computes, and every later request waited for ever."""
    queue = Requests(lambda samples: [dict(one) for one in samples], batch=2, linger=0.5)
    first, second = (queue.submit({"x": np.zeros(1)}) for _ in range(2))
    first.add_done_callback(lambda _: sys.exit("the callback is through"))
    assert second.result(timeout=20).keys() == queue.submit({"x": np.ones(1)}).result(timeout=20).keys()
    queue.close()


def test_a_request_after_its_deadline_is_not_run() -> None:
    ran: list[str] = []
    go = threading.Event()

    def run(samples: Any) -> Any:
        ran.extend(one["name"] for one in samples)
        go.wait(10)
        return [{} for _ in samples]

    queue = Requests(run, batch=1)
    slow, late = queue.submit({"name": "slow"}, timeout=0.1), queue.submit({"name": "late"}, timeout=0.1)  # type: ignore[dict-item]
    last: Future[Any] = queue.submit({"name": "last"})  # type: ignore[dict-item]
    start = time.monotonic()
    for future in (slow, late):
        with pytest.raises(TimeoutError, match=r"0\.1 s"):
            future.result(5)
    assert time.monotonic() - start < 2
    go.set()
    assert last.result(5) == {} and ran == ["slow", "last"]
    queue.close()


def test_requests_are_limited_and_cancelled() -> None:
    go = threading.Event()

    def run(samples: Any) -> Any:
        go.wait(10)
        return [{} for _ in samples]

    queue = Requests(run, batch=1, limit=2)
    running = queue.submit({})
    while queue.waiting:
        time.sleep(0.001)
    waiting = [queue.submit({}), queue.submit({})]
    with pytest.raises(UsageError, match="2 requests wait") as raised:
        queue.submit({})
    assert raised.value.code == "NF-RUN-008"
    threading.Timer(0.05, go.set).start()
    queue.close(finish=False)
    assert running.result(1) == {}
    for future in waiting:
        with pytest.raises(CancelledError):
            future.result(1)


def test_a_faulty_sample_harms_no_other() -> None:
    def run(samples: Any) -> Any:
        if any("bad" in one for one in samples):
            raise ValueError("bad sample")
        return [{"y": one["x"]} for one in samples]

    queue = Requests(run, batch=4, linger=0.2)
    futures = [queue.submit({name: np.zeros(1)}) for name in ("x", "bad", "x", "x")]
    with pytest.raises(ValueError, match="bad sample"):
        futures[1].result(5)
    assert all("y" in futures[i].result(5) for i in (0, 2, 3))
    queue.close()


def test_asyncio() -> None:
    samples = feeds(6)
    with npuflow.Runner(split()) as runner:
        want = runner.run_many(samples)

        async def all_of_them() -> list[dict[str, Array]]:
            return await asyncio.gather(*(runner.run_async(one, timeout=10) for one in samples))

        for a, b in zip(asyncio.run(all_of_them()), want, strict=True):
            same(a, b)


def test_outputs_go_into_given_arrays_and_inputs_are_read_in_place() -> None:
    runner, (sample,) = npuflow.Runner(split()), feeds(1)
    out = runner.buffers()
    found = runner.run(sample, out=out)
    assert found["y"] is out["y"]
    same(out, runner.run(sample))
    fed = npuflow.Runner(accumulating()).backend.fed({"x": sample["x"][:1, :3], "carried": np.zeros((1, 3))})
    assert np.shares_memory(fed["x"], sample["x"])
    # anything with the buffer protocol is read where it lies
    view = memoryview(sample["x"])
    same(runner.run({"x": view}), found)
    with pytest.raises(DataError, match="float64"):
        runner.run(sample, out={"y": np.zeros((4, 32))})
    with pytest.raises(DataError, match='no output "z"'):
        runner.run(sample, out={"z": out["y"]})


def test_samples_along_the_first_axis() -> None:
    runner, samples = npuflow.Runner(split(), batch=4), feeds(7)
    stacked = {"x": np.stack([one["x"] for one in samples])}
    out = runner.buffers(7)
    found = runner.run_batch(stacked, out=out)
    assert found["y"].shape == (28, 32) and found["y"] is out["y"]
    np.testing.assert_array_equal(found["y"].reshape(7, 4, 32)[3], runner.run(samples[3])["y"])
    with pytest.raises(DataError, match="several samples have"):
        runner.run_batch(samples[0])
    both = {"x": np.ones((2, 3), np.float32), "carried": np.zeros((3, 3), np.float32)}
    with pytest.raises(DataError, match="x 2, carried 3"):
        npuflow.Runner(accumulating()).run_batch(both)


def test_no_sample_gives_outputs_of_no_sample() -> None:
    """A caller that asks for an output by its name gets one, whatever was left of its data."""
    runner, none = npuflow.Runner(split()), np.zeros((0, 4, 32), np.float32)
    for given in (none, []):
        found = runner.run_batch({"x": given})
        assert found["y"].shape == (0, 32) and found["y"].dtype == np.float32
    out = runner.buffers(0)
    assert runner.run_batch({"x": none}, out=out)["y"] is out["y"]
    with pytest.raises(DataError, match="several samples have"):
        runner.run_batch({"x": np.zeros((0, 4, 31), np.float32)})
    state = npuflow.Runner(accumulating())
    assert state.run_batch({"x": np.zeros((0, 3)), "carried": []})["total"].shape == (0, 3)


def test_state_is_carried_from_run_to_run() -> None:
    runner, x = npuflow.Runner(accumulating(), state={"total": "carried"}), {"x": np.ones((1, 3), np.float32)}
    five = np.full((1, 3), 5, np.float32)
    one, other = runner.steps(), runner.steps()
    other.reset(carried=five)
    assert [float(one.run(x)["y"][0, 0]) for _ in range(3)] == [2, 4, 6]
    assert [float(other.run(x)["y"][0, 0]) for _ in range(2)] == [12, 14]
    assert [float(found["y"][0, 0]) for found in runner.run_many([x, x])] == [2, 4]
    assert float(runner.run({**x, "carried": five})["y"][0, 0]) == 12  # by itself
    assert float(runner.run(x)["y"][0, 0]) == 6  # the sequence goes on
    runner.reset()
    assert float(runner.run(x)["y"][0, 0]) == 2
    assert [float(runner.submit(x).result(10)["y"][0, 0]) for _ in range(2)] == [2, 2]
    for state in ({"y": "z"}, {"z": "x"}):
        with pytest.raises(UsageError, match="to keep as state"):
            npuflow.Runner(accumulating(), state=state)


def test_a_program_states_its_state() -> None:
    program = split(host=False)
    meta = {**program.meta, "state": [[program.meta["outputs"][0]["name"], "x"]]}
    kept = replace(program, meta=meta)
    fast, exact = npuflow.Runner(kept), npuflow.Runner(kept, exact="simulator")
    assert fast.state == (("y", "x"),)
    for _ in range(3):
        same(fast.run({}), exact.run({}))
    assert fast.run({})["y"].any()


STEPS = [{"resize": [4, 8]}, {"normalize": {"scale": 1 / 255}}]


def pictured() -> bytes:
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3, 4, 8]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "neg", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(model.SerializeToString())


def test_preprocessing_is_on_or_off(tmp_path: Path) -> None:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    on, off = npuflow.Runner(pictured(), preprocess=STEPS), npuflow.Runner(pictured())
    want = on.run({"x": tmp_path / "a.png"})["y"]
    assert want.shape == (1, 3, 4, 8) and -1 <= want.min() < want.max() <= 0
    for given in (pixels, Image.fromarray(pixels), str(tmp_path / "a.png")):
        np.testing.assert_array_equal(on.run({"x": given})["y"], want)
    np.testing.assert_array_equal(off.run({"x": -want})["y"], want)
    with pytest.raises(UsageError, match="states no preprocessing"):
        npuflow.Runner(pictured(), preprocess=True)
    with pytest.raises(RecipeError, match="resise"):
        npuflow.Runner(pictured(), preprocess=[{"resise": [4, 4]}])
    with pytest.raises(DataError, match="no picture"):
        on.run({"x": object()})


def test_models_of_every_format(tmp_path: Path) -> None:
    model = accumulating()
    (tmp_path / "sums.onnx").write_bytes(model)
    net = Net()
    x, y = net.tensor("x", (1, 4)), net.tensor("y", (1, 4))
    net.op("NEG", [x], [y])
    (tmp_path / "neg.tflite").write_bytes(net.done([x], [y]))
    split().save(tmp_path / "p.npu")
    sums = {"x": np.ones((1, 3), np.float32), "carried": np.ones((1, 3), np.float32)}
    want = onnxruntime.InferenceSession(model).run(["y"], sums)[0]
    for source in (model, tmp_path / "sums.onnx"):
        runner = npuflow.Runner(source)
        assert runner.exact == "onnxruntime" and [p.name for p in runner.inputs] == ["x", "carried"]
        np.testing.assert_array_equal(runner.run(sums)["y"], want)
    for source in (tmp_path / "neg.tflite", (tmp_path / "neg.tflite").read_bytes()):
        (found,) = npuflow.Runner(source).run({"x": np.ones((1, 4), np.float32)}).values()
        assert (found == -1).all()
    for source in (tmp_path / "p.npu", (tmp_path / "p.npu").read_bytes()):
        assert npuflow.Runner(source).outputs[0].name == "y"
    assert "total" in npuflow.Runner(model, dump=True).run(sums, dump=["total"])
    with pytest.raises(UsageError, match="no file"):
        npuflow.Runner(tmp_path / "none.npu")
    with pytest.raises(DataError, match='no input "z"'):
        npuflow.Runner(model).run({**sums, "z": want})
    with pytest.raises(DataError, match='no data for the input "carried"'):
        npuflow.Runner(model).run({"x": sums["x"]})


def test_codes_of_a_tflite_model_are_those_of_litert() -> None:
    """An int8 model takes and gives real numbers; its rounding is the file's."""
    from tests.frontends.tflite_models import reference

    net, codes = Net(), ([0.05], [3], 0)
    x, y, z = (
        net.tensor(n, (1, 8), "int8", q) for n, q in (("x", codes), ("y", codes), ("z", ([0.1], [-5], 0)))
    )
    net.op("ADD", [x, x], [y], "AddOptions")
    net.op("TANH", [y], [z])
    data = net.done([x], [z])
    given = np.random.default_rng(0).integers(-128, 128, (1, 8)).astype(np.int8)
    (want,) = reference(data, [given])
    runner = npuflow.Runner(data)
    (found,) = runner.run({"x": (given.astype(np.float32) - 3) * np.float32(0.05)}).values()
    real = (want.astype(np.float32) + 5) * np.float32(0.1)
    assert np.abs(found - real).max() <= 0.1 + 1e-6 and (found == real).mean() > 0.8
    assert "runs in floats between its roundings" in runner.backend.notes[0]


@pytest.mark.parametrize(
    ("count", "sizes", "batches"),
    [
        (1, (1, 8), [(1, 1)]),
        (4, (1, 8), [(1, 1)] * 4),
        (5, (1, 8), [(8, 5)]),
        (13, (1, 8), [(8, 8), (8, 5)]),
        (7, (1, 2, 4, 8), [(8, 7)]),
        (3, (1, 2, 4, 8), [(4, 3)]),
        (5, (1, 3), [(3, 3), (3, 2)]),
        (0, (1, 8), []),
    ],
)
def test_batches_are_filled_to_the_sizes_that_are_bound(
    count: int, sizes: tuple[int, ...], batches: list[tuple[int, int]]
) -> None:
    from npuflow.runner.programs import filled

    samples = feeds(count)
    made = list(filled(samples, sizes))
    assert [(len(part), own) for part, own in made] == batches
    assert [one for part, own in made for one in part[:own]] == samples
