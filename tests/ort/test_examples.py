"""What onnxruntime's documentation shows in Python, in words of our own, with the import changed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npuflow.ort as onnxruntime
from tests.runner.programs import feeds, split


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = tmp_path_factory.mktemp("model") / "model.npu"
    split().save(found)
    return str(found)


def test_load_and_predict(path: str) -> None:
    """Names and shapes are asked of the session, a random input is fed."""
    session = onnxruntime.InferenceSession(path, providers=onnxruntime.get_available_providers())
    inputs, outputs = session.get_inputs()[0], session.get_outputs()[0]
    data = np.random.default_rng(0).random(inputs.shape).astype(np.float32)
    assert inputs.type == "tensor(float)"
    result = session.run([outputs.name], {inputs.name: data})
    assert result[0].shape == tuple(outputs.shape)


def test_ort_values(path: str) -> None:
    """Data on a device, by name and shape."""
    value = onnxruntime.OrtValue.ortvalue_from_numpy(feeds(1)[0]["x"])
    assert value.device_name() == "cpu" and value.shape() == [4, 32] and value.data_type() == "tensor(float)"
    session = onnxruntime.InferenceSession(path)
    assert session.run(["y"], {"x": value})[0].shape == (4, 32)
    (result,) = session.run_with_ort_values(["y"], {"x": value})
    assert result.numpy().dtype == np.float32


def test_io_binding(path: str) -> None:
    """Inputs and outputs stay where they are from run to run."""
    session, binding = onnxruntime.InferenceSession(path), None
    x = onnxruntime.OrtValue.ortvalue_from_numpy(feeds(1)[0]["x"])
    y = onnxruntime.OrtValue.ortvalue_from_shape_and_type([4, 32], np.float32, "cpu", 0)
    binding = session.io_binding()
    binding.bind_input(
        name="x",
        device_type=x.device_name(),
        device_id=0,
        element_type=np.float32,
        shape=x.shape(),
        buffer_ptr=x.data_ptr(),
    )
    binding.bind_output(
        name="y",
        device_type=y.device_name(),
        device_id=0,
        element_type=np.float32,
        shape=y.shape(),
        buffer_ptr=y.data_ptr(),
    )
    session.run_with_iobinding(binding)
    first = y.numpy().copy()
    assert first.any()
    x.update_inplace(feeds(2)[1]["x"])
    session.run_with_iobinding(binding)
    assert (y.numpy() != first).any()


def test_options_and_metadata(path: str) -> None:
    """Options are set before, metadata is read after."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.intra_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    session = onnxruntime.InferenceSession(path, sess_options=options)
    meta = session.get_modelmeta()
    assert [meta.producer_name, meta.domain, meta.description] != ["", "", ""] and meta.version >= 0
    assert session.get_session_options().intra_op_num_threads == 1


def test_run_async(path: str) -> None:
    """A callback takes the result in another thread."""

    class Waiting:
        def __init__(self) -> None:
            self.event, self.results, self.error = threading.Event(), [], ""

    def callback(results: Any, data: Any, error: str) -> None:
        data.results, data.error = results, error
        data.event.set()

    session, data = onnxruntime.InferenceSession(path), Waiting()
    session.run_async(["y"], {"x": feeds(1)[0]["x"]}, callback, data)
    assert data.event.wait(10) and not data.error
    np.testing.assert_array_equal(data.results[0], session.run(["y"], feeds(1)[0])[0])


def test_profiling(path: str, tmp_path: Path) -> None:
    """A trace of the run is in a file."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = onnxruntime.InferenceSession(path, options)
    session.run(None, feeds(1)[0])
    trace = Path(session.end_profiling())
    assert trace.name.startswith("profile") and "model_run" in trace.read_text()


def test_a_session_in_threads(path: str) -> None:
    """One session serves many threads."""
    session, samples = onnxruntime.InferenceSession(path), feeds(8)
    want = [session.run(["y"], one)[0] for one in samples]
    found: list[Any] = [None] * 8

    def work(i: int) -> None:
        found[i] = session.run(["y"], samples[i])[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for a, b in zip(found, want, strict=True):
        np.testing.assert_array_equal(a, b)
