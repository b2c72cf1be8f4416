"""A product of two operands with one multiplier."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.whole.export_c.elementwise import two, whole
from npuflow.whole.export_c.kernel import KERNELS, Kernel, SourceWriter, scale, spread
from npuflow.whole.export_c.whole import TensorCommand


@KERNELS.entry
class MulKernel(Kernel):
    def write(self, w: SourceWriter, run: Sequence[TensorCommand]) -> int:
        c = run[0]
        peak = spread(c, "a") * spread(c, "b")
        found = scale(peak, c["multiplier"], c["shift"])
        small = peak < 1 << 31
        product = "(u - za) * (v - zb)" if small else "(int64_t)(u - za) * (v - zb)"
        kind = "int32_t" if found.factor < 1 << 31 else "int64_t"
        two(
            w,
            c,
            "mul",
            ("a", "b"),
            f"int32_t za, int32_t zb, {kind} m, int32_t n, int32_t zero, int32_t lo, int32_t hi",
            f"nn_clamp(NN_SCALE_{found.way}({product}, m, n) + zero, lo, hi)",
            [c["a_zero"], c["b_zero"], whole(found.factor), found.shift, c["zero"], c["lo"], c["hi"]],
            found.way + ("" if small else "l") + ("" if kind == "int32_t" else "m"),
        )
        return 1
