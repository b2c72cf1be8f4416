"""Products of matrices: with a constant right side as a convolution of one tap, else term by term."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuflow.hw.elements import ELEMENTS
from npuflow.whole.export_c import convolution
from npuflow.whole.export_c.kernel import KERNELS, Kernel, SourceWriter, elements, spread
from npuflow.whole.export_c.layer import ConvLayer, finish_of
from npuflow.whole.export_c.whole import TensorCommand

# d: batch, m, k, n; strides of a, of b (three each)
TEXT = r"""
static NN_KERNEL void $NAME(const $A *a, const $B *b, $S *acc, const int32_t *d, int32_t za, int32_t zb,
    const nn_int32 *zeros,
    int32_t keep)
{
    int32_t q, m, k, n;
    for (q = 0; q < d[0]; q++)
        for (m = 0; m < d[1]; m++) {
            $S *to = acc + (q * d[1] + m) * d[3];
            for (n = 0; !keep && n < d[3]; n++)
                to[n] = 0;
            for (k = 0; k < d[2]; k++) {
                const $S u = ($S)a[q * d[4] + m * d[5] + k * d[6]] - za;
                const $B *row = b + (q * d[7] + k * d[8]);
                if (zeros)
                    for (n = 0; n < d[3]; n++)
                        to[n] += u * (($S)row[n * d[9]] - zeros[n]);
                else if (d[9] == 1)
                    for (n = 0; n < d[3]; n++)
                        to[n] += u * (($S)row[n] - zb);
                else
                    for (n = 0; n < d[3]; n++)
                        to[n] += u * (($S)row[n * d[9]] - zb);
            }
        }
}
"""


@KERNELS.entry
class MatMulKernel(Kernel):
    def write(self, w: SourceWriter, run: Sequence[TensorCommand]) -> int:
        c = run[0]
        batch, m, k, n = (c[i] for i in ("batch", "m", "k", "n"))
        if w.fused(run) == "product" and batch == 1 and self._as_convolution(w, c, run[1]):
            return 2
        a, b = elements(c, "a"), elements(c, "b")
        zeros = "b_zeros" in c.fields
        sums = w.storage(c["acc"])
        lo, hi = ELEMENTS[c["b_type"]].range
        right = hi - lo if zeros else spread(c, "b")
        peak = spread(c, "a") * right * k
        w.peaks[sums.number] = max(w.peaks.get(sums.number, 0), peak)
        own = w.function("matmul", TEXT, A=c["a_type"], B=c["b_type"], S=c["acc_type"])
        w.call(
            own,
            w.pointer(c["a"], c["a_type"]),
            w.pointer(c["b"], c["b_type"]),
            w.pointer(c["acc"], c["acc_type"]),
            w.vector([batch, m, k, n, *a, *b]),
            c["a_zero"],
            0 if zeros else c["b_zero"],
            w.pointer(c["b_zeros"], "int32") if zeros else "0",
            c["accumulate"],
        )
        return 1

    def _as_convolution(self, w: SourceWriter, c: TensorCommand, end: TensorCommand) -> bool:
        """A constant right side: rows of the left are pixels."""
        held = w.array_of(c["b"])
        if held is None or tuple(end["dims"][:2]) != (1, 1):
            return False
        m, k, n = (c[i] for i in ("m", "k", "n"))
        (_, am, ak), (_, bk, bn) = elements(c, "a"), elements(c, "b")
        flat = held.reshape(-1).astype(np.int64)
        weight = flat[np.arange(n)[:, None] * bn + np.arange(k) * bk]
        zero = c["b_zero"]
        if "b_zeros" in c.fields:
            zeros = w.array_of(c["b_zeros"])
            if zeros is None:
                return False
            zero = zeros.astype(np.int64)[:, None]
        *_, ym, yn = elements(end, "y")
        one = ConvLayer(
            x=c["a"],
            x_type=c["a_type"],
            x_zero=c["a_zero"],
            x_dims=(1, k, m, 1),
            x_strides=(0, ak, am, 0),
            y=end["y"],
            y_type=end["y_type"],
            y_dims=(1, n, m, 1),
            y_strides=(0, yn, ym, 0),
            weight=(weight - zero).reshape(n, k, 1, 1),
            groups=1,
            stride=(1, 1),
            dilation=(1, 1),
            origin=(0, 0),
            insert=(1, 1),
            finish=finish_of(w, end, n),
        )
        convolution.write(w, one)
        return True
