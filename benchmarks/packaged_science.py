"""Samples for networks of other sciences inside Python packages: independent components of EEG."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from packaged_samples import Array

sys.path.append(str(Path(__file__).resolve().parents[1] / "recipes" / "zoo"))
from zoo_signals import wave_of

Feeds = Iterator[dict[str, Array]]


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
        wave = wave_of(rng, kind, 12000)
        pieces = np.lib.stride_tricks.sliding_window_view(wave, 200)[::100] * np.hamming(200)
        level = 10 * np.log10(np.median(np.abs(np.fft.rfft(pieces)) ** 2, 0))[1:]
        alike = np.fft.irfft(np.abs(np.fft.rfft(wave, 2 * len(wave))) ** 2)[:101]
        feeds = {"topo": head, "psds": level, "autocorr": (alike / alike[0])[1:]}
        shaped = {k: 0.99 * v / np.abs(v).max() for k, v in feeds.items()}
        map_ = shaped["topo"]
        four = np.stack([map_, -map_, map_[:, ::-1], -map_[:, ::-1]])[:, None]
        lines = {k: np.tile(shaped[k], (4, 1, 1, 1)) for k in ("psds", "autocorr")}
        yield {k: v.astype(np.float32) for k, v in {"topo": four, **lines}.items()}
