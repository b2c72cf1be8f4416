"""Samples and scores for networks of other sciences inside Python packages: EEG in several forms."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from packaged_samples import Array
from packaged_scores import Pairs

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


def _pink(rng: np.random.Generator, count: int) -> np.ndarray:
    spectrum = np.fft.rfft(rng.normal(size=count)) / np.sqrt(np.arange(count // 2 + 1) + 1)
    wave = np.fft.irfft(spectrum, count)
    return wave / wave.std()


def _zscore(values: Array, axis: int) -> Array:
    return (values - values.mean(axis, keepdims=True)) / np.maximum(values.std(axis, keepdims=True), 1e-9)


def seizures(data: Path, part: str) -> Feeds:
    """Spectrogram of a minute inside the skull, 0 to 99 Hz; half have spikes that grow, slow down and end."""
    rng = np.random.default_rng(20 + (part == "calib"))
    rate, count = 500, 60 * 500
    at = np.arange(count) / rate
    for i in range(96 if part == "calib" else 60):
        wave = _pink(rng, count) + rng.uniform(0, 0.3) * np.sin(2 * np.pi * rng.choice([50, 60]) * at)
        if i % 2:
            begin, long = rng.uniform(5, 30), rng.uniform(10, 30)
            inside = np.clip((at - begin) / long, 0, 1)
            phase = np.cumsum(np.interp(inside, [0, 1], [rng.uniform(6, 20), rng.uniform(2, 4)])) / rate
            spikes = np.exp(-(((phase % 1 - 0.5) / 0.12) ** 2)) - 0.2 * np.cos(4 * np.pi * phase)
            wave += rng.uniform(2, 12) * spikes * np.sqrt(inside) * (inside < 1)
        frames = np.lib.stride_tricks.sliding_window_view(_zscore(wave, 0), rate)[:: rate // 2]
        frames = (frames - frames.mean(1, keepdims=True)) * np.hanning(rate + 1)[:-1]
        power = np.abs(np.fft.rfft(frames)[:, :100].T) ** 2
        yield {"x": _zscore(power, 1)[None].astype(np.float32)}


def spindles(data: Path, part: str) -> Feeds:
    """30 s of sleep at 250 Hz with up to eight spindles of 11 to 16 Hz, and its wavelets of 15 scales."""
    rng, rate, count = np.random.default_rng(22 + (part == "calib")), 250, 7500
    at = np.arange(count) / rate
    for _ in range(64 if part == "calib" else 40):
        wave = _pink(rng, count)
        for pitch in (0.7, 1.3, 2.9):
            wave = wave + rng.uniform(0, 2) * np.sin(2 * np.pi * pitch * at + rng.uniform(0, 6))
        for _ in range(int(rng.integers(9))):
            middle, long = rng.uniform(0, 30), rng.uniform(0.5, 2)
            burst = np.sin(2 * np.pi * rng.uniform(11, 16) * at + rng.uniform(0, 6))
            wave = wave + rng.uniform(0.3, 2) * burst * np.exp(-(((at - middle) / long * 2) ** 2))
        held = {"raw_signal": _zscore(wave, 0)[None, None], "spectrogram": _wavelets(wave)[None]}
        yield {k: v.astype(np.float32) for k, v in held.items()}


def _wavelets(wave: Array) -> Array:
    """Sizes of a transform by complex Shannon wavelets (bandwidth 6, centre 13) of 135 to 270 samples."""
    x = np.linspace(-20, 20, 1024)
    grown = np.cumsum(np.sqrt(6) * np.sinc(6 * x) * np.exp(-26j * np.pi * x)) * (x[1] - x[0])
    found = []
    for scale in np.geomspace(135, 270, num=15):
        index = (np.arange(scale * 40 + 1) / (scale * (x[1] - x[0]))).astype(int)
        kernel = np.diff(np.concatenate(([0], grown[index[index < 1024]][::-1], [0])))
        size = len(wave) + len(kernel) - 1
        whole = np.fft.ifft(np.fft.fft(wave, size) * np.fft.fft(kernel, size)) * np.sqrt(scale)
        begin = (len(kernel) - 3) // 2 + 1
        found.append(np.abs(whole[begin : begin + len(wave)]))
    return _zscore(np.array(found), 1)


def moments(data: Path, pairs: Pairs) -> dict[str, Any]:
    """Classes of half seconds: the share that is the same, and how far probabilities are off."""
    same = np.mean([a["probs"].argmax(-1) == b["probs"].argmax(-1) for a, b in pairs])
    seizure = [np.abs(a["probs"] - b["probs"])[..., 3] for a, b in pairs]
    common = np.mean([a["probs"].argmax(-1) == 3 for a, _ in pairs])
    found = {"same": same, "probability off": np.mean(seizure), "seizure in float": common}
    return {what: float(value) for what, value in found.items()}


def bursts(data: Path, pairs: Pairs) -> dict[str, Any]:
    """Seconds with a spindle above .5: F1 of both sides; of points above .5 in either those in both."""
    seconds = [[side["detection"][..., 0] > 0 for side in pair] for pair in pairs]
    both, count = sum(int((a & b).sum()) for a, b in seconds), sum(int(a.sum() + b.sum()) for a, b in seconds)
    points = [[side["segmentation"] > 0 for side in pair] for pair in pairs]
    shared = sum(int((a & b).sum()) for a, b in points) / max(sum(int((a | b).sum()) for a, b in points), 1)
    return {"seconds F1": 2 * both / max(count, 1), "seconds": count / 2, "points IoU": shared}
