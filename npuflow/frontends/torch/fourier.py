"""Fourier transforms as products with constant matrices of cosines and sines, for both parts apart."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import numpy as np

from npuflow.frontends.torch.complex_values import Part, as_real, parts, plus
from npuflow.frontends.torch.elements import Converter
from npuflow.frontends.torch.layers import option
from npuflow.frontends.torch.network import TorchComplex, TorchNetwork, TorchOperatorError, TorchValue
from npuflow.ir.types import Array

MOST = 1 << 24  # numbers of a matrix
Form = Literal["real", "complex", "to real"]


def waves(count: int, size: int, bins: int, inverse: bool) -> tuple[Array, Array]:
    """Cosines and sines, [count, bins]: those of samples from `size` on are zero."""
    if count * bins > MOST:
        raise TorchOperatorError(f"{size} points: a matrix of {count * bins} numbers")
    angles = 2 * np.pi * (np.outer(np.arange(count), np.arange(bins)) % size) / size
    inside = (np.arange(count) < size)[:, None]
    return np.cos(angles) * inside, (1 if inverse else -1) * np.sin(angles) * inside


def factor(size: int, inverse: bool, norm: Any) -> float:
    """What a transform of one dimension is multiplied by."""
    if norm == "ortho":
        return float(size**-0.5)
    return 1.0 / size if (norm == "forward") != inverse else 1.0


def transformed(
    net: TorchNetwork, value: Any, axis: int, size: int | None, form: Form, inverse: bool, norm: Any
) -> Any:
    """A transform over one dimension of `size` points (None: as many as there are)."""
    real, imag = parts(net, value)
    shape = net.shape(real)
    axis %= len(shape)
    count = shape[axis]
    points = size if size is not None else 2 * (count - 1) if form == "to real" else count
    scale = factor(points, inverse, norm)
    if form == "to real":
        cos, sin = _to_real(count, points)
        cos, sin = cos * scale, sin * scale
        return plus(net, _product(net, real, cos, axis), _product(net, imag, sin, axis))
    bins = points // 2 + 1 if form == "real" else points
    cos, sin = (part * scale for part in waves(count, points, bins, inverse))
    made = plus(net, _product(net, real, cos, axis), _product(net, imag, sin, axis), "Sub")
    turned = plus(net, _product(net, real, sin, axis), _product(net, imag, cos, axis))
    return TorchComplex(made, turned)


def _to_real(count: int, points: int) -> tuple[Array, Array]:
    """[bins, points]: bins that a real signal has twice count twice, those behind them not at all."""
    if count * points > MOST:
        raise TorchOperatorError(f"{points} points: a matrix of {count * points} numbers")
    angles = 2 * np.pi * (np.outer(np.arange(count), np.arange(points)) % points) / points
    bins = np.arange(count)
    often = np.where((bins == 0) | (2 * bins == points), 1.0, np.where(2 * bins < points, 2.0, 0.0))
    return np.cos(angles) * often[:, None], -np.sin(angles) * often[:, None]


def _product(net: TorchNetwork, value: Part, matrix: Array, axis: int) -> Part:
    """A part times a matrix, along one dimension; nothing of one that is zero."""
    if value is None:
        return None
    rank = len(net.shape(value))
    order = [*(d for d in range(rank) if d != axis), axis]
    moved = value if axis == rank - 1 else net.apply("Transpose", value, perm=order)
    made = net.apply("MatMul", moved, net.constant(matrix.astype(np.float32), f"{net.origin}:waves"))
    return made if axis == rank - 1 else net.apply("Transpose", made, perm=np.argsort(order).tolist())


def one(
    form: Form, inverse: bool, net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """fft, ifft, rfft, irfft."""
    size, axis = option(args, kwargs, 1, "n", None), option(args, kwargs, 2, "dim", -1)
    return transformed(net, args[0], int(axis), size, form, inverse, option(args, kwargs, 3, "norm", None))


def many(
    form: Form, inverse: bool, net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """The same over several dimensions: the last two, or those that are stated."""
    sizes, axes = option(args, kwargs, 1, "s", None), option(args, kwargs, 2, "dim", None)
    if axes is None and node.target.__name__.partition(".")[0].endswith("2"):
        axes = [-2, -1]
    rank = len(net.shape(parts(net, args[0])[0]))
    if axes is None:
        axes = list(range(rank - len(sizes), rank)) if sizes is not None else list(range(rank))
    points = [None if sizes is None or size == -1 else int(size) for size in sizes or axes]
    norm = option(args, kwargs, 3, "norm", None)
    return _over(net, args[0], list(zip(axes, points, strict=True)), form, inverse, norm)


def _over(
    net: TorchNetwork, value: Any, axes: list[tuple[int, int | None]], form: Form, inverse: bool, norm: Any
) -> Any:
    """The real side is that of the last dimension: it comes first, or last where the result is real."""
    (last, size), others = axes[-1], axes[:-1]
    if form != "to real":
        value = transformed(net, value, last, size, form, inverse, norm)
    for axis, points in others:
        value = transformed(net, value, axis, points, "complex", inverse, norm)
    return transformed(net, value, last, size, form, inverse, norm) if form == "to real" else value


def plain(form: Form, net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What torch decomposes the others into; its scale depends on no direction."""
    value, axes, scale, how = args[:4]
    inverse = form == "to real" or (form == "complex" and not how)
    norm = (("forward", "ortho", None) if inverse else (None, "ortho", "forward"))[int(scale)]
    if form == "real" and not how:
        form = "complex"
    sizes = [None] * (len(axes) - 1) + [int(how) if form == "to real" else None]
    return _over(net, value, list(zip(axes, sizes, strict=True)), form, inverse, norm)


