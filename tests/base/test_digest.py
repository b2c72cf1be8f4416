"""Digests: canonical, reported apart by type, pinned."""

from __future__ import annotations

import enum
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuflow.base.digest import Hasher, bytes_digest, digest, digest_array, digest_file, encode
from tests.tiers import often


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Number(enum.IntEnum):
    ONE = 1


@dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.0


@dataclass
class Loose:
    x: int


Point.__module__ = Colour.__module__ = Number.__module__ = "golden"

GOLDEN = [
    (None, "x3:626d368fe0e74b4f1a038927df1311d6"),
    (True, "x3:1d33c0bd3511c80d20948828081ddcb4"),
    (1, "x3:ed385942903f7b1b8b92d88500408732"),
    (-(2**100), "x3:2c8fc871fd83354c64850d0b4cdf8626"),
    (1.0, "x3:17d29d6657bed9b0e5cc2902c4d18dd6"),
    (-0.0, "x3:d156bb30be11708f6a7dec2974768fe4"),
    (math.nan, "x3:e6f3ecce6b6258c6cf4864359784bbde"),
    ("", "x3:85fefc6f12f345b396720846b631026c"),
    ("é", "x3:177ec6972040998e0da38bfb209372ea"),
    (b"\0", "x3:46604731cfcaa990398a523524a85d96"),
    ([], "x3:0aebbd979a3abcb9966f4dbc9ca4448a"),
    ([1, [2, "a"]], "x3:23de0003f0436ab39af7f561dd1e882a"),
    ({}, "x3:edbf82919c75c16412f589a228c03542"),
    ({"b": 1, "a": {"c": None}}, "x3:23e55f5a981a9bb0aaccce057f7a169b"),
    ({1, 2, 3}, "x3:502fe7f3156b496720afb69fcd0e9399"),
    (Colour.RED, "x3:3a3494adc24c17c707105839845d3168"),
    (Number.ONE, "x3:9a7ed529b17be6b1993f37c5cf076c4e"),
    (Point(1, 2.0), "x3:eb456e6646a2a32d9d76c7ba44c3aff2"),
]


@pytest.mark.parametrize(("value", "wanted"), GOLDEN, ids=[repr(v)[:20] for v, _ in GOLDEN])
def test_golden(value: object, wanted: str) -> None:
    """A change here makes every existing cache useless: raise flow.keys.SCHEME with it."""
    assert digest(value) == wanted


def test_golden_bytes_and_arrays(tmp_path: Path) -> None:
    assert Hasher("t").hexdigest() == "x3:517b729efcb41a916d5b89f4264c0846"
    assert bytes_digest(b"abc") == "x3:629efd75cba0f95ec4d3f32035ac2dd0"
    assert digest_array(np.arange(6, dtype=np.int16).reshape(2, 3)) == "x3:ba8c03dd1fe47d559b1c477cd082cee4"


def test_nothing_passes_for_another() -> None:
    values = [value for value, _ in GOLDEN]
    values += [
        False,
        0,
        0.0,
        "1",
        b"1",
        "None",
        [None],
        {"": None},
        frozenset(),
        [[]],
        ["ab"],
        ["a", "b"],
        "ab",
        2,
    ]
    values += [{"a": 1}, [["a", 1]], Colour.BLUE, Point(2, 1.0), {1, 2}, [1, 2], math.inf, -math.inf]
    assert len({encode(value) for value in values}) == len(values)


def test_order_of_keys_and_kind_of_sequence_do_not_count() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest((1, 2)) == digest([1, 2])
    assert digest({3, 1, 2}) == digest(frozenset([2, 3, 1]))


@pytest.mark.parametrize(
    "value", [object(), Loose(1), np.int64(1), np.zeros(1), {1: 2}, len, Point, [object()], 1j]
)
def test_what_cannot_be_encoded_is_an_error(value: object) -> None:
    with pytest.raises(TypeError):
        digest(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize("examples", often([25, 100], 2))
def test_equal_encodings_mean_equal_values(examples: int) -> None:
    drawn = settings(max_examples=examples, deadline=None)
    drawn(given(JSON, JSON)(equal_encodings_mean_equal_values))()


def equal_encodings_mean_equal_values(a: object, b: object) -> None:
    def exact(value: object) -> object:
        if isinstance(value, list):
            return tuple(exact(v) for v in value)
        if isinstance(value, dict):
            return frozenset((k, exact(v)) for k, v in value.items()), "dict"
        return type(value).__name__, repr(value)

    assert (encode(a) == encode(b)) == (exact(a) == exact(b))


@given(st.lists(st.binary(max_size=20)))
def test_streams_do_not_depend_on_their_cuts(parts: list[bytes]) -> None:
    hasher = Hasher("file")
    for part in parts:
        hasher.update(part)
    assert hasher.hexdigest() == bytes_digest(b"".join(parts))


def test_files_are_read_in_blocks(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    (tmp_path / "f").write_bytes(data)
    assert digest_file(tmp_path / "f") == bytes_digest(data)


@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 0, 2), (700, 900), (3, 4, 5)])
def test_arrays_by_logical_content(shape: tuple[int, ...]) -> None:
    array = (np.arange(math.prod(shape)) % 251).astype(np.float32).reshape(shape)
    same = digest_array(array)
    assert digest_array(np.asarray(array, order="F")) == same
    assert digest_array(array.astype(">f4")) == same
    assert digest_array(np.repeat(array[..., None], 2, -1)[..., 0] if shape else array) == same
    assert digest_array(array.astype(np.float64)) != same
    assert digest_array(array[None]) != same
    if array.size:
        other = array.copy()
        other.flat[-1] += 1
        assert digest_array(other) != same


def test_arrays_without_canonical_bytes_are_refused() -> None:
    for array in (np.array([None]), np.zeros(2, dtype=[("a", "i4")])):
        with pytest.raises(TypeError):
            digest_array(array)


def test_imports_stay_light() -> None:
    text = (
        "import sys, npuflow.base.digest\nprint([m for m in ('numpy', 'dask', 'dataclasses') if m in "
        "sys.modules])"
    )
    done = subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path={sys.path!r}\n{text}"],
                          capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
