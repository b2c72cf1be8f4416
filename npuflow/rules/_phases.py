"""Transposed convolutions by phase: results at one place between inputs are a
convolution with some of the taps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SubPixelPhase:
    """Results r, r + stride, ...: result number j of them sums x[j + offset] * w[tap], by rising offset."""

    taps: tuple[tuple[int, int], ...]     # (tap, offset)

    @property
    def window(self) -> tuple[int, int]:
        """The first and the last offset."""
        return self.taps[0][1], self.taps[-1][1]


def phases(kernel: int, stride: int, dilation: int, pad: int) -> tuple[SubPixelPhase, ...]:
    """One of every place r < stride, along one axis. `pad`: what the result is cut by in front."""
    found = []
    for r in range(stride):
        taps = [
            (k, (r + pad - k * dilation) // stride)
            for k in range(kernel)
            if (r + pad - k * dilation) % stride == 0
        ]
        found.append(SubPixelPhase(tuple(sorted(taps, key=lambda tap: tap[1]))))
    return tuple(found)