def short(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """stft: frames of the signal are the windows of two convolutions."""
    centred = node.target._overloadname == "center"
    names = ["hop_length", "win_length", "window", *(("center", "pad_mode") if centred else ()), "normalized",
             "onesided", "return_complex"]
    given = {name: option(args, kwargs, i, name, None) for i, name in enumerate(names, 2)}
    x, size = args[0], int(args[1])
    if isinstance(x, TorchComplex) or isinstance(given["window"], TorchValue | TorchComplex):
        raise TorchOperatorError("a complex signal, or a window that is computed")
    shape = net.shape(x)
    x = net.apply("Reshape", x, net.ints([-1, 1, shape[-1]]))
    if given.get("center"):
        kinds = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
        mode = kinds.get(given["pad_mode"] or "reflect")
        if mode is None:
            raise TorchOperatorError(f"padding {given['pad_mode']}")
        x = net.apply("Pad", x, net.ints([0, 0, size // 2, 0, 0, size // 2]), mode=mode)
    bins = size if given["onesided"] is False else size // 2 + 1
    scale = size**-0.5 if given["normalized"] else 1.0
    made = []
    for wave in waves(size, size, bins, False):
        weight = (wave * _window(net, given, size)[:, None] * scale).T[:, None].astype(np.float32)
        part = net.apply(
            "Conv", x, net.constant(weight, f"{net.origin}:waves"), kernel_shape=[size],
            strides=[int(given["hop_length"] or size // 4)],
        )
        made.append(net.apply("Reshape", part, net.ints([*shape[:-1], *net.shape(part)[1:]])))
    found = TorchComplex(*made)
    return found if given["return_complex"] is not False else as_real(net, node, [found], {})


def _window(net: TorchNetwork, given: dict[str, Any], size: int) -> Array:
    """The window in the middle of a frame."""
    length = int(given["win_length"] or size)
    window = np.ones(length) if given["window"] is None else net.array(given["window"]).astype(np.float64)
    left = (size - length) // 2
    return np.pad(window, (left, size - length - left))


KINDS: dict[str, tuple[Form, bool]] = {
    "fft": ("complex", False), "ifft": ("complex", True), "rfft": ("real", False), "irfft": ("to real", True),
}
FOURIER: dict[str, Converter] = {
    **{f"fft_{name}": partial(one, *kind) for name, kind in KINDS.items()},
    **{f"fft_{name}{end}": partial(many, *kind) for name, kind in KINDS.items() for end in "2n"},
    "_fft_r2c": partial(plain, "real"),
    "_fft_c2r": partial(plain, "to real"),
    "_fft_c2c": partial(plain, "complex"),
    "stft": short,
}
