"""Scripts with the calls of onnxruntime's published examples: the same lines with the import changed.

Each script is run as it stands and with `npuflow.ort` wherever it says `onnxruntime`, and must print the
same. `MODEL` is an ONNX file; where a script may run a program too, the program of the same inputs and
outputs must make it print the same kinds of things.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.runner.programs import split

PREDICT = """
import numpy as np
import onnxruntime as rt

session = rt.InferenceSession(MODEL, providers=rt.get_available_providers())
ends = session.get_inputs()[0], session.get_outputs()[0]
print([(e.name, e.shape, e.type) for e in ends])
found = session.run([ends[1].name], {ends[0].name: np.full(ends[0].shape, 0.5, np.float32)})
print(type(found), found[0].shape, found[0].dtype)
print(rt.get_device(), rt.__version__)
"""
ERRORS = """
import numpy
import onnxruntime as rt
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument

session = rt.InferenceSession(MODEL, providers=rt.get_available_providers())
given, made = session.get_inputs()[0].name, session.get_outputs()[0].name
right = numpy.zeros(session.get_inputs()[0].shape, numpy.float32)

def tried(names, feed):
    try:
        return [a.shape for a in session.run(names, feed)]
    except (RuntimeError, ValueError, InvalidArgument) as error:
        return type(error).__name__

print("another type", tried([made], {given: right.astype(numpy.float64)}))
print("an output misspelled", tried(["misspelled"], {given: right}))
print("an input misspelled", tried([made], {"misspelled": right}))
print("all outputs", tried(None, {given: right}))
for other in (right[0], right[:1], right[:, :1], right[None], numpy.stack([right, right])):
    print(other.shape, tried([made], {given: other}))
"""
METADATA = """
import onnxruntime as rt

meta = rt.InferenceSession(MODEL, providers=rt.get_available_providers()).get_modelmeta()
print(sorted(name for name in dir(meta) if not name.startswith("_")))
print(type(meta.custom_metadata_map), type(meta.version), type(meta.graph_name), bool(meta.producer_name))
print(type(meta.description), type(meta.domain), type(meta.graph_description))
"""
PROFILE = """
import json, os
import numpy as np
import onnxruntime as rt

options = rt.SessionOptions()
options.enable_profiling = True
options.profile_file_prefix = os.path.join(FOLDER, "profile")
session = rt.InferenceSession(MODEL, options, providers=rt.get_available_providers())
session.run(None, {session.get_inputs()[0].name: np.zeros(session.get_inputs()[0].shape, np.float32)})
trace = session.end_profiling()
with open(trace) as file:
    events = json.load(file)
print([e["name"] for e in events if e.get("name") == "model_run"])
print(os.path.basename(trace).startswith("profile"))
print({"cat", "pid", "tid", "dur", "ts", "ph", "name", "args"} <= set(events[0]))
"""
BACKEND = """
import numpy as np
import onnxruntime.backend as backend
from onnxruntime import GraphOptimizationLevel, InferenceSession, get_device
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

ready = backend.prepare(MODEL, get_device())
data = np.zeros((4, 32), np.float32)
for given in (data, [data]):
    print([a.shape for a in ready.run(given)])
level = GraphOptimizationLevel.ORT_DISABLE_ALL
print([a.shape for a in backend.run(MODEL, [data], "CPU", graph_optimization_level=level)])
with open(MODEL, "rb") as file:
    print([a.shape for a in backend.prepare(file.read()).run(data)])
print([a.shape for a in backend.prepare(InferenceSession(MODEL)).run(data)], backend.prepare(ready) is ready)
print(backend.supports_device("CPU"), backend.supports_device("TPU"), backend.is_compatible(MODEL))
for wrong in (lambda: ready.run(data[:, :5]), lambda: backend.prepare(MODEL, "TPU"),
              lambda: backend.prepare(MODEL, optimized_model_filepath="x")):
    try:
        wrong()
    except (RuntimeError, InvalidArgument) as error:
        print(type(error).__name__)
"""
BINDING = """
import numpy as np
import onnxruntime

X = np.linspace(-1, 1, 128, dtype=np.float32).reshape(4, 32)
session = onnxruntime.InferenceSession(MODEL)
given, made = session.get_inputs()[0].name, session.get_outputs()[0].name
binding = session.io_binding()
binding.bind_cpu_input(given, X)
binding.bind_output(made)
session.run_with_iobinding(binding)
first = binding.copy_outputs_to_cpu()[0]
value = onnxruntime.OrtValue.ortvalue_from_numpy(X, "cpu", 0)
print(value.device_name(), value.shape(), value.data_type(), value.is_tensor(), value.has_value())
binding = session.io_binding()
binding.bind_input(name=given, device_type=value.device_name(), device_id=0, element_type=np.float32,
                   shape=value.shape(), buffer_ptr=value.data_ptr())
