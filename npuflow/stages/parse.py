"""The float graph: the model rewritten to the operators that targets know."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from npuflow.base.errors import ModelError
from npuflow.base.tables import Config, Fault
from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import View, log, size, stage
from npuflow.frontends import Frontend, Reading, Source
from npuflow.input.pixels.pixel_padding import PixelBorder
from npuflow.input.pixels.pixels import Pixels
from npuflow.ir.graph import Graph, prune
from npuflow.ir.loops import steps_of
from npuflow.ir.op import OPS
from npuflow.ir.queries import kind
from npuflow.ir.text import operators
from npuflow.ir.types import FloatType, GroupedType, QuantType
from npuflow.ir.verify import verify
from npuflow.onnx.fed import MOST, fed_from
from npuflow.place.outputs import with_known_outputs
from npuflow.rewrite.rewrite import Applied, rewrite
from npuflow.rules import RULES, Hardware, Refusal, Rule
from npuflow.stages._entries import GraphEntry, MaskEntry
from npuflow.stages.hardware import Asked
from npuflow.stages.model import Model, ModelTable
from npuflow.tune.correct.caches import BITS, CacheScales
from npuflow.tune.correct.massive import MassiveStreams
from npuflow.tune.improve import Trial, summary

MASKS = "channel-masks.npz"
KEPT = "a larger share or a smaller multiple (npuflow show pruned RECIPE --log lists every group)"
SHOWN = 100                               # changes of one rule that the log lists


@dataclass(frozen=True)
class Parse(Config):
    """How the model is simplified."""

    skip: tuple[Annotated[str, RULES], ...] = ()
    """Rewrite rules to leave out."""
    loops: bool = True
    """Recurrent layers, Scan and Loop of more than 3 steps are loops: the network has the body of a step
    once. False: every step is written out."""
    stated: bool = True
    """Codes that the model states, of weights and of activations, are kept. False: it is the network of the
    floats that they stand for, and [quantize] alone says what these become."""
    max_weights: str = ""
    """Weights up to which onnxruntime gets a copy of them ("500MB"; empty: 2 GiB less 16 MiB, as much as
    one ONNX model holds). Those of a larger network stay in the cache's files and are mapped, which takes
    less memory and, since kernels cannot reorder them, more time."""

    def check(self) -> Iterator[Fault]:
        try:
            self.most  # noqa: B018
        except ValueError as fault:
            yield Fault("max_weights", str(fault), code="NF-RECIPE-024")

    @property
    def most(self) -> int:
        return min(size(self.max_weights), MOST) if self.max_weights else MOST


@dataclass(frozen=True)
class ReadingOptions(View):
    """How a model is read and rewritten."""

    model: ModelTable
    parse: Parse
    asked: Asked


@dataclass(frozen=True)
class Parsed(
    Artifact, rows=("refusals", "applied"), corrections="trials", **{MASKS: "masks"},
    pixels={"inputs": "pixels", "borders": "borders"},
    optional=("stated", "corrections", "pixels", "kept", "before", "massive", "caches", "narrow", MASKS),
    codecs={"graph": GraphEntry, "before": GraphEntry, "masks": MaskEntry},
):
    """The graph, what rules refused, what they did, what reading had to assume, and the codes that the model
    states; inputs that take pixels, and the layers that pad them. `before`: the network before channels were
    removed, if any were, and `masks` what is left of its weights; `kept`: why none were, though asked for.
    `massive`: residual streams whose channels are scaled, for the other shapes. `caches`: scales of caches by
    head, for the same; `narrow`: the types of values that these are made of, which stay.
    """

    graph: Graph
    refusals: tuple[Refusal, ...] = ()
    applied: tuple[Applied, ...] = ()
    notes: tuple[str, ...] = ()
    trials: tuple[Trial, ...] = ()        # what equalisation did
    stated: Mapping[str, QuantType | FloatType | GroupedType] = field(default_factory=dict)
    pixels: Mapping[str, Pixels] = field(default_factory=dict)
    borders: tuple[PixelBorder, ...] = ()
    before: Graph | None = None
    masks: Mapping[str, Any] = field(default_factory=dict)
    kept: str = ""
    massive: MassiveStreams = field(default_factory=dict)
    caches: CacheScales = field(default_factory=dict)
    narrow: Mapping[str, QuantType] = field(default_factory=dict)

    @property
    def whole(self) -> Graph:
        """The network that computes what the model does."""
        return self.graph if self.before is None else self.before

    @property
    def rounded(self) -> Mapping[str, QuantType]:
        """What the model itself rounds to codes: its own numbers, where pixels are ours."""
        return {name: quant for name, quant in self.stated.items() if name not in self.pixels}

    def products(self) -> dict[str, str]:
        return {"channel_masks": MASKS} if self.before is not None else {}

    def uses(self) -> dict[str, tuple[str, ...]]:
        return {"ops": operators(self.graph)}

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "nodes": len(self.graph.nodes), "rewrites": len(self.applied), "refusals": len(self.refusals),
        }
        if stated := len(set(self.stated) - set(self.pixels)):
            found["stated_codes"] = stated
        if self.pixels:
            found["pixels"] = ", ".join(self.pixels)
        if self.massive:
            found["massive_channels"] = sum(len(one.channels) for one in self.massive.values())
        if self.caches:
            found["caches"] = f"{len(self.caches)} of {BITS} bits"
        if self.kept:
            found |= {"warning": f"[prune.channels] removes no channel: {self.kept}", "warning_hint": KEPT}
        return {**found, **summary(self.trials)}


def parsed(data: Source | bytes, reader: Frontend, table: ModelTable, skip: tuple[str, ...] = ()) -> Parsed:
    """Read and rewrite one model."""
    return rewritten(reader.read(data, table.bindings), skip)


def rewritten(
    reading: Reading,
    skip: tuple[str, ...] = (),
    most: int | None = None,
    hardware: Hardware = Rule.hardware,
    loops: bool = True,
    codes: bool = True,
) -> Parsed:
    """Rewrite what was read; `most`: no more than so many changes; `hardware`: the target's; `loops`: they
    stay, and are not written out; `codes`: those that the model states are kept."""
    reading = reading if codes else replace(reading, stated={})
    graph, wanted = verify(reading.graph, "reading the model"), reading.graph.outputs
    # What the model rounds to codes is a value of its own: as an output, no rule may compute past it.
    rounded = (
        v
        for v in reading.stated
        if v in graph.values and graph.const(v) is None and v not in (*wanted, *graph.inputs)
    )
    graph = graph.replaced(outputs=(*wanted, *rounded))
    names = [name for name in RULES.names() if name not in skip]
    done = rewrite(graph, names, most=most, hardware=hardware, loops=loops, kept=in_groups(reading.stated))
    final = with_known_outputs(prune(done.graph.replaced(outputs=wanted)))
    stated = {name: quant for name, quant in reading.stated.items() if name in final.values}
    final = _recoded(final, stated)
    return Parsed(final, done.refusals, done.applied, reading.notes, stated=stated)


def _recoded(graph: Graph, stated: Mapping[str, Any]) -> Graph:
    """The graph where nodes that put codes into others are operators of the NPU, as a file's QUANTIZE of
    codes is: the host would run an Identity, and all of a loop that it is in. Rules come before: they know
    an Identity."""
    nodes = tuple(
        replace(node, op=OPS["requantize"]())
        if kind(node) == "host:identity"
        and all(isinstance(stated.get(v), QuantType) for v in (node.inputs[0], node.outputs[0]))
        else node
        for node in graph.nodes
    )
    return graph if nodes == graph.nodes else graph.replaced(nodes=nodes)


def in_groups(stated: Mapping[str, QuantType | FloatType | GroupedType]) -> tuple[str, ...]:
    """Weights whose codes are stated in groups. No rule folds a scale into one: no codes stand for what it
    would become."""
    return tuple(name for name, quant in stated.items() if isinstance(quant, GroupedType))


def _computes(graph: Graph) -> None:
    """A program computes its outputs from its inputs: a model without any, or one that hands
    an input on, is a ModelError."""
    if not graph.inputs:
        raise ModelError(
            "the model has no inputs",
            because="all its outputs are constant: there is nothing to compile", code="NF-MODEL-036",
        )
    inner = steps_of(graph)
    for name in graph.outputs:
        if name in inner:
            raise ModelError(
                f'the output "{name}" is a value of one step of a loop',
                because="a program gives what leaves the loop",
                hint="[parse] loops = false writes loops out", code="NF-MODEL-360",
            ).at(value=name)
        if name in graph.inputs:
            rest = [o for o in graph.outputs if o not in graph.inputs]
            hint = f"[model] outputs = {json.dumps(rest)} leaves it out" if rest else ""
            because = "it is an input of the model"
            raise ModelError(
                f'nothing computes the output "{name}"', because=because, hint=hint, code="NF-MODEL-037",
            ).at(value=name)


def _changes(applied: Sequence[Applied]) -> Iterator[str]:
    """Of every rule how often it applied, and below it the nodes of each change, in the order made."""
    for rule, count in sorted(Counter(one.rule for one in applied).items()):
        yield f"{rule}: {count}"
        lines = [one.line() for one in applied if one.rule == rule]
        yield from (f"  {line}" for line in lines[:SHOWN])
        if count > SHOWN:
            yield f"  and {count - SHOWN} more: `npuflow show parse RECIPE` lists all"


@stage(quick=True)
def parse(
    source: Model,
    asked: Asked,
    parse: Parse,
) -> Parsed:
    """The graph at the rules' fixed point."""
    result = rewritten(
        source.reading, parse.skip, hardware=asked.known, loops=parse.loops, codes=parse.stated
    )
    held = sum(array.nbytes for array in result.graph.consts.values())
    if least := fed_from(held, parse.most):
        result = replace(result, graph=result.graph.replaced(fed=least))
        log(f"{held:,} bytes of weights, more than {parse.most:,}: those of {least:,} and more are mapped")
    _computes(result.graph)
    for note in result.notes:
        log(note)
    for line in _changes(result.applied):
        log(line)
    for refusal in result.refusals:
        log(f"{refusal.rule} left {refusal.node}: {refusal.reason}")
    return result
