"""Products with weights in groups of float16 scales that a target has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from npuflow.base.tables import Config, Range


@dataclass(frozen=True)
class GroupProduct(Config):
    """A product of matrices with weights in groups, which the array turns into numbers as it loads them:
    codes with a float16 scale a group, and maybe a zero point or a minimum. Sums over int16 have 64 bits,
    those over floats are added by the chunk rule."""

    activations: Literal["int16", "bfloat16", "float16"]
    weights: Annotated[tuple[Literal[4, 8], ...], Range(4, 8)] = (4, 8)       # bits of a code
    groups: tuple[Literal[32, 64, 128], ...] = (32, 64, 128)    # consecutive input channels of a group


def bits_beside(products: Sequence[GroupProduct], activations: str, bits: int, group: int) -> int:
    """Bits that codes of so many have in a product with groups of that size, beside activations of a type;
    0: there is no such product."""
    found = [
        width for one in products for width in one.weights
        if one.activations == activations and group in one.groups and bits <= width
    ]
    return min(found, default=0)
