"""ONNX's backend interface over programs, ONNX and TFLite models: the names of `onnxruntime.backend`."""

from __future__ import annotations

import os
from typing import Any

from onnxruntime.backend.backend import OnnxRuntimeBackend
from onnxruntime.backend.backend_rep import OnnxRuntimeBackendRep

from npuflow.ort.session import InferenceSession, model_of, program_of
from npuflow.ort.shell import shell
from npuflow.runner.runner import Runner


class OrtBackend(OnnxRuntimeBackend):  # type: ignore[misc]
    """onnxruntime's backend; a program is prepared as one of npuflow's sessions."""

    @classmethod
    def prepare(cls, model: Any, device: str | None = None, **kwargs: Any) -> Any:
        """What runs the model: a path or bytes (`.npu`, ONNX, TFLite), an ONNX model, or a session.

        Arguments are onnxruntime's: `device` is "CPU" or None, `kwargs` are options of a session; a device
        or an option that it does not allow raises its RuntimeError.
        """
        if not isinstance(model, str | bytes | os.PathLike):
            return super().prepare(model, device, **kwargs)
        program, several = program_of(model)
        if program is None:
            source = model_of(model)
            source = os.fspath(source) if isinstance(source, os.PathLike) else source
            return super().prepare(source, device, **kwargs)
        with Runner(model if several else program) as ends:
            described = shell(program, ends.inputs, ends.outputs)
        checked = super().prepare(described, device, **kwargs)  # its own checks, and its options
        return OnnxRuntimeBackendRep(InferenceSession(model, checked._session.get_session_options()))


is_compatible = OrtBackend.is_compatible
prepare = OrtBackend.prepare
run = OrtBackend.run_model
supports_device = OrtBackend.supports_device
