"""What the normalisations share: the deviation from a mean over some axes, divided
by its root mean square."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npuflow.rules._parts import Parts

NORM = ("reducemean", "sub", "mul", "add", "sqrt", "div", "reshape")      # operators that they make


@dataclass(frozen=True)
class Normalized:
    """The result, and the mean and standard deviation by which it was made."""

    y: str
    mean: str
    deviation: str


def normalized(
    parts: Parts, x: str, axes: Sequence[int], epsilon: float, outside: bool = False
) -> Normalized:
    """(x - mean) / sqrt(variance + epsilon); `outside`: epsilon is added to the root."""
    mean = parts.reduce("mean", x, axes, what="mean")
    centred = parts.sub(x, mean, "centred")
    deviation = root_mean_square(parts, centred, axes, epsilon, outside)
    return Normalized(parts.div(centred, deviation, "normalized"), mean, deviation)


def root_mean_square(parts: Parts, x: str, axes: Sequence[int], epsilon: float, outside: bool = False) -> str:
    """sqrt(mean(x * x) + epsilon)."""
    power = parts.reduce("mean", parts.mul(x, x, "square"), axes, what="variance")
    if outside:
        return parts.add(parts.op("sqrt", (power,), "root"), epsilon, "deviation")
    return parts.op("sqrt", (parts.add(power, epsilon, "offset"),), "deviation")


def scaled(parts: Parts, x: str, scale: str, bias: str) -> str:
    """x * scale + bias, either of which may be absent."""
    if scale:
        x = parts.mul(x, scale, "scaled")
    return parts.add(x, bias, "shifted") if bias else x


def per_channel(parts: Parts, value: str, rank: int) -> str:
    """A value of one number per channel in the shape that meets a tensor of this rank."""
    return parts.reshape(value, (parts.type(value).size, *(1,) * (rank - 2)))
