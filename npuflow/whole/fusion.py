"""Which commands on whole tensors are one kernel, as the executor and exported C both take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from npuflow.whole.lowering import Emitted

Fusion = Literal["convolution", "product"]
PRODUCTS: dict[str, tuple[Fusion, str]] = {"CONV": ("convolution", "w"), "MATMUL": ("product", "b")}
"""By opcode the kernel, and the operand that has to be constant."""
ENDS = "REQUANT"


def fused(run: Sequence[Emitted], constant: Callable[[int], bool]) -> Fusion | None:
    """What the first two commands of a run are together: sums of products with a constant, which nothing was
    added to before, and the codes that are made of them. `constant`: whether that is at an address."""
    if len(run) < 2 or run[0][0] not in PRODUCTS or run[1][0] != ENDS:
        return None
    (opcode, fields), (_, end) = run[:2]
    kind, operand = PRODUCTS[opcode]
    address = fields[operand]
    assert isinstance(address, int), f"{opcode}.{operand} is no address"
    if fields.get("accumulate", 0) or end["acc"] != fields["acc"] or not constant(address):
        return None
    return kind


def by_channel(groups: int, channels: int, out: int) -> bool:
    """Whether a convolution makes every channel of the one before it alone."""
    return groups == channels == out