binding.bind_output(made, "cpu")
session.run_with_iobinding(binding)
(held,) = binding.get_outputs()
print((held.numpy() == first).all(), held.device_name(), held.element_type())
binding = session.io_binding()
room = onnxruntime.OrtValue.ortvalue_from_shape_and_type([4, 32], np.float32, "cpu", 0)
binding.bind_ortvalue_input(given, value)
binding.bind_ortvalue_output(made, room)
binding.synchronize_inputs()
session.run_with_iobinding(binding, onnxruntime.RunOptions())
binding.synchronize_outputs()
print((room.numpy() == first).all())
print([v.shape() for v in session.run_with_ort_values([made], {given: value})])
print((session.run([made], {given: value})[0] == first).all())
"""
MEMORY = """
import numpy as np
import onnxruntime
from onnxruntime.capi import _pybind_state as state

print([d.ep_name for d in onnxruntime.get_ep_devices()][:1])
session = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
given, made = session.get_inputs()[0].name, session.get_outputs()[0].name
(info,), (out,) = session.get_input_memory_infos(), session.get_output_memory_infos()
print(info.device_id, info.device_vendor_id, info.name == out.name)
X, room = np.linspace(-1, 1, 128, dtype=np.float32).reshape(4, 32), np.zeros((4, 32), np.float32)
binding = session.io_binding()
binding.bind_input(name=given, device_type="cpu", device_id=info.device_id, element_type=X.dtype,
                   shape=X.shape, buffer_ptr=X.ctypes.data)
binding.bind_output(name=made, device_type="cpu", device_id=info.device_id, element_type=np.float32,
                    shape=room.shape, buffer_ptr=room.ctypes.data)
session.run_with_iobinding(binding)
print((room == session.run([made], {given: X})[0]).all(), room.any())
binding.bind_output(name=made, device_type="cpu")
session.run_with_iobinding(binding)
(held,) = binding.get_outputs()
shared = np.from_dlpack(held._ortvalue)
print(shared.shape, (shared == room).all(), state.OrtValue.__name__)
"""
ASYNC = """
import threading, time
import numpy as np
import onnxruntime

class Held:
    def __init__(self):
        self.ready, self.results, self.error = threading.Event(), None, None

    def fill(self, results, error):
        self.results, self.error = results, error
        self.ready.set()

def callback(results, held, error):
    held.fill(results, error)

session = onnxruntime.InferenceSession(MODEL)
given, made = session.get_inputs()[0].name, session.get_outputs()[0].name
X = np.zeros((4, 32), np.float32)
held = Held()
session.run_async([made], {given: X}, callback, held)
print(held.ready.wait(20), [a.shape for a in held.results], repr(held.error))
print((held.results[0] == session.run([made], {given: X})[0]).all())
"""
OPTIONS = """
import numpy as np
import onnxruntime as rt

rt.set_default_logger_severity(3)
options = rt.SessionOptions()
options.graph_optimization_level = rt.GraphOptimizationLevel.ORT_ENABLE_ALL
options.execution_mode = rt.ExecutionMode.ORT_SEQUENTIAL
options.intra_op_num_threads = options.inter_op_num_threads = 1
options.log_severity_level = 3
options.add_session_config_entry("session.intra_op.allow_spinning", "0")
session = rt.InferenceSession(MODEL, sess_options=options, providers=["CPUExecutionProvider"])
held = session.get_session_options()
print(held.intra_op_num_threads, held.get_session_config_entry("session.intra_op.allow_spinning"))
print([p for p in session.get_providers() if p.startswith("CPU")])
print([p for p in session.get_provider_options() if p.startswith("CPU")])
session.disable_fallback(); session.enable_fallback()
run = rt.RunOptions()
run.log_severity_level, run.logid, run.only_execute_path_to_fetches = 3, "one", True
feed = {session.get_inputs()[0].name: np.zeros((4, 32), np.float32)}
print([a.shape for a in session.run(None, feed, run)])
run.terminate = True
try:
    session.run(None, feed, run)
except Exception as error:
    print(type(error).__name__)
"""
# of models that no program is made of: trees and tables of scikit-learn, sequences, maps
ONNX_ONLY = """
import numpy as np
import onnx
import onnxruntime as rt
import onnxruntime.backend as backend
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument
from onnxruntime.datasets import get_example

iris = get_example("logreg_iris.onnx")
session = rt.InferenceSession(iris, providers=rt.get_available_providers())
rows = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)
given, (label, chances) = session.get_inputs()[0], session.get_outputs()
print(given.shape, given.type, label.type, chances.type)
for names in ([label.name], None, [chances.name]):
    for part in (rows, rows[:1], rows[0], rows[None], rows[:, :1]):
        try:
            print(names, part.shape, session.run(names, {given.name: part}))
        except (RuntimeError, InvalidArgument) as error:
            print(names, part.shape, type(error).__name__)
