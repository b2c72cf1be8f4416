"""Integer matrix products: onnxruntime's unsigned 8-bit kernel, which adds 16-bit products
into 32 bits and never saturates.

Operands are bytes with zero points; signed ones are shifted by 128 first, since signed kernels may
saturate pairs of products silently. The kernel is probed with saturating operands before it is
trusted; float64 is the fallback.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.onnx.session import opened

Bytes = npt.NDArray[np.uint8]
Sums = npt.NDArray[np.int32]


MatrixProduct = Callable[[], None]
"""out[...] = (a - a_zero) @ (b - b_zero) modulo 2^32, at every call, from the arrays it was made for."""


def product(a: Bytes, a_zero: int, b: Bytes, b_zero: int, out: Sums) -> MatrixProduct:
    """A product bound to its arrays (all C-contiguous)."""
    if not fast():
        return _Float64(a, a_zero, b, b_zero, out)
    return _Session(a, a_zero, b, b_zero, out)


@cache
def fast() -> bool:
    """Whether the integer kernel of this machine is exact where others saturate, for
    shapes that take every code path."""
    try:
        rng = np.random.default_rng(0)
        for m, k, n in ((1, 4, 1), (3, 64, 5), (16, 37, 33), (5, 300, 129), (64, 128, 64)):
            for low in (0, 240):
                a, b = (rng.integers(low, 256, s).astype(np.uint8) for s in ((2, m, k), (2, k, n)))
                a[0], b[0] = 255, 255
                out = np.zeros((2, m, n), np.int32)
                for za, zb in ((0, 0), (128, 3), (255, 128)):
                    _Session(a, za, b, zb, out)()
                    want = np.zeros_like(out)
                    _Float64(a, za, b, zb, want)()
                    if not np.array_equal(out, want):
                        return False
        return True
    except Exception:  # whatever is wrong with the library here, the fallback works
        return False


class _Float64:
    def __init__(self, a: Bytes, a_zero: int, b: Bytes, b_zero: int, out: Sums) -> None:
        self.a, self.a_zero, self.b, self.b_zero, self.out = a, a_zero, b, b_zero, out

    def __call__(self) -> None:
        # 255 * 255 * k < 2^53 for any k that fits a memory
        total = (self.a.astype(np.float64) - self.a_zero) @ (self.b.astype(np.float64) - self.b_zero)
        self.out[...] = total.astype(np.int64).astype(np.int32)


class _Session:
    def __init__(self, a: Bytes, a_zero: int, b: Bytes, b_zero: int, out: Sums) -> None:
        import onnxruntime as ort

        self.session = _session()
        self.binding = self.session.io_binding()
        self.kept = (a, b, out)
        scalars = (np.array(a_zero, np.uint8), np.array(b_zero, np.uint8))
        for name, array in zip(("a", "b", "az", "bz"), (a, b, *scalars), strict=True):
            self.binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
        value = ort.OrtValue.ortvalue_from_numpy(out)
        if value.data_ptr() != out.ctypes.data:
            raise RuntimeError("onnxruntime copies arrays that it is given to write")
        self.binding.bind_ortvalue_output("y", value)

    def __call__(self) -> None:
        self.session.run_with_iobinding(self.binding)


@cache
def _session() -> Any:
    """One session for every shape: MatMulInteger with all operands as inputs."""
    from onnx import TensorProto, helper

    def tensor(name: str, kind: int, rank: int | None) -> Any:
        return helper.make_tensor_value_info(name, kind, None if rank is None else [None] * rank)

    node = helper.make_node("MatMulInteger", ["a", "b", "az", "bz"], ["y"])
    byte = TensorProto.UINT8
    inputs = [tensor("a", byte, None), tensor("b", byte, None), tensor("az", byte, 0), tensor("bz", byte, 0)]
    graph = helper.make_graph([node], "product", inputs, [tensor("y", TensorProto.INT32, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return opened(bytes(model.SerializeToString()))
