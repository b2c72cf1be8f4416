"""Programs that PyTorch's pt2e flow quantised: their scales are kept, and they build whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="npuflow[torch] is not installed")

import torch

from npuflow import build
from npuflow.frontends import Reading
from npuflow.frontends.torch.convert import packed
from npuflow.frontends.torch.quantized import registered
from npuflow.ir.packed import unpack
from npuflow.onnx.export import export_model
from npuflow.onnx.run import run
from npuflow.stages.simulate import Simulation
from tests.frontends.building import Built

registered()
SHAPE = (1, 3, 8, 8)


class Rounded(torch.nn.Module):  # type: ignore[misc]  # torch is not installed where mypy runs
    """What convert_pt2e leaves of a convolution and a dense layer: codes of weights by channel and by tensor,
    activations of 8 bits, of 7 in an 8-bit type."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("kernel", torch.randint(-127, 128, (8, 3, 3, 3), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(8) * 0.01 + 0.002)
        self.register_buffer("zeros", torch.zeros(8, dtype=torch.int64))
        self.register_buffer("matrix", torch.randint(-127, 128, (5, 8), dtype=torch.int8))
        self.bias = torch.nn.Parameter(torch.randn(8))

    def forward(self, x: Any) -> Any:
        held = torch.ops.quantized_decomposed
        kernel = held.dequantize_per_channel(self.kernel, self.scales, self.zeros, 0, -127, 127, torch.int8)
        matrix = held.dequantize_per_tensor(self.matrix, 0.004, 0, -127, 127, torch.int8)
        y = torch.nn.functional.conv2d(self.both(x, 0.03, -5, -128), kernel, self.bias, 2, 1).relu()
        y = self.both(y, 0.125, 0, 0, 127, torch.uint8).flatten(2).transpose(1, 2)
        return self.both(torch.nn.functional.linear(y, matrix), 0.25, 3, -128)

    @staticmethod
    def both(x: Any, scale: float, zero: int, low: int, high: int = 127, kind: Any = torch.int8) -> Any:
        held = torch.ops.quantized_decomposed
        code = held.quantize_per_tensor(x, scale, zero, low, high, kind)
        return held.dequantize_per_tensor(code, scale, zero, low, high, kind)


def calibrated(folder: Path) -> list[np.ndarray]:
    samples = np.random.default_rng(0).standard_normal((16, *SHAPE[1:])).astype(np.float32)
    np.save(folder / "x.npy", samples)
    return list(samples)


def whole(folder: Path, module: Any) -> Any:
    """What the default build of a program file says of its simulation."""
    calibrated(folder)
    torch.export.save(torch.export.export(module, (torch.zeros(SHAPE),)), folder / "net.pt2")
    text = 'target = "edge-4t"\n[model]\npath = "net.pt2"\n[data]\nsource = "x.npy"\n'
    (folder / "net.toml").write_text(text)
    done = Built(folder, build(folder / "net.toml", cache=folder / "cache").outputs)
    return done.artifact("simulate", Simulation).summary()


def read(module: Any) -> Reading:
    graph, stated = unpack(packed(torch.export.export(module, (torch.zeros(SHAPE),)))[0])
    return Reading(graph, (), stated)


def test_codes_are_stated_and_weights_are_what_they_stand_for() -> None:
    module = Rounded().eval()
    reading = read(module)
    found = sorted((q.bits, len(q.scale), q.zero_point[0]) for q in reading.stated.values())
    assert found == [(7, 1, 0), (8, 1, -5), (8, 1, 0), (8, 1, 3), (8, 8, 0)]
    scales = {q.scale for q in reading.stated.values()}
    assert tuple(module.scales.tolist()) in scales
    assert {(float(np.float32(s)),) for s in (0.03, 0.125, 0.25)} <= scales
    kinds = [node.op.onnx_type()[1] for node in reading.graph.nodes]
    assert kinds.count("Conv") == 1 and not {"QuantizeLinear", "DequantizeLinear"} & set(kinds)
    x = torch.randn(SHAPE)
    (made,) = run(export_model(reading.graph), {reading.graph.inputs[0]: x.numpy()})
    with torch.no_grad():
        wanted = module(x).numpy()
    # the graph is the network before rounding: three roundings of a step each lie between
    assert np.corrcoef(np.asarray(made).ravel(), wanted.ravel())[0, 1] > 0.99


def test_a_quantised_program_builds_with_its_scales(tmp_path: Path) -> None:
    found = whole(tmp_path, Rounded().eval())
    assert found["different"] == found["hazards"] == 0


def test_torchao_s_flow_builds_whole(tmp_path: Path) -> None:
    pytest.importorskip("torchao", reason="torchao is not installed")
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.testing.pt2e._xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    torch.manual_seed(0)
    first, second = torch.nn.Conv2d(3, 8, 3, 2, 1, bias=False), torch.nn.Conv2d(8, 8, 3, 1, 1)
    tail = (torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 5))
    net = torch.nn.Sequential(first, torch.nn.BatchNorm2d(8), torch.nn.ReLU(), second, *tail).eval()
    exported = torch.export.export(net, (torch.zeros(SHAPE),)).module()
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(exported, quantizer)
    for sample in calibrated(tmp_path):
        prepared(torch.from_numpy(sample[None]))
    module = convert_pt2e(prepared)
    reading = read(module)
    assert sum(len(quant.scale) > 1 for quant in reading.stated.values()) == 3
    assert whole(tmp_path, module)["different"] == 0
