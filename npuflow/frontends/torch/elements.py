"""ATen operators that work element by element, reductions among them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from npuflow.frontends.torch.network import TorchNetwork, TorchOperatorError, TorchValue
from npuflow.onnx.types import ELEMENTS as NUMBERS

Converter = Callable[[TorchNetwork, Any, list[Any], dict[str, Any]], Any]
UNARY = {
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "abs": "Abs",
    "neg": "Neg",
    "floor": "Floor",
    "ceil": "Ceil",
    "sin": "Sin",
    "cos": "Cos",
    "erf": "Erf",
    "reciprocal": "Reciprocal",
    "hardswish": "HardSwish",
    "mish": "Mish",
    "sign": "Sign",
    "logical_not": "Not",
    "softsign": "Softsign",
    "bitwise_not": "Not",
}
BINARY = {
    "mul": "Mul",
    "div": "Div",
    "maximum": "Max",
    "minimum": "Min",
    "eq": "Equal",
    "gt": "Greater",
    "lt": "Less",
    "ge": "GreaterOrEqual",
    "le": "LessOrEqual",
    "logical_and": "And",
    "logical_or": "Or",
    "pow": "Pow",
    "bitwise_and": "And",
    "bitwise_or": "Or",
}
SAME = (
    "dropout",
    "alias",
    "contiguous",
    "clone",
    "detach",
    "lift_fresh_copy",
    "feature_dropout",
    "alpha_dropout",
    "_assert_tensor_metadata",
    "detach_copy",
    "lift",
    "lift_fresh",
    "alias_copy",
)


def unary(kind: str, net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    return net.apply(kind, args[0])


def binary(kind: str, net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    a, b = typed(net, node, args[0]), typed(net, node, args[1])
    made = net.apply(kind, a, b)
    mode = kwargs.get("rounding_mode")
    if mode not in (None, "floor"):
        raise TorchOperatorError(f"rounding mode {mode}")
    return net.apply("Floor", made) if mode else made


def typed(net: TorchNetwork, node: Any, value: Any) -> Any:
    """An operand in the type that both have by torch's rules."""
    operands = [net[a] for a in node.args[:2]]
    if (
        isinstance(value, net.torch.Tensor)
        and value.dim() == 0
        and any(isinstance(o, TorchValue) for o in operands)
    ):
        value = value.item()
    kinds = {net.graph.type(o.name).dtype for o in operands if isinstance(o, TorchValue)}
    example = node.meta.get("val")
    wanted = str(getattr(example, "dtype", "torch.float32")).removeprefix("torch.")
    wanted = "float32" if wanted in ("float16", "bfloat16", "float64") else wanted
    if wanted == "bool":
        wanted = "float32" if "float32" in kinds or isinstance(value, float) else next(iter(kinds))
    if isinstance(value, TorchValue) and net.graph.type(value.name).dtype != wanted:
        return net.apply("Cast", value, to=NUMBERS[wanted])
    if not isinstance(value, TorchValue):
        array = net.array(value) if isinstance(value, net.torch.Tensor) else np.asarray(value)
        return net.constant(array.astype(wanted), net.names.get(id(value), ""))
    return value


