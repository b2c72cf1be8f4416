"""Samples of an image at computed places: grid_sample and affine_grid."""

from __future__ import annotations

from typing import Any

from npuflow.frontends.torch.elements import Converter
from npuflow.frontends.torch.network import TorchNetwork, TorchValue

MODES = ("linear", "nearest", "cubic")
PADDINGS = ("zeros", "border", "reflection")


def sampled(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    image, grid, mode, padding, corners = args[:5]
    return net.apply(
        "GridSample", image, grid, version=20, mode=MODES[int(mode)], padding_mode=PADDINGS[int(padding)],
        align_corners=int(corners),
    )


def affine(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    theta, size, corners = args[:3]
    sizes = net.ints([int(one) for one in size])
    return net.apply("AffineGrid", theta, sizes, version=20, align_corners=int(corners))


WARPS: dict[str, Converter] = {
    **dict.fromkeys(("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"), sampled),
    "affine_grid_generator": affine,
}
