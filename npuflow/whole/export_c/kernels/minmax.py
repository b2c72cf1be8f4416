"""The smaller or the larger of two operands."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.whole.export_c.elementwise import two
from npuflow.whole.export_c.kernel import KERNELS, Kernel, SourceWriter
from npuflow.whole.export_c.whole import TensorCommand


@KERNELS.entry
class MinMaxKernel(Kernel):
    def write(self, w: SourceWriter, run: Sequence[TensorCommand]) -> int:
        c = run[0]
        sign = ">" if c["maximum"] else "<"
        two(
            w,
            c,
            "max" if c["maximum"] else "min",
            ("a", "b"),
            "int32_t lo, int32_t hi",
            f"nn_clamp(u {sign} v ? u : v, lo, hi)",
            [c["lo"], c["hi"]],
        )
        return 1
