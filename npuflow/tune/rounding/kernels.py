"""A compiled loop that gathers columns from an input into fixed point."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuflow.base.compiled import compiled

TOP = 2**15 - 1                           # of what lies on a grid


@compiled
def _fixed(real: Any, scale: Any) -> Any:
    """A number on the grid: half to even, what lies beyond it becomes its end, and NaN zero."""
    scaled = real * scale
    if scaled != scaled:
        return np.int16(0)
    return np.int16(np.rint(min(max(scaled, np.float32(-TOP)), np.float32(TOP))))


@compiled
def gather(x: Any, index: Any, step: int, scale: Any, out: Any) -> None:
    """out[group, place, channel * taps + tap] of a flat float32 input, -1 in `index` [places, taps] being
    zero. A channel of which more numbers are looked at than it has is put on the grid first, as a whole."""
    groups, places, terms = out.shape
    taps = index.shape[1]
    channels = terms // taps
    if step <= index.size and index.max() < step:          # channels lie one after the other
        _gather_channels(x, index, step, scale, out)
        return
    for g in range(groups):
        for c in range(channels):
            base, into = (g * channels + c) * step, c * taps
            for p in range(places):
                for t in range(taps):
                    at = index[p, t]
                    out[g, p, into + t] = _fixed(x[base + at], scale) if at >= 0 else np.int16(0)


@compiled
def _gather_channels(x: Any, index: Any, step: int, scale: Any, out: Any) -> None:
    """As `gather`."""
    groups, places, terms = out.shape
    taps = index.shape[1]
    channels = terms // taps
    channel = np.zeros(step + 1, np.int16)                # and a zero behind it, for padding
    at = np.where(index < 0, step, index).astype(np.uint32)
    for g in range(groups):
        for c in range(channels):
            base, into = (g * channels + c) * step, c * taps
            for i in range(step):
                channel[i] = _fixed(x[base + i], scale)
            for p in range(places):
                for t in range(taps):
                    out[g, p, into + t] = channel[at[p, t]]


@compiled
def taken(x: Any, index: Any, step: int, out: Any) -> None:
    """As `gather`, of reals as they are."""
    groups, places, terms = out.shape
    taps = index.shape[1]
    channels = terms // taps
    for g in range(groups):
        for c in range(channels):
            base, into = (g * channels + c) * step, c * taps
            for p in range(places):
                for t in range(taps):
                    at = index[p, t]
                    out[g, p, into + t] = x[base + at] if at >= 0 else np.float32(0)


@compiled
def given_back(slope: Any, index: Any, step: int, out: Any) -> None:
    """The transpose of `taken`: every number is added to where it was taken from in the flat `out`."""
    groups, places, terms = slope.shape
    taps = index.shape[1]
    channels = terms // taps
    for g in range(groups):
        for c in range(channels):
            base, into = (g * channels + c) * step, c * taps
            for p in range(places):
                for t in range(taps):
                    at = index[p, t]
                    if at >= 0:
                        out[base + at] += slope[g, p, into + t]
