"""Strings that stop a text, wherever its pieces end."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from npuflow.apps.serve.text.sessions import StopStrings


def sent(text: str, strings: list[str], borders: list[int]) -> tuple[list[str], bool]:
    """What goes out, piece by piece, of a text that is cut at borders."""
    one, ends = StopStrings(strings), [0, *sorted(borders), len(text)]
    parts = [one.more(text[a:b]) for a, b in pairwise(ends)]
    return [*parts, one.rest()], one.found


def by_characters(text: str, strings: list[str]) -> str:
    """The text in front of the string that is complete first; of those, of the longest."""
    for end in range(1, len(text) + 1):
        begins = [end - len(one) for one in strings if text[:end].endswith(one)]
        if begins:
            return text[: min(begins)]
    return text


@pytest.mark.parametrize(
    ("text", "strings", "wanted"),
    [
        ("one. two. three", [". t"], "one"),
        ("aaab", ["aab"], "a"),
        ("abcd", ["bcd", "c"], "ab"),
        ("abcd", ["bc", "abc"], ""),
        ("abab", ["abb"], "abab"),
        ("ab", [], "ab"),
        ("é日本", ["日"], "é"),
    ],
)
def test_a_text_ends_in_front_of_a_string(text: str, strings: list[str], wanted: str) -> None:
    for borders in ([], [1], list(range(1, len(text)))):
        parts, found = sent(text, strings, borders)
        assert "".join(parts) == wanted and found == (wanted != text)


def test_borders_of_pieces_change_nothing() -> None:
    draw = random.Random(3)
    for _ in range(3000):
        text = "".join(draw.choices("ab", k=draw.randint(1, 14)))
        strings = ["".join(draw.choices("ab", k=draw.randint(1, 5))) for _ in range(draw.randint(1, 3))]
        borders = [draw.randint(0, len(text)) for _ in range(draw.randint(0, 5))]
        assert "".join(sent(text, strings, borders)[0]) == by_characters(text, strings), (
            text,
            strings,
            borders,
        )


def test_what_begins_no_string_goes_out_at_once() -> None:
    one = StopStrings(["\n\n", "END"])
    assert [one.more(piece) for piece in ("a", "b\n", "c", "E", "N", "x")] == ["a", "b", "\nc", "", "", "ENx"]
    assert not one.found and one.rest() == ""
