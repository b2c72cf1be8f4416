"""The drop-in for onnxruntime: every public method and argument works or raises the one documented error."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, OrtValueVector

import npuflow
import npuflow.ort as ort
from npuflow.ort import UnsupportedError
from npuflow.ort.values import PROVIDER
from npuflow.program.container import Program
from tests.frontends.tflite_models import Net
from tests.runner.programs import accumulating, feeds, split, words

X = feeds(1)[0]["x"]


@pytest.fixture(scope="module")
def program() -> Program:
    return split()


@pytest.fixture
def session(program: Program) -> Any:
    return ort.InferenceSession(program.to_bytes())


@pytest.fixture(scope="module")
def want(program: Program) -> np.ndarray:
    return npuflow.Runner(program, exact="simulator").run({"x": X})["y"]


def public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))]


@pytest.mark.parametrize("kind", ["InferenceSession", "IOBinding"])
def test_every_method_has_onnxruntimes_arguments(kind: str) -> None:
    ours, theirs = getattr(ort, kind), getattr(onnxruntime, kind)
    for name in ["__init__", *public(theirs)]:
        mine, other = (inspect.signature(getattr(c, name)).parameters.values() for c in (ours, theirs))
        assert [(p.name, p.kind, p.default) for p in mine] == [(p.name, p.kind, p.default) for p in other], (
            name
        )
    assert issubclass(ours, theirs)


def test_everything_else_is_onnxruntimes() -> None:
    replaced = {"InferenceSession", "IOBinding", "get_available_providers", "get_all_providers", "backend"}
    for name in (n for n in dir(onnxruntime) if not n.startswith("_")):
        assert name in dir(ort)
        assert (getattr(ort, name) is getattr(onnxruntime, name)) == (name not in replaced), name
    with pytest.raises(AttributeError):
        _ = ort.no_such_thing  # type: ignore[attr-defined]


def bound(session: Any) -> Any:
    made = session.io_binding()
    made.bind_cpu_input("x", X)
    made.bind_output("y")
    return made


def vectors(session: Any) -> None:
    given, made = OrtValueVector(), OrtValueVector()
    given.push_back(ort.OrtValue.ortvalue_from_numpy(X)._get_c_value())
    session.run_with_ortvaluevector(None, ["x"], given, ["y"], made, [])
    assert len(made) == 1 and made[0].shape() == [4, 32]


def asynchronous(session: Any) -> None:
    done = threading.Event()
    session.run_async(["y"], {"x": X}, lambda results, data, error: data.set(), done, None)
    assert done.wait(10)


CALLS: dict[str, Callable[[Any], Any]] = {
    "create_ortvalue_from_shape_and_type": lambda s: s.create_ortvalue_from_shape_and_type(
        [2], np.float32, "cpu"
    ),
    "run": lambda s: s.run(["y"], {"x": X}, ort.RunOptions()),
    "run_async": asynchronous,
    "run_with_iobinding": lambda s: s.run_with_iobinding(bound(s), ort.RunOptions()),
    "run_with_ort_values": lambda s: s.run_with_ort_values(["y"], {"x": ort.OrtValue.ortvalue_from_numpy(X)}),
    "run_with_ortvaluevector": vectors,
    "set_ep_dynamic_options": lambda s: s.set_ep_dynamic_options({}),
    "set_providers": lambda s: s.set_providers(["CPUExecutionProvider"]),
    "set_tuning_results": lambda s: s.set_tuning_results([]),
}
UNSUPPORTED = {
    "get_provider_graph_assignment_info",
    "get_tuning_results",
    "set_ep_dynamic_options",
    "set_tuning_results",
}


@pytest.mark.parametrize("name", public(onnxruntime.InferenceSession))
def test_every_method_works_or_raises_the_documented_error(name: str, session: Any) -> None:
    call = CALLS.get(name, lambda s: getattr(s, name)())
    if name in UNSUPPORTED:
        with pytest.raises(UnsupportedError, match="no counterpart for a compiled program") as raised:
            call(session)
        assert isinstance(raised.value, NotImplementedError) and raised.value.code == "NF-RUN-020"
        page = Path(__file__).parents[2] / "docs" / "how-to" / "onnxruntime-scripts.md"
        assert f"`{name}`" in page.read_text()
    else:
        call(session)


@pytest.mark.parametrize("name", public(onnxruntime.IOBinding))
def test_every_method_of_a_binding_works(name: str, session: Any, want: np.ndarray) -> None:
    binding = session.io_binding()
    value, out = ort.OrtValue.ortvalue_from_numpy(X), np.zeros((4, 32), np.float32)
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    if name == "bind_input":
        binding.clear_binding_inputs()
        binding.bind_input("x", "cpu", 0, np.float32, X.shape, X.ctypes.data)
    elif name == "bind_ortvalue_input":
        binding.clear_binding_inputs()
        binding.bind_ortvalue_input("x", value)
    elif name == "bind_output":
        binding.bind_output("y", "cpu", 0, 1, [4, 32], out.ctypes.data)
    elif name == "bind_ortvalue_output":
        binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_shape_and_type([4, 32], np.float32))
    elif name not in ("bind_cpu_input",):
        getattr(binding, name)()
        binding.bind_cpu_input("x", X)
        binding.bind_output("y")
    session.run_with_iobinding(binding)
    (found,) = binding.copy_outputs_to_cpu()
    np.testing.assert_array_equal(found, want)
    if name == "bind_output":
        np.testing.assert_array_equal(out, want)  # written where the caller's memory is
    assert len(binding.get_outputs_as_ortvaluevector()) == 1
    assert binding.get_outputs()[0].numpy().tobytes() == want.tobytes()


def test_a_program_is_described_as_a_model_is(session: Any, program: Program) -> None:
    (x,), (y,) = session.get_inputs(), session.get_outputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", [4, 32])
    assert (y.name, y.type, y.shape) == ("y", "tensor(float)", [4, 32])
    meta = session.get_modelmeta()
    assert meta.producer_name == "npuflow"
    assert meta.custom_metadata_map["npuflow.target"] == program.target_fingerprint
    assert session.get_providers()[0] == PROVIDER in ort.get_available_providers()
    assert session.get_provider_options()[PROVIDER]["exact"] == "executor"


def test_results_are_the_programs(session: Any, program: Program, want: np.ndarray, tmp_path: Path) -> None:
    program.save(tmp_path / "p.npu")
    for source in (tmp_path / "p.npu", str(tmp_path / "p.npu"), program.to_bytes()):
        found = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(found.run(None, {"x": X})[0], want)
    exact = ort.InferenceSession(
        program.to_bytes(), providers=[(PROVIDER, {"exact": "simulator", "batch": 1}), "CPUExecutionProvider"]
    )
    np.testing.assert_array_equal(exact.run([], {"x": ort.OrtValue.ortvalue_from_numpy(X)})[0], want)
    assert exact.get_provider_options()[PROVIDER] == {"exact": "simulator", "batch": "1"}
    exact.set_providers([PROVIDER])
    assert exact.get_provider_options()[PROVIDER]["exact"] == "executor"
    for wrong in ({"speed": 1}, {"batch": "many"}):
        with pytest.raises(ValueError, match=PROVIDER):
            ort.InferenceSession(program.to_bytes(), providers=[(PROVIDER, wrong)])


@pytest.mark.parametrize(
    ("names", "feed", "error"),
    [
        (None, {}, ValueError),
        (["z"], {"x": X}, InvalidArgument),
        (None, {"x": X, "w": X}, InvalidArgument),
        (None, {"x": X.astype(np.float64)}, InvalidArgument),
        (None, {"x": X[0]}, InvalidArgument),
        (None, {"x": X[:2]}, InvalidArgument),
    ],
)
def test_mistakes_raise_what_onnxruntime_raises(names: Any, feed: Any, error: Any, session: Any) -> None:
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 32]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "neg", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    theirs = onnxruntime.InferenceSession(model.SerializeToString())
    for one in (session, theirs):
        with pytest.raises(error):
            one.run(names, feed)


LISTS: tuple[tuple[Any, Any], ...] = (
    (X.tolist(), None),
    ([list(map(int, row)) for row in X.tolist()], None),
    ([*X.astype(np.float64)], None),
    (X[0].tolist(), InvalidArgument),
    ([], InvalidArgument),
    ([[1.0, 2.0], [3.0]], RuntimeError),
    ([["a"] * 32] * 4, RuntimeError),
)


@pytest.mark.parametrize("case", range(len(LISTS)))
def test_a_list_is_taken_in_the_inputs_type_as_onnxruntime_does(case: int, session: Any) -> None:
    from onnx import TensorProto, helper

    given, error = LISTS[case]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 32]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "neg", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    theirs = onnxruntime.InferenceSession(model.SerializeToString())
    if error is not None:
        for one in (session, theirs):
            with pytest.raises(error):
                one.run(None, {"x": given})
        return
    assert theirs.run(None, {"x": given})[0].shape == (4, 32)
    want = session.run(None, {"x": np.array(given, np.float32)})[0]
    np.testing.assert_array_equal(session.run(None, {"x": given})[0], want)


def test_a_list_of_codes_is_of_real_numbers_where_the_input_is(session: Any) -> None:
    """A list has no type of its own: it is read as the session states the input."""
    given = [[3] * 32] * 4
    want = session.run(None, {"x": np.full((4, 32), 3, np.float32)})[0]
    np.testing.assert_array_equal(session.run(None, {"x": given})[0], want)


def test_an_index_outside_of_its_table_is_an_invalid_argument(tmp_path: Path) -> None:
    """It is known in the run alone, and a script catches onnxruntime's error."""
    path = tmp_path / "words.npu"
    path.write_bytes(words().to_bytes())
    session = ort.InferenceSession(str(path))
    assert session.run(None, {"ids": np.full((1, 5), 10, np.int64)})[0].shape == (1, 5, 6)
    with pytest.raises(InvalidArgument, match="the index 11; the table has 11 rows"):
        session.run(None, {"ids": np.full((1, 5), 11, np.int64)})


