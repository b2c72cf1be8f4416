"""Small networks of PyTorch that the tests prepare, and how their programs are compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import npuflow
from npuflow.torch import PreparedNetwork, convert, prepare
from npuflow.whole.execute.executor import Executor

Tables = Mapping[str, Any]


class Small(nn.Module):
    """Convolutions with batch norms, one of them depthwise, a shortcut, a mean and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        self.depth = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.BatchNorm2d(8), nn.ReLU())
        self.point = nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        return self.head((x + self.point(self.depth(x))).mean((2, 3)))


class Block(nn.Module):
    """A transformer block with norms before its parts, and a product for every token."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.answer = nn.Linear(width, 3)

    def forward(self, x: Any) -> Any:
        batch, count, width = x.shape
        parts = self.qkv(self.first(x)).reshape(batch, count, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = torch.softmax(q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5, -1)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(batch, count, width))
        x = x + self.down(nn.functional.gelu(self.up(self.second(x))))
        return self.answer(x)


def small(seed: int = 0) -> Small:
    """With statistics that a training would have left."""
    torch.manual_seed(seed)
    net = Small()
    net.train()
    for _ in range(3):
        net(torch.randn(16, 3, 8, 8))
    return net.eval()


def tables(weights: int = 8, activations: int = 8, target: str | Tables = "edge-4t", **more: Any) -> Tables:
    widths = {"weights": {"bits": weights}, "activations": {"bits": activations}}
    return {"target": target, "quantize": widths, **more}


def prepared(net: Any, x: Any, given: Tables, cache: Path, **options: Any) -> PreparedNetwork:
    return prepare(net, given, x, cache=cache, jobs=1, **options)


def compiled_codes(network: PreparedNetwork, given: Tables, x: Any, folder: Path) -> dict[str, np.ndarray]:
    """Integers of the program that the converted network is compiled to, by value, of all samples."""
    path = folder / "converted.onnx"
    convert(network, path)
    kept = {k: v for k, v in given.items() if k not in ("target", "quantize")}
    quantize = dict(given["quantize"])
    build = npuflow.compile(
        path,
        given["target"],
        data=np.asarray(x[:16]),
        cache=folder / "cache",
        jobs=1,
        until="codegen",
        quantize=quantize,
        correct={"bias": "off"},
        precision={"strategy": "none"},
        **kept,
    )
    runner = Executor(build.graph, network.target.numerics, 32)
    (name,) = build.graph.inputs
    rows = runner.run_many([{name: np.asarray(x[i : i + 1])} for i in range(len(x))], lambda _: True)
    return {value.removesuffix(":real"): np.concatenate([row[value] for row in rows]) for value in rows[0]}


def agreement(
    ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]
) -> dict[str, tuple[int, float]]:
    """Largest difference in codes, and the share of equal ones, by value that both have."""
    found = {}
    for name in set(ours) & set(theirs):
        if ours[name].dtype.kind in "iu" and ours[name].shape == theirs[name].shape:
            off = np.abs(ours[name].astype(np.int64) - theirs[name].astype(np.int64))
            found[name] = int(off.max(initial=0)), float((off == 0).mean())
    return found
