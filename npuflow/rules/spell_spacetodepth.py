"""SpaceToDepth with a mode: that of DepthToSpace's inverse puts the channel before the place in the block."""

from __future__ import annotations

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class SpellSpaceToDepth(Decomposition):
    triggers = ("host:spacetodepth",)
    makes = ("spacetodepth", "reshape", "transpose")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        x, size = parts.input(0), parts.integer("blocksize", 1)
        mode = parts.attribute("mode", b"DCR")
        mode = mode.decode() if isinstance(mode, bytes) else mode
        if mode not in ("DCR", "CRD"):
            return f"the mode {mode}"
        y = parts.op("spacetodepth", (x,), blocksize=size)
        if mode == "DCR":
            return (y,)
        n, depth, height, width = parts.shape(y)
        rows = parts.reshape(y, (n, size * size, depth // (size * size), height * width))
        return (parts.reshape(parts.transpose(rows, (0, 2, 1, 3)), (n, depth, height, width)),)