def test_options_of_a_run_and_of_a_session(session: Any, program: Program, tmp_path: Path) -> None:
    stop = ort.RunOptions()
    stop.terminate = True
    with pytest.raises(Fail, match="terminate"):
        session.run(None, {"x": X}, stop)
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "trace")
    profiled = ort.InferenceSession(program.to_bytes(), options)
    profiled.run(None, {"x": X})
    events = json.loads(Path(profiled.end_profiling()).read_text())
    assert [e["name"] for e in events if isinstance(e, dict)].count("model_run") == 1
    assert profiled.get_profiling_start_time_ns() > 0
    options.optimized_model_filepath = str(tmp_path / "o.onnx")
    with pytest.raises(UnsupportedError, match="optimized_model_filepath"):
        ort.InferenceSession(program.to_bytes(), options)


def test_an_error_reaches_the_callback(session: Any) -> None:
    seen: list[Any] = []
    done = threading.Event()

    def callback(results: Any, data: Any, error: str) -> None:
        seen.extend((results, data, error))
        done.set()

    broken = ort.InferenceSession(split(host=False).to_bytes())
    broken._runner.backend.run = lambda samples, dump: 1 / 0
    broken.run_async(None, {"x": X}, callback, "mine")
    assert done.wait(10) and seen[0] == [] and seen[1] == "mine" and "division" in seen[2]


def test_models_are_onnxruntimes(tmp_path: Path) -> None:
    feed = {"x": np.ones((1, 3), np.float32), "carried": np.ones((1, 3), np.float32)}
    ours, theirs = ort.InferenceSession(accumulating()), onnxruntime.InferenceSession(accumulating())
    for name in ("y", "total"):
        np.testing.assert_array_equal(ours.run([name], feed)[0], theirs.run([name], feed)[0])
    binding = ort.IOBinding(ours)
    for name, array in feed.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("y")
    ours.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[0].shape == (1, 3)
    assert isinstance(ours, onnxruntime.InferenceSession) and PROVIDER not in ours.get_providers()
    net = Net()
    x, y = net.tensor("x", (1, 4)), net.tensor("y", (1, 4))
    net.op("NEG", [x], [y])
    (tmp_path / "neg.tflite").write_bytes(net.done([x], [y]))
    found = ort.InferenceSession(tmp_path / "neg.tflite")
    assert (found.run(None, {found.get_inputs()[0].name: np.ones((1, 4), np.float32)})[0] == -1).all()
    with pytest.raises(Exception, match="doesn't exist"):
        ort.InferenceSession("no_such_file.onnx")
