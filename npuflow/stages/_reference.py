"""What programs are judged by: the float graph with the roundings that the model's file states."""

from __future__ import annotations

from npuflow.engine.as_stated import as_stated
from npuflow.ir.graph import Graph
from npuflow.stages.parse import Parsed


def reference_of(parsed: Parsed) -> Graph:
    return as_stated(parsed.graph, parsed.rounded)
