"""Artifacts that are stored field by field: their entries, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from npuflow.base.errors import StoreError
from npuflow.flow.artifact import Artifact, Codec, Manifest, Reader, Writer, seal


@dataclass(frozen=True)
class Spot:
    x: int
    y: float = 0.0


class Lines(Codec):
    @staticmethod
    def save(folder: Writer, name: str, value: tuple[str, ...]) -> None:
        folder.text(name, "\n".join(value))

    @staticmethod
    def load(folder: Reader, name: str) -> tuple[str, ...]:
        return tuple(folder.text(name).split("\n"))


@dataclass(frozen=True)
class Inner(Artifact, names="held"):
    held: tuple[str, ...] = ()


@dataclass(frozen=True)
class Content:
    lo: npt.NDArray[np.float64]
    hi: npt.NDArray[np.float64]
    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drawing(
    Artifact, spread=("content", "inner"), rows=("spots",), optional=("note", "extra", "marks"),
    codecs={"lines": Lines}, about=("title", "note", "steps"), ends=("lo", "hi"), extra={"first": "best"},
):
    title: str
    content: Content
    inner: Inner
    spots: tuple[Spot, ...] = ()
    lines: tuple[str, ...] = ("one",)
    arrays: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    note: str = ""
    best: Spot | None = None
    marks: tuple[int, ...] = ()


def drawing(**changes: Any) -> Drawing:
    content = Content(np.zeros(3), np.ones(3), ("a", "b"))
    return Drawing("t", content, Inner(("x",)), (Spot(1, 2.0),), arrays={"k": np.arange(3)}, **changes)


def stored(artifact: Artifact, folder: Path) -> Reader:
    folder.mkdir()
    made = seal(artifact, Writer(folder))
    return Reader(folder, Manifest.decode((folder / "manifest.json").read_bytes(), made.digest, "here"))


@pytest.mark.parametrize("changes", [{}, {"note": "n", "best": Spot(3), "marks": (1,)}])
def test_fields_come_back_and_the_digest_stays(changes: dict[str, Any], tmp_path: Path) -> None:
    one = drawing(**changes)
    reader = stored(one, tmp_path / "object")
    back = Drawing.load(reader)
    assert back.digest() == reader.digest == one.digest()
    for name in ("title", "inner", "spots", "lines", "note", "best", "marks"):
        assert getattr(back, name) == getattr(one, name)
    assert back.content.steps == ("a", "b") and back.content.hi.tolist() == [1, 1, 1]
    assert back.arrays["k"].tolist() == [0, 1, 2]


def test_entries_are_those_that_the_class_states(tmp_path: Path) -> None:
    reader = stored(drawing(), tmp_path / "object")
    assert reader.names() == ["about", "arrays", "ends", "lines", "names", "spots"]
    assert reader.json("about") == {"title": "t", "steps": ["a", "b"]}
    assert reader.json("spots") == [[1, 2.0]]
    assert reader.text("lines") == "one" and set(reader.arrays("ends")) == {"lo", "hi"}
    full = stored(drawing(note="n", best=Spot(3), marks=(1,)), tmp_path / "full")
    assert full.json("about")["note"] == "n" and full.json("marks") == [1]
    assert full.json("extra") == {"first": {"x": 3, "y": 0.0}}


def test_an_entry_that_is_missing_is_named(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.json("about", {"title": "t"})
    made = writer.seal("Drawing", {}, {})
    with pytest.raises(StoreError, match="has no entry 'ends'") as caught:
        Drawing.load(Reader(tmp_path, made))
    assert caught.value.code == "NF-STORE-013"


@pytest.mark.parametrize(
    ("entry", "value", "because"),
    [
        ("about", {"note": "n"}, "there is no 'title'"),
        ("about", 5, "there is 5 where an object should be"),
        ("spots", [[1]], "a list has 1 elements instead of 2"),
        ("spots", [{"x": 1}], "where a list should be"),
        ("names", {"a": 1}, "where a list should be"),
    ],
)
def test_a_field_that_does_not_fit_is_named(entry: str, value: Any, because: str, tmp_path: Path) -> None:
    good = stored(drawing(), tmp_path / "good")
    (tmp_path / "bad").mkdir()
    writer = Writer(tmp_path / "bad")
    for name in ("about", "names", "spots"):
        writer.json(name, value if name == entry else good.json(name))
    for name in ("ends", "arrays"):
        writer.arrays(name, good.arrays(name))
    writer.text("lines", "one")
    made = writer.seal("Drawing", {}, {})
    with pytest.raises(StoreError, match=f"entry '{entry}' of artifact Drawing") as caught:
        Drawing.load(Reader(tmp_path / "bad", made))
    assert caught.value.code == "NF-STORE-020" and because in caught.value.because


def test_a_subclass_is_stored_like_its_base() -> None:
    @dataclass(frozen=True)
    class Other(Inner):
        pass

    assert Other(("x",)).digest() != Inner(("x",)).digest()     # the kind counts
    writer = Writer(None)
    Other(("x",)).save(writer)
    assert set(writer.entries) == {"names"}
