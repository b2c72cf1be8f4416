"""Damaged files of Caffe, PyTorch and TensorFlow: one error that says something, whatever the damage."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import NpuflowError
from npuflow.frontends import Bindings
from tests.frontends.caffe_models import caffemodel
from tests.frontends.caffe_networks import network
from tests.frontends.damaged_files import campaign, forked
from tests.frontends.test_damaged import damaged
from tests.tiers import tiered

FEW, SOME, MANY = 6, 60, 300
FORMS = {
    "pt2": ("torch", "net.pt2", ({},)),
    "torchscript": ("torch", "net.pt", ({"x": (1, 2, 6, 6)},)),
    "saved": ("tensorflow", "saved/saved_model.pb", ({}, ())),
    "keras": ("tensorflow", "net.keras", ({}, ())),
    "h5": ("tensorflow", "net.h5", ({}, ())),
    "frozen": ("tensorflow", "frozen.pb", ({}, ())),
}
# Loaded before the forks, so that each of them need not.
LOADED = {
    "torch": ("torch.export", "torch._export.converter", "npuflow.frontends.torch.convert"),
    "tensorflow": ("tensorflow.lite.python.lite", "tensorflow.lite.tools.flatbuffer_utils", "keras"),
}


def of_torch(folder: Path) -> None:
    import torch

    net = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.ReLU(), torch.nn.Flatten()).eval()
    example = (torch.zeros(1, 2, 6, 6),)
    torch.export.save(torch.export.export(net, example), folder / "net.pt2")

    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

    torch.jit.save(torch.jit.trace(Named().eval(), example), folder / "net.pt")


def of_tensorflow(folder: Path) -> None:
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    layers = tf.keras.layers
    net = tf.keras.Sequential([tf.keras.Input((6, 6, 2), name="x"), layers.Conv2D(3, 3, name="c")])
    net.save(folder / "net.keras")
    net.save(folder / "net.h5")
    net.export(str(folder / "saved"), verbose=False)
    function = tf.function(lambda x: net(x, training=False))
    concrete = function.get_concrete_function(tf.TensorSpec((1, 6, 6, 2), tf.float32, "x"))
    graph = convert_variables_to_constants_v2(concrete, lower_control_flow=False).graph.as_graph_def()
    (folder / "frozen.pb").write_bytes(graph.SerializeToString())


WRITERS = {"torch": of_torch, "tensorflow": of_tensorflow}


def spoil(form: str, folder: Path, count: int) -> Counter[str]:
    """A campaign over one form of file."""
    package, name, more = FORMS[form]
    pytest.importorskip(package, reason=f"npuflow[{package}] is not installed")
    for module in LOADED[package]:
        importlib.import_module(module)
    load = importlib.import_module(f"npuflow.frontends.{package}.load")
    forked(WRITERS[package], folder)
    return campaign(load.converted, folder / name, 0, count, *more)


@pytest.mark.parametrize("form", FORMS)
def test_damaged_files_are_one_error_each(form: str, tmp_path: Path) -> None:
    found = spoil(form, tmp_path, FEW)
    assert found["refused"] and not found["stopped"]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", tiered((SOME, MANY), 1))
@pytest.mark.parametrize("form", FORMS)
def test_many_damaged_files(form: str, count: int, tmp_path: Path) -> None:
    """A parser that stops is one error as well; exceptions that nobody expects are not to be its cause."""
    found = spoil(form, tmp_path, count)
    sys.stdout.write(f"{form}: {dict(found)}\n")
    sys.stdout.flush()  # 300 of a form take minutes
    assert found["refused"] > count // 4 and found["stopped"] <= count // 20


def caffe(names: Sequence[str], count: int) -> Counter[str]:
    from npuflow.frontends.caffe.convert import reading
    from npuflow.frontends.caffe.parse import parsed

    rng, found = np.random.default_rng(0), Counter[str]()
    files = []
    for name in names:
        net = network(name)
        files.append((net.text.encode(), caffemodel(net.held)))
    for i in range(count):
        text, weights = files[i % len(files)]
        pair = (damaged(text, rng), weights) if i % 4 < 2 else (text, damaged(weights, rng))
        try:
            reading(parsed(*pair), Bindings())
            found["read"] += 1
        except NpuflowError as fault:
            assert fault.message and "Traceback" not in str(fault)
            found["refused"] += 1
    return found


def test_damaged_caffe_files() -> None:
    assert caffe(["MTCNN O-Net"], 40)["refused"] > 5


@pytest.mark.slow
def test_many_damaged_caffe_files() -> None:
    found = caffe(["MTCNN O-Net", "FaceBoxes"], MANY)
    sys.stdout.write(f"caffe: {dict(found)}\n")
    assert found["refused"] > MANY // 4
