"""Prints what keys are made of, for any Python from 3.11 on: needs the standard library alone.

    python tests/base/witness.py ROOT [EVERY]      # a line for each value, source file and stage

xxhash is replaced by a hash of the standard library, so that interpreters without it can be asked too: what
is compared is the bytes that go into a digest, and these must be equal wherever a key is computed.
"""

from __future__ import annotations

import ast
import hashlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class _State:
    """The part of xxhash's interface that npuflow uses."""

    def __init__(self, data: bytes = b"") -> None:
        self._hash = hashlib.blake2b(data, digest_size=16)

    def update(self, data: Any) -> None:
        self._hash.update(data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def copy(self) -> _State:
        made = _State()
        made._hash = self._hash.copy()
        return made


def stand_in() -> types.ModuleType:
    module: Any = types.ModuleType("xxhash")
    module.xxh3_128 = _State
    module.xxh3_128_hexdigest = lambda data: _State(bytes(data)).hexdigest()
    return module


VALUES = [
    None,
    True,
    False,
    0,
    -1,
    2**70,
    1.0,
    -0.0,
    float("inf"),
    float("nan"),
    1e-310,
    "",
    "a",
    "\N{SNOWMAN}\udc80",
    b"\0\xff",
    (),
    [1, [2.5, "x"]],
    {"b": 1, "a": [None]},
    {"ä": {}},
    {1, 2, 3},
    frozenset({"x", ("y", 1)}),
]

TRICKY = {
    "f-strings": "x = f'{a!r:>{w}} {{}} {b}' f'{c=}' 'd' f''",
    "generics": "def f(a: int, /, *b: str, c: float = 1.5, **d: bytes) -> None:\n    '''doc'''\n    return "
    "lambda x: x + 1j",
    "match": "match p:\n    case {'k': [1, *r], **s} | P(x=-1.0): pass\n    case _ if g: ...",
    "try": "try:\n    async def f():\n        async with a as b: await c\nexcept* (E, F) as g:\n    raise H "
    "from g",
    "class": "class C[T: int](B, metaclass=M):\n    x: T = 1\n    type A = list[T]",
    "walrus": "y = [z := i for i in j if k] + [*l, -5, 1_000, 0x1F, '\\N{BULLET}', ...]",
}


def lines(root: Path, every: int) -> Iterator[str]:
    """`every`: of files and stages, each so manieth alone, which takes as much less time."""
    from npuflow.base.code import entry_closure
    from npuflow.base.code_normal import syntax_digest
    from npuflow.base.digest import digest

    for index, value in enumerate(VALUES):
        yield f"value {index} {digest(value)}"
    for name, text in TRICKY.items():
        if sys.version_info >= (3, 12) or "[T" not in text:
            yield f"text {name} {syntax_digest(ast.parse(text).body)}"
    for path in sorted((root / "npuflow").rglob("*.py"))[::every]:
        yield f"file {path.relative_to(root).as_posix()} {syntax_digest(ast.parse(path.read_bytes()).body)}"
    for path in sorted((root / "npuflow/stages").glob("[!_]*.py"))[::every]:
        closure = entry_closure(f"npuflow.stages.{path.stem}")
        yield f"stage {path.stem} {len(closure.definitions)} {digest(closure.definitions)}"


if __name__ == "__main__":
    sys.modules["xxhash"] = stand_in()
    place = Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(place))
    for line in lines(place, int(sys.argv[2]) if len(sys.argv) > 2 else 1):
        print(line)
