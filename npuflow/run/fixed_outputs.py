"""Replaces outputs whose shape depends on data by their last values of fixed shape.
Networks with such outputs can then be judged.
"""

from __future__ import annotations

from npuflow.ir.graph import Graph


def with_fixed_outputs(graph: Graph) -> Graph:
    """The graph with those values as outputs: what suppression and other selections read. An output of fixed
    shape stays, and so does one behind which no such value of real numbers is. State is no part of it."""
    if all(graph.type(o).is_static for o in graph.outputs):
        return graph
    producer = graph.producer()
    found: dict[str, None] = {}
    for output in graph.outputs:
        todo, seen, own = [output], {output}, []
        while todo:
            name = todo.pop(0)
            if graph.type(name).is_static:
                real = graph.type(name).dtype == "float32" and name not in graph.inputs
                own += [name] if real else []
                continue
            read = producer[name].inputs if name in producer else ()
            more = [i for i in dict.fromkeys(read) if i and i not in seen and graph.const(i) is None]
            seen.update(more)
            todo += more
        found.update(dict.fromkeys(own or [output]))
    kept = tuple(pair for pair in graph.state if pair[0] in found)
    return graph.replaced(outputs=tuple(found), state=kept)
