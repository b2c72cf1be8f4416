"""Networks written in Python: a function for every operator of the registry; graphs of what they give.

Noun: `Graph`.
Public: `Tensor`, `graph`, `save`, one function an operator.
Does not know: targets, recipes.
"""

from __future__ import annotations

from typing import Any

from npuflow.lang.functions import Function, apply, function, names, onnx_operator
from npuflow.lang.network import graph as graph
from npuflow.lang.network import page
from npuflow.lang.network import reading as reading
from npuflow.lang.network import save as save
from npuflow.lang.tensor import Tensor as Tensor
from npuflow.lang.tensor import constant as constant
from npuflow.lang.tensor import input as input  # noqa: A004
from npuflow.lang.tensor import stated as stated

Tensor.apply, Tensor.page = staticmethod(apply), staticmethod(page)

_OWN = ("Tensor", "constant", "graph", "input", "onnx", "reading", "save", "stated")


def __getattr__(name: str) -> Function:
    """The function of an operator: `lang.conv(x, w, b, strides=(2, 2))`; `onnx` applies any operator of ONNX:
    `lang.onnx("LayerNormalization", x, scale, axis=-1)`."""
    if name == "onnx":
        return onnx_operator
    if name.startswith("_") or name not in names():
        raise AttributeError(f"module 'npuflow.lang' has no attribute {name!r}")
    return function(name)


def __dir__() -> list[str]:
    return sorted({*_OWN, *names()})


__all__: Any = list(_OWN)
