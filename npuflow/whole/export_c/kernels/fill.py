"""One number in every place."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.whole.export_c.kernel import KERNELS, Kernel, SourceWriter, elements, merged
from npuflow.whole.export_c.whole import TensorCommand

TEXT = r"""
static NN_KERNEL void $NAME($Y *y, const int32_t *d, int32_t value)
{
    int32_t i0, i1, i2, i3, i4, i;
    for (i0 = 0; i0 < d[0]; i0++)
        for (i1 = 0; i1 < d[1]; i1++)
            for (i2 = 0; i2 < d[2]; i2++)
                for (i3 = 0; i3 < d[3]; i3++)
                    for (i4 = 0; i4 < d[4]; i4++) {
                        const int32_t to = i0 * d[6] + i1 * d[7] + i2 * d[8] + i3 * d[9] + i4 * d[10];
                        for (i = 0; i < d[5]; i++)
                            y[to + i * d[11]] = ($Y)value;
                    }
}
"""


@KERNELS.entry
class FillKernel(Kernel):
    def write(self, w: SourceWriter, run: Sequence[TensorCommand]) -> int:
        c = run[0]
        dims = merged(c["dims"], elements(c, "y"), rank=6)
        own = w.function("fill", TEXT, Y=c["y_type"])
        w.call(own, w.pointer(c["y"], c["y_type"]), w.vector(dims), c["value"])
        return 1
