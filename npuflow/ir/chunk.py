"""Chunks of a free length: which steps of each value one round of a loop over chunks has.

The first chunk has no steps before it and the last one none behind it: there a layer with a window has its
border, as it has where it is whole. The last chunk may be shorter than the others, or longer by what a window
reads behind a chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from npuflow.ir.op import OPS, Node, Op, OpContext
from npuflow.ir.types import TensorType, Value


@dataclass(frozen=True)
class ChunkSteps:
    """Of a value in a loop over chunks: along dimension `axis` it has `rows` parts for each of the `most`
    steps, which behind strides are fewer than a sample has. A chunk has `size` of them, but the `last` one,
    by its number, all that are left; and as many `before` and `behind` these as others need of it."""

    axis: int
    rows: int
    size: int
    most: int
    last: int
    before: int = 0
    behind: int = 0

    @property
    def apart(self) -> bool:
        """Whether chunks are equal parts, one behind the other."""
        return not self.before and not self.behind and self.most == (self.last + 1) * self.size

    def steps(self, chunk: int) -> tuple[int, int]:
        """The first step of a chunk, by its number, and the one behind its last."""
        first = chunk * self.size
        end = self.most if chunk == self.last else min(self.most, first + self.size + self.behind)
        return max(0, first - self.before), end

    def span(self, chunk: int) -> tuple[int, int]:
        """The same in parts."""
        begin, end = self.steps(chunk)
        return begin * self.rows, end * self.rows

    def type(self, kind: TensorType, chunk: int) -> TensorType:
        """The type in a chunk of what has this type in most."""
        begin, end = self.steps(chunk)
        shape = (*kind.shape[: self.axis], self.rows * (end - begin), *kind.shape[self.axis + 1 :])
        return TensorType(shape, kind.dtype)


def chunk_type(value: Value, chunks: Mapping[str, ChunkSteps], chunk: int) -> TensorType:
    """The type of a value in a chunk. `chunks`: of values that have steps."""
    own = chunks.get(value.id)
    return value.type if own is None else own.type(value.type, chunk)


def on_chunk(site: OpContext, chunks: Mapping[str, ChunkSteps], chunk: int) -> Node:
    """A node of a loop's body as it is on one chunk."""
    node, made = site.node, [chunk_type(value, chunks, chunk) for value in site.outputs]
    if all(kind == value.type for kind, value in zip(made, site.outputs, strict=True)) and all(
        value is None or chunk_type(value, chunks, chunk) == value.type for value in site.inputs
    ):
        return node
    op = node.op.with_results(made) or node.op
    source, result = (next(chunks[v] for v in ends if v in chunks) for ends in (node.inputs, node.outputs))
    if (source.before, source.behind) != (result.before, result.behind):
        op = _windowed(op, source, result, chunk)
    return replace(node, op=op)


def _windowed(op: Op, source: ChunkSteps, result: ChunkSteps, chunk: int) -> Op:
    """An operator that reads more steps than it makes: a window, which has a border where there are no
    steps, or a part of a chunk."""
    (begin, end), (first, last), each = source.steps(chunk), result.steps(chunk), source.size // result.size
    before = source.before - each * result.before - (each * first - begin)
    behind = source.behind - each * result.behind - (end - each * last)
    # windows that go on by several steps may leave out the last ones
    return op.framed(source.axis, before, max(behind, 0)) or part_of(source, result, chunk)


def part_of(source: ChunkSteps, result: ChunkSteps, chunk: int | None = None) -> Op:
    """Cuts the steps that a result has of a chunk out of those that its source has of it; None: of a chunk
    that has all steps around it."""
    first, count = source.before - result.before, result.before + result.size + result.behind
    if chunk is not None:
        (begin, _), (low, high) = source.steps(chunk), result.steps(chunk)
        first, count = low - begin, high - low
    starts, ends = (first * source.rows,), ((first + count) * source.rows,)
    return OPS["slice"](starts=starts, ends=ends, axes=(source.axis,), steps=(1,))
