"""Text generation: greedy text, sampling, pieces of whole characters, chunks, and prompts that do not fit."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

import npuflow
from npuflow.base.errors import DataError, UsageError
from npuflow.runner.onnx_model import stated_model
from npuflow.runner.text import TextGenerator, TokenSampling
from npuflow.runner.text.generator import TextPieces
from tests.checkpoints.running import FAMILIES, Running, read
from tests.runner.programs import split

CONTEXT = 32
BYTES = bytes(range(32, 97)) + "é日本語🙂".encode()                # what each of 80 tokens stands for


class ByteTokens:
    """A tokenizer whose tokens are bytes."""

    def __init__(self, stops: tuple[int, ...] = ()) -> None:
        self.stops = stops

    def decode(self, ids: Iterable[int]) -> str:
        return bytes(BYTES[i] for i in ids).decode(errors="replace")


def runner(chunk: int = 1, family: str = "llama") -> npuflow.Runner:
    return npuflow.Runner(stated_model(read(FAMILIES / family, chunk, CONTEXT)))


def greedy(prompt: list[int], count: int) -> list[int]:
    """By the float network on all tokens so far, from the start again for every token."""
    network, known = Running(FAMILIES / "llama", CONTEXT), list(prompt)
    for _ in range(count):
        known.append(int(network.logits(np.array([known]), (1,) * len(known))[-1].argmax()))
    return known[len(prompt) :]


def test_greedy_text_has_the_largest_logits() -> None:
    prompt, wanted = [1, 40, 7], greedy([1, 40, 7], 9)
    generator = TextGenerator(runner(), ByteTokens())
    assert (generator.chunk, generator.context, generator.vocabulary) == (1, CONTEXT, 80)
    stream = generator.stream(prompt, 9)
    pieces = list(stream)
    assert stream.tokens == wanted and stream.ended == "length" and stream.runs == 11
    assert "".join(pieces) == ByteTokens().decode(wanted)
    again, other = generator.stream(prompt, 9), generator.stream([5], 9)
    assert next(again) == pieces[0] and again.runs < stream.runs and again.ended is None
    for _ in range(4):                                                # streams do not see each other's cache
        next(again, None)
        next(other, None)
    assert [*other, *again] and again.tokens == wanted


def test_a_token_that_ends_the_text_is_no_part_of_it() -> None:
    wanted = greedy([1, 40, 7], 9)
    end = next(token for token in wanted if token != wanted[0])
    stream = TextGenerator(runner(), ByteTokens((end,))).stream([1, 40, 7], 9)
    text = "".join(stream)
    assert stream.ended == "stop" and stream.tokens == wanted[: wanted.index(end)]
    assert text == ByteTokens().decode(stream.tokens)


def test_a_full_cache_ends_the_text() -> None:
    """The last token needs no place in it."""
    stream = TextGenerator(runner(), ByteTokens()).stream([1] * 30)
    list(stream)
    assert stream.ended == "full" and len(stream.tokens) == 3 and stream.runs == CONTEXT
    whole = TextGenerator(runner(), ByteTokens()).stream([*[1] * 30, *stream.tokens[:2]])
    list(whole)
    assert whole.ended == "full" and whole.tokens == stream.tokens[2:]


@pytest.mark.parametrize("family", ["llama", "mistral", "gpt2"])
@pytest.mark.parametrize("count", [4, 6, 8])
def test_chunks_give_the_tokens_that_single_ones_give(family: str, count: int) -> None:
    prompt = [3 + 5 * i for i in range(count)]
    found = []
    for chunk in (1, 4):
        stream = TextGenerator(runner(chunk, family), ByteTokens()).stream(prompt, 8)
        list(stream)
        found.append(stream.tokens)
    assert found[0] == found[1] and len(found[0]) == 8
    assert stream.runs == -(-count // 4) + 7


def test_the_same_seed_gives_the_same_text() -> None:
    generator = TextGenerator(runner(), ByteTokens())

    def tokens(**how: float) -> tuple[int, ...]:
        stream = generator.stream([1, 40], 12, TokenSampling(**how))  # type: ignore[arg-type]
        list(stream)
        return tuple(stream.tokens)

    assert tokens(temperature=2.0, seed=3) == tokens(temperature=2.0, seed=3)
    assert len({tokens(temperature=2.0, seed=seed) for seed in range(4)}) == 4
    assert tokens(temperature=2.0, top_p=1e-6, seed=3) == tokens() == tokens(seed=5)


def test_tokens_are_drawn_by_their_probabilities() -> None:
    chances = np.array([0.1, 0.5, 0.05, 0.3, 0.05])
    random, logits = np.random.default_rng(0), np.log(chances).astype(np.float32)
    drawn = [TokenSampling(1.0).chosen(logits, random) for _ in range(4000)]
    np.testing.assert_allclose(np.bincount(drawn, minlength=5) / 4000, chances, atol=0.03)
    some = [TokenSampling(1.0, 0.75).chosen(logits, random) for _ in range(4000)]
    np.testing.assert_allclose(np.bincount(some, minlength=5) / 4000, [0, 0.625, 0, 0.375, 0], atol=0.03)
    sharp = [TokenSampling(0.5).chosen(logits, random) for _ in range(4000)]
    np.testing.assert_allclose(
        np.bincount(sharp, minlength=5) / 4000, chances**2 / (chances**2).sum(), atol=0.03
    )


@pytest.mark.parametrize("seed", range(6))
def test_pieces_are_the_text_in_whole_characters(seed: int) -> None:
    """Of any bytes, also those that are no text at all."""
    ids = np.random.default_rng(seed).integers(0, 80, 60).tolist()
    ids = [*range(65, 80), *ids] if seed % 2 else ids
    pieces = TextPieces(ByteTokens(), ids[:5])
    found = [pieces.more(token) for token in ids[5:]]
    whole = "".join(found) + pieces.rest()
    assert ByteTokens().decode(ids[:5]) + whole == ByteTokens().decode(ids)
    assert not any(piece.endswith("\ufffd") for piece in found)


def test_a_character_of_several_tokens_is_one_piece() -> None:
    """The last one is cut off behind its third byte."""
    pieces = TextPieces(ByteTokens(), [33])
    found = [pieces.more(token) for token in (65, 66, 67, 68, 69, 8, 76, 77, 78)]
    assert found == ["", "é", "", "", "日", "(", "", "", ""] and pieces.rest() == "\ufffd"


def test_a_space_behind_the_prompt_is_kept() -> None:
    """By a tokenizer that leaves one out at the start of a text, as SentencePiece's do."""

    class Stripped(ByteTokens):
        def decode(self, ids: Iterable[int]) -> str:
            return super().decode(ids).removeprefix(" ")

    pieces = TextPieces(Stripped(), [0, 33])
    assert pieces.more(0) + pieces.more(34) == " B"