for model in (iris, onnx.load(iris)):
    try:
        print(backend.prepare(model, rt.get_device()).run(np.array([[-1.0, -2.0]], np.float32)))
    except (RuntimeError, InvalidArgument) as error:
        print(type(error).__name__)
small = onnx.load(get_example("mul_1.onnx"))
small.ir_version, small.opset_import[0].version = 6, 11
print(rt.InferenceSession(small.SerializeToString()).run(None, {"X": rows}))
example = rt.InferenceSession(get_example("sigmoid.onnx"))
print(example.run(None, {example.get_inputs()[0].name: np.zeros((3, 4, 5), np.float32)})[0].mean())
try:
    get_example("no_such.onnx")
except FileNotFoundError as error:
    print(error)

# a table of named numbers, as a pipeline behind a DictVectorizer takes it
pipeline = rt.InferenceSession(PIPELINE, providers=rt.get_available_providers())
entry, out = pipeline.get_inputs()[0], pipeline.get_outputs()[0]
table = [{0: 1.0, 1: 2.0}, {0: 3.0, 1: -1.0}]
print(entry.name, entry.type, out.type)
try:
    pipeline.run([out.name], {entry.name: table})
except (RuntimeError, InvalidArgument) as error:
    print(type(error).__name__)
print([pipeline.run([out.name], {entry.name: row})[0][0, 0] for row in table])

# results with coordinates, and values of other kinds
values = rt.OrtValue.ort_value_from_sparse_tensor(
    rt.SparseTensor.sparse_coo_from_numpy(
        np.array([3, 3], np.int64), np.array([1.0, 2.0], np.float32), np.array([1, 5], np.int64),
        rt.OrtDevice.make("cpu", 0),
    )
)
print(values.is_sparse_tensor(), values.as_sparse_tensor().values())
"""
SCRIPTS = {
    "predict": PREDICT,
    "errors": ERRORS,
    "metadata": METADATA,
    "profile": PROFILE,
    "backend": BACKEND,
    "binding": BINDING,
    "memory": MEMORY,
    "async": ASYNC,
    "options": OPTIONS,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program and an ONNX model of its inputs and outputs; a pipeline of tables."""
    made = tmp_path_factory.mktemp("models")
    split().save(made / "model.npu")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 32]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Tanh", ["x"], ["y"])], "tanh", ends[:1], ends[1:])
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9, producer_name="made"
    )
    (made / "model.onnx").write_bytes(model.SerializeToString())
    (made / "pipeline.onnx").write_bytes(table_model())
    return made


def table_model() -> bytes:
    """A map of numbers to a row, and its weighted sum."""
    key = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    nodes = [
        helper.make_node("DictVectorizer", ["table"], ["row"], domain="ai.onnx.ml", int64_vocabulary=[0, 1]),
        helper.make_node("MatMul", ["row", "weights"], ["sum"]),
    ]
    graph = helper.make_graph(
        nodes,
        "table",
        [helper.make_value_info("table", key)],
        [helper.make_tensor_value_info("sum", TensorProto.FLOAT, [None, 1])],
        [numpy_helper.from_array(np.array([[2.0], [10.0]], np.float32), "weights")],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def printed(script: str, folder: Path, model: str) -> str:
    said = io.StringIO()
    paths = {"MODEL": str(folder / model), "PIPELINE": str(folder / "pipeline.onnx"), "FOLDER": str(folder)}
    with contextlib.redirect_stdout(said):
        exec(compile(script, "script", "exec"), {"__name__": "__main__", **paths})
    return said.getvalue()


def changed(script: str) -> str:
    return (
        script.replace("onnxruntime_pybind11_state", "*")
        .replace("onnxruntime", "npuflow.ort")
        .replace("*", "onnxruntime_pybind11_state")
    )


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_prints_the_same_with_the_import_changed(name: str, folder: Path) -> None:
    script = SCRIPTS[name]
    want = printed(script, folder, "model.onnx")
    assert want
    assert printed(changed(script), folder, "model.onnx") == want
    assert printed(changed(script), folder, "model.npu") == want


def test_models_that_no_program_is_made_of(folder: Path) -> None:
    assert printed(changed(ONNX_ONLY), folder, "model.onnx") == printed(ONNX_ONLY, folder, "model.onnx")


def test_submodules_are_onnxruntimes_own() -> None:
    import npuflow.ort.datasets
    import npuflow.ort.quantization.calibrate as ours
    import onnxruntime.datasets
    import onnxruntime.quantization.calibrate as theirs

    assert ours is theirs and npuflow.ort.datasets is onnxruntime.datasets
    assert theirs.__spec__.name == theirs.__name__ == "onnxruntime.quantization.calibrate"
    with pytest.raises(ModuleNotFoundError, match=r"npuflow\.ort\.no_such"):
        import npuflow.ort.no_such
