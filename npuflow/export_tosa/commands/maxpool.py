"""The largest of a window."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.export_tosa.builder import COMMANDS, TosaBuilder
from npuflow.export_tosa.tensors import IGNORE, TosaRefusal
from npuflow.export_tosa.windows import fitted, window_of
from npuflow.whole.export_c.whole import TensorCommand


@COMMANDS.entry
def maxpool(b: TosaBuilder, run: Sequence[TensorCommand]) -> int:
    c = run[0]
    if tuple(c["dilation"]) != (1, 1):
        raise TosaRefusal("a pool with dilation")
    x = b.views.read(c, "x", c["x_dims"], (0, 2, 3, 1), spread=True)
    window = window_of(c)
    x, pads = fitted(b.t, x, window, (c["out_height"], c["out_width"]))
    if any(pad >= window["kernel"][k // 2] for k, pad in enumerate(pads)):
        raise TosaRefusal("a pool with windows outside of the image")
    dims = (*c["x_dims"][:2], c["out_height"], c["out_width"])
    attributes = {"kernel": window["kernel"], "stride": window["stride"], "pad": pads, "nan_mode": IGNORE}
    made = b.t.op("MAX_POOL2D", [x], tuple(dims[k] for k in (0, 2, 3, 1)), x.dtype, **attributes)
    b.views.write(c, b.t.clip(made, c["lo"], c["hi"], c["y_type"]), dims, (0, 2, 3, 1))
    return 1
