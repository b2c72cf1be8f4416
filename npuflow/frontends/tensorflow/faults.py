"""What TensorFlow raises, as errors of one line."""

from __future__ import annotations

from pathlib import Path

from npuflow.base.errors import ModelError, NpuflowError

_WHOLE = "is it whole, and of a version that this TensorFlow reads?"
EXPORT = "load it as your program does; model.export(FOLDER) writes a SavedModel, which needs no code"
# What Keras says of files that it cannot load without the program that wrote them: the reason, what to try.
_CODE = (
    (
        ("No model config found",),
        "the file holds weights without the network",
        "make the network by its code, model.load_weights(FILE) and model.export(FOLDER), a SavedModel",
    ),
    (
        ("Could not locate", "Unknown layer", "Unknown activation", "Could not interpret", "lambda"),
        "a layer or a function is the program's own, and not in the file",
        EXPORT,
    ),
)


def lacks_network(fault: Exception) -> bool:
    """Whether Keras says that the file holds weights alone."""
    return any(words in str(fault) for words in _CODE[0][0])


def damaged(path: Path, fault: Exception) -> NpuflowError:
    said = str(fault)
    found = next((row for row in _CODE if any(words in said for words in row[0])), None)
    because = line(fault) if found is None else f"{found[1]}: {line(fault)}"
    return ModelError(
        f'"{path.name}" cannot be loaded by TensorFlow',
        because=because, hint=_WHOLE if found is None else found[2], code="NF-MODEL-169",
    ).at(file=str(path))


def line(fault: Exception) -> str:
    """The line of what went wrong that says most: the last one of an error in traced code, the one that Keras
    gives as the reason, else the first."""
    lines = [one.strip() for one in str(fault).splitlines() if len(one.strip()) > 3]
    if not lines:
        return type(fault).__name__
    said = lines[-1] if lines[0].startswith("in user code") else lines[0]
    reasons = [one for one in lines if one.startswith("Exception encountered:")]
    said = reasons[-1].partition(":")[2].strip() or said if reasons else said
    return f"{type(fault).__name__}: {said[:300]}"
