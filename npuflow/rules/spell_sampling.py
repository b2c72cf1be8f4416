"""GridSample with a constant grid, Col2Im and AffineGrid as products with a constant matrix."""

from __future__ import annotations

import numpy as np

from npuflow.ir.types import Array, TensorType
from npuflow.onnx.run import CannotRunError
from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts

_MOST = 1 << 22                           # elements of all matrices


@RULES.entry
class SpellSampling(Decomposition):
    """They are linear in their first input: what they make of a unit matrix is the matrix."""

    triggers = ("host:gridsample", "host:col2im", "host:affinegrid")
    makes = ("matmul", "reshape", "slice", "concat")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        others = [i for i, v in enumerate(parts.node.inputs) if v and i > 0]
        if any(parts.number(i) is None for i in others):
            return "the grid is not a constant" if "sample" in _name(parts) else "its sizes are not constants"
        try:
            return (_sampled(parts) if _name(parts) == "gridsample" else _linear(parts),)
        except (CannotRunError, _TooLargeError) as fault:
            return str(fault)


class _TooLargeError(Exception):
    """A matrix of more elements than are worth it."""


def _name(parts: Parts) -> str:
    name: str = parts.node.op.op_type.lower()  # type: ignore[attr-defined]
    return name


def _sampled(parts: Parts) -> str:
    """Image by image: a row of channels, each with a place of the image as its only 1."""
    x, grid = parts.input(0), parts.number(1)
    assert grid is not None
    count, channels, *image = parts.shape(x)
    places, out = int(np.prod(image)), parts.shape(parts.node.outputs[0])[2:]
    distinct = 1 if (grid == grid[:1]).all() else count
    _fits(distinct * places * int(np.prod(out)))
    unit = np.eye(places, dtype=np.float32).reshape(1, places, *image)
    rows = parts.reshape(x, (count, channels, places))
    results = []
    for n in range(distinct):
        (found,) = _run(parts, [unit, grid[n : n + 1]], (1, places, *out))
        matrix = parts.const(found.reshape(places, -1), "matrix")
        part = rows if distinct == 1 else parts.slice(rows, 0, n, n + 1)
        results.append(parts.matmul(part, matrix))
    return parts.reshape(parts.concat(results, 0), (count, channels, *out))


def _linear(parts: Parts) -> str:
    """One matrix for every sample: [its elements, elements of its result]."""
    x, out = parts.input(0), parts.shape(parts.node.outputs[0])
    count, *rest = parts.shape(x)
    size, made = int(np.prod(rest)), out[1:]
    given = [parts.number(i) if v else None for i, v in enumerate(parts.node.inputs)]
    if _name(parts) == "affinegrid":      # the first size is the number of grids
        sizes = given[1]
        assert sizes is not None
        given[1] = np.concatenate([[size], sizes.reshape(-1)[1:]]).astype(np.int64)
    else:                                 # every channel is folded on its own
        count, size, made = count * out[1], size // out[1], (1, *out[2:])
        rest = [rest[0] // out[1], *rest[1:]]
    _fits(size * int(np.prod(made)))
    given[0] = np.eye(size, dtype=np.float32).reshape(size, *rest)
    (found,) = _run(parts, given, (size, *made))
    y = parts.matmul(parts.reshape(x, (count, size)), parts.const(found.reshape(size, -1), "matrix"))
    return parts.reshape(y, out)


def _run(parts: Parts, given: list[Array | None], shape: tuple[int, ...]) -> tuple[Array, ...]:
    from dataclasses import replace

    alone = replace(parts.node.op, types=(TensorType(shape),))  # type: ignore[call-arg]
    return tuple(np.asarray(a) for a in alone.reference(*given))


def _fits(elements: int) -> None:
    if elements > _MOST:
        raise _TooLargeError(f"a matrix of {elements} elements, more than {_MOST}")
