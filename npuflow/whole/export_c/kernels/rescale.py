"""Codes of one scale as codes of another."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.whole.export_c.elementwise import one, whole
from npuflow.whole.export_c.kernel import KERNELS, Kernel, SourceWriter, scale, spread
from npuflow.whole.export_c.whole import TensorCommand


@KERNELS.entry
class RescaleKernel(Kernel):
    def write(self, w: SourceWriter, run: Sequence[TensorCommand]) -> int:
        c = run[0]
        found = scale(spread(c, "x"), c["multiplier"], c["shift"])
        kind = "int32_t" if found.factor < 1 << 31 else "int64_t"
        one(
            w,
            c,
            "rescale",
            f"int32_t zx, {kind} m, int32_t n, int32_t zero, int32_t lo, int32_t hi",
            f"nn_clamp(NN_SCALE_{found.way}(u - zx, m, n) + zero, lo, hi)",
            [c["x_zero"], whole(found.factor), found.shift, c["zero"], c["lo"], c["hi"]],
            found.way + ("" if kind == "int32_t" else "l"),
        )
        return 1
