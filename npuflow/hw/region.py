"""Regions: the bytes that a command reads or writes, as strided boxes, by which hazards are judged."""

from __future__ import annotations

from dataclasses import dataclass

LOCAL, DATA, CONST = "LOCAL", "DATA", "CONST"


@dataclass(frozen=True, slots=True)
class Region:
    """A strided box: `size` bytes at address + sum(i * strides) for i < dims. `name` is the operand's."""

    name: str
    space: str
    write: bool
    address: int
    size: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def span(self) -> tuple[int, int]:
        """First byte, and one past the last."""
        lo = hi = self.address
        for d, s in zip(self.dims, self.strides, strict=True):
            reach = (d - 1) * s
            lo, hi = lo + min(reach, 0), hi + max(reach, 0)
        return lo, hi + self.size

    @property
    def aligned(self) -> bool:
        return self.address % self.size == 0 and all(s % self.size == 0 for s in self.strides)

    @property
    def distinct(self) -> bool:
        """No byte belongs to two elements, as far as nesting the dimensions can show."""
        reach = self.size
        for stride, d in sorted((abs(s), d) for d, s in zip(self.dims, self.strides, strict=True) if d > 1):
            if stride < reach:
                return False
            reach = stride * (d - 1) + reach
        return True

    def squeezed(self) -> Region:
        """The same bytes in as few dimensions as possible: runs merged, no
        broadcasts, no negative strides."""
        address = self.address
        dims = []
        for d, s in zip(self.dims, self.strides, strict=True):
            if d > 1 and s:
                address += (d - 1) * s if s < 0 else 0
                dims.append((abs(s), d))
        size = self.size
        rest: list[tuple[int, int]] = []
        for s, d in sorted(dims):
            if s <= size and not rest:
                size = s * (d - 1) + size
            elif rest and s == rest[-1][0] * rest[-1][1]:
                rest[-1] = (rest[-1][0], rest[-1][1] * d)
            else:
                rest.append((s, d))
        rest.reverse()
        return Region(
            self.name, self.space, self.write, address, size,
            tuple(d for _, d in rest), tuple(s for s, _ in rest),
        )


def dense(dims: tuple[int, ...], size: int) -> tuple[int, ...]:
    """C-order byte strides."""
    strides = [size] * len(dims)
    for i in range(len(dims) - 2, -1, -1):
        strides[i] = strides[i + 1] * dims[i + 1]
    return tuple(strides)
