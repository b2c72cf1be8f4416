"""How byte-level tokenizers split text before they join bytes, by the names that llama.cpp gives the ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Contractions, words with the character before them, runs of digits, of signs, and of spaces."""


@dataclass(frozen=True)
class PreTokenizer:
    """`splits`: makes the library's object; `whole_first`: a word that is a token is not joined from parts;
    `begins`: a text begins with a token of its own unless the file says otherwise."""

    names: tuple[str, ...]
    splits: Callable[[], Any]
    normalizer: Callable[[], Any] | None = None
    whole_first: bool = False
    begins: bool = False


def by_gpt2() -> Any:
    from tokenizers import pre_tokenizers

    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def digit_by_digit() -> Any:
    from tokenizers import pre_tokenizers

    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), by_gpt2()])


def by_words(digits: str) -> Any:
    """`digits`: how many of them stay together, in the form of a pattern."""
    from tokenizers import Regex, pre_tokenizers

    split = pre_tokenizers.Split(Regex(WORDS % digits), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def composed() -> Any:
    from tokenizers import normalizers

    return normalizers.NFC()


PRE_TOKENIZERS = (
    PreTokenizer(("gpt-2", "gpt2"), by_gpt2),
    PreTokenizer(("smollm",), digit_by_digit),
    PreTokenizer(
        ("llama-bpe", "llama3", "llama-v3"), lambda: by_words("{1,3}"), whole_first=True, begins=True
    ),
    PreTokenizer(("qwen2", "deepseek-r1-qwen"), lambda: by_words(""), composed),
)
