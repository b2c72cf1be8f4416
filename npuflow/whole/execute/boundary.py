"""Float values into codes, compiled: half to even in float64, as `hw.numerics.quantize` says."""

from __future__ import annotations

import numpy as np

from npuflow.ir.codes import encode
from npuflow.ir.types import Array, FloatType, QuantType
from npuflow.kernels.compiled import compiled


def encoded(real: Array, quant: QuantType) -> Array:
    """The codes of a tensor with one scale, in C order."""
    if isinstance(quant, FloatType):
        return np.ascontiguousarray(encode(real, quant))
    out = np.empty(real.shape, quant.dtype)
    flat = np.ascontiguousarray(real).reshape(-1)
    _encode(flat, quant.scale[0], quant.zero_point[0], quant.lo, quant.hi, out.reshape(-1))
    return out


@compiled
def _encode(real, scale, zero, lo, hi, out):  # type: ignore[no-untyped-def]
    least, most = np.float64(lo - zero), np.float64(hi - zero)
    for i in range(real.shape[0]):
        v = np.rint(np.float64(real[i]) / scale)
        v = 0.0 if v != v else min(max(v, least), most)
        out[i] = np.int32(v) + zero
