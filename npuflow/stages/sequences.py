"""Calibration samples of a network with state: single steps of sequences, with the state that the float model
has there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from npuflow.base.errors import DataError
from npuflow.base.tables import Config, Range
from npuflow.base.wording import counted
from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import Items, log, stage
from npuflow.hw.target import Numerics
from npuflow.input.data.config import Data
from npuflow.input.data.config import InputSample as Content
from npuflow.input.data.fold import Folding, folded
from npuflow.input.data.sequence import begun, steps
from npuflow.input.pixels.pixels import Pixels, model_inputs
from npuflow.input.preprocess import Preprocess, pixel_zeros
from npuflow.input.sources import file_has_states
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.onnx.export import session_model
from npuflow.run.interpret import host_session
from npuflow.run.state import zeros
from npuflow.stages.model import Model, ModelTable
from npuflow.stages.samples import Sample

Fed = dict[str, Array]
ROOM = 1 << 30                            # bytes that the states of all steps take: judges hold many at once
FEWEST = 32                               # steps that are kept nevertheless


@dataclass(frozen=True)
class Sequences(Config):
    """Steps of sequences as calibration samples, for networks with state."""

    samples: Annotated[int, Range(1, None)] = 256
    """At most so many steps: the first of every sequence, which in language models is like no other, for up
    to a third of them; the others are drawn. Fewer where their states take more than a gigabyte, but 32."""
    seed: Annotated[int, Range(0, None)] = 0


def stateful(model: ModelTable) -> bool:
    """Whether the recipe names state, or the model's file does."""
    return bool(model.state) or file_has_states(model.path.path)


def listing(
    data: Data, folding: Folding, numerics: Numerics, preprocess: Preprocess | None = None
) -> Listing:
    """What stored bytes stand for, which the float model is fed."""
    found = folded(data, folding, numerics, pixel_zeros(preprocess))
    return {"pixels": Item((), {name: one.plain() for name, one in found.items()})}


@stage(
    files=listing,
    refines="samples",
    when="sequences",
    wanted=stateful,
    cpu="native",
    floats=True,
    minor=True,
)
def sequences(
    samples: Items[Sample], source: Model, files: Files, sequences: Sequences
) -> Iterator[tuple[str, Sample]]:
    """Run the float model along every sequence; keep some steps with the state before them."""
    graph = source.reading.graph
    if not graph.state:
        yield from samples.items()
        return
    kept = {given for _, given in graph.state}
    types = {name: graph.type(name) for name in graph.inputs}
    own = {name: kind for name, kind in types.items() if name not in kept}
    pixels = {name: Pixels.read(row) for name, row in files["pixels"].detail.items()}
    found: dict[str, list[Fed]] = {}
    for name, sample in samples.items():
        if sample.content.broken or sample.content.noise is not None:
            yield name, sample
            continue
        try:
            found[name] = steps(sample.content, own)
        except DataError as fault:
            raise fault.at(item=name) from None
    if not found:
        return
    lengths = [len(fed) for fed in found.values()]
    chosen = drawn(lengths, min(sequences.samples, affordable(graph)), sequences.seed)
    log(f"{len(chosen)} of {counted(sum(lengths), 'step')} of {counted(len(found), 'sequence')}")
    at, following = 0, _stepper(graph, pixels)
    for name, fed in found.items():
        width = len(str(len(fed) - 1))
        wanted = {t for t in range(len(fed)) if at + t in chosen}
        start = begun(samples[name].content, types, zeros(graph))
        for t, arrays in _states(following, start, fed[: max(wanted, default=-1) + 1]):
            if t in wanted:
                yield f"{name}/{t:0{width}d}", Sample(Content(arrays, clip=name))
        at += len(fed)


def drawn(lengths: Sequence[int], most: int, seed: int) -> set[int]:
    """Which steps are kept, counted through all sequences: first ones, as far as they are no more than a
    third of what is kept, and others at random. The first token of a text reaches values that no other has,
    and all tokens behind it attend to it."""
    rng, total = np.random.default_rng(seed), sum(lengths)
    count = min(total, most)
    firsts = np.cumsum([0, *lengths[:-1]])
    if len(firsts) > (third := -(-count // 3)):
        firsts = rng.choice(firsts, third, replace=False)
    others = np.setdiff1d(np.arange(total), firsts)
    return {*firsts.tolist(), *rng.choice(others, count - len(firsts), replace=False).tolist()}


def affordable(graph: Graph) -> int:
    """How many steps are kept at most, by the bytes of the states before them."""
    kinds = (graph.type(given) for _, given in graph.state)
    each = sum(kind.size * np.dtype(kind.dtype).itemsize for kind in kinds)
    return max(FEWEST, ROOM // max(each, 1))


def _stepper(graph: Graph, pixels: Mapping[str, Pixels]) -> Callable[[Fed, Fed], Fed]:
    """What makes the next state from a step's inputs and the state before it. Its session, which copies the
    weights, serves all sequences."""
    session = host_session(session_model(graph))
    kept, outputs = {given for _, given in graph.state}, [output for output, _ in graph.state]
    named = {name: pixels.get(name, pixels.get("")) for name in graph.inputs if name not in kept}
    stored = {name: one for name, one in named.items() if one is not None}

    def following(arrays: Fed, held: Fed) -> Fed:
        results = session.run(outputs, {**model_inputs(arrays, stored), **held})
        return {given: result for (_, given), result in zip(graph.state, results, strict=True)}

    return following


def _states(following: Callable[[Fed, Fed], Fed], held: Fed, fed: list[Fed]) -> Iterator[tuple[int, Fed]]:
    """Every step with the state before it."""
    for t, arrays in enumerate(fed):
        yield t, {**arrays, **held}
        if t + 1 < len(fed):
            held = following(arrays, held)