def sum_of(sign: str, net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    a, b = typed(net, node, args[0]), typed(net, node, args[1])
    alpha = kwargs.get("alpha", 1)
    if alpha != 1:
        b = net.apply("Mul", b, float(alpha))
    return net.apply(sign, *((b, a) if node.target.__name__.startswith("rsub") else (a, b)))


def not_equal(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    return net.apply("Not", net.apply("Equal", typed(net, node, args[0]), typed(net, node, args[1])))


def clip(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    rows = [*args[1:], None, None][:2]
    lo, hi = kwargs.get("min", rows[0]), kwargs.get("max", rows[1])
    if node.target.__name__.startswith("clamp_max"):
        lo, hi = None, rows[0]
    dtype = net.graph.type(args[0].name).dtype
    ends = ["" if one is None else net.constant(np.asarray(one, dtype)) for one in (lo, hi)]
    return net.apply("Clip", args[0], *ends)


def bounded(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    lo, hi = [*args[1:], *(-1.0, 1.0)[len(args) - 1 :]][:2]
    return net.apply("Clip", args[0], float(kwargs.get("min_val", lo)), float(kwargs.get("max_val", hi)))


def fixed_clip(
    lo: float, hi: float, net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]
) -> TorchValue:
    return net.apply("Clip", args[0], lo, hi)


def with_alpha(
    kind: str, default: float, net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]
) -> TorchValue:
    return net.apply(kind, args[0], alpha=float(args[1] if len(args) > 1 else default))


def gelu(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    return net.apply("Gelu", args[0], approximate=kwargs.get("approximate", "none"))


def silu(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    return net.apply("Mul", args[0], net.apply("Sigmoid", args[0]))


def hardsigmoid(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    return net.apply("HardSigmoid", args[0], alpha=1 / 6, beta=0.5)


def rsqrt(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    return net.apply("Reciprocal", net.apply("Sqrt", args[0]))


def scaled_log(
    factor: float, net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]
) -> TorchValue:
    """A logarithm to another base: the natural one by a factor."""
    return net.apply("Mul", net.apply("Log", args[0]), factor)


def log1p(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    return net.apply("Log", net.apply("Add", args[0], 1.0))


def expm1(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    return net.apply("Sub", net.apply("Exp", args[0]), 1.0)


def threshold(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    x, least, other = args[:3]
    constant = net.constant(np.asarray(other, net.type(x).dtype))
    return net.apply("Where", net.apply("Greater", x, float(least)), x, constant)


def trunc(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    """Towards zero: of the numbers above it the floor, of those below it the ceiling."""
    above, below = net.apply("Relu", net.apply("Floor", args[0])), net.apply("Ceil", args[0])
    return net.apply("Add", above, net.apply("Min", below, 0.0))


def rounded(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    """To whole numbers, or to so many decimals."""
    decimals = int(kwargs.get("decimals", 0))
    if not decimals:
        return net.apply("Round", args[0])
    if decimals > 0:
        return net.apply("Div", net.apply("Round", net.apply("Mul", args[0], 10.0**decimals)), 10.0**decimals)
    return net.apply("Mul", net.apply("Round", net.apply("Div", args[0], 10.0**-decimals)), 10.0**-decimals)


def softplus(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    if len(args) > 1 and args[1] != 1:
        raise TorchOperatorError(f"beta {args[1]}")
    return net.apply("Softplus", args[0])


def prelu(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    slope = net.array(args[1])
    rank = len(net.shape(args[0]))
    return net.apply(
        "PRelu", args[0], net.constant(slope.reshape(-1, *(1,) * (rank - 2)) if slope.size > 1 else slope)
    )


def softmax(kind: str, net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    return net.apply(kind, args[0], axis=int(args[1] if len(args) > 1 else kwargs["dim"]))


def cast(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    """`to` and its like: the type that the result has."""
    wanted = str(node.meta["val"].dtype).removeprefix("torch.")
    wanted = "float32" if wanted in ("float16", "bfloat16", "float64") else wanted
    have = net.graph.type(args[0].name).dtype
    made: TorchValue = args[0] if have == wanted else net.apply("Cast", args[0], to=NUMBERS[wanted])
    return made


def same(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return args[0]


def where(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    kind = str(node.meta["val"].dtype).removeprefix("torch.")
    rows = [
        net.constant(np.asarray(net.array(v) if hasattr(v, "dtype") else v, kind))
        if not isinstance(v, TorchValue)
        else v
        for v in args[1:]
    ]
    return net.apply("Where", args[0], *rows)


def masked_fill(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    x, mask, value = args
    return net.apply("Where", mask, net.constant(np.asarray(float(value), net.type(x).dtype)), x)


def reduction(kind: str, net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    axes = args[1] if len(args) > 1 and args[1] is not None else kwargs.get("dim")
    keep = bool(args[2] if len(args) > 2 else kwargs.get("keepdim", False))
    rows = [] if axes is None or axes == [] else [axes] if isinstance(axes, int) else list(axes)
    return net.apply(kind, args[0], net.ints(rows) if rows else "", keepdims=int(keep))


def vector_norm(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    if (args[1] if len(args) > 1 else kwargs.get("ord", 2)) != 2:
        raise TorchOperatorError("of another order than 2")
    return reduction("ReduceL2", net, node, [args[0], *args[2:]], kwargs)


def best(kind: str, net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    axis = args[1] if len(args) > 1 else kwargs.get("dim")
    keep = bool(args[2] if len(args) > 2 else kwargs.get("keepdim", False))
    if axis is None:                      # the place among all elements, in their order
        ones = [1] * (len(net.shape(args[0])) - 1) if keep else []
        flat = net.apply("Reshape", args[0], net.ints([*ones, -1]))
        return net.apply(kind, flat, axis=len(ones), keepdims=int(keep))
    return net.apply(kind, args[0], axis=int(axis), keepdims=int(keep))


def running_sum(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    return net.apply("CumSum", args[0], net.constant(np.asarray(args[1], np.int64)))


def top(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> list[TorchValue]:
    axis = args[2] if len(args) > 2 else -1
    largest = args[3] if len(args) > 3 else True
    return net.several("TopK", [args[0], net.ints([args[1]])], 2, axis=int(axis), largest=int(largest))


ELEMENTS: dict[str, Converter] = {
    **{name: partial(unary, kind) for name, kind in UNARY.items()},
    **{name: partial(binary, kind) for name, kind in BINARY.items()},
    **dict.fromkeys(SAME, same),
    **dict.fromkeys(("to", "_to_copy", "type_as", "float"), cast),
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max", "clip"), clip),
    "add": partial(sum_of, "Add"),
    "sub": partial(sum_of, "Sub"),
    "rsub": partial(sum_of, "Sub"),
    "ne": not_equal,
    "hardtanh": bounded,
    "relu6": partial(fixed_clip, 0.0, 6.0),
    "gelu": gelu,
    "silu": silu,
    "leaky_relu": partial(with_alpha, "LeakyRelu", 0.01),
    "elu": partial(with_alpha, "Elu", 1.0),
    "hardsigmoid": hardsigmoid,
    "rsqrt": rsqrt,
    "round": rounded,
    "trunc": trunc,
    "threshold": threshold,
    "log2": partial(scaled_log, 1 / math.log(2)),
    "log10": partial(scaled_log, 1 / math.log(10)),
    "log1p": log1p,
    "expm1": expm1,
    "softplus": softplus,
    "prelu": prelu,
    "softmax": partial(softmax, "Softmax"),
    "_softmax": partial(softmax, "Softmax"),
    "log_softmax": partial(softmax, "LogSoftmax"),
    "where": where,
    "masked_fill": masked_fill,
    "mean": partial(reduction, "ReduceMean"),
    "sum": partial(reduction, "ReduceSum"),
    "amax": partial(reduction, "ReduceMax"),
    "amin": partial(reduction, "ReduceMin"),
    "linalg_vector_norm": vector_norm,
    "argmax": partial(best, "ArgMax"),
    "argmin": partial(best, "ArgMin"),
    "cumsum": running_sum,
    "topk": top,
}
