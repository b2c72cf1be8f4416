"""A checkpoint as a graph whose state is its cache, as the recipe binds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import onnx

from npuflow.base.errors import ModelError
from npuflow.base.tables_toml import dotted
from npuflow.base.wording import counted
from npuflow.checkpoints import Checkpoint
from npuflow.checkpoints.ports import CHUNK, CONTEXT, LOGITS, NEXT, POSITION, TOKENS, cache_name
from npuflow.frontends import Bindings, Reading
from npuflow.frontends._nodes import ends
from npuflow.frontends._nodes.build import NodeBuilder
from npuflow.frontends.checkpoint.families._decoder import Decoder
from npuflow.frontends.checkpoint.families._roles import DecoderWeights
from npuflow.frontends.checkpoint.known import family, names
from npuflow.frontends.checkpoint.network import DecoderGraph
from npuflow.frontends.checkpoint.ring import ring_rows
from npuflow.ir.graph import Graph, prune
from npuflow.onnx.run import EXPORT_OPSET

USUAL = MappingProxyType({CHUNK: 1, CONTEXT: 256})
"""Sizes that are taken where the recipe gives none."""


def weights_of(checkpoint: Checkpoint, context: int) -> DecoderWeights:
    """The tensors by role, with the network that they are of; every shape is checked."""
    own = family(checkpoint)
    found = DecoderWeights(checkpoint, own.decoder(checkpoint, context), names(own, checkpoint))
    found.check()
    return found


@dataclass(frozen=True)
class SizedCheckpoint:
    """A checkpoint with the sizes of its program, and notes on what nobody stated. `longest`: the longest
    chunk of all programs that share its caches."""

    weights: DecoderWeights
    chunk: int
    context: int
    longest: int
    notes: tuple[str, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        return {CHUNK: self.chunk, CONTEXT: self.context}


def measured(checkpoint: Checkpoint, stated: Mapping[str, int], longest: int = 0) -> SizedCheckpoint:
    """New tokens of a run and tokens that the cache holds: as stated, else the usual. `longest`: the longest
    chunk of all programs over the same caches."""
    unknown = next((name for name in stated if name not in USUAL), None)
    if unknown is not None:
        raise ModelError(
            f'the model has no dimension "{unknown}"', because=f"its dimensions are {CHUNK} and {CONTEXT}",
            code="NF-MODEL-455",
        ).at(key=dotted(("model", "dims", unknown)))
    sizes = {**USUAL, **stated}
    weights = weights_of(checkpoint, sizes[CONTEXT])
    if CONTEXT not in stated and weights.decoder.longest < sizes[CONTEXT]:
        sizes[CONTEXT] = weights.decoder.longest
        weights = weights_of(checkpoint, sizes[CONTEXT])
    fits(weights.decoder, sizes[CHUNK], sizes[CONTEXT])
    notes = tuple(
        f"{name} is taken as {sizes[name]}; [model] dims = {{ {name} = ... }} states it"
        for name in USUAL
        if name not in stated
    )
    return SizedCheckpoint(weights, sizes[CHUNK], sizes[CONTEXT], max(sizes[CHUNK], longest), notes)


def bound(checkpoint: Checkpoint, bindings: Bindings) -> SizedCheckpoint:
    """A checkpoint with the sizes that the recipe states, as dimensions or as the shape of tokens."""
    stated, most = dict(bindings.dims), bindings.largest
    if len(bindings.inputs.get(TOKENS, ())) == 2:
        stated.setdefault(CHUNK, bindings.inputs[TOKENS][1])
    tokens, chunk = most.get(TOKENS, ()), most.get(CHUNK, 0)
    other = tokens[1] if isinstance(tokens, tuple) and len(tokens) == 2 else 0
    return measured(checkpoint, stated, max(other, chunk if isinstance(chunk, int) else 0))


def shared(checkpoint: Checkpoint, bindings: Bindings) -> dict[str, int]:
    """Rows of the rings by window: what the longest of several chunks makes of a checkpoint."""
    found = bound(checkpoint, bindings)
    windows = sorted(set(found.weights.decoder.windows))
    rows = (ring_rows(window, found.longest, found.context) for window in windows)
    return {f"window {window}": count for window, count in zip(windows, rows, strict=True) if count}


def reading(checkpoint: Checkpoint, bindings: Bindings) -> Reading:
    """`tokens` [1, chunk] behind `position` tokens of the cache; logits of the last, and the cache with them.
    """
    found = bound(checkpoint, bindings)
    decoder = found.weights.decoder
    builder = NodeBuilder({"": EXPORT_OPSET})
    builder.notes += found.notes
    network = DecoderGraph(builder, decoder, found.weights, found.chunk, found.context, found.longest)
    infos = ports(network)
    held = replace(bindings, dims=found.sizes)
    fed, faults = ends.inputs(builder, infos, [LOGITS], held)
    network.written()
    state = {f"{name}{NEXT}": name for name in states(decoder) if name not in bindings.constants}
    wanted = ends.outputs(builder, (LOGITS, *state), fed, held, faults)
    whole = ends.reading(builder, fed, list(dict.fromkeys((*wanted, *state))), {})
    graph = _with_state(whole.graph, wanted, state)
    return replace(whole, graph=graph.replaced(rings=network.rings if graph.state else ()))


def _with_state(graph: Graph, wanted: tuple[str, ...], state: dict[str, str]) -> Graph:
    """The graph with the states that its outputs read."""
    shown = [name for name in wanted if name not in state]
    read = {i for node in prune(graph.replaced(outputs=tuple(shown))).nodes for i in node.inputs}
    kept = {output: given for output, given in state.items() if given in read or output in wanted}
    inputs = tuple(i for i in graph.inputs if i not in state.values() or i in kept.values())
    return prune(graph.replaced(inputs=inputs, outputs=(*shown, *kept), state=tuple(sorted(kept.items()))))


def fits(decoder: Decoder, chunk: int, context: int) -> None:
    """Whether the new tokens fit the cache, and the cache what the model was trained for."""
    if chunk > context:
        raise ModelError(
            f"a chunk of {counted(chunk, 'token')} does not fit a context of {context}",
            hint=f"[model] dims = {{ chunk = {context}, context = {context} }}, or a larger context",
            code="NF-MODEL-456",
        ).at(key=dotted(("model", "dims", CHUNK)))
    if context > decoder.longest:
        raise ModelError(
            f"a context of {counted(context, 'token')} is more than the model was trained for",
            because=f"its checkpoint states {decoder.longest:,}",
            hint=f"[model] dims = {{ context = {decoder.longest} }}, or less", code="NF-MODEL-457",
        ).at(key=dotted(("model", "dims", CONTEXT)))


def states(decoder: Decoder) -> list[str]:
    """What the next run takes over: the number of tokens so far, keys and values of every layer."""
    layers = range(decoder.layers)
    return [POSITION, *(cache_name(layer, what) for layer in layers for what in ("key", "value"))]


def ports(network: DecoderGraph) -> list[onnx.ValueInfoProto]:
    """The inputs with their free dimensions; rings have rows of their own."""
    numbers, make = onnx.TensorProto, onnx.helper.make_tensor_value_info
    decoder = network.decoder
    found = [make(TOKENS, numbers.INT64, [1, CHUNK]), make(POSITION, numbers.INT32, [1])]
    for layer in range(decoder.layers):
        rows: int | str = network.ring(layer) or CONTEXT
        shape: list[str | int | None] = [1, decoder.key_heads, rows, decoder.head_size]
        found += [make(cache_name(layer, what), numbers.FLOAT, shape) for what in ("key", "value")]
    return found
