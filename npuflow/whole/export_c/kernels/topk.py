"""The largest or smallest elements along a dimension, and where they are."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.whole.export_c.kernel import KERNELS, Kernel, SourceWriter, elements
from npuflow.whole.export_c.whole import TensorCommand

# An element stands behind the one that was found before it: no marks are needed.
TEXT = r"""
static NN_KERNEL void $NAME(const $X *x, $Y *y, $P *at, const int32_t *d, int32_t count, int32_t sign,
    int32_t last)
{
    int32_t a, i, k, r;
    for (a = 0; a < d[0]; a++)
        for (i = 0; i < d[2]; i++) {
            const $X *p = x + (a * d[3] + i * d[5]);
            int32_t before = -1, value = 0;
            for (k = 0; k < count; k++) {
                int32_t found = -1, best = 0;
                for (r = 0; r < d[1]; r++) {
                    const int32_t v = sign * (int32_t)p[r * d[4]];
                    const int32_t later = last ? r < before : r > before;
                    if (before >= 0 && (v > value || (v == value && !later)))
                        continue;
                    if (found < 0 || v > best || (last && v == best)) {
                        found = r;
                        best = v;
                    }
                }
                before = found;
                value = best;
                if (y)
                    y[a * d[6] + k * d[7] + i * d[8]] = ($Y)(sign * best);
                if (at)
                    at[a * d[9] + k * d[10] + i * d[11]] = ($P)found;
            }
        }
}
"""


@KERNELS.entry
class TopKKernel(Kernel):
    def write(self, w: SourceWriter, run: Sequence[TensorCommand]) -> int:
        c = run[0]
        types = {
            name: c[f"{key}_type"] if key in c.fields else c["x_type"]
            for name, key in (("X", "x"), ("Y", "y"), ("P", "at"))
        }
        steps = [n for key in ("x", "y", "at") for n in (elements(c, key) if key in c.fields else (0, 0, 0))]
        given = [w.pointer(c[key], c[f"{key}_type"]) if key in c.fields else "0" for key in ("x", "y", "at")]
        own = w.function("topk", TEXT, **types)
        sign = 1 if c["maximum"] else -1
        w.call(own, *given, w.vector([*c["dims"], *steps]), c["count"], sign, c["last"])
        return 1
