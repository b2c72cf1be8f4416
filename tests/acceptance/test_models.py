"""Models as users have them: larger than a file may be, of Caffe, in the memory of a script."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from tests.acceptance.environments import Environment
from tests.acceptance.networks import small_network

JUDGED = """
import json, sys
import numpy as np, onnxruntime
import npuflow

feed = {"x": np.random.default_rng(9).normal(size=(1, 3, 8, 8)).astype(np.float32)}
real = onnxruntime.InferenceSession(sys.argv[1]).run(None, feed)[0]
found = [npuflow.Runner(program).run(feed)["y"] for program in sys.argv[2:]]
print(json.dumps([float(10 * np.log10((real**2).sum() / ((real - one) ** 2).sum())) for one in found]))
"""


@pytest.mark.slow
@pytest.mark.promise("model-larger-than-a-file")
def test_a_network_whose_weights_stay_in_files(installed: Environment, tmp_path: Path) -> None:
    """A limit of a kilobyte takes a small network the way of one above 2 GB: corrections and the search of
    widths work on its parts, and its program is as near to the float model as the whole network's."""
    recipe = small_network(tmp_path)
    onnx.save(
        onnx.load(tmp_path / "net.onnx"), tmp_path / "net.onnx", save_as_external_data=True,
        location="net.bin", size_threshold=256,
    )
    search = ("--set", 'precision={strategy="greedy", sqnr_db=40.0}', "--set", "quantize.weights.bits=6")
    more = ("--set", "equalize={}", "--set", "correct={}", *search)
    programs = []
    for name, limit in (("whole", ()), ("fed", ("--set", 'parse.max_weights="1KB"'))):
        words = ("build", recipe, *more, *limit, "--cache", tmp_path / "cache", "--out", tmp_path / name)
        installed.npuflow(*words, cwd=tmp_path)
        programs.append(tmp_path / name / "net" / "model.npu")
    parsed = installed.npuflow(
        "show", "parse", recipe, *more, *limit, "--log", "--cache", tmp_path / "cache", cwd=tmp_path
    ).stdout
    assert "are mapped" in parsed
    done = installed.python(JUDGED, tmp_path / "net.onnx", *programs, cwd=tmp_path)
    whole, fed = json.loads(done.stdout)
    assert whole > 30 and abs(whole - fed) < 1, done.stdout


CAFFE = """name: "net"
input: "data"
input_shape { dim: 1 dim: 3 dim: 8 dim: 8 }
layer {
  name: "c" type: "Convolution" bottom: "data" top: "c"
  convolution_param { num_output: 4 kernel_size: 3 }
}
"""
UNKNOWN = 'layer { name: "%s" type: "%s" bottom: "c" top: "%s" }\n'


def test_a_caffe_network_that_lacks_what_it_needs(installed: Environment, tmp_path: Path) -> None:
    """The file that is missing, by its name, and every kind of layer that is unknown."""
    told = {}
    for name, more in (("bare", ""), ("odd", UNKNOWN % ("a", "Sphere", "a") + UNKNOWN % ("b", "Warp", "b"))):
        (tmp_path / f"{name}.prototxt").write_text(CAFFE + more)
        done = installed.npuflow("inspect", f"{name}.prototxt", cwd=tmp_path, check=False)
        assert done.returncode == 2 and done.stderr.count("error:") == 1 and "Traceback" not in done.stderr
        told[name] = done.stderr
    assert 'no file "bare.caffemodel"' in told["bare"]
    assert all(text in told["odd"] for text in ("Sphere", "Warp", 'no file "odd.caffemodel"'))


COMPILED = """
import numpy as np, onnx
import npuflow

data = np.load("calibration.npz")["x"]
made = npuflow.compile(onnx.load("net.onnx"), "edge-4t", data=data, cache="cache", until="quantize")
again = npuflow.compile("net.onnx", "edge-4t", data=data, cache="cache", until="quantize")
print(made.result.ran > 0, again.result.ran)
"""


def test_a_script_compiles_a_model_in_its_memory(installed: Environment, tmp_path: Path) -> None:
    small_network(tmp_path)
    assert installed.python(COMPILED, cwd=tmp_path).stdout.split() == ["True", "0"]
