"""Samples for networks of other sciences inside Python packages: independent components of EEG."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from packaged_samples import Array

Feeds = Iterator[dict[str, Array]]


def _source(rng: np.random.Generator, kind: int, count: int) -> Array:
    """What an independent component might be, at 100 Hz times 2: a rhythm of the brain, muscles, blinks, the
    heart, the mains, a bad channel or something else."""
    pink = np.fft.irfft(np.fft.rfft(rng.normal(size=count)) / np.sqrt(np.arange(count // 2 + 1) + 1), count)
    pink /= pink.std()
    at = np.arange(count) / 200
    if kind == 0:
        rate = rng.uniform(8, 12)
        return pink + 1.5 * np.sin(2 * np.pi * rate * at + np.cumsum(rng.normal(0, 0.1, count)))
    if kind == 1:
        return np.diff(rng.normal(size=count + 1)) + 0.1 * pink
    if kind in (2, 3):
        apart, width = (rng.uniform(2, 5), 0.12) if kind == 2 else (rng.uniform(0.7, 1.1), 0.02)
        phase = (at + rng.uniform(0, apart)) % apart - apart / 2
        return 6 * np.exp(-((phase / width) ** 2)) + 0.3 * pink
    if kind == 4:
        return 3 * np.sin(2 * np.pi * rng.choice([50, 60]) * at) + 0.5 * rng.normal(size=count)
    return rng.normal(size=count) + (pink if kind == 6 else 0)


def components(data: Path, part: str) -> Feeds:
    """Map of the head (and its negative, and both mirrored), spectrum and autocorrelation of a component."""
    rng = np.random.default_rng(part == "calib")
    x, y = np.meshgrid(np.linspace(-1, 1, 32), np.linspace(-1, 1, 32))
    inside = x**2 + y**2 <= 1
    for i in range(128 if part == "calib" else 100):
        kind = i % 7
        wide = 0.15 if kind in (1, 5) else rng.uniform(0.4, 0.9)
        cx, cy = (0, 0.9) if kind == 2 else rng.uniform(-0.8, 0.8, 2)
        head = np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / wide**2) - rng.uniform(0, 0.4) * (x * cx + y * cy)
        head = np.where(inside, head + rng.normal(0, 0.01, head.shape), 0)
        wave = _source(rng, kind, 12000)
        pieces = np.lib.stride_tricks.sliding_window_view(wave, 200)[::100] * np.hamming(200)
        level = 10 * np.log10(np.median(np.abs(np.fft.rfft(pieces)) ** 2, 0))[1:]
        alike = np.fft.irfft(np.abs(np.fft.rfft(wave, 2 * len(wave))) ** 2)[:101]
        feeds = {"topo": head, "psds": level, "autocorr": (alike / alike[0])[1:]}
        shaped = {k: 0.99 * v / np.abs(v).max() for k, v in feeds.items()}
        map_ = shaped["topo"]
        four = np.stack([map_, -map_, map_[:, ::-1], -map_[:, ::-1]])[:, None]
        lines = {k: np.tile(shaped[k], (4, 1, 1, 1)) for k in ("psds", "autocorr")}
        yield {k: v.astype(np.float32) for k, v in {"topo": four, **lines}.items()}
