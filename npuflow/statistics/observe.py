"""One streaming pass of the float model: per sample, what each needed tensor looked
like, and nothing kept of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.calibrators import TAILS
from npuflow.ir.graph import Graph
from npuflow.ir.loops import ends
from npuflow.ir.types import Array
from npuflow.onnx.fed import SessionModel
from npuflow.quantise.scales import activation_inputs
from npuflow.run.floats import FloatRun

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
COLUMNS = ("count", "nan", "posinf", "neginf")
SHARES = np.array([Fraction(str(share)).as_integer_ratio() for share in TAILS], np.int64)
"""TAILS as exact fractions: how many values each leaves out is a whole number."""


def needed_values(graph: Graph, on_npu: Callable[[int], bool]) -> tuple[str, ...]:
    """Values whose range the quantiser will ask: activations that NPU nodes read, and
    what they write and do not fix. And those that say whether loops have ended."""
    read: dict[str, None] = {}
    written: dict[str, None] = {}
    for index, node in enumerate(graph.nodes):
        if not on_npu(index):
            continue
        read.update({v: None for _, v in activation_inputs(graph, node) if graph.const(v) is None})
        if node.op.output_range(graph.site(node)) is None:
            written.update({v: None for v in node.outputs if v and graph.type(v).dtype == "float32"})
    return tuple({**read, **written, **dict.fromkeys(ends(graph))})


@dataclass(frozen=True)
class Observation:
    """One sample's statistics of every tensor, in the order of `names`.

    `counts` [T, 4]: elements, NaN, +inf, -inf. `lo`, `hi`: of finite values (0 where there are none). `tails`
    [T, 2, len(TAILS)]: values that those shares of the finite ones lie below, and above.

    The cells (see `kernels`) of tensor i are the groups of eight keys that are not all empty, ascending:
    groups[offsets[i]:offsets[i + 1]], the first key of each divided by eight. `cells` [groups, 8]: how many
    values each key has; 255 stands for 255 or more, which `large` [n, 2] lists: the place in `cells`, flat,
    and the count.
    """

    names: tuple[str, ...]
    lo: npt.NDArray[np.float32]
    hi: npt.NDArray[np.float32]
    tails: npt.NDArray[np.float32]
    counts: Int64s
    offsets: Int64s
    groups: npt.NDArray[np.uint16]
    cells: Bytes
    large: npt.NDArray[np.uint32]


class Scratch:
    """The tables of counters and the buffer that serve all tensors and samples of a thread."""

    def __init__(self) -> None:
        from npuflow.statistics.kernels import GROUP, KEYS

        # Apart by odd distances: tables of one alignment would crowd into the same cache sets.
        self.tallies: tuple[Any, ...] = tuple(np.zeros(KEYS + 1040 * i, np.uint32) for i in range(4))
        self.groups = np.zeros(2 * KEYS // GROUP, np.uint16)
        self.cells = np.zeros(self.groups.size * GROUP, np.uint8)

    def grow(self) -> None:
        """Twice the room for cells; what is there stays."""
        self.groups, self.cells = (np.concatenate([a, np.zeros_like(a)]) for a in (self.groups, self.cells))


class Counter:
    """Counts arrays."""

    def __init__(self, names: Sequence[str], scratch: Scratch | None = None) -> None:
        self.names = tuple(names)
        self._scratch = scratch or Scratch()

    def observe(self, arrays: Iterable[Array]) -> Observation:
        """The statistics of one sample, whose tensors come in the order of `names`."""
        from npuflow.statistics import kernels

        held, scratch = [_flat(array) for array in arrays], self._scratch
        size = len(held)
        addresses = np.array([one.ctypes.data for one in held], np.int64)
        sizes = np.array([one.size for one in held], np.int64)
        counts, offsets = np.zeros((size, 4), np.int64), np.zeros(size + 1, np.int64)
        peaks, zeros, ends = (
            np.zeros((size, 3), np.int64),
            np.zeros(size, np.int64),
            np.zeros((size, 2, len(TAILS)), np.int64),
        )
        large = np.empty((sum(one.size for one in held) // kernels.LARGE, 2), np.uint32)
        done = end = 0
        while True:
            done, end = kernels.observe(
                addresses,
                sizes,
                done,
                SHARES,
                counts,
                peaks,
                zeros,
                ends,
                offsets,
                scratch.groups,
                scratch.cells,
                large,
                end,
                *scratch.tallies,
            )
            if done == size:
                break
            scratch.grow()
        lo, hi = _extrema(peaks, zeros)
        tails = np.clip(ends.astype(np.uint32).view(np.float32), lo[:, None, None], hi[:, None, None])
        groups = scratch.groups[: offsets[-1]].copy()
        cells = scratch.cells[: groups.size * kernels.GROUP].reshape(-1, kernels.GROUP).copy()
        return Observation(self.names, lo, hi, tails, counts, offsets, groups, cells, large[:end].copy())


def _flat(array: Array) -> Array:
    """Its float32 values in a row, at an address that the kernels read pairs from."""
    flat = np.ascontiguousarray(array, np.float32).reshape(-1)
    return flat if flat.ctypes.data % 8 == 0 else flat.copy()


class Observer:
    """Runs samples through a float model and counts what its tensors hold."""

    def __init__(
        self, model: SessionModel, inputs: Iterable[str], names: Sequence[str],
        made: Sequence[str] | None = None, scratch: Scratch | None = None,
    ) -> None:
        """`inputs`: what the model is fed. `names`: what is counted, some of it inputs. `made`: the model's
        outputs, where those are not just what is counted of it."""
        self.names, self.inputs = tuple(names), tuple(inputs)
        self.made = tuple(n for n in self.names if n not in self.inputs) if made is None else tuple(made)
        self.network = FloatRun(model, self.made)
        self.counter = Counter(names, scratch)

    def observe(self, feed: Mapping[str, Array]) -> Observation:
        """The statistics of one sample."""
        return self.count(feed, self.run(feed))

    def count(self, feed: Mapping[str, Array], results: Mapping[str, Array]) -> Observation:
        """The statistics of one sample from what `run` gave."""
        return self.counter.observe(results[n] if n in results else feed[n] for n in self.names)

    def run(self, feed: Mapping[str, Array], wanted: Sequence[str] | None = None) -> dict[str, Array]:
        """The model's outputs, or some of them."""
        return self.network.run(feed, wanted)


def _extrema(peaks: Int64s, zeros: Int64s) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Least and greatest finite values from unsigned patterns: greatest positive,
    greatest negative, least magnitude."""
    top, bottom, least = np.maximum(peaks, 0).astype(np.uint32).view(np.float32).T
    positive, negative = peaks[:, 0] >= 0, peaks[:, 1] >= 0
    lo = np.where(negative, -bottom, np.where((zeros > 0) | ~positive, np.float32(0), least))
    hi = np.where(positive, top, np.where((zeros > 0) | ~negative, np.float32(0), -least))
    return lo, hi
