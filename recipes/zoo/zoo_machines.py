"""Sounds of motors, some of them broken, for a network that knows whole ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from zoo_sounds import RATE, levels

Samples = Iterator[tuple[Any, ...]]
Outputs = dict[str, np.ndarray]
Rng = np.random.Generator


def motor(rng: Rng, broken: bool) -> np.ndarray:
    """0.25 s of a small motor, -1 to 1; a broken one squeals and knocks."""
    length = RATE // 4
    at = np.arange(length) / RATE
    hertz = rng.uniform(80, 140)
    sound = sum(np.sin(2 * np.pi * k * hertz * at + rng.uniform(0, 6)) / k for k in range(1, 30))
    sound = 0.05 * sound + rng.normal(0, 0.02, length)
    if broken:
        sound += 0.2 * np.sin(2 * np.pi * rng.uniform(3000, 6000) * at)
        sound += 0.3 * rng.normal(size=length) * (np.sin(2 * np.pi * rng.uniform(15, 30) * at) > 0.9)
    return sound


def motors(part: int) -> Samples:
    """5 frames of 128 bands, 80 dB as 0 to 237, the range of the network's input. The label is 1 if the motor
    is broken, and the sound itself behind it. Only whole ones calibrate."""
    rng = np.random.default_rng(1300 + part)
    for i in range((64, 120)[part]):
        broken = part == 1 and i % 2 == 1
        level = levels(motor(rng, broken), 128, 1024, 512)[1:6]
        codes = (237 * (level - level.max() + 80) / 80).astype(np.float32)
        yield f"{i}", codes[None, :, :, None], [int(broken), *codes.ravel().tolist()]


def calibration_motors() -> Samples:
    yield from motors(0)


def evaluation_motors() -> Samples:
    yield from motors(1)


def noticed(outputs: Outputs, reference: Outputs, labels: list[Any]) -> dict[str, float]:
    """AUC of broken motors by the distance between a sound and the network's copy of it, which is good for
    whole motors alone."""
    held = np.array(labels)
    truth, sounds = held[:, 0] > 0, held[:, 1:]
    far = ((next(iter(outputs.values())).reshape(sounds.shape) - sounds) ** 2).mean(1)
    return {"auc": float((far[truth][:, None] > far[~truth]).mean())}
