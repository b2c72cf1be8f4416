"""Values as JSON has them, and back by their types."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npuflow.base.plain import plain, typed


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Place(NamedTuple):
    x: int
    name: str = ""


@dataclass(frozen=True)
class Leaf:
    size: float
    name: str = "leaf"


@dataclass(frozen=True)
class Named(Leaf):
    title: str = ""


@dataclass(frozen=True)
class Tree:
    kind: Literal["oak", "ash"]
    leaves: tuple[Leaf | Named, ...]
    spans: Mapping[str, tuple[float, float]]
    colour: Colour
    place: Place | None = None
    best: Leaf | None = None
    rows: Sequence[Annotated[int, "marked"]] = ()
    below: tuple[Tree, ...] = ()
    known: int = field(default=0, init=False)


numbers = st.floats(allow_nan=False)
leaves = st.builds(Leaf, numbers, st.text()) | st.builds(Named, numbers, st.text(), st.text())
places = st.builds(Place, st.integers(), st.text())
trees = st.builds(
    Tree,
    st.sampled_from(["oak", "ash"]),
    st.lists(leaves, max_size=3).map(tuple),
    st.dictionaries(st.text(), st.tuples(numbers, numbers), max_size=3),
    st.sampled_from(Colour),
    st.none() | places,
    st.none() | st.builds(Leaf, numbers),
    st.lists(st.integers()).map(tuple),
)
forests = st.builds(
    Tree, st.just("oak"), st.just(()), st.just({}), st.just(Colour.RED),
    below=st.lists(trees, max_size=3).map(tuple),
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(forests)
def test_a_value_comes_back_from_its_json(tree: Tree) -> None:
    assert typed(Tree, json.loads(json.dumps(plain(tree)))) == tree


@dataclass(frozen=True)
class Pair:
    left: Leaf
    right: tuple[Leaf, ...] = ()


@given(st.builds(Pair, st.builds(Leaf, numbers, st.text()), st.lists(st.builds(Leaf, numbers)).map(tuple)))
def test_dataclasses_as_rows_come_back(pair: Pair) -> None:
    rows = json.loads(json.dumps(plain(pair, rows=True)))
    assert isinstance(rows, list) and typed(Pair, rows, rows=True) == pair


def test_a_number_written_without_a_point_is_real_where_the_field_is() -> None:
    found = typed(Leaf, {"size": 3})
    assert found == Leaf(3.0) and isinstance(found.size, float)


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        (Leaf, [1.0], "Leaf wants a mapping, not"),
        (Leaf, {"size": 1.0, "weight": 2}, "Leaf has no field 'weight'"),
        (Leaf, {"name": "x"}, "size"),
        (tuple[int, ...], 5, "there is 5 where a list should be"),
        (tuple[int, str], [1], "a list has 1 elements instead of 2"),
        (Mapping[str, int], [1], r"there is \[1\] where a mapping should be"),
        (Colour, "green", "'green' is not a valid Colour"),
    ],
)
def test_what_is_no_such_value_is_refused(kind: Any, data: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        typed(kind, data)
