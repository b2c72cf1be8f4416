"""Names the sample texts that npuflow brings: one to calibrate with, another to evaluate with."""

from __future__ import annotations

from pathlib import Path

from npuflow.base.code import package_file


def builtin_text(name: str) -> Path:
    """The file of a text: "calibration.txt" or "evaluation.txt". Its bytes are part of the keys."""
    texts = {
        "calibration.txt": package_file("texts/calibration.txt"),
        "evaluation.txt": package_file("texts/evaluation.txt"),
    }
    return texts[name]
