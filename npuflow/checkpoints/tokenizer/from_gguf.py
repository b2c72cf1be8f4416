"""Tokenizers out of GGUF metadata: byte-level BPE, and SentencePiece's BPE by scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npuflow.base.errors import ModelError, suggestion
from npuflow.checkpoints.tokenizer.parts import TokenizerParts, absent, damaged, made

MODELS = ("gpt2", "llama")
UNKNOWN, CONTROL, OWN = 2, 3, 4           # types of tokens, by llama.cpp's numbers
SPACE = "\u2581"                          # what SentencePiece writes for a space
NAMED = {
    "bos_token": "bos_token_id", "eos_token": "eos_token_id", "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Contractions, words with the character before them, runs of digits, of signs, and of spaces."""


class GgufTokens:
    """The lists of a file, checked: tokens, their scores and types; and single numbers of tokens."""

    def __init__(self, metadata: Mapping[str, Any], file: str) -> None:
        self.metadata, self.file = metadata, file
        self.tokens = self.listed("tokens", str)
        if not self.tokens:
            raise absent(file, "its metadata hold no tokens", "convert the checkpoint with its tokenizer")

    def value(self, key: str) -> Any:
        return self.metadata.get(f"tokenizer.ggml.{key}")

    def listed(self, key: str, kind: type) -> list[Any]:
        """A list of one kind; empty where there is none."""
        found = self.value(key)
        if found is None:
            return []
        if not isinstance(found, list) or not all(isinstance(one, kind) for one in found):
            raise damaged(self.file, f"tokenizer.ggml.{key} is no list of {kind.__name__}")
        return found

    def each(self, key: str, kind: type, default: Any) -> list[Any]:
        """One for every token."""
        found = self.listed(key, kind) or [default] * len(self.tokens)
        if len(found) != len(self.tokens):
            raise damaged(self.file, f"{len(self.tokens):,} tokens have {len(found):,} {key}")
        return found

    def number(self, key: str) -> int | None:
        found = self.value(key)
        if found is None:
            return None
        if type(found) is not int or not 0 <= found < len(self.tokens):
            raise damaged(self.file, f"tokenizer.ggml.{key} is {found}, of {len(self.tokens):,} tokens")
        return found

    def truth(self, key: str, default: bool) -> bool:
        found = self.value(key)
        return bool(default if found is None else found)


def parts(metadata: Mapping[str, Any], file: str) -> tuple[Any, TokenizerParts]:
    """The library's tokenizer, and the rest."""
    kind = metadata.get("tokenizer.ggml.model")
    if kind not in MODELS:
        raise absent(
            file, f'it is of the kind "{kind}"; known are {", ".join(MODELS)}' if kind
            else "its metadata name no tokenizer.ggml.model",
            "convert the checkpoint with its tokenizer, or take its Hugging Face folder",
        )
    held = GgufTokens(metadata, file)
    if kind == "gpt2":
        way = pre_tokenizer(held)
        library, begins = byte_level(held, way), way.begins
    else:
        library, begins = sentence_piece(held), True
    add_special(held, library)
    first = held.number("bos_token_id")
    before = (first,) if first is not None and held.truth("add_bos_token", begins) else ()
    ends = dict.fromkeys(number for key in ENDS if (number := held.number(key)) is not None)
    named = {
        name: held.tokens[number] for name, key in NAMED.items() if (number := held.number(key)) is not None
    }
    template = metadata.get("tokenizer.chat_template", "")
    if not isinstance(template, str):
        raise damaged(file, "tokenizer.chat_template is no text")
    return library, TokenizerParts(before, tuple(ends), named, template)


def pre_tokenizer(held: GgufTokens) -> PreTokenizer:
    """How text is split, by the name in the file: a wrong way gives other tokens without a sign of it."""
    name = held.value("pre")
    known = tuple(name for way in PRE_TOKENIZERS for name in way.names)
    for way in PRE_TOKENIZERS:
        if name in way.names:
            return way
    raise ModelError(
        f'the tokenizer splits text by the rules "{name}", which npuflow does not know' if name
        else "the tokenizer does not say how it splits text",
        because=f"known are {', '.join(known)}",
        hint=f"{suggestion(str(name or ''), known)}; or take the Hugging Face folder, whose tokenizer.json "
        "says it all",
        code="NF-MODEL-469",
    ).at(file=held.file)


def byte_level(held: GgufTokens, way: PreTokenizer) -> Any:
    """Byte pair encoding over bytes, by a list of merges."""
    from tokenizers import Tokenizer, decoders, models

    pairs = [tuple(text.split(" ")) for text in held.listed("merges", str)]
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise damaged(held.file, "tokenizer.ggml.merges is no list of pairs")
    vocabulary = {token: number for number, token in enumerate(held.tokens)}
    model = made(held.file, lambda: models.BPE(vocabulary, pairs, ignore_merges=way.whole_first))
    library = Tokenizer(model)
    if way.normalizer is not None:
        library.normalizer = way.normalizer()
    library.pre_tokenizer = way.splits()
    library.decoder = decoders.ByteLevel()
    return library


def sentence_piece(held: GgufTokens) -> Any:
    """SentencePiece's BPE: of all pairs that make a token, that of the highest score is joined first."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores = held.each("scores", float, 0.0)
    vocabulary = {token: number for number, token in enumerate(held.tokens)}
    unknown = held.number("unknown_token_id")
    model = made(held.file, lambda: models.BPE(
        vocabulary, merges(held, scores), byte_fallback=True, fuse_unk=True,
        unk_token=held.tokens[unknown if unknown is not None else 0],
    ))
    library, spaced = Tokenizer(model), held.truth("add_space_prefix", True)
    first = [normalizers.Prepend(SPACE)] if spaced else []     # at the text's start, and behind added tokens
    library.normalizer = normalizers.Sequence([*first, normalizers.Replace(" ", SPACE)])
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    library.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if spaced else [])])
    return library


def merges(held: GgufTokens, scores: Sequence[float]) -> list[tuple[str, str]]:
    """All pairs of tokens that make a token, the highest score first."""
    types = held.each("token_type", int, 1)
    plain = {
        token: number
        for number, (token, kind) in enumerate(zip(held.tokens, types, strict=True))
        if kind not in (UNKNOWN, CONTROL)
    }
    found = [
        (-scores[number], -at, plain[token[:at]], token[:at], token[at:])
        for token, number in plain.items()
        for at in range(1, len(token))
        if token[:at] in plain and token[at:] in plain
    ]
    return [(left, right) for *_, left, right in sorted(found)]


def add_special(held: GgufTokens, library: Any) -> None:
    """Tokens that stand for no text, and tokens that are found before text is split."""
    from tokenizers import AddedToken

    types = held.each("token_type", int, 1)
    for kinds, special in (((CONTROL,), True), ((OWN,), False)):
        own = [
            AddedToken(token, special=special, normalized=False)
            for token, kind in zip(held.tokens, types, strict=True)
            if kind in kinds and token
        ]
        (library.add_special_tokens if special else library.add_tokens)(own)


# --- how text is split before bytes are joined, by the names that llama.cpp gives the ways


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
