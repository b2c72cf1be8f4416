"""A network for every TFLite operator that only copies, reorders or selects elements."""

from __future__ import annotations

from functools import partial

import numpy as np

from tests.frontends.tflite_cases import F2, F4, Cases, add, i32

LAYOUT: Cases = {}
case = partial(add, LAYOUT)

case("RESHAPE", "RESHAPE", [F4], (24, 8), "ReshapeOptions", (i32(24, 8),), before=True, newShape=[24, 8])
case("SQUEEZE", "SQUEEZE", [(1, 1, 1, 8)], (1, 8), "SqueezeOptions", before=True, squeezeDims=[1, 2])
case("EXPAND_DIMS", "EXPAND_DIMS", [F2], (3, 1, 5), "ExpandDimsOptions", (np.int32(1),))
case("TRANSPOSE", "TRANSPOSE", [F4], (1, 8, 6, 4), "TransposeOptions", (i32(0, 3, 2, 1),), before=True)
case(
    "TRANSPOSE to NCHW", "TRANSPOSE", [F4], (1, 8, 4, 6), "TransposeOptions", (i32(0, 3, 1, 2),), before=True
)
for axis, out in ((3, (1, 4, 6, 16)), (-3, (1, 8, 6, 8))):
    case(
        f"CONCATENATION {axis}",
        "CONCATENATION",
        [F4, F4],
        out,
        "ConcatenationOptions",
        before=True,
        axis=axis,
        fusedActivationFunction=0,
    )
case("SPLIT", "SPLIT", [F4], [(1, 4, 6, 4)] * 2, "SplitOptions", (np.int32(3),), first=True, numSplits=2)
case(
    "SPLIT_V",
    "SPLIT_V",
    [F4],
    [(1, 4, 2, 8), (1, 4, 4, 8)],
    "SplitVOptions",
    (i32(2, 4), np.int32(2)),
    before=True,
    numSplits=2,
)
case("PACK", "PACK", [F2, F2], (3, 2, 5), "PackOptions", valuesCount=2, axis=1)
case("UNPACK", "UNPACK", [F4], [(1, 6, 8)] * 4, "UnpackOptions", before=True, num=4, axis=1)
pads = i32((0, 0), (1, 0), (0, 2), (3, 1))
case("PAD", "PAD", [F4], (1, 5, 8, 12), "PadOptions", (pads,), before=True)
case("PADV2", "PADV2", [F4], (1, 5, 8, 12), "PadV2Options", (pads, np.float32(1.5)), before=True)
case(
    "MIRROR_PAD reflect", "MIRROR_PAD", [F4], (1, 5, 8, 12), "MirrorPadOptions", (pads,), before=True, mode=0
)
case("MIRROR_PAD symmetric", "MIRROR_PAD", [F2], (4, 7), "MirrorPadOptions", (i32((1, 0), (1, 1)),), mode=1)
case("SLICE", "SLICE", [F4], (1, 2, 3, 7), "SliceOptions", (i32(0, 1, 2, 1), i32(1, 2, 3, -1)), before=True)
NO_MASKS = dict.fromkeys(("beginMask", "endMask", "ellipsisMask", "newAxisMask", "shrinkAxisMask"), 0)
case(
    "STRIDED_SLICE",
    "STRIDED_SLICE",
    [F4],
    (1, 2, 3, 8),
    "StridedSliceOptions",
    (i32(0, 1, 0, 0), i32(1, 4, 9, 8), i32(1, 2, 2, 1)),
    before=True,
    **NO_MASKS,
)
case(
    "STRIDED_SLICE masks",
    "STRIDED_SLICE",
    [F4],
    (4, 6, 4),
    "StridedSliceOptions",
    (i32(0, 0, 0, 1), i32(1, 0, 0, 8), i32(1, 1, 1, 2)),
    before=True,
    **NO_MASKS | {"endMask": 6, "beginMask": 6, "shrinkAxisMask": 1},
)
case(
    "STRIDED_SLICE back",
    "STRIDED_SLICE",
    [F2],
    (3, 5),
    "StridedSliceOptions",
    (i32(0, 0), i32(0, 0), i32(1, -1)),
    **NO_MASKS | {"beginMask": 3, "endMask": 3},
)
case(
    "STRIDED_SLICE last",
    "STRIDED_SLICE",
    [F2],
    (3,),
    "StridedSliceOptions",
    (i32(0, -1), i32(0, 0), i32(1, 1)),
    **NO_MASKS | {"beginMask": 1, "endMask": 1, "shrinkAxisMask": 2},
)
case(
    "STRIDED_SLICE ellipsis",
    "STRIDED_SLICE",
    [F4],
    (1, 4, 6),
    "StridedSliceOptions",
    (i32(0, 2), i32(0, 3), i32(1, 1)),
    before=True,
    **NO_MASKS | {"ellipsisMask": 1, "shrinkAxisMask": 2},
)
case("TILE", "TILE", [F2], (6, 5), "TileOptions", (i32(2, 1),))
case("BROADCAST_TO", "BROADCAST_TO", [(1, 5)], (3, 5), "BroadcastToOptions", (i32(3, 5),), version=2)
case("FILL", "FILL", [()], (2, 3), "FillOptions", (i32(2, 3),), first=True)
case("GATHER", "GATHER", [F4], (1, 4, 2, 8), "GatherOptions", (i32(3, 1),), before=True, axis=2)
case("GATHER_ND", "GATHER_ND", [F2], (2,), "GatherNdOptions", (i32((0, 1), (2, 2)),))
case("REVERSE_V2", "REVERSE_V2", [F4], F4, "ReverseV2Options", (i32(2),), before=True)
