"""ATen operators that move data: the shape of every result is known from the export."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuflow.frontends.torch.elements import Converter
from npuflow.frontends.torch.network import TorchNetwork, TorchOperatorError, TorchValue

END = 2**63 - 1


def result(node: Any) -> list[int]:
    return [int(size) for size in node.meta["val"].shape]


def reshape(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    return net.apply("Reshape", args[0], net.ints(result(node)))


def permute(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    rank = len(net.shape(args[0]))
    return net.apply("Transpose", args[0], perm=[int(a) % rank for a in args[1]])


def transpose(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    rank = len(net.shape(args[0]))
    a, b = (int(v) % rank for v in (args[1:3] if len(args) > 2 else (0, 1)))
    perm = list(range(rank))
    perm[a], perm[b] = b, a
    return net.apply("Transpose", args[0], perm=perm)


def cat(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    axis = args[1] if len(args) > 1 else kwargs.get("dim", 0)
    parts = [p for p in args[0] if net.shape(p) != (0,)]
    return net.apply("Concat", *parts, axis=int(axis))


def stack(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    axis = int(args[1] if len(args) > 1 else kwargs.get("dim", 0))
    parts = [net.apply("Unsqueeze", p, net.ints([axis])) for p in args[0]]
    return net.apply("Concat", *parts, axis=axis)


def pieces(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> list[TorchValue]:
    """chunk and split: the sizes are those of the results."""
    axis = int(args[2] if len(args) > 2 else kwargs.get("dim", 0))
    sizes = [int(v.shape[axis]) for v in node.meta["val"]]
    if len(sizes) == 1:
        return [net.apply("Identity", args[0])]
    return net.several("Split", [args[0], net.ints(sizes)], len(sizes), axis=axis)


def unbind(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> list[TorchValue]:
    axis = int(args[1] if len(args) > 1 else kwargs.get("dim", 0))
    count = net.shape(args[0])[axis]
    return [
        net.apply("Gather", args[0], net.constant(np.asarray(i, np.int64)), axis=axis) for i in range(count)
    ]


def getitem(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    made = args[0][args[1]]
    if made is None and node.users:
        raise TorchOperatorError("a result that is not computed")
    return made


def cut(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    given: list[Any] = [args[i] if len(args) > i else None for i in range(1, 5)]
    axis, begin, end, step = given
    return net.apply(
        "Slice",
        args[0],
        net.ints([begin or 0]),
        net.ints([END if end is None else end]),
        net.ints([axis or 0]),
        net.ints([1 if step is None else step]),
    )


def select(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    return net.apply("Gather", args[0], net.constant(np.asarray(args[2], np.int64)), axis=int(args[1]))


def index_select(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    return net.apply("Gather", args[0], args[2], axis=int(args[1]))


def index(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    """x[i], x[:, i]: one tensor of indices."""
    given = [(axis, one) for axis, one in enumerate(args[1]) if one is not None]
    if len(given) != 1 or (not isinstance(given[0][1], TorchValue) and given[0][1].dtype == net.torch.bool):
        raise TorchOperatorError(f"{len(given)} tensors of indices, or a mask")
    axis, places = given[0]
    return net.apply("Gather", args[0], places, axis=axis)


def index_put(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    """x[i] = values, x[i, j] = values: tensors of indices along the first dimensions, in one shape."""
    x, places, values = args[:3]
    if any(one is None or net.dtype(one) == "bool" for one in places):
        raise TorchOperatorError("a dimension without indices, or a mask")
    shape = np.broadcast_shapes(*(net.shape(one) for one in places))
    columns = []
    for one in places:
        whole = one if net.shape(one) == shape else net.apply("Expand", one, net.ints(shape))
        columns.append(net.apply("Unsqueeze", whole, net.ints([-1])))
    index = columns[0] if len(columns) == 1 else net.apply("Concat", *columns, axis=-1)
    wanted = (*shape, *net.shape(x)[len(places) :])
    moved = values if net.shape(values) == wanted else net.apply("Expand", values, net.ints(wanted))
    added = bool(args[3] if len(args) > 3 else kwargs.get("accumulate", False))
    return net.apply("ScatterND", x, index, moved, reduction="add" if added else "none")


def expand(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    return net.apply("Expand", args[0], net.ints(result(node)))


def repeat(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    times = [int(v) for v in args[1]]
    rank = len(net.shape(args[0]))
    x = args[0]
    if len(times) > rank:
        x = net.apply("Reshape", x, net.ints([*(1,) * (len(times) - rank), *net.shape(x)]))
    return net.apply("Tile", x, net.ints([*(1,) * (rank - len(times)), *times]))


def roll(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    """The end of every axis in front of its beginning."""
    axes = args[2] if len(args) > 2 else kwargs.get("dims", [])
    if not axes:
        raise TorchOperatorError("without dimensions")
    x = args[0]
    for shift, axis in zip(args[1], axes, strict=True):
        size = net.shape(x)[axis]
        at = size - int(shift) % size
        if at != size:
            parts = net.several("Split", [x, net.ints([at, size - at])], 2, axis=int(axis))
            x = net.apply("Concat", parts[1], parts[0], axis=int(axis))
    made: TorchValue = x if isinstance(x, TorchValue) else net.apply("Identity", x)
    return made


def flip(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    axes = [int(a) for a in args[1]]
    return net.apply(
        "Slice",
        args[0],
        net.ints([-1] * len(axes)),
        net.ints([-END] * len(axes)),
        net.ints(axes),
        net.ints([-1] * len(axes)),
    )


def pad(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    """Torch states pairs from the last dimension on."""
    mode = args[2] if len(args) > 2 and isinstance(args[2], str) else kwargs.get("mode", "constant")
    value = args[3] if len(args) > 3 else kwargs.get("value")
    if node.target.__name__.startswith("constant_pad"):
        mode, value = "constant", args[2] if len(args) > 2 else 0.0
    if node.target.__name__.startswith("reflection"):
        mode = "reflect"
    kinds = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
    if mode not in kinds:
        raise TorchOperatorError(f"padding {mode}")
    rank, pairs = len(net.shape(args[0])), list(args[1])
    begins, ends = [0] * rank, [0] * rank
    for i in range(len(pairs) // 2):
        begins[rank - 1 - i], ends[rank - 1 - i] = int(pairs[2 * i]), int(pairs[2 * i + 1])
    inputs = [args[0], net.ints([*begins, *ends])]
    if mode == "constant" and value:
        inputs.append(net.constant(np.asarray(value, net.type(args[0]).dtype)))
    return net.apply("Pad", *inputs, mode=kinds[mode])


def shuffle(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    return net.apply("DepthToSpace", args[0], blocksize=int(args[1]), mode="CRD")


def filled(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """full_like, zeros_like, new_zeros: constants of a known shape."""
    like, kind = node.meta["val"], node.target.__name__
    value = (
        args[1]
        if "full" in kind and "new" not in kind
        else args[2]
        if "full" in kind
        else float("ones" in kind)
    )
    return net.torch.full(tuple(like.shape), value, dtype=like.dtype)


SHAPES: dict[str, Converter] = {
    **dict.fromkeys(
        (
            "view",
            "reshape",
            "flatten",
            "unflatten",
            "unsqueeze",
            "squeeze",
            "_unsafe_view",
            "view_as",
            "reshape_as",
        ),
        reshape,
    ),
    "permute": permute,
    **dict.fromkeys(("transpose", "swapaxes", "swapdims", "t", "numpy_T"), transpose),
    "cat": cat,
    "concat": cat,
    "stack": stack,
    **dict.fromkeys(("chunk", "split", "split_with_sizes"), pieces),
    "unbind": unbind,
    "getitem": getitem,
    "slice": cut,
    "select": select,
    "index_select": index_select,
    "index": index,
    "index_put": index_put,
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), expand),
    "repeat": repeat,
    "roll": roll,
    "flip": flip,
    **dict.fromkeys(("pad", "constant_pad_nd", "reflection_pad2d", "reflection_pad1d"), pad),
    "pixel_shuffle": shuffle,
    **dict.fromkeys(("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"), filled),
}
