"""TOML as recipes have it: faults with their line, and the line of every key in every way of writing it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuflow.base.errors import RecipeError
from npuflow.base.tables import (
    parse,
)


def test_toml_errors_name_the_line() -> None:
    with pytest.raises(RecipeError) as caught:
        parse("a = 1\nb = = 2\n", "r.toml", Path())
    assert caught.value.where.line == 2
    with pytest.raises(RecipeError) as caught:
        parse("a = 1\nb = [1,\n", "r.toml", Path())
    assert caught.value.where.line == 3


@pytest.mark.parametrize(
    ("text", "line", "shown"),
    [
        ("[model]\npath = 'x'\npath = 'y'\n", 3, "path = 'y'"),
        ("[model]\n[model]\n", 2, "[model]"),
        ("a.b = 1\n[a]\n", 2, "[a]"),
        ("x = {a = 1, a = 2}\n", 1, "x = {a = 1, a = 2}"),
    ],
)
def test_a_key_written_twice_is_shown(text: str, line: int, shown: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse(text, "r.toml", Path())
    assert caught.value.where is not None and caught.value.where.line == line
    assert caught.value.because.endswith(f": {shown}") and "keep one" in caught.value.hint


def test_other_faults_show_their_line() -> None:
    with pytest.raises(RecipeError) as caught:
        parse("a = 1\nb = nonsense\n", "r.toml", Path())
    assert "b = nonsense" in caught.value.because and not caught.value.hint


def test_lines_survive_every_way_of_writing_a_key() -> None:
    text = '''
"quo.ted" = 1   # a = [
a.b.c = "x # not a comment"
[t.'u v']
s = """
k = 1
"""""
list = [ # hi
  { x = 1 },
  { x = [1,
     2], y = "]" },
]
[[arr]]
v = \'\'\'
[no]\'\'\'
[[arr]]
[arr.sub]
w = 1979-05-27T07:32:00Z
'''
    _, at = parse(text, "f", Path())
    lines = {tuple(path): origin.line for path, origin in at.origins.items()}
    assert lines["quo.ted",] == 2
    assert lines["a", "b", "c"] == 3
    assert lines["t", "u v"] == 4
    assert lines["t", "u v", "s"] == 5
    assert lines["t", "u v", "list"] == 8
    assert lines["t", "u v", "list", 1, "x", 1] == 11
    assert lines["t", "u v", "list", 1, "y"] == 11
    assert lines["arr", 0, "v"] == 14
    assert lines["arr", 1, "sub", "w"] == 18
    assert at.child("arr", 1, "nothing", "here").where().line == 16


KEYS = st.text("ab c.\"'#=\\é", min_size=1, max_size=4)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=4)
SCALARS = st.one_of(st.integers(-9, 9), st.booleans(), TEXTS, st.floats(allow_nan=False))
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(KEYS, v, max_size=3), max_leaves=8
)


def quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quote(k)} = {inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[\n" + ",\n".join(inline(v) for v in value) + "]"
    if isinstance(value, float):
        return repr(value) if value == value and abs(value) != float("inf") else "inf"
    return quote(value) if isinstance(value, str) else json.dumps(value)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=3), max_size=4))
def test_any_valid_document_keeps_its_lines(document: dict[str, dict[str, Any]]) -> None:
    lines: dict[tuple[str, ...], int] = {}
    text = "# head\n"
    for name, table in document.items():
        lines[name,] = text.count("\n") + 1
        text += f"[ {quote(name)} ] # [x]\n"
        for key, value in table.items():
            lines[name, key] = text.count("\n") + 1
            text += f"{quote(key)} = {inline(value)} # = \n"
    tomllib.loads(text)  # the generator writes TOML
    _, at = parse(text, "f", Path())
    assert {k: v for k, v in ((p, o.line) for p, o in at.origins.items()) if k in lines} == lines
