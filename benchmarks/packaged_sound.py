"""Sounds as networks inside Python packages take them: speech of the task `vad`, and its spectra."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from packaged_samples import Array

sys.path.append(str(Path(__file__).resolve().parents[1] / "recipes" / "zoo"))
from zoo_sounds import RATE, bands

Feeds = Iterator[dict[str, Array]]


def speech(data: Path, part: str) -> list[Array]:
    """float32 of -1 to 1, a clip each; even sentences calibrate, odd ones are for evaluation."""
    held = np.load(data / "data" / "vad" / "eval.npz")
    ends = np.cumsum(held["clip_frames"]) * 512
    clips = [held["audio"][end - n * 512 : end] for end, n in zip(ends, held["clip_frames"], strict=True)]
    return [c.astype(np.float32) / 32768 for i, c in enumerate(clips) if i % 25 % 2 == (part != "calib")]


def windows(data: Path, part: str, length: int) -> Iterator[Array]:
    """Pieces of `length` samples from somewhere in the clips, which repeat until they are long enough; the
    loudest value is between .1 and .9."""
    rng = np.random.default_rng(part == "calib")
    clips = speech(data, part)
    for i in range(128 if part == "calib" else 100):
        clip = clips[i % len(clips)]
        clip = np.tile(clip, -(-(length + 1) // len(clip)))
        begin = rng.integers(len(clip) - length)
        piece = clip[begin : begin + length]
        yield (piece * rng.uniform(0.1, 0.9) / max(np.abs(piece).max(), 1e-4)).astype(np.float32)


# --- spectra
def mels(sound: Array, count: int, size: int, hop: int, mode: str = "constant", **band: float) -> Array:
    """Power in mel bands, [frames, count]: Hann windows of `size` samples around every `hop`-th."""
    window = np.hanning(size + 1)[:-1]
    padded = np.pad(sound.astype(np.float64), size // 2, mode=mode)  # type: ignore[call-overload]
    power = np.abs(np.fft.rfft(sliding_window_view(padded, size)[::hop] * window)) ** 2
    return power @ bands(count, size, **band).T


def decibels(power: Array, below: float) -> Array:
    level = 10 * np.log10(np.maximum(power, 1e-10))
    return np.maximum(level, level.max() - below)


# --- samples
def waves(name: str, length: int, scale: float, data: Path, part: str) -> Feeds:
    for piece in windows(data, part, length):
        yield {name: (piece * scale)[None]}


def spectra(data: Path, part: str) -> Feeds:
    """9 s of speech: 120 bands in dB below the loudest."""
    for piece in windows(data, part, 144000):
        level = decibels(mels(piece, 120, 321, 160), 80)[:900]
        yield {"input_1": ((level - level.max() + 40) / 40)[None].astype(np.float32)}


def echoes(data: Path, part: str) -> Feeds:
    """The loudspeaker, the microphone that also hears it, and the same with less of the echo."""
    rng = np.random.default_rng(2)
    others = list(windows(data, part, 8 * RATE))
    for i, near in enumerate(windows(data, part, 8 * RATE)):
        far = others[(i * 7 + 3) % len(others)]
        echo = np.roll(far, 800) * rng.uniform(0.05, 0.6)
        sounds = far, near + echo, near + echo * rng.uniform(0, 1) ** 2
        levels = (decibels(mels(s, 160, 513, 256), 80) for s in sounds)
        spectra = [(level - level.max() + 40) / 40 for level in levels]
        yield {
            "input": np.stack(spectra)[None].astype(np.float32),
            "h0": np.zeros((4, 1, 64), np.float32),
        }


def losses(data: Path, part: str) -> Feeds:
    """Log spectra of speech of which some packets of 20 ms are missing; 64 random numbers for a listener."""
    rng = np.random.default_rng(3)
    for piece in windows(data, part, 4 * RATE):
        lost = np.repeat(rng.random(len(piece) // 320) < rng.uniform(0, 0.3), 320)
        sound = np.pad(piece * ~lost, (256, 0))
        frames = sliding_window_view(sound, 512)[::256] * np.hamming(513)[:-1]
        size = np.abs(np.fft.rfft(frames)) ** 2
        spectrum = np.log(np.maximum(size, size[size > 0].min() * 10**-12)) / 20
        listener = rng.normal(size=(1, 64)).astype(np.float32)
        yield {"degraded_audio": spectrum[None, None].astype(np.float32), "rater_embed": listener}


def phrases(data: Path, part: str) -> Feeds:
    """76 frames of 32 bands in dB, as the package's own first network gives them."""
    for piece in windows(data, part, 511 + 76 * 160):
        spectrum = decibels(mels(piece * 32767, 32, 512, 160, "reflect", low=60, high=3800), 80)
        yield {"input_1": (spectrum[:76] / 10 + 2)[None, :, :, None].astype(np.float32)}


def turns(data: Path, part: str) -> Feeds:
    """Whisper's spectrum of the last 8 s, of which the first ones may be silence."""
    rng = np.random.default_rng(4)
    for piece in windows(data, part, 8 * RATE):
        piece[: rng.integers(7 * RATE)] = 0
        sound = (piece - piece.mean()) / np.sqrt(piece.var() + 1e-7)
        level = np.log10(np.maximum(mels(sound, 80, 400, 160, "reflect"), 1e-10))[:-1]
        level = (np.maximum(level, level.max() - 8) + 4) / 4
        yield {"input_features": level.T[None].astype(np.float32)}


def birds(data: Path, part: str) -> Feeds:
    """3 s at 48 kHz: calls that glide between 1 and 9 kHz, beside noise, speech or both."""
    rng, rate, length = np.random.default_rng(part == "calib"), 48000, 144000
    for i, piece in enumerate(windows(data, part, length // 3)):
        sound = rng.normal(size=length) * 10 ** rng.uniform(-4, -1.5)
        if i % 2:
            sound += np.interp(np.arange(length) / 3, np.arange(len(piece)), piece) * 0.3
        for _ in range(int(rng.integers(1, 12))):
            count = int(rng.uniform(0.05, 0.5) * rate)
            pitch = np.linspace(*rng.uniform(1000, 9000, 2), count)
            pitch *= 1 + rng.uniform(0, 0.2) * np.sin(np.arange(count) / rate * rng.uniform(10, 300))
            call = np.sin(np.cumsum(pitch) * 2 * np.pi / rate) * np.hanning(count) * rng.uniform(0.02, 0.6)
            begin = int(rng.integers(length - count))
            sound[begin : begin + count] += call
        yield {"INPUT": np.clip(sound, -1, 1)[None].astype(np.float32)}


def voices(data: Path, part: str) -> Feeds:
    """80 frames of 40 bands as powers of ten, from Hamming windows."""
    for piece in windows(data, part, 512 + 79 * 160):
        window = np.pad(np.hamming(401)[:-1], 56)
        power = np.abs(np.fft.rfft(sliding_window_view(piece, 512)[::160] * window)) ** 2
        level = np.log10(power @ bands(40, 512).T + 1e-10)[:80]
        yield {"mel_window": level[None].astype(np.float32)}
