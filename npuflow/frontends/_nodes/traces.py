"""Finds the line of the training code in a stack trace that PyTorch's exporters keep."""

from __future__ import annotations

import re

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
_TORCH = re.compile(r"[/\\](torch[/\\](nn|_|fx|export|functional|utils|onnx|overrides)|torchao[/\\])")


def line_of(trace: str) -> tuple[str, int]:
    """The innermost frame that is not PyTorch's own: file and line; ("", 0) where there is none."""
    frames = [(file, int(line)) for file, line in _FRAME.findall(trace)]
    own = [frame for frame in frames if not _TORCH.search(frame[0])]
    return own[-1] if own else ("", 0)
