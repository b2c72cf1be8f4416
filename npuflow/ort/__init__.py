"""A drop-in for onnxruntime: `import npuflow.ort as ort`, and its sessions run compiled programs too.

`InferenceSession` and `backend` take `.npu` programs and TFLite models beside ONNX; everything else,
submodules included, is onnxruntime's own.
What has no meaning for a program raises `UnsupportedError`.
"""

from __future__ import annotations

import sys
from typing import Any

import onnxruntime

from npuflow.ort.binding import IOBinding as IOBinding
from npuflow.ort.session import InferenceSession as InferenceSession
from npuflow.ort.submodules import OnnxruntimeSubmodules
from npuflow.ort.values import PROVIDER
from npuflow.ort.values import UnsupportedError as UnsupportedError

if not any(isinstance(finder, OnnxruntimeSubmodules) for finder in sys.meta_path):
    sys.meta_path.insert(0, OnnxruntimeSubmodules())


def get_available_providers() -> list[str]:
    """onnxruntime's execution providers, and npuflow's, which runs programs."""
    return [PROVIDER, *onnxruntime.get_available_providers()]


def get_all_providers() -> list[str]:
    """The same of all that onnxruntime knows."""
    return [PROVIDER, *onnxruntime.get_all_providers()]


def __getattr__(name: str) -> Any:
    """Whatever this package does not replace is onnxruntime's."""
    return getattr(onnxruntime, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(onnxruntime)})
