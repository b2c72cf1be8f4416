"""A network of two convolutions, its samples as a data set of Olive's, and the configuration of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from olive.data.registry import Registry

X = (3, 8, 8)


def drawn(seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(X).astype(np.float32)


class Drawn(torch.utils.data.Dataset):  # type: ignore[misc]
    """Samples as Olive's data sets have them: inputs by name, and a label."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return {self.name: torch.from_numpy(drawn(index))}, torch.tensor(0)


@Registry.register_dataset("npuflow_drawn")  # type: ignore[misc]
def dataset(name: str = "x", **_: Any) -> Any:
    return Drawn(name)


def data(name: str = "x") -> dict[str, Any]:
    """A data configuration, in batches of four."""
    return {
        "name": "drawn",
        "load_dataset_config": {"type": "npuflow_drawn", "params": {"name": name}},
        "dataloader_config": {"params": {"batch_size": 4}},
    }


def saved(path: Path) -> Path:
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1,3,8,8] x) => (float[1,4,8,8] y) {'
        " a = Conv<pads=[1,1,1,1]>(x, w) r = Relu(a) y = Conv(r, v) }"
    )
    for name, shape in {"w": (8, 3, 3, 3), "v": (4, 8, 1, 1)}.items():
        array = (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return path
