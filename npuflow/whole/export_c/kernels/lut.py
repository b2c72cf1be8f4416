"""A function of one number: a table of all codes, or one interpolated in exact integers."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.whole.export_c.elementwise import one
from npuflow.whole.export_c.kernel import KERNELS, Kernel, SourceWriter
from npuflow.whole.export_c.whole import TensorCommand

LINE = r"""
static int64_t $NAME(const nn_int32 *t, int32_t d, int32_t bits, int32_t steps)
{
    const int32_t i = d >> bits, f = d & (((int32_t)1 << bits) - 1);
    const int64_t v = (int64_t)t[i] * (((int32_t)1 << bits) - f) + (int64_t)t[i + 1] * f
        + ((int64_t)1 << (steps - 1));
    return v >= 0 ? v >> steps : ~(~v >> steps);
}
"""


@KERNELS.entry
class LutKernel(Kernel):
    def write(self, w: SourceWriter, run: Sequence[TensorCommand]) -> int:
        c = run[0]
        if not c["bits"]:
            table = w.pointer(c["table"], c["y_type"])
            one(w, c, "table", "const $Y *t, int32_t base", "t[u - base]", [table, c["base"]])
            return 1
        line, steps = w.function("line", LINE), c["bits"] + c["fraction"]
        one(
            w,
            c,
            "slope",
            "const nn_int32 *t, int32_t base, int32_t bits, int32_t steps, int32_t lo, int32_t hi",
            f"nn_clamp({line}(t, u - base, bits, steps), lo, hi)",
            [w.pointer(c["table"], "int32"), c["base"], c["bits"], steps, c["lo"], c["hi"]],
        )
        return 1
