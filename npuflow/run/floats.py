"""The float network, or its nodes from some place on, as one session that takes and gives values by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array, TensorType
from npuflow.onnx.export import session_model
from npuflow.onnx.fed import SessionModel
from npuflow.onnx.session import opened


def float_session(model: SessionModel) -> Any:
    """onnxruntime on one thread with its fusions: the same bytes for any sharding, on processors of one
    feature class. Float operators between roundings run as they are written: onnxruntime would put integer
    kernels in their place, and codes of its own choice in the place of their weights."""
    try:
        return opened(model, spinning=False, float_codes=True)
    except Exception as fault:  # onnxruntime raises classes of its own for anything a model may do wrong
        raise ModelError(
            "onnxruntime cannot load the float model", because=str(fault), code="NF-MODEL-004",
        ) from fault


def plain_session(model: SessionModel, *, optimised: bool = True) -> Any:
    """One thread, and no integer kernels in place of the float ones written down; not
    `optimised`: no fused ones either."""
    return opened(model, float_codes=True, optimised=optimised)


class FloatRun:
    """A model of floats. `made`: its outputs, in order; without any nothing is run. `fed`: what it reads."""

    def __init__(self, model: SessionModel, made: Sequence[str]) -> None:
        self.made = tuple(made)
        self.session = float_session(model) if self.made else None
        self.fed = tuple(i.name for i in self.session.get_inputs()) if self.session is not None else ()
        self._rooms: dict[str, Array] = {}

    @classmethod
    def of(cls, graph: Graph, shown: Sequence[str], since: int = 0) -> FloatRun:
        """The nodes from number `since` on, which read what stands above them. `shown`: the values to give;
        those that these nodes do not make are left out."""
        if since == 0:
            made = [v for v in dict.fromkeys(shown) if v not in graph.inputs]
            return cls(session_model(graph, made) if made else b"", made)
        nodes = graph.nodes[since:]
        own = {v for node in nodes for v in node.outputs}
        made = [v for v in dict.fromkeys(shown) if v in own]
        read = dict.fromkeys(v for node in nodes for v in node.inputs if v and v not in own)
        fed = [v for v in read if graph.const(v) is None]
        model = session_model(graph, made, nodes, fed) if made else b""
        return cls(model, made)

    def run(self, values: Mapping[str, Array], wanted: Sequence[str] | None = None) -> dict[str, Array]:
        """Of one sample the outputs, or some of them; a ModelError where the model does not run."""
        names = self.made if wanted is None else wanted
        if self.session is None or not names:
            return {}
        try:
            results = self.session.run(list(names), {name: values[name] for name in self.fed})
        except Exception as fault:  # as above
            raise ModelError(
                "the float model does not run on this sample", because=str(fault), code="NF-MODEL-003",
            ) from fault
        return dict(zip(names, results, strict=True))

    def reused(self, values: Mapping[str, Array], kinds: Mapping[str, TensorType]) -> Mapping[str, Array]:
        """The outputs in arrays that the next call writes over: fresh memory for all tensors of a network
        takes as long as a pass. `kinds`: of the outputs, which have fixed shapes."""
        if self.session is None:
            return {}
        binding = self.session.io_binding()
        for name in self.fed:
            binding.bind_cpu_input(name, np.ascontiguousarray(values[name]))
        for name in self.made:
            if name not in self._rooms:
                self._rooms[name] = np.empty(kinds[name].shape, kinds[name].dtype)
            room = self._rooms[name]
            binding.bind_output(name, "cpu", 0, room.dtype, room.shape, room.ctypes.data)
        self.session.run_with_iobinding(binding)
        return self._rooms
