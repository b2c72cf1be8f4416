"""Every artifact class comes back from its entries, whatever its fields hold; what is missing is named."""

from __future__ import annotations

import importlib
import pkgutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import npuflow.stages
from npuflow.base.errors import StoreError
from npuflow.base.plain import hints_of
from npuflow.flow.artifact import Artifact, Manifest, Reader, Writer, entries_of, seal
from npuflow.ir.graph import Graph
from npuflow.ir.text import from_text, to_text
from npuflow.search.canonical import CanonicalSubgraph

WRITTEN = {
    "ChannelExtrema", "Columns", "CompiledProgram", "ComponentOutputs", "Evaluation",
    "KeptLayer", "LayerMoments", "Masks", "Observed", "PackedShapes", "PageLibrary", "Qdq", "QdqComparison",
    "ReadySegment", "Report", "RivalRanges", "Rounded", "RoundedLayer", "ScoredRanges", "SourcePlaces",
    "Thresholds", "TokenizerFile",
}
"""Classes with a form of their own. They and their subclasses are read back in builds
(`test_every_stage`), since their fields must agree with each other."""


def below(kind: type[Artifact]) -> Iterator[type[Artifact]]:
    for one in kind.__subclasses__():
        yield one
        yield from below(one)


def scanned() -> dict[str, type[Artifact]]:
    """The artifacts of all stages."""
    for module in pkgutil.iter_modules(npuflow.stages.__path__):
        importlib.import_module(f"npuflow.stages.{module.name}")
    return {one.__name__: one for one in below(Artifact) if one.__module__.startswith("npuflow.stages.")}


GRAPH = from_text("npuflow graph 1\ninput x: float32[1,4]\ny: float32[1,4] = relu(x)\noutput y\n")
PLAIN = (int, str, bool, float)
ALL = scanned()
DERIVED = {name: one for name, one in ALL.items() if one.load.__func__ is Artifact.load.__func__}  # type: ignore[attr-defined]
NESTED = {"ShapedProgram"}                # its program is written by itself


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Graph:
        return st.just(GRAPH)
    if kind is CanonicalSubgraph:
        return st.builds(kind, st.just(to_text(GRAPH)), st.lists(st.tuples(st.integers())).map(tuple))
    if kind in SIMPLE:
        return SIMPLE[kind]
    if origin is Annotated:
        return values(inner[0])
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, UnionType):
        return st.one_of(*map(values, inner))
    if (origin or kind) is np.ndarray:
        dtype = get_args(inner[1])[0] if len(inner) > 1 and get_args(inner[1]) else np.float32
        return hnp.arrays(np.float32 if dtype is Any else dtype, st.tuples(st.integers(0, 3)))
    if is_dataclass(kind):
        return made(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(texts, values(inner[1]), max_size=2)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        if origin is tuple and inner[-1] is not Ellipsis:
            return st.tuples(*map(values, inner))
        return st.lists(values(inner[0]), max_size=2).map(tuple)
    raise TypeError(f"no values of {kind}")


texts = st.text(max_size=4)
reals = st.floats(allow_nan=False)
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**40), 2**40),
    float: reals,
    str: texts,
    bool: st.booleans(),
    type(None): st.none(),
    Any: st.none() | st.integers(-5, 5) | texts | st.lists(st.integers(0, 3), max_size=2),
}


def made(kind: Any) -> st.SearchStrategy[Any]:
    hints = hints_of(kind)
    given = {one.name: values(hints[one.name]) for one in fields(kind) if one.init}
    return st.builds(kind, **given)


def drawn(kind: type[Artifact]) -> st.SearchStrategy[Any]:
    if kind.__name__ == "Parsed":         # a file of masks where channels were removed, and only there
        arrays = st.dictionaries(st.sampled_from("ab"), values(np.ndarray), min_size=1)
        whole = st.tuples(made(kind), arrays)
        return whole.map(lambda pair: _with_masks(*pair))
    return made(kind)


def _with_masks(one: Any, masks: Any) -> Any:
    return replace(one, masks=masks if one.before is not None else {})


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other, equal_nan=True)) and one.dtype == other.dtype
    if isinstance(one, Graph):
        return one == other
    if is_dataclass(one):
        return type(one) is type(other) and all(
            same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one) if f.init
        )
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, tuple):
        return isinstance(other, tuple) and len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and type(one) is type(other)


def stored(artifact: Artifact, folder: Path) -> Reader:
    made = seal(artifact, Writer(folder))
    return Reader(folder, Manifest.decode((folder / "manifest.json").read_bytes(), made.digest, "here"))


def test_every_artifact_is_derived_or_listed() -> None:
    own = {one for name, one in ALL.items() if "load" in vars(one)}
    assert {one.__name__ for one in own} == WRITTEN
    assert len(DERIVED) > 30


@pytest.mark.parametrize("name", sorted(DERIVED.keys() - NESTED))
@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(data=st.data())
def test_an_artifact_comes_back(name: str, data: st.DataObject) -> None:
    one = data.draw(drawn(DERIVED[name]))
    with tempfile.TemporaryDirectory() as folder:
        reader = stored(one, Path(folder))
        back = DERIVED[name].load(reader)
        assert back.digest() == reader.digest
        assert same(one, back)


def first(kind: type[Artifact]) -> Any:
    """The least value of a type."""
    found: list[Any] = []

    @settings(max_examples=1, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(drawn(kind))
    def draw(one: Any) -> None:
        found.append(one)

    draw()
    return found[0]


@pytest.mark.parametrize("name", sorted(DERIVED.keys() - NESTED))
def test_an_entry_that_is_missing_or_does_not_fit_is_named(name: str, tmp_path: Path) -> None:
    reader = stored(first(DERIVED[name]), tmp_path)
    shaped = {one.name: one for one in entries_of(DERIVED[name]) if one.name not in one.optional}
    for entry, about in reader.manifest.entries.items():
        if entry not in shaped:
            continue
        rest = {key: one for key, one in reader.manifest.entries.items() if key != entry}
        with pytest.raises(StoreError, match="has no entry") as caught:
            DERIVED[name].load(Reader(tmp_path, replace(reader.manifest, entries=rest)))
        assert caught.value.code == "NF-STORE-013"
        one = shaped[entry]
        if about["kind"] == "json" and not (one.single and one.parts[entry].kind in PLAIN):
            whole = (tmp_path / about["file"]).read_text()
            (tmp_path / about["file"]).write_text("5")
            with pytest.raises(StoreError, match=f"entry '{entry}' of artifact {name}") as caught:
                DERIVED[name].load(Reader(tmp_path, reader.manifest, trusted=True))
            assert caught.value.code == "NF-STORE-020"
            (tmp_path / about["file"]).write_text(whole)