def test_what_does_not_fit_is_one_error() -> None:
    generator = TextGenerator(runner(), ByteTokens())
    with pytest.raises(DataError, match=r"the prompt has 33 tokens.*holds 32"):
        generator.stream([1] * 33)
    with pytest.raises(DataError, match="the prompt has 0 tokens"):
        generator.stream([])
    with pytest.raises(DataError, match="has the token 80"):
        generator.stream([1, 80])
    with pytest.raises(DataError, match=r"the prompt has 3 tokens.*a run takes 4"):
        TextGenerator(runner(4), ByteTokens()).stream([1, 2, 3])
    with pytest.raises(UsageError, match="0 tokens are asked for"):
        generator.stream([1], 0)
    for wrong in ({"temperature": -1.0}, {"temperature": float("nan")}, {"top_p": 0.0}, {"seed": -1}):
        with pytest.raises(UsageError):
            TokenSampling(**wrong)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="NaN"):
        TokenSampling().chosen(np.array([0, np.nan], np.float32), np.random.default_rng(0))


def test_other_models_generate_no_text() -> None:
    with pytest.raises(UsageError, match="is no language model") as said:
        TextGenerator(npuflow.Runner(split()), ByteTokens())
    assert said.value.code == "NF-RUN-067" and 'the input "tokens"' in said.value.because
