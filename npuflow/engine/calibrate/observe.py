"""One streaming pass of the float model: per sample, what each needed tensor looked like, and nothing kept of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import ModelError
from npuflow.engine.quantize.scales import activation_inputs
from npuflow.ir.contracts import TAILS
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array

if TYPE_CHECKING:
    import onnxruntime

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
COLUMNS = ("count", "nan", "posinf", "neginf")


def needed_values(graph: Graph, on_npu: Callable[[int], bool]) -> tuple[str, ...]:
    """Values whose range the quantiser will ask: activations that NPU nodes read, and what they write and do not fix."""
    read: dict[str, None] = {}
    written: dict[str, None] = {}
    for index, node in enumerate(graph.nodes):
        if not on_npu(index):
            continue
        read.update({v: None for _, v in activation_inputs(graph, node) if graph.const(v) is None})
        if node.op.output_range(graph.site(node)) is None:
            written.update({v: None for v in node.outputs if v and graph.type(v).dtype == "float32"})
    return tuple({**read, **written})


@dataclass(frozen=True)
class Observation:
    """One sample's statistics of every tensor, in the order of `names`.

    `counts` [T, 4]: elements, NaN, +inf, -inf. `lo`, `hi`: of finite values (0 where there are none). `tails`
    [T, 2, len(TAILS)]: values that those shares of the finite ones lie below, and above. The cells of tensor i are
    encoded in blob[offsets[i]:offsets[i + 1]] (see `kernels.emit`).
    """

    names: tuple[str, ...]
    lo: npt.NDArray[np.float32]
    hi: npt.NDArray[np.float32]
    tails: npt.NDArray[np.float32]
    counts: Int64s
    offsets: Int64s
    blob: Bytes


class Scratch:
    """The tables of counters and the buffer that serve all tensors and samples of a thread."""

    def __init__(self) -> None:
        from npuflow.engine.calibrate.kernels import KEYS

        # Apart by odd distances: tables of one alignment would crowd into the same cache sets.
        self.tallies: tuple[Any, ...] = tuple(np.zeros(KEYS + 1040 * i, np.uint32) for i in range(4))
        self.buffer = np.zeros(1 << 20, np.uint8)

    def room(self, at: int) -> None:
        """A tensor takes at most 8 bytes a key."""
        if self.buffer.size - at < 8 * self.tallies[0].size:
            self.buffer = np.concatenate([self.buffer, np.zeros(max(self.buffer.size, 1 << 22), np.uint8)])


class Counter:
    """Counts arrays."""

    def __init__(self, names: Sequence[str], scratch: Scratch | None = None) -> None:
        self.names = tuple(names)
        self._scratch = scratch or Scratch()

    def observe(self, arrays: Iterable[Array]) -> Observation:
        """The statistics of one sample, whose tensors come in the order of `names`."""
        count = len(self.names)
        lo, hi = np.zeros(count, np.float32), np.zeros(count, np.float32)
        counts, offsets = np.zeros((count, 4), np.int64), np.zeros(count + 1, np.int64)
        ends = np.zeros((count, 2, len(TAILS)), np.int64)
        at = 0
        for i, array in enumerate(arrays):
            flat = np.ascontiguousarray(array, np.float32).reshape(-1)
            lo[i], hi[i], at = self._tensor(flat, counts[i], ends[i], at)
            offsets[i + 1] = at
        tails = np.clip(ends.astype(np.uint32).view(np.float32), lo[:, None, None], hi[:, None, None])
        return Observation(self.names, lo, hi, tails, counts, offsets, self._scratch.buffer[:at].copy())

    def _tensor(self, flat: Array, counts: Int64s, ends: Int64s, at: int) -> tuple[float, float, int]:
        """Extrema and the end of the encoded cells; element and special counts go into `counts`, tails into `ends`."""
        from npuflow.engine.calibrate import kernels

        bits, peaks, tallies = flat.view(np.uint32), np.zeros(3, np.int64), self._scratch.tallies
        counts[0] = bits.size
        if not bits.size:
            return 0.0, 0.0, at
        kernels.survey(bits, bits[: bits.size & ~1].view(np.uint64), peaks, *tallies)
        first = kernels.SPECIAL >> kernels.SHIFT
        if max(peaks[0], peaks[1]) >= kernels.SPECIAL:
            kernels.specials(bits, counts[1:], peaks)
            for sign in (0, kernels.SIGN):
                for table in tallies:
                    table[sign + first : sign + kernels.SIGN] = 0
        self._scratch.room(at)
        limits = _limits(bits.size - int(counts[1:].sum()))
        at, zeros = kernels.encode(peaks, limits, ends, self._scratch.buffer, at, *tallies)
        top, bottom, least = peaks.tolist()
        return *_extrema(top, bottom, least, zeros), at


class Observer:
    """Runs samples through a float model and counts what its tensors hold."""

    def __init__(
        self, model: bytes, inputs: Iterable[str], names: Sequence[str], made: Sequence[str] | None = None,
        scratch: Scratch | None = None,
    ) -> None:  # fmt: skip
        """`inputs`: what the model is fed. `names`: what is counted, some of it inputs. `made`: the model's outputs, where
        those are not just what is counted of it."""
        self.names, self.inputs = tuple(names), tuple(inputs)
        self.made = tuple(n for n in self.names if n not in self.inputs) if made is None else tuple(made)
        self.session = session(model) if self.made else None
        given = {i.name for i in self.session.get_inputs()} if self.session is not None else ()
        self.fed = [n for n in self.inputs if n in given]
        self.counter = Counter(names, scratch)

    def observe(self, feed: Mapping[str, Array]) -> Observation:
        """The statistics of one sample."""
        return self.count(feed, self.run(feed))

    def count(self, feed: Mapping[str, Array], results: Mapping[str, Array]) -> Observation:
        """The statistics of one sample from what `run` gave."""
        return self.counter.observe(results[n] if n in results else feed[n] for n in self.names)

    def run(self, feed: Mapping[str, Array], wanted: Sequence[str] | None = None) -> dict[str, Array]:
        """The model's outputs, or some of them."""
        names = self.made if wanted is None else wanted
        if self.session is None or not names:
            return {}
        try:
            results = self.session.run(names, {n: feed[n] for n in self.fed})
        except Exception as fault:  # onnxruntime raises classes of its own for anything a model may do wrong
            raise ModelError("the float model does not run on this sample", because=str(fault)) from fault
        return dict(zip(names, results, strict=True))


@cache
def _limits(finite: int) -> Int64s:
    """How many values each of TAILS leaves out."""
    return np.array([int(finite * Fraction(str(share))) for share in TAILS], np.int64)


def _extrema(top: int, bottom: int, least: int, zeros: int) -> tuple[float, float]:
    """Least and greatest finite value from unsigned patterns; `least` is the one of an all-negative or all-positive tensor."""
    real: Callable[[int], float] = lambda pattern: float(np.array(pattern, np.uint32).view(np.float32))  # noqa: E731
    lo = -real(bottom) if bottom >= 0 else 0.0 if zeros or top < 0 else real(least)
    hi = real(top) if top >= 0 else 0.0 if zeros or bottom < 0 else -real(least)
    return lo, hi


def session(model: bytes) -> onnxruntime.InferenceSession:
    """onnxruntime on one thread with its fusions: the same bytes for any sharding, on processors of one feature class."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as fault:  # see `_run`
        raise ModelError("onnxruntime cannot load the float model", because=str(fault)) from fault

