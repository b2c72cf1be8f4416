"""What is wrong with a recipe is told before anything is built, and what a verdict says is true."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.environments import Environment

FAULTY = """target = "edge-4t"
[model]
path = "examples/fashion/fashion.onnx"
[calibrat]
method = "kl"
[calibrate]
bounds = [3.0, -3.0]
[data]
source = "gone"
cuont = 3
[precision]
sqnr_db = 500
[quantize.activations]
bits = "eight"
[[quantize.overrides]]
layers = ["nobody"]
bits = 16
[[round.layers]]
layers = ["nowhere"]
method = "nearest"
[tiling]
keep = ["nothing"]
"""
TOLD = (
    "[calibrat]", "[3.0, -3.0]", "gone", "cuont", "500", '"eight"', '"nobody"', '"nowhere"', '"nothing"',
)
MODEL = """
import sys, numpy as np, onnx
name, factor, broken = sys.argv[1], float(sys.argv[2]), sys.argv[3] == "nan"
weight = np.random.default_rng(3).normal(size=(16, 10)) * factor
if broken:
    weight[3, 7] = np.nan
value, held = onnx.helper.make_tensor_value_info, onnx.numpy_helper.from_array(weight.astype(np.float32), "w")
node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"], "product")
graph = onnx.helper.make_graph([node], "g", [value("x", 1, [1, 16])], [value("y", 1, [1, 10])], [held])
made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
onnx.save(made, name + ".onnx")
np.savez("x.npz", x=np.random.default_rng(5).normal(size=(240, 16)).astype(np.float32))
recipe = 'target = "edge-4t"\\n[model]\\npath = "%s.onnx"\\n[data]\\nsource = "x.npz"\\n' % name
open(name + ".toml", "w").write(recipe + '[precision]\\nstrategy = "none"\\n[verdict]\\nadvice = false\\n')
"""


@pytest.mark.promise("recipe-all-faults-at-once")
def test_nine_faults_take_one_build(installed: Environment, place: Path) -> None:
    (place / "faulty.toml").write_text(FAULTY)
    done = installed.npuflow("build", "faulty.toml", cwd=place, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert [text for text in TOLD if text not in done.stderr] == []
    assert done.stderr.count("error:") == len(TOLD), done.stderr


@pytest.mark.promise("sweep-goals-checked-first")
def test_a_goal_that_nothing_gives_is_told_first(installed: Environment, place: Path) -> None:
    sweep = ("sweep", "recipes/fashion.toml", "--over", "target.compute.cores=[1, 2]", "--goal", "nothing.ms")
    done = installed.npuflow(*sweep, cwd=place, check=False)
    assert done.returncode == 2 and "nothing.ms" in done.stderr and "1/2" not in done.stderr


@pytest.mark.slow
@pytest.mark.promise("verdict-names-nan")
def test_the_last_line_is_true_of_small_numbers_and_of_none(installed: Environment, tmp_path: Path) -> None:
    def last(name: str, factor: str, kind: str = "") -> tuple[int, str]:
        installed.python(MODEL, name, factor, kind, cwd=tmp_path)
        build = ("build", f"{name}.toml", "--until", "verdict", "--strict")
        done = installed.npuflow(*build, cwd=tmp_path, check=False)
        return done.returncode, done.stdout.splitlines()[-1]

    levels = [last(name, factor)[1].split(", has ")[1] for name, factor in (("one", "1"), ("tiny", "1e-20"))]
    one, tiny = (float(level.split(" dB")[0]) for level in levels)
    assert abs(one - tiny) < 0.2
    code, said = last("less", "2e-31")
    assert code == 1 and "far from the float model" in said and "no single change" not in said
    code, said = last("broken", "1", "nan")
    assert code == 1 and "NaN in the float model itself" in said and '"w" holds 1 NaN' in said
