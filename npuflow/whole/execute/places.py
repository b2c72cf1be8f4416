"""Kernels that go place by place through images with channels innermost."""

from __future__ import annotations

from npuflow.base.compiled import compiled


@compiled
def _copy(x, y):  # type: ignore[no-untyped-def]
    """A slice: numba's own assignment compiles the text of an error about shapes with it, for seconds."""
    for i in range(x.shape[0]):
        y[i] = x[i]


@compiled
def pad(x, x0, strides, dims, origin, size, groups, deep, fill, out):  # type: ignore[no-untyped-def]
    """out[r, c, g, :deep] = x at row r + origin, column c + origin: what the windows reach, `fill` outside;
    of every group its channels, then whatever lies there (weights there are 0)."""
    channels, height, width = dims
    per = channels // groups
    pitch = groups * deep
    plain = strides[0] == 1 and (per == deep or groups == 1)
    for r in range(size[0]):
        sy = r + origin[0]
        to = r * size[1] * pitch
        if sy < 0 or sy >= height:
            out[to : to + size[1] * pitch] = fill
            continue
        left = min(max(0, -origin[1]), size[1])
        right = max(left, min(size[1], width - origin[1]))
        out[to : to + left * pitch] = fill
        out[to + right * pitch : to + size[1] * pitch] = fill
        at = x0 + sy * strides[1] + (left + origin[1]) * strides[2]
        if plain and pitch == channels and strides[2] == channels:
            count = (right - left) * pitch
            _copy(x[at : at + count], out[to + left * pitch : to + left * pitch + count])
        elif plain:
            for c in range(right - left):
                dst = to + (left + c) * pitch
                src = at + c * strides[2]
                _copy(x[src : src + channels], out[dst : dst + channels])
        else:
            for c in range(right - left):
                for g in range(groups):
                    dst = to + (left + c) * pitch + g * deep
                    src = at + c * strides[2] + g * per * strides[0]
                    for k in range(per):
                        out[dst + k] = x[src + k * strides[0]]
