"""What TensorFlow raises, as errors of one line."""

from __future__ import annotations

from pathlib import Path

from npuflow.base.errors import ModelError, NpuflowError


def damaged(path: Path, fault: Exception) -> NpuflowError:
    return ModelError(
        f'"{path.name}" cannot be loaded by TensorFlow',
        because=line(fault),
        hint="is it whole, and of a version that this TensorFlow reads?",
        code="NF-MODEL-169",
    ).at(file=str(path))


def line(fault: Exception) -> str:
    """The line of what went wrong that says most: the last one of an error in traced code, else the first."""
    lines = [one.strip() for one in str(fault).splitlines() if len(one.strip()) > 3]
    if not lines:
        return type(fault).__name__
    said = lines[-1] if lines[0].startswith("in user code") else lines[0]
    return f"{type(fault).__name__}: {said[:300]}"
