"""A sum of two scaled operands, rounded once."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.whole.export_c.elementwise import linear
from npuflow.whole.export_c.kernel import KERNELS, Kernel, SourceWriter
from npuflow.whole.export_c.whole import TensorCommand


@KERNELS.entry
class AddKernel(Kernel):
    def write(self, w: SourceWriter, run: Sequence[TensorCommand]) -> int:
        linear(w, run[0], "add")
        return 1
