"""Runs what a checkpoint became: chunks of tokens through the float network, with the state between."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from npuflow.frontends import Bindings, Reading
from npuflow.input.sources import gathered
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.run.floats import FloatRun
from npuflow.run.state import zeros
from npuflow.stages.parse import rewritten

FAMILIES = Path(__file__).parent / "families"


def read(path: Path, chunk: int = 1, context: int = 32, longest: int = 0) -> Reading:
    _, reader, source = gathered(path)
    """`longest`: the longest chunk of all that share the caches."""
    dims = {"chunk": chunk, "context": context}
    return reader.read(source, Bindings(dims=dims, largest={"chunk": max(longest, chunk)}))


class Running:
    """Networks of one checkpoint at several chunk lengths, over one cache."""

    def __init__(self, path: Path, context: int = 32, rewrite: bool = True, longest: int = 0) -> None:
        """`longest`: the longest chunk of all; 0: the first one's."""
        self.path, self.context, self.rewrite, self.longest = path, context, rewrite, longest
        self.made: dict[int, tuple[Graph, FloatRun]] = {}

    def graph(self, chunk: int) -> tuple[Graph, FloatRun]:
        if chunk not in self.made:
            self.longest = max(self.longest, chunk)
            found = read(self.path, chunk, self.context, self.longest)
            graph = found.graph if not self.rewrite else rewritten(found).graph
            graph = graph.replaced(state=found.graph.state)
            self.made[chunk] = graph, FloatRun.of(graph, graph.outputs)
        return self.made[chunk]

    def logits(self, tokens: Array, chunks: Sequence[int]) -> Array:
        """Of the last token of every chunk."""
        self.longest = max(self.longest, *chunks)
        held: dict[str, Array] = {}
        found, at = [], 0
        for chunk in chunks:
            graph, run = self.graph(chunk)
            held = held or zeros(graph)
            made = run.run({**held, "tokens": tokens[:, at : at + chunk]})
            held = {given: made[output] for output, given in graph.state}
            found.append(made["logits"][0])
            at += chunk
        return np.stack(found)
