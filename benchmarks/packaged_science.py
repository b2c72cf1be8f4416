"""Samples for networks of other sciences inside Python packages: components of EEG, DNA and peptides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from packaged_samples import Array

Feeds = Iterator[dict[str, Array]]


# --- EEG
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


# --- biology
def genes(data: Path, part: str) -> Feeds:
    """DNA with the ends of exons as they mostly are (a tract of pyrimidines, AG, exon, GT and what follows),
    one-hot, [1, 10400, 4]: scores are of the 400 in the middle."""
    rng = np.random.default_rng(part == "calib")
    letters = {c: i for i, c in enumerate("ACGT")}
    for _ in range(48 if part == "calib" else 24):
        codes = rng.choice(4, 10400, p=(0.29, 0.21, 0.21, 0.29))
        at = int(rng.integers(100, 500))
        while at < 10200:
            tract = "".join(rng.choice(list("TTTTC"), 18)) + "CAGG"
            exon = int(rng.integers(80, 180))
            for place, text in ((at - 21, tract), (at + exon - 3, "CAGGTAAGTA")):
                codes[place : place + len(text)] = [letters[c] for c in text]
            at += exon + int(rng.integers(300, 1500))
        yield {"input_1": np.eye(4, dtype=np.float32)[codes][None]}


ATOMS = {
    "G": (2, 3, 1, 1, 0), "A": (3, 5, 1, 1, 0), "S": (3, 5, 1, 2, 0), "P": (5, 7, 1, 1, 0),
    "V": (5, 9, 1, 1, 0), "T": (4, 7, 1, 2, 0), "C": (3, 5, 1, 1, 1), "L": (6, 11, 1, 1, 0),
    "I": (6, 11, 1, 1, 0), "N": (4, 6, 2, 2, 0), "D": (4, 5, 1, 3, 0), "Q": (5, 8, 2, 2, 0),
    "K": (6, 12, 2, 1, 0), "E": (5, 7, 1, 3, 0), "M": (5, 9, 1, 1, 1), "H": (6, 7, 3, 1, 0),
    "F": (9, 9, 1, 1, 0), "R": (6, 12, 4, 1, 0), "Y": (9, 9, 1, 2, 0), "W": (11, 10, 2, 1, 0),
}
"""Atoms of amino acids' residues: C, H, N, O, S."""


def peptides(names: tuple[str, str, str, str], data: Path, part: str) -> Feeds:
    """Atoms of every residue [60, 6] and of pairs [30, 6], of the whole peptide and its ends [55], one-hot
    residues [60, 20], as the package's own code makes them. `names`: of the four inputs, in this order."""
    rng = np.random.default_rng(part == "calib")
    order = "KRPTNAQVSGILCMHFYWED"
    for _ in range(128 if part == "calib" else 100):
        body = rng.choice([c for c in order if c not in "KR"], int(rng.integers(6, 30)))
        text = "".join(body) + str(rng.choice(["K", "R"]))
        single, hot = np.zeros((60, 6)), np.zeros((60, 20))
        for i, c in enumerate(text):
            single[i, :5], hot[i, order.index(c)] = ATOMS[c], 1
        ends = np.concatenate([single[:4], single[len(text) - 4 : len(text)]])
        whole = np.concatenate([single.sum(0), [len(text)], ends.reshape(-1)])
        held = single, single.reshape(30, 2, 6).sum(1), whole, hot
        yield {n: v[None].astype(np.float32) for n, v in zip(names, held, strict=True)}
