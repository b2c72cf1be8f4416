"""An operator all of whose inputs are constants becomes a constant."""

from __future__ import annotations

import numpy as np

from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import Node
from npuflow.ir.queries import kind
from npuflow.rules import RULES, Change, Refusal, Rule

_LIMIT = 1 << 24      # elements


@RULES.entry
class FoldConstants(Rule):
    """Reading folds what the source states; this folds what other rules leave behind."""

    order = 5

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        if (
            kind(node).startswith("host:")
            or node.op.border_of_loop
            or not any(node.inputs)
            or any(o in graph.outputs for o in node.outputs)
        ):
            return None
        arrays = [graph.const(i) for i in node.inputs]
        if any(a is None for a, i in zip(arrays, node.inputs, strict=True) if i):
            return None
        sizes = [graph.type(o) for o in node.outputs if o]
        if not all(t.is_static and t.size <= _LIMIT for t in sizes):
            return Refusal("fold_constants", node.name, f"the result exceeds {_LIMIT} elements")
        results = node.op.clipped(*arrays)
        values, consts, alias = [], {}, []
        for output, array in zip(node.outputs, results, strict=True):
            if output:
                value, entry = constant(f"{output}:folded", np.asarray(array, graph.type(output).dtype))
                values.append(value)
                consts.update(entry)
                alias.append((output, value.id))
        return Change((node,), (), tuple(values), tuple(consts.items()), tuple(alias))
