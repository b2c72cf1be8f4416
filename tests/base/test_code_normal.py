"""Normalised syntax: equal for equal programs, on every Python."""

from __future__ import annotations

import ast

import pytest

from npuflow.base.code_normal import syntax_digest

GOLDEN_TEXT = '''
"""Module."""
import re
async def f(a, /, b: int = 1, *args, c=-2.5e3, **kw) -> "str":
    """Doc."""
    x = f"a{b!r:>{c}}" "tail" f"{x=}"
    async with a as (p, q), b: pass
    try:
        y = [i for i in range(3) if i] + [*args]
    except* (ValueError, TypeError) as e:
        raise RuntimeError from e
    match a:
        case {"k": [1, *rest], **more} | Point(x=0): return lambda z=1: (yield)
        case _: ...
    return {**kw, "z": 1j, b"b": ..., None: True}
'''


def of(text: str) -> str:
    return syntax_digest(ast.parse(text).body)


def test_golden() -> None:
    """Equal on every supported Python; a change here changes every user's keys."""
    assert of(GOLDEN_TEXT) == "x3:a7485aff8f4983c1f70f42d43e6fabd9"


SAME = [
    ("x = 1", "x  =  0x1  # one"),
    ("def f(): pass", "def f():\n    'doc'"),
    ("def f():\n    return 1", "def f():\n    'doc'\n    ...\n    return (1)"),
    ("x = 'ab'", 'x = "a" """b"""'),
    ("x = f'a{y}b'", "x = f'a' '' f'{y}' 'b'"),
    ("f(a, b=1)", "f(\n    a,\n    b=1,\n)"),
    ("x = u'a'", "x = 'a'"),
    ("class A:\n    'doc'\n    x = 1", "class A:\n    x = 1\n    'doc of x'"),
]
OTHER = [
    ("x = 1", "x = 1.0"),
    ("x = 1", "x = True"),
    ("x = 'a'", "x = b'a'"),
    ("x = None", "x = ..."),
    ("x = [1, 2]", "x = (1, 2)"),
    ("x = [[1], 2]", "x = [[1, 2]]"),
    ("f(a, b)", "f(a)(b)"),
    ("x = {**a}", "x = {None: a}"),
    ("def f(a, /): return a", "def f(*, a): return a"),
    ("def f(a=1): return a", "def f(a): return a"),
    ("return_ = x if y else z", "return_ = y if x else z"),
    ("x = 1j", "x = 2j"),
    ("x = f'{y!r}'", "x = f'{y!s}'"),
    ("async def f(): pass", "def f(): pass"),
    ("from .a import b", "from ..a import b"),
    ("x = -1", "x = 1"),
    ("x = a < b < c", "x = (a < b) < c"),
]


@pytest.mark.parametrize(("one", "two"), SAME)
def test_looks_do_not_count(one: str, two: str) -> None:
    assert of(one) == of(two)


@pytest.mark.parametrize(("one", "two"), OTHER)
def test_meaning_does(one: str, two: str) -> None:
    assert of(one) != of(two)
