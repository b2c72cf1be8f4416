"""A float graph run on batches of samples in PyTorch, constants given anew at every pass."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from npuflow.base.errors import ModelError
from npuflow.gradients.loops import walked
from npuflow.gradients.operators import computed, has_form
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind, title
from npuflow.ir.types import Array


@dataclass
class RealNetwork:
    """The graph's operators on real numbers. Raises ModelError where an operator has no gradient here, or the
    graph a state."""

    graph: Graph
    _fixed: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.graph
        lacking = [n for n in graph.nodes if not has_form(graph.site(n))]
        missing = sorted({title(n) if n.op.hosted else kind(n) for n in lacking})
        if missing or graph.state:
            what = f"no form in PyTorch for {', '.join(missing)}" if missing else "the network keeps a state"
            raise ModelError(
                f"this network cannot be distilled: {what}",
                because="its weights descend along gradients of the outputs of single samples",
                hint='[round] mode = "sequential" or "blocks" needs no gradients through the whole network',
                code="NF-MODEL-352",
            )

    def run(
        self, feeds: Mapping[str, Any], constants: Mapping[str, Any], keep: Collection[str]
    ) -> dict[str, Any]:
        """The values in `keep`, [samples, ...]. `feeds`: inputs, samples along a first dimension before the
        graph's own; `constants`: tensors in the place of some of the graph's."""
        values = {name: channels_last(feeds[name]) for name in self.graph.inputs}

        def made(node: Node, known: Mapping[str, Any]) -> dict[str, Any]:
            given = [self._operand(v, known, constants) for v in node.inputs]
            found = computed(self.graph.site(node), given)
            return {o: one for o, one in zip(node.outputs, found, strict=False) if o}

        def read(node: Node, known: Mapping[str, Any]) -> Any:
            return self._operand(node.inputs[0], known, constants)

        walked(self.graph, values, made, read, keep)
        return {name: values[name] for name in keep}

    def _operand(self, name: str, values: Mapping[str, Any], constants: Mapping[str, Any]) -> Any:
        if not name:
            return None
        if name in values:
            return values[name]
        if name in constants:
            return constants[name].unsqueeze(0)
        if name not in self._fixed:
            array = self.graph.const(name)
            assert array is not None
            self._fixed[name] = torch.from_numpy(np.array(array)).unsqueeze(0)
        return self._fixed[name]


def channels_last(x: Any) -> Any:
    """The same numbers, channels of images [samples, 1, channels, height, width] side by side in memory: the
    kernels of convolutions are faster there, and hand that order on."""
    if x.dim() != 5 or x.shape[1] != 1:
        return x
    return x[:, 0].contiguous(memory_format=torch.channels_last).unsqueeze(1)


def batched(feeds: Collection[Mapping[str, Array]], names: Collection[str]) -> dict[str, Any]:
    """Samples of a graph's inputs as tensors [samples, ...], whole numbers as floats."""
    rows = {name: np.stack([feed[name] for feed in feeds]) for name in names}
    return {name: torch.from_numpy(array.astype(np.float32)) for name, array in rows.items()}
