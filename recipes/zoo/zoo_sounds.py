"""Made-up sounds for networks that listen: a voice of pulses and formants, its spectra, and plucked notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.signal import lfilter

Array = np.ndarray
Samples = Iterator[tuple[Any, ...]]
RATE = 16000
VOWELS = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480), (570, 840, 2410),
          (490, 1350, 1690), (660, 1720, 2410), (440, 1020, 2240))
"""Formants in Hz, after Peterson and Barney, Control Methods Used in a Study of the Vowels, 1952."""


def syllable(rng: np.random.Generator, length: int, pitch: float) -> Array:
    """A vowel that glides into another one, perhaps behind a hiss."""
    at = np.arange(length) / RATE
    rate = pitch * (1 + 0.1 * np.sin(2 * np.pi * rng.uniform(1, 3) * at + rng.uniform(0, 6)))
    phase = np.cumsum(rate) / RATE
    source = np.diff(np.floor(phase), prepend=0) + rng.normal(0, 0.02, length)
    first, last = (VOWELS[int(rng.integers(len(VOWELS)))] for _ in range(2))
    sound = np.zeros(length)
    for piece in np.array_split(np.arange(length), 6):
        share = piece[0] / length
        part = source[piece]
        for one, other in zip(first, last, strict=True):
            hertz = one * (1 - share) + other * share
            radius = np.exp(-np.pi * (60 + hertz / 20) / RATE)
            part = lfilter([1 - radius], [1, -2 * radius * np.cos(2 * np.pi * hertz / RATE), radius**2], part)
        sound[piece] = part
    if rng.random() < 0.5:
        hiss = lfilter([1, -0.95], [1], rng.normal(0, 0.05, length // 4))
        sound[: length // 4] = 0.3 * sound[: length // 4] + hiss * np.abs(sound).max()
    return sound * np.hanning(length + 2)[1:-1] ** 0.3 / max(np.abs(sound).max(), 1e-9)


def voice(rng: np.random.Generator, length: int) -> tuple[Array, Array]:
    """Sound of -1 to 1 and where somebody speaks: words of syllables, pauses, and noise behind them."""
    sound, said = np.zeros(length), np.zeros(length, bool)
    pitch, at = rng.uniform(90, 230), int(rng.integers(RATE // 2))
    while at < length:
        for _ in range(int(rng.integers(2, 6))):
            size = int(RATE * rng.uniform(0.1, 0.25))
            if at + size > length:
                at = length
                break
            sound[at : at + size] += rng.uniform(0.5, 1) * syllable(rng, size, pitch * rng.uniform(0.9, 1.1))
            said[at : at + size] = True
            at += size
        at += int(RATE * rng.uniform(0.2, 1.0))
    noise = rng.normal(0, 10 ** -rng.uniform(1.3, 3), length)
    return (0.6 * sound / max(np.abs(sound).max(), 1e-9) + noise).astype(np.float32), said


def clips(part: int, salt: int, count: int, length: int) -> Iterator[Array]:
    """Voices of different loudness."""
    rng = np.random.default_rng(100 * salt + part)
    for _ in range(count):
        sound, _ = voice(rng, length)
        yield (sound * rng.uniform(0.2, 1)).astype(np.float32)


def bands(count: int, size: int, low: float = 0, high: float = RATE / 2) -> Array:
    """Slaney's triangles [count, size // 2 + 1], of equal area."""
    step = np.log(6.4) / 27
    mel = [v * 3 / 200 if v < 1000 else 15 + np.log(v / 1000) / step for v in (low, high)]
    mels = np.linspace(*mel, count + 2)
    edges = np.where(mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) * step))[:, None]
    at = np.arange(size // 2 + 1)[None] * RATE / size
    up, down = (at - edges[:-2]) / np.diff(edges, axis=0)[:-1], (edges[2:] - at) / np.diff(edges, axis=0)[1:]
    return np.maximum(0, np.minimum(up, down)) * 2 / (edges[2:] - edges[:-2])


def levels(sound: Array, count: int, size: int, hop: int, **band: float) -> Array:
    """dB in mel bands, [frames, count], at most 80 below the loudest: Hann windows around every `hop`-th
    sample."""
    window = np.hanning(size + 1)[:-1]
    padded = np.pad(sound.astype(np.float64), size // 2, mode="reflect")
    power = np.abs(np.fft.rfft(sliding_window_view(padded, size)[::hop] * window)) ** 2
    level = 10 * np.log10(np.maximum(power @ bands(count, size, **band).T, 1e-10))
    return np.maximum(level, level.max() - 80)


def spectra(part: int) -> Samples:
    """9 s of a voice as 120 bands, which the network of DNSMOS takes."""
    for i, sound in enumerate(clips(part, 1, (32, 24)[part], 144000)):
        level = levels(sound, 120, 321, 160)[:900]
        yield f"{i}", ((level - level.max() + 40) / 40)[None].astype(np.float32)


def calibration_spectra() -> Samples:
    yield from spectra(0)


def evaluation_spectra() -> Samples:
    yield from spectra(1)


def phrases(part: int) -> Samples:
    """76 frames of 32 bands in dB, as the package's own first network gives them."""
    for i, sound in enumerate(clips(part, 2, (64, 60)[part], 511 + 76 * 160)):
        level = levels(sound * 32767, 32, 512, 160, low=60, high=3800)
        yield f"{i}", (level[:76] / 10 + 2)[None, :, :, None].astype(np.float32)


def calibration_phrases() -> Samples:
    yield from phrases(0)


def evaluation_phrases() -> Samples:
    yield from phrases(1)


def waves(part: int) -> Samples:
    """A second of sound as numbers of 16 bits."""
    for i, sound in enumerate(clips(part, 3, (64, 60)[part], RATE)):
        yield f"{i}", (sound * 32767)[None]


def calibration_waves() -> Samples:
    yield from waves(0)


def evaluation_waves() -> Samples:
    yield from waves(1)


def frames(part: int) -> Samples:
    """3 s in frames of 512 samples behind the last 64 of the frame before; labels: where somebody speaks."""
    rng = np.random.default_rng(400 + part)
    for i in range((8, 12)[part]):
        sound, said = voice(rng, 94 * 512)
        padded = np.concatenate([np.zeros(64, np.float32), sound])
        steps = sliding_window_view(padded, 576)[::512][:, None]
        spoken = said.reshape(-1, 512).mean(1) > 0.5
        yield f"{i}", {"input": steps.astype(np.float32)}, [int(v) for v in spoken[: len(steps)]]


def calibration_frames() -> Samples:
    yield from frames(0)


def evaluation_frames() -> Samples:
    yield from frames(1)


def strings(part: int) -> Samples:
    """2 s of plucked strings at 22,050 Hz; the label is [172, 88], the notes of a piano that sound."""
    rng, rate, length = np.random.default_rng(500 + part), 22050, 43844
    for i in range((24, 50)[part]):
        sound, roll = np.zeros(length), np.zeros((172, 88), int)
        for _ in range(int(rng.integers(2, 7))):
            note, begin = int(rng.integers(20, 64)), int(rng.integers(0, length // 2))
            lasts = min(int(rate * rng.uniform(0.4, 1.2)), length - begin)
            at = np.arange(lasts) / rate
            hertz = 27.5 * 2 ** (note / 12)
            tones = sum(np.sin(2 * np.pi * k * hertz * at) * np.exp(-at * (1 + k)) / k for k in range(1, 7))
            sound[begin : begin + lasts] += rng.uniform(0.3, 1) * tones * np.minimum(1, (at[-1] - at) / 0.02)
            roll[round(begin / 256) : min(round((begin + lasts) / 256), 172), note] = 1
        yield f"{i}", (0.5 * sound / np.abs(sound).max())[None, :, None].astype(np.float32), roll


def calibration_strings() -> Samples:
    yield from strings(0)


def evaluation_strings() -> Samples:
    yield from strings(1)
