"""The one place that opens an onnxruntime session, and what its options mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from npuflow.onnx.fed import Array, FedModel, SessionModel

SILENT = 4                                # the log level: what goes wrong is raised, and reported once


class FedSession:
    """An onnxruntime session whose constants are given beside every feed. Callers do not see them among the
    inputs."""

    def __init__(self, session: Any, constants: Mapping[str, Array]) -> None:
        self.session, self.constants = session, dict(constants)

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Any]) -> list[Any]:
        found: list[Any] = self.session.run(names, {**feed, **self.constants})
        return found

    def get_inputs(self) -> list[Any]:
        return [port for port in self.session.get_inputs() if port.name not in self.constants]

    def get_outputs(self) -> list[Any]:
        return list(self.session.get_outputs())

    def get_modelmeta(self) -> Any:
        return self.session.get_modelmeta()

    def io_binding(self) -> Any:
        binding = self.session.io_binding()
        for name, array in self.constants.items():
            binding.bind_cpu_input(name, array)
        return binding

    def run_with_iobinding(self, binding: Any) -> None:
        self.session.run_with_iobinding(binding)


def opened(
    model: SessionModel | Path,
    *,
    threads: int = 1,
    optimised: bool = True,
    float_codes: bool = False,
    deterministic: bool = False,
    spinning: bool = True,
) -> Any:
    """A session of a model, or of a file, on the processor; onnxruntime's own errors, which share no public
    base class.

    `threads`: within an operator. One gives the same bytes on every run of one machine. Not `optimised`:
    nodes run as they are written, none fused. `float_codes`: float operators between roundings run as they
    are written, not as integer kernels, which saturate on some processors. `deterministic`: no kernel whose
    order of sums varies. Not `spinning`: threads wait without taking processor time.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = SILENT
    options.use_deterministic_compute = deterministic
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if float_codes:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    if not spinning:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if isinstance(model, FedModel):
        # What a run makes of a large constant, such as the numbers of its codes, is made where it is read,
        # which the order of the file is, and given back at once.
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    source = model.proto if isinstance(model, FedModel) else str(model) if isinstance(model, Path) else model
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return FedSession(session, model.constants) if isinstance(model, FedModel) else session
