"""I/O binding of a program: inputs are read and outputs written where the caller's memory is."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import onnxruntime
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, OrtValueVector

from npuflow.ort.values import UnsupportedError, array_of
from npuflow.runner.ports import Array


class IOBinding(onnxruntime.IOBinding):  # type: ignore[misc]
    """onnxruntime's IOBinding for a program's session; of a model's session it is onnxruntime's own."""

    def __new__(cls, session: Any) -> Any:
        """The class that fits the session."""
        if getattr(session, "program", None) is None:
            return onnxruntime.IOBinding(session)
        return super().__new__(cls)

    def __init__(self, session: Any) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}  # what results are written into; None: a new value
        self._made: dict[str, onnxruntime.OrtValue] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None:
        self._inputs[self._input(name)] = arr_on_cpu

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        self._inputs[self._input(name)] = _memory(device_type, element_type, shape, buffer_ptr)

    def bind_ortvalue_input(self, name: str, ortvalue: onnxruntime.OrtValue) -> None:
        self._inputs[self._input(name)] = ortvalue

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        held = None
        if buffer_ptr is not None:
            if element_type is None or shape is None:
                raise ValueError(
                    "`element_type` and `shape` are to be provided if pre-allocated memory is provided"
                )
            held = _memory(device_type, element_type, shape, buffer_ptr)
        elif device_type != "cpu":
            raise UnsupportedError(f'memory of the device "{device_type}"')
        self._outputs[self._output(name)] = held

    def bind_ortvalue_output(self, name: str, ortvalue: onnxruntime.OrtValue) -> None:
        self._outputs[self._output(name)] = ortvalue

    def synchronize_inputs(self) -> None:
        """All memory is the CPU's: there is nothing to wait for."""

    def synchronize_outputs(self) -> None:
        """All memory is the CPU's: there is nothing to wait for."""

    def get_outputs(self) -> list[onnxruntime.OrtValue]:
        return [self._made[name] for name in self._outputs if name in self._made]

    def get_outputs_as_ortvaluevector(self) -> Any:
        found = OrtValueVector()
        for value in self.get_outputs():
            found.push_back(value._get_c_value())
        return found

    def copy_outputs_to_cpu(self) -> list[Array]:
        return [value.numpy() for value in self.get_outputs()]

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()
        self._made.clear()

    def feed(self) -> dict[str, Array]:
        """The bound inputs, as they are in memory now."""
        return {name: array_of(value, name) for name, value in self._inputs.items()}

    @property
    def names(self) -> list[str]:
        return list(self._outputs)

    def take(self, results: Sequence[Array]) -> None:
        """Write results to where outputs are bound."""
        for (name, held), result in zip(self._outputs.items(), results, strict=True):
            if isinstance(held, onnxruntime.OrtValue):
                _same(name, result, tuple(held.shape()), held.numpy().dtype)
                held.update_inplace(np.ascontiguousarray(result))
                self._made[name] = held
            elif held is not None:
                _same(name, result, held.shape, held.dtype)
                np.copyto(held, result)
                self._made[name] = onnxruntime.OrtValue.ortvalue_from_numpy(held)
            else:
                self._made[name] = onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(result))

    def _input(self, name: str) -> str:
        return _known(name, [port.name for port in self._session.get_inputs()], "input")

    def _output(self, name: str) -> str:
        return _known(name, [port.name for port in self._session.get_outputs()], "output")


def _known(name: str, names: Sequence[str], what: str) -> str:
    if name not in names:
        raise InvalidArgument(f"Failed to find {what} name in the mapping: {name}")
    return name


def _same(name: str, result: Array, shape: tuple[int, ...], dtype: Any) -> None:
    if result.shape != tuple(shape) or result.dtype != dtype:
        raise InvalidArgument(
            f"The output {name} is {result.dtype} {list(result.shape)}, "
            f"the bound memory {dtype} {list(shape)}"
        )


def _memory(device: str, element: Any, shape: Sequence[int], address: int) -> Array:
    """An array over the caller's memory; nothing is copied."""
    if device != "cpu":
        raise UnsupportedError(f'memory of the device "{device}"')
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element) if isinstance(element, int) else element)
    size = prod(shape) * dtype.itemsize
    held = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(memoryview(held), dtype).reshape(shape)
