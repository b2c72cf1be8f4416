"""A network for every TFLite operator that computes, in the forms of its options."""

from __future__ import annotations

from functools import partial

import numpy as np

from tests.frontends.tflite_cases import CONV, F2, F4, WINDOW, Cases, add, f32, i32

ARITHMETIC: Cases = {}
case = partial(add, ARITHMETIC)

for kind in (
    "ABS",
    "CEIL",
    "COS",
    "ELU",
    "EXP",
    "FLOOR",
    "HARD_SWISH",
    "LOGISTIC",
    "NEG",
    "RELU",
    "RELU6",
    "RELU_N1_TO_1",
    "RELU_0_TO_1",
    "ROUND",
    "SIGN",
    "SIN",
    "SQUARE",
    "TANH",
):
    options = {
        "ABS": "AbsOptions",
        "EXP": "ExpOptions",
        "HARD_SWISH": "HardSwishOptions",
        "SQUARE": "SquareOptions",
    }
    case(kind, kind, [F4], F4, options.get(kind, ""))
for kind in ("LOG", "SQRT", "RSQRT"):
    case(kind, kind, [F4], F4, positive=True)
case("GELU", "GELU", [F4], F4, "GeluOptions", approximate=False)
case("GELU tanh", "GELU", [F4], F4, "GeluOptions", approximate=True)
case("LEAKY_RELU", "LEAKY_RELU", [F4], F4, "LeakyReluOptions", alpha=0.3)
case("PRELU", "PRELU", [F4], F4, constants=(f32(1, 1, 8),), before=True)
for kind, options in (
    ("ADD", "AddOptions"),
    ("SUB", "SubOptions"),
    ("MUL", "MulOptions"),
    ("DIV", "DivOptions"),
):
    case(kind, kind, [F4, F4], F4, options, fusedActivationFunction=1)
    case(
        f"{kind} constant",
        kind,
        [F4],
        F4,
        options,
        constants=(f32(8) + 3,),
        before=True,
        fusedActivationFunction=0,
    )
    case(
        f"{kind} broadcast",
        kind,
        [F4, (1, 1, 1, 8)],
        F4,
        options,
        before=True,
        positive=True,
        fusedActivationFunction=3,
    )
case("ADD of a vector", "ADD", [F4, (8,)], F4, "AddOptions", before=True, fusedActivationFunction=0)
for kind in ("MAXIMUM", "MINIMUM"):
    case(kind, kind, [F4, F4], F4, "MaximumMinimumOptions")
case("POW", "POW", [F4, F4], F4, "PowOptions", positive=True)
case("SQUARED_DIFFERENCE", "SQUARED_DIFFERENCE", [F4, F4], F4, "SquaredDifferenceOptions")
case("FLOOR_DIV", "FLOOR_DIV", [F4, F4], F4, "FloorDivOptions", positive=True)
case("FLOOR_MOD", "FLOOR_MOD", [F4, F4], F4, "FloorModOptions", positive=True)
case("FLOOR_MOD whole", "FLOOR_MOD", [F2, F2], F2, "FloorModOptions", given="int32", dtype="int32")
case("ADD_N", "ADD_N", [F2, F2, F2], F2, "AddNOptions")
for kind in ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"):
    case(kind, kind, [F2, F2], F2, given="int32", dtype="bool")
for kind in ("LOGICAL_AND", "LOGICAL_OR"):
    case(kind, kind, [F2, F2], F2, given="bool", dtype="bool")
case("LOGICAL_NOT", "LOGICAL_NOT", [F2], F2, given="bool", dtype="bool")
case("SELECT_V2", "SELECT_V2", [F4], F4, constants=(f32(*F4), f32(*F4)), given="bool")
case("SELECT", "SELECT", [F4], F4, constants=(f32(*F4), f32(*F4)), given="bool")
case("CAST", "CAST", [F2], F2, "CastOptions", given="int32", dtype="float32", inDataType=2, outDataType=0)

case(
    "CONV_2D same",
    "CONV_2D",
    [F4],
    (1, 2, 6, 5),
    "Conv2DOptions",
    (f32(5, 3, 3, 8), f32(5)),
    padding=0,
    **CONV,
)
case(
    "CONV_2D valid",
    "CONV_2D",
    [F4],
    (1, 1, 4, 5),
    "Conv2DOptions",
    (f32(5, 3, 3, 8), f32(5)),
    padding=1,
    **CONV,
)
case(
    "CONV_2D groups",
    "CONV_2D",
    [F4],
    (1, 2, 6, 6),
    "Conv2DOptions",
    (f32(6, 3, 3, 4), f32(6)),
    padding=0,
    **CONV,
)
dilated = {**CONV, "strideH": 1, "dilationHFactor": 2, "dilationWFactor": 2}
case(
    "CONV_2D dilated",
    "CONV_2D",
    [F4],
    (1, 4, 6, 5),
    "Conv2DOptions",
    (f32(5, 3, 3, 8), f32(5)),
    padding=0,
    **dilated,
)
for times in (1, 2):
    case(
        f"DEPTHWISE_CONV_2D x{times}",
        "DEPTHWISE_CONV_2D",
        [F4],
        (1, 2, 3, 8 * times),
        "DepthwiseConv2DOptions",
        (f32(1, 3, 3, 8 * times), f32(8 * times)),
        padding=0,
        **{**CONV, "strideW": 2},
        depthMultiplier=times,
    )
