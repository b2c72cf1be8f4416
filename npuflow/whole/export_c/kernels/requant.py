"""Sums as codes: bias, multiplier, rounding, clamp."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from npuflow.whole.export_c.kernel import KERNELS, Kernel, SourceWriter, elements
from npuflow.whole.export_c.layer import finish_of
from npuflow.whole.export_c.whole import TensorCommand

# d: extents, strides of y; then what the channel is of a flat place: (place / inner) % channels
TEXT = r"""
static NN_KERNEL void $NAME(const $S *acc, $Y *y, const int32_t *d, const int64_t *bias, const int64_t *m,
    const int32_t *lo,
    const int32_t *hi, int32_t n, int32_t zero)
{
    int32_t i0, i1, i2, i3, at = 0;
    for (i0 = 0; i0 < d[0]; i0++)
        for (i1 = 0; i1 < d[1]; i1++)
            for (i2 = 0; i2 < d[2]; i2++)
                for (i3 = 0; i3 < d[3]; i3++, at++) {
                    const int32_t c = at / d[8] % d[9];
                    const int64_t v = acc[at] + bias[c * d[10]];
                    y[i0 * d[4] + i1 * d[5] + i2 * d[6] + i3 * d[7]] =
                        ($Y)nn_clamp(NN_SCALE_$WAY(v, m[c * d[11]], n) + zero, lo[c * d[12]], hi[c * d[12]]);
                }
}
"""


@KERNELS.entry
class RequantKernel(Kernel):
    def write(self, w: SourceWriter, run: Sequence[TensorCommand]) -> int:
        c = run[0]
        dims, axis = tuple(c["dims"]), c["channel_axis"]
        sums = w.storage(c["acc"])
        f = finish_of(w, c, dims[axis])
        found = f.scale(w.peaks[sums.number])
        way = "n" if found.way == "f" else found.way
        own = w.function(f"requant{way}", TEXT.replace("$WAY", way), S=c["acc_type"], Y=c["y_type"])
        d = [*dims, *elements(c, "y"), prod(dims[axis + 1 :]), dims[axis], *f.steps]
        w.call(
            own,
            w.pointer(c["acc"], c["acc_type"]),
            w.pointer(c["y"], c["y_type"]),
            w.vector(d),
            *f.arguments(w, found.gain),
            found.shift,
            f.zero,
        )
        return 1
