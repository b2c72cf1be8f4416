"""Small networks that the tests quantise by PT2E, lower, and run."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Small(nn.Module):
    """Convolutions, one with a ReLU that is computed with it, a table function, halves that change places, a
    sum, a mean and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.point = nn.Conv2d(8, 8, 1)
        self.curve = nn.Hardswish()
        self.head = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        one, other = torch.chunk(self.curve(self.point(x)), 2, 1)
        return self.head((x + torch.cat([other, one], 1)).mean((2, 3)))


class Parted(nn.Module):
    """An operator that no NPU has between two layers, the first of which is read on both sides of it."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        x = self.before(x)
        return self.after(torch.asin(torch.tanh(x)) + x)


def inputs(count: int, *shape: int, seed: int = 0) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for _ in range(count)]


def quantised(module: nn.Module, quantizer: Any, samples: list[Any]) -> Any:
    """The exported program that PT2E makes of a module."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    given = [sample if isinstance(sample, tuple) else (sample,) for sample in samples]
    prepared = prepare_pt2e(torch.export.export(module.eval(), given[0]).module(), quantizer)
    for sample in given:
        prepared(*sample)
    return torch.export.export(convert_pt2e(prepared), given[0])


def small() -> Small:
    torch.manual_seed(0)
    net = Small()
    net.train()
    for _ in range(3):
        net(torch.randn(16, 3, 8, 8))
    return net.eval()


def parted() -> Parted:
    torch.manual_seed(0)
    return Parted().eval()
