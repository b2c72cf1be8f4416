"""npuflow.compile of what a script has in memory: models of ONNX, modules and programs of PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import npuflow
from npuflow.base.errors import UsageError

RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((8, 3, 6, 6)).astype(np.float32)


def proto() -> onnx.ModelProto:
    weight = onnx.numpy_helper.from_array(RNG.standard_normal((4, 3, 3, 3)).astype(np.float32), "w")
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], "conv")
    kind = onnx.TensorProto.FLOAT
    ends = (
        [onnx.helper.make_tensor_value_info("x", kind, [1, 3, 6, 6])],
        [onnx.helper.make_tensor_value_info("y", kind, [1, 4, 4, 4])],
    )
    graph = onnx.helper.make_graph([node], "net", *ends, [weight])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)


def test_a_model_of_onnx_is_built_as_its_file_is(tmp_path: Path) -> None:
    model, cache = proto(), tmp_path / "cache"
    made = npuflow.compile(model, "edge-4t", data=IMAGES, cache=cache, out=tmp_path / "a", until="simulate")
    assert made.recipe.name == "network" and made.artifact("simulate")
    onnx.save(model, tmp_path / "net.onnx")
    path = tmp_path / "net.onnx"
    again = npuflow.compile(path, "edge-4t", data=IMAGES, cache=cache, out=tmp_path / "b", until="simulate")
    assert again.result.ran == 0


def test_a_model_of_onnx_whose_weights_are_elsewhere_says_what_to_do(tmp_path: Path) -> None:
    model = proto()
    onnx.save(model, tmp_path / "net.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    held = onnx.load(tmp_path / "net.onnx", load_external_data=False)
    with pytest.raises(UsageError, match="holds its weights itself") as caught:
        npuflow.compile(held, "edge-4t", data=IMAGES, cache=tmp_path)
    assert "give the path" in caught.value.hint
    path = str(tmp_path / "net.onnx")
    with pytest.raises(UsageError, match="takes no example"):
        npuflow.compile(path, "edge-4t", data=IMAGES, example=IMAGES[:1], cache=tmp_path)
    with pytest.raises(UsageError, match="cannot be compiled") as caught:
        npuflow.compile(object(), "edge-4t", data=IMAGES, cache=tmp_path)
    assert "onnx.ModelProto" in caught.value.hint and "torch.nn.Module" in caught.value.hint


def network() -> tuple[Any, Any]:
    torch = pytest.importorskip("torch", reason="npuflow[torch] is not installed")
    torch.manual_seed(0)
    nn = torch.nn
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))
    net[1].eval()
    return torch, net


def test_a_module_and_its_exported_program_are_one_build(tmp_path: Path) -> None:
    torch, net = network()
    modes = [part.training for part in net.modules()]
    more = {"cache": tmp_path / "cache", "until": "simulate"}
    example = torch.zeros(1, 3, 6, 6)
    made = npuflow.compile(net, "edge-4t", example=example, data=IMAGES, out=tmp_path / "a", **more)
    assert [part.training for part in net.modules()] == modes
    assert made.artifact("simulate") and "4" in {o for n in made.graph.nodes for o in n.origin}
    again = npuflow.compile(net, "edge-4t", data=IMAGES, out=tmp_path / "b", **more)
    assert again.result.ran == 0                  # the first sample is the example
    program = torch.export.export(net.eval(), (example,))
    assert npuflow.compile(program, "edge-4t", data=IMAGES, out=tmp_path / "c", **more).result.ran == 0


def test_a_module_that_lacks_an_example_says_so(tmp_path: Path) -> None:
    torch, net = network()
    with pytest.raises(UsageError, match="needs an example input") as caught:
        npuflow.compile(net, "edge-4t", data={"source": "random"}, cache=tmp_path)
    assert "example=torch.zeros" in caught.value.hint
    with pytest.raises(npuflow.base.errors.ModelError, match="from its file"):
        npuflow.compile(torch.jit.script(net), "edge-4t", data=IMAGES, cache=tmp_path)


def test_a_module_of_two_inputs_takes_a_tuple_of_examples(tmp_path: Path) -> None:
    torch, _ = network()

    class Two(torch.nn.Module):  # type: ignore[misc]  # torch may be missing
        def forward(self, image: Any, scale: Any) -> Any:
            return torch.relu(image) * scale

    arrays = {"image": IMAGES, "scale": IMAGES + 1}
    given = tuple(np.zeros((1, 3, 6, 6), np.float32) for _ in range(2))
    made = npuflow.compile(
        Two(), "edge-4t", example=given, data=arrays, cache=tmp_path / "cache", until="simulate"
    )
    assert made.graph.inputs == ("image", "scale")