twice = {"strideH": 2, "strideW": 2, "fusedActivationFunction": 0, "version": 3}
for padding, size in ((0, (8, 12)), (1, (9, 13)), (0, (7, 11))):
    case(
        f"TRANSPOSE_CONV {padding} {size}",
        "TRANSPOSE_CONV",
        [F4],
        (1, *size, 5),
        "TransposeConvOptions",
        (i32(1, *size, 5), f32(5, 3, 3, 8)),
        first=True,
        padding=padding,
        **twice,
    )
pool = {**WINDOW, "filterHeight": 3, "filterWidth": 2}
for kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
    case(f"{kind} same", kind, [F4], (1, 2, 6, 8), "Pool2DOptions", padding=0, **pool)
    case(f"{kind} valid", kind, [F4], (1, 1, 5, 8), "Pool2DOptions", padding=1, **pool)
for kind, options in (
    ("RESIZE_BILINEAR", "ResizeBilinearOptions"),
    ("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions"),
):
    for corners, centres in ((False, False), (True, False), (False, True)):
        case(
            f"{kind} {corners} {centres}",
            kind,
            [F4],
            (1, 7, 9, 8),
            options,
            (i32(7, 9),),
            version=3,
            alignCorners=corners,
            halfPixelCenters=centres,
        )
case("SPACE_TO_DEPTH", "SPACE_TO_DEPTH", [F4], (1, 2, 3, 32), "SpaceToDepthOptions", blockSize=2)
case("DEPTH_TO_SPACE", "DEPTH_TO_SPACE", [F4], (1, 8, 12, 2), "DepthToSpaceOptions", blockSize=2)
case(
    "LOCAL_RESPONSE_NORMALIZATION",
    "LOCAL_RESPONSE_NORMALIZATION",
    [F4],
    F4,
    "LocalResponseNormalizationOptions",
    radius=2,
    bias=1.0,
    alpha=0.1,
    beta=0.5,
)
case(
    "SPACE_TO_BATCH_ND",
    "SPACE_TO_BATCH_ND",
    [F4],
    (4, 3, 3, 8),
    "SpaceToBatchNDOptions",
    (i32(2, 2), i32((1, 1), (0, 0))),
    before=True,
)
case(
    "BATCH_TO_SPACE_ND",
    "BATCH_TO_SPACE_ND",
    [(4, 3, 3, 2)],
    (1, 5, 6, 2),
    "BatchToSpaceNDOptions",
    (i32(2, 2), i32((0, 1), (0, 0))),
)

dense = {"fusedActivationFunction": 1, "weightsFormat": 0}
case(
    "FULLY_CONNECTED", "FULLY_CONNECTED", [F2], (3, 4), "FullyConnectedOptions", (f32(4, 5), f32(4)), **dense
)
case(
    "FULLY_CONNECTED of an image",
    "FULLY_CONNECTED",
    [F4],
    (1, 4),
    "FullyConnectedOptions",
    (f32(4, 192), f32(4)),
    before=True,
    **dense,
)
case(
    "FULLY_CONNECTED 3-d",
    "FULLY_CONNECTED",
    [(2, 3, 5)],
    (2, 3, 4),
    "FullyConnectedOptions",
    (f32(4, 5), f32(4)),
    keepNumDims=True,
    **dense,
)
case("BATCH_MATMUL", "BATCH_MATMUL", [(2, 3, 4), (2, 4, 5)], (2, 3, 5), "BatchMatMulOptions")
case(
    "BATCH_MATMUL turned",
    "BATCH_MATMUL",
    [(2, 4, 3), (2, 5, 4)],
    (2, 3, 5),
    "BatchMatMulOptions",
    adjX=True,
    adjY=True,
)
case("SOFTMAX", "SOFTMAX", [F4], F4, "SoftmaxOptions", before=True, beta=0.5)
case("LOG_SOFTMAX", "LOG_SOFTMAX", [F2], F2, "LogSoftmaxOptions")
case(
    "L2_NORMALIZATION", "L2_NORMALIZATION", [F4], F4, "L2NormOptions", before=True, fusedActivationFunction=0
)
case("CUMSUM", "CUMSUM", [F2], F2, "CumsumOptions", (np.int32(1),), exclusive=True, reverse=True)
for kind in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"):
    for axes, keep, out in (
        ((1, 2), False, (1, 8)),
        ((3,), True, (1, 4, 6, 1)),
        ((2,), False, (1, 4, 8)),
        ((3,), False, F4[:3]),
    ):
        case(
            f"{kind} {axes} {keep}",
            kind,
            [F4],
            out,
            "ReducerOptions",
            (i32(*axes),),
            before=True,
            keepDims=keep,
        )
for kind in ("REDUCE_ANY", "REDUCE_ALL"):
    case(kind, kind, [F2], (3,), "ReducerOptions", (i32(1),), given="bool", dtype="bool", keepDims=False)
case(
    "ARG_MAX",
    "ARG_MAX",
    [F4],
    F4[:3],
    "ArgMaxOptions",
    (np.int32(3),),
    dtype="int32",
    before=True,
    outputType=2,
)
case("ARG_MIN", "ARG_MIN", [F2], (3,), "ArgMinOptions", (np.int32(-1),), dtype="int32", outputType=2)
