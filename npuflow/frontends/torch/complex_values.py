"""Complex numbers of a PyTorch module as two real values: what is done with both parts, and with each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from npuflow.frontends.torch.elements import Converter
from npuflow.frontends.torch.network import TorchComplex, TorchNetwork, TorchOperatorError, TorchValue
from npuflow.frontends.torch.shapes import SHAPES, result

Part = Any  # a TorchValue, a torch tensor, a number; None for an imaginary part that is zero


def parts(net: TorchNetwork, value: Any) -> tuple[Part, Part]:
    """Real and imaginary part."""
    if isinstance(value, TorchComplex):
        return value.real, value.imag
    if isinstance(value, net.torch.Tensor) and value.is_complex():
        value = value.resolve_conj()
        return value.real.contiguous(), value.imag.contiguous()
    if isinstance(value, complex):
        return value.real, value.imag
    return value, None


def plus(net: TorchNetwork, a: Part, b: Part, sign: str = "Add") -> Part:
    """A sum or a difference, without what is zero."""
    if b is None:
        return a
    if a is None:
        return b if sign == "Add" else net.apply("Neg", b)
    return net.apply(sign, a, b)


def times(net: TorchNetwork, a: Part, b: Part) -> Part:
    return None if a is None or b is None else net.apply("Mul", a, b)


def multiplied(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchComplex:
    (a, b), (c, d) = parts(net, args[0]), parts(net, args[1])
    return TorchComplex(
        plus(net, times(net, a, c), times(net, b, d), "Sub"), plus(net, times(net, a, d), times(net, b, c)),
    )


def divided(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchComplex:
    (a, b), (c, d) = parts(net, args[0]), parts(net, args[1])
    if kwargs.get("rounding_mode") is not None:
        raise TorchOperatorError("rounding complex numbers")
    if d is None:
        return TorchComplex(net.apply("Div", a, c), None if b is None else net.apply("Div", b, c))
    size = plus(net, times(net, c, c), times(net, d, d))
    real = plus(net, times(net, a, c), times(net, b, d))
    imag = plus(net, times(net, b, c), times(net, a, d), "Sub")
    return TorchComplex(net.apply("Div", real, size), net.apply("Div", imag, size))


def summed(sign: str) -> Converter:
    def convert(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchComplex:
        (a, b), (c, d) = parts(net, args[0]), parts(net, args[1])
        if kwargs.get("alpha", 1) != 1:
            c, d = times(net, c, float(kwargs["alpha"])), times(net, d, float(kwargs["alpha"]))
        return TorchComplex(plus(net, a, c, sign), plus(net, b, d, sign))

    return convert


def magnitude(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    real, imag = parts(net, args[0])
    made: TorchValue = net.apply("Sqrt", plus(net, times(net, real, real), times(net, imag, imag)))
    return made


def angle(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    """From -pi to pi; 0 of 0."""
    real, imag = parts(net, args[0])
    zero = net.apply("And", net.apply("Equal", real, 0.0), net.apply("Equal", imag, 0.0))
    one, none, half, other = (net.constant(np.float32(v)) for v in (1, 0, math.pi, -math.pi))
    slope = net.apply("Atan", net.apply("Div", imag, net.apply("Where", zero, one, real)))
    behind = net.apply("Where", net.apply("Less", imag, 0.0), other, half)
    turned = net.apply("Where", net.apply("Less", real, 0.0), behind, none)
    return net.apply("Add", slope, turned)


def conjugate(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchComplex:
    real, imag = parts(net, args[0])
    return TorchComplex(real, None if imag is None else net.apply("Neg", imag))


def joined(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchComplex:
    return TorchComplex(args[0], args[1])


def as_real(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    """Both parts along a new last dimension."""
    last = net.ints([-1])
    return net.apply("Concat", *(net.apply("Unsqueeze", p, last) for p in both(net, args[0])), axis=-1)


def as_complex(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchComplex:
    places = (net.constant(np.asarray(i, np.int64)) for i in (0, 1))
    return TorchComplex(*(net.apply("Gather", args[0], place, axis=-1) for place in places))


def both(net: TorchNetwork, value: Any) -> tuple[Part, Part]:
    """Both parts, one that is zero as numbers."""
    real, imag = parts(net, value)
    return real, net.apply("Mul", real, 0.0) if imag is None else imag


def part(place: int) -> Converter:
    def convert(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return both(net, args[0])[place]

    return convert


def each(convert: Converter) -> Callable[..., Any]:
    """A converter of an operator that does the same with both parts."""

    def apart(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        made = [convert(net, node, [_part(net, a, i) for a in args], kwargs) for i in (0, 1)]
        if isinstance(made[0], list):
            return [TorchComplex(a, b) for a, b in zip(*made, strict=True)]
        return TorchComplex(*made)

    return apart


def _part(net: TorchNetwork, value: Any, place: int) -> Any:
    if isinstance(value, list):
        return [_part(net, one, place) for one in value]
    complex_one = isinstance(value, TorchComplex) or (
        isinstance(value, net.torch.Tensor) and value.is_complex()
    )
    return both(net, value)[place] if complex_one else value


def negated(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    return net.apply("Neg", args[0])


def kept(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return args[0]


def reduced(kind: str) -> Converter:
    """Sums and means over dimensions."""

    def convert(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
        rank = len(net.shape(args[0]))
        given = args[1] if len(args) > 1 else kwargs.get("dim")
        axes = [int(a) % rank for a in (given if isinstance(given, list | tuple) else [given])] \
            if given is not None else list(range(rank))
        keep = int(len(result(node)) == rank)
        return net.apply(kind, args[0], net.ints(axes), keepdims=keep)

    return convert


MOVES = {name: each(convert) for name, convert in SHAPES.items() if name != "getitem"}
COMPLEX: dict[str, Converter] = {
    **MOVES,
    "getitem": SHAPES["getitem"],
    **dict.fromkeys(("clone", "contiguous", "detach", "alias", "lift_fresh_copy", "resolve_conj"), kept),
    "mul": multiplied,
    "div": divided,
    "add": summed("Add"),
    "sub": summed("Sub"),
    "neg": each(negated),
    "sum": each(reduced("ReduceSum")),
    "mean": each(reduced("ReduceMean")),
    "abs": magnitude,
    "angle": angle,
    **dict.fromkeys(("conj", "_conj", "conj_physical", "_conj_physical"), conjugate),
    "real": part(0),
    "imag": part(1),
    "complex": joined,
    **dict.fromkeys(("view_as_real", "view_as_real_copy"), as_real),
    **dict.fromkeys(("view_as_complex", "view_as_complex_copy"), as_complex),
}
