"""A network that begins at tensors of its inside: what lies before them is left out."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.base.errors import ModelError, suggestion
from npuflow.ir.graph import Graph, prune


def begun(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with these values as inputs, before those of its own inputs that are still read."""
    made = {o: node for node in graph.nodes for o in node.outputs if o}
    read = {v for node in graph.nodes for v in node.inputs}
    inner = sorted(o for o in made if o in read)
    for name in names:
        if name in made and name not in read:
            before = [v for v in made[name].inputs if v in made]
            raise ModelError(
                f'the network cannot begin at the output "{name}"',
                because="behind an output nothing is computed",
                hint=f"begin further in front: {', '.join(before or inner)}" if inner else "",
                code="NF-MODEL-146",
            ).at(value=name)
        if name not in made:
            whole = f"no tensor of that name leads to the outputs {', '.join(graph.outputs)}"
            raise ModelError(
                f'the network cannot begin at "{name}"',
                because="it is an input of the model" if name in graph.inputs else whole,
                hint=suggestion(name, inner) or "the output of a node, by its name in the model",
                code="NF-MODEL-145",
            ).at(value=name)
    nodes = [node for node in graph.nodes if not set(node.outputs) <= {*names, ""}]
    cut = graph.replaced(inputs=(*dict.fromkeys(names), *graph.inputs), nodes=tuple(nodes))
    rest = prune(_alone(cut, names))
    read = {v for node in rest.nodes for v in node.inputs}
    unread = [name for name in names if name not in read]
    if unread:
        raise ModelError(
            f'nothing between "{unread[0]}" and the outputs is left',
            because=f"the outputs are {', '.join(graph.outputs)}",
            hint="begin further in front, or end further behind: [model] outputs, --output",
            code="NF-MODEL-146",
        ).at(value=unread[0])
    kept = tuple(i for i in rest.inputs if i in read or i in rest.outputs)
    return prune(rest.replaced(inputs=kept))


def _alone(graph: Graph, names: Sequence[str]) -> Graph:
    """Refuses a node of several results of which some are inputs now and others still computed."""
    for node in graph.nodes:
        both = [o for o in node.outputs if o in names]
        if both:
            raise ModelError(
                f'the network cannot begin at "{both[0]}" alone',
                because=f"{node.name} also computes {', '.join(o for o in node.outputs if o not in names)}",
                hint="begin at all results of the node",
                code="NF-MODEL-147",
            ).at(value=both[0], node=node.name)
    return graph
