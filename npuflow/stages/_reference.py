"""What programs are judged by: the float graph with the roundings that the model's file states."""

from __future__ import annotations

from npuflow.ir.graph import Graph
from npuflow.run.as_stated import as_stated
from npuflow.stages.parse import Parsed


def reference_of(parsed: Parsed) -> Graph:
    """With all channels, where some were removed."""
    return as_stated(parsed.whole, parsed.rounded)


def layers_of(parsed: Parsed) -> Graph:
    """The float graph whose layers are those of the program."""
    return as_stated(parsed.graph, parsed.rounded)
