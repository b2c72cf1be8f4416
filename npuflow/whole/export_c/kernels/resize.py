"""Weighted sums of two rows and two columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.whole.export_c.elementwise import whole
from npuflow.whole.export_c.kernel import KERNELS, Kernel, SourceWriter, codes, elements, scale, spread
from npuflow.whole.export_c.whole import TensorCommand

# d: n, c, out height, out width; strides of x, of y; origin
TEXT = r"""
static NN_KERNEL void $NAME(const $X *restrict x, $Y *restrict y, const int32_t *d, const nn_int32 *rows,
    const nn_int32 *columns,
    int64_t m, int32_t n, int32_t zx, int32_t zero, int32_t lo, int32_t hi)
{
    int32_t b, oy, ox, c;
    for (b = 0; b < d[0]; b++)
        for (oy = 0; oy < d[2]; oy++) {
            const nn_int32 *s = rows + 4 * oy;
            for (ox = 0; ox < d[3]; ox++) {
                const nn_int32 *t = columns + 4 * ox;
                const $X *p = x + (b * d[4] + (s[0] + d[12]) * d[6]), *q = x + (b * d[4] + (s[1]
                    + d[12]) * d[6]);
                const int32_t i = (t[0] + d[13]) * d[7], j = (t[1] + d[13]) * d[7];
                for (c = 0; c < d[1]; c++) {
                    const int64_t upper = (int64_t)t[2] * (p[i + c * d[5]] - zx) + (int64_t)t[3] * (p[j
                        + c * d[5]] - zx);
                    const int64_t lower = (int64_t)t[2] * (q[i + c * d[5]] - zx) + (int64_t)t[3] * (q[j
                        + c * d[5]] - zx);
                    const int64_t v = s[2] * upper + s[3] * lower;
                    y[b * d[8] + c * d[9] + oy * d[10] + ox * d[11]] =
                        ($Y)nn_clamp(NN_SCALE_$WAY(v, m, n) + zero, lo, hi);
                }
            }
        }
}
"""


@KERNELS.entry
class ResizeKernel(Kernel):
    def write(self, w: SourceWriter, run: Sequence[TensorCommand]) -> int:
        c = run[0]
        tables = [w.array_of(c[name]) for name in ("rows", "columns")]
        if any(t is None for t in tables):
            raise ModelError("RESIZE: its tables are no constants", code="NF-PROGRAM-043")
        peak = spread(c, "x")
        for t in tables:
            assert t is not None
            peak *= int(np.abs(t.reshape(-1, 4)[:, 2:].astype(np.int64)).sum(1).max())
        if peak >= 1 << 62:
            raise ModelError("RESIZE: its sums exceed 64 bits", code="NF-PROGRAM-044")
        found = scale(peak, c["multiplier"], 2 * c["weight_bits"] + c["shift"])
        way = "n" if found.way == "f" else found.way
        own = w.function(f"resize{way}", TEXT.replace("$WAY", way), X=c["x_type"], Y=c["y_type"])
        sizes = [*c["x_dims"][:2], c["out_height"], c["out_width"]]
        ends = w.operands(c, [*sizes, *elements(c, "x"), *elements(c, "y"), *c["origin"]])
        places = [w.pointer(c[name], "int32") for name in ("rows", "columns")]
        w.call(own, *ends, *places, whole(found.factor), found.shift, *codes(c))
        return 1
