"""Arrays and options of onnxruntime's interface as a program takes them, with onnxruntime's own errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument

from npuflow.base.errors import UsageError
from npuflow.runner.ports import Array, Port

PROVIDER = "NpuflowExecutionProvider"
CPU = "CPUExecutionProvider"
REQUIRE_KEY = "require_key"
NUMBERS = {"float32": "float", "float64": "double", "str": "string"}


class UnsupportedError(UsageError, NotImplementedError):
    """A part of onnxruntime's interface that has no meaning for a compiled program."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} has no counterpart for a compiled program",
            because="the program is fixed when it is built: graph, placement and kernels",
            hint="an ONNX model takes it; docs/how-to/onnxruntime-scripts.md lists what programs take",
            code="NF-RUN-020",
        )


def tensor_type(dtype: str) -> str:
    """onnxruntime's name of a type, "tensor(float)"."""
    return f"tensor({NUMBERS.get(dtype, dtype)})"


def array_of(value: Any, name: str, dtype: str = "") -> Array:
    """The array of an input: numpy's, an OrtValue's (Python's or C's), or what numpy makes of it; of a list
    in the input's type, as onnxruntime does it. RuntimeError for a list that has no such array."""
    if isinstance(value, list) and dtype:
        try:
            return np.array(value, object if dtype == "str" else dtype)
        except (OverflowError, TypeError, ValueError):
            raise RuntimeError(f"Could not create tensor from given input list: input {name}") from None
    if isinstance(value, onnxruntime.OrtValue) or (hasattr(value, "is_tensor") and hasattr(value, "numpy")):
        if not value.is_tensor():
            raise InvalidArgument(f"the input {name} is no dense tensor")
        return np.asarray(value.numpy())
    if isinstance(value, onnxruntime.SparseTensor):
        raise InvalidArgument(f"the input {name} is a sparse tensor; expected a dense one")
    return np.asarray(value)


def checked(feed: Mapping[str, Any], ports: Sequence[Port]) -> dict[str, Array]:
    """Inputs of one call; what does not fit raises what onnxruntime raises."""
    missing = [port.name for port in ports if port.name not in feed]
    if missing:
        raise ValueError(f"Required inputs ({missing}) are missing from input feed ({list(feed)}).")
    known = {port.name: port for port in ports}
    found = {}
    for name, value in feed.items():
        if name not in known:
            raise InvalidArgument(f"Invalid input name: {name}")
        found[name] = _fitting(array_of(value, name, known[name].dtype), known[name])
    return found


def _fitting(array: Array, port: Port) -> Array:
    expected = tensor_type(port.dtype)
    codes = port.codes and array.dtype.kind in "iu"
    if (
        not codes
        and array.dtype.name != port.dtype
        and not (port.dtype == "str" and array.dtype.kind in "OSU")
    ):
        actual = tensor_type(array.dtype.name)
        raise InvalidArgument(f"Unexpected input data type. Actual: ({actual}) , expected: ({expected})")
    if array.ndim != len(port.shape):
        raise InvalidArgument(
            f"Invalid rank for input: {port.name} Got: {array.ndim} Expected: {len(port.shape)} "
            "Please fix either the inputs/outputs or the model."
        )
    wrong = [
        f"index: {i} Got: {have} Expected: {want}"
        for i, (have, want) in enumerate(zip(array.shape, port.shape, strict=True))
        if want not in (-1, have)
    ]
    if wrong:
        raise InvalidArgument(
            f"Got invalid dimensions for input: {port.name} for the following indices {', '.join(wrong)} "
            "Please fix either the inputs/outputs or the model."
        )
    return array


def wanted(names: Sequence[str] | None, ports: Sequence[Port]) -> list[str]:
    """The outputs that are asked for, all of them by default."""
    known = [port.name for port in ports]
    for name in names or ():
        if name not in known:
            raise InvalidArgument(f"Invalid output name:{name}")
    return list(names or known)


def allowed(options: onnxruntime.RunOptions | None) -> None:
    """What run options ask for; a run that is to terminate does."""
    if options is not None and options.terminate:
        raise Fail("Exiting due to terminate flag being set to true.")


def own_options(
    providers: Sequence[Any] | None, options: Sequence[Mapping[Any, Any]] | None
) -> tuple[dict[str, str], list[Any] | None, list[Any] | None]:
    """npuflow's provider options, and what is left for onnxruntime."""
    if providers is None:
        return {}, None, None
    own: dict[str, str] = {}
    rest, rest_options = [], []
    for i, given in enumerate(providers):
        name = given[0] if isinstance(given, tuple | list) else given
        said = given[1] if isinstance(given, tuple | list) else (options[i] if options else {})
        if name == PROVIDER:
            own = {str(key): str(value) for key, value in said.items()}
        else:
            rest.append(given)
            rest_options.append(said)
    return own, rest or [CPU], (rest_options or [{}]) if options else None


def settings(own: Mapping[str, str]) -> dict[str, Any]:
    """npuflow's provider options as arguments of a runner, but for `require_key`, which says what opens."""
    kinds: dict[str, Any] = {"exact": str, "batch": int, "workers": int, "linger": float, "nan": str}
    found = {}
    for key, value in own.items():
        if key == REQUIRE_KEY:
            continue
        if key not in kinds:
            raise ValueError(f"{PROVIDER} has no option {key!r}; it has {', '.join([*kinds, REQUIRE_KEY])}")
        try:
            found[key] = kinds[key](value)
        except ValueError:
            raise ValueError(f"{PROVIDER}: {key} is {value!r}, no {kinds[key].__name__}") from None
    return found
