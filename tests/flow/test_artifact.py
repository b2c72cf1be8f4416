"""Artifacts: logical digests, verified reads, names that stay inside."""

from __future__ import annotations

import dataclasses
import io
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from npuflow.base.digest import digest_array
from npuflow.base.errors import StoreError
from npuflow.base.mapped import mapped_by
from npuflow.flow import store_arrays, store_npz
from npuflow.flow.artifact import Artifact, Damaged, Manifest, Reader, Writer, seal


@dataclass(frozen=True)
class Bag(Artifact):
    arrays: Any
    meta: Any = None

    def save(self, folder: Writer) -> None:
        folder.json("meta", self.meta)
        folder.arrays("bag", self.arrays)

    @classmethod
    def load(cls, folder: Reader) -> Bag:
        return cls(folder.arrays("bag"), folder.json("meta"))


def stored(artifact: Artifact, folder: Path) -> Reader:
    folder.mkdir()
    made = seal(artifact, Writer(folder))
    again = Manifest.decode((folder / "manifest.json").read_bytes(), made.digest, "here")
    assert again.files == made.files
    return Reader(folder, again)


ANY_ARRAY = hnp.arrays(
    st.sampled_from(["<f4", ">i2", "u1", "?", "<f8", "<i8", "<c8"]),
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0),
)


@settings(max_examples=40, deadline=None)
@given(arrays=st.dictionaries(st.text(max_size=12), ANY_ARRAY, max_size=4), order=st.randoms())
def test_arrays_come_back_by_name_and_content(
    tmp_path_factory: Any, arrays: dict[str, Any], order: Any
) -> None:
    reader = stored(Bag(arrays), tmp_path_factory.mktemp("bag") / "object")
    back = Bag.load(reader).arrays
    assert set(back) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == array.dtype.newbyteorder("<")
        assert reader.manifest.entries["bag"]["members"][name]["digest"] == digest_array(array)
    names = list(arrays)
    order.shuffle(names)
    assert Bag({name: arrays[name] for name in names}).digest() == reader.digest


def test_digest_ignores_chunks_codec_and_memory_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.arange(60_000, dtype="<f4").reshape(300, 200)
    small = stored(Bag({"a": array}), tmp_path / "npz")
    monkeypatch.setattr(store_arrays, "SMALL", 10)
    monkeypatch.setattr(store_arrays, "CHUNK", 7000)
    large = stored(Bag({"a": np.asfortranarray(array)}), tmp_path / "zarr")
    assert any(name.startswith("bag.zarr/") for name in large.manifest.files)
    assert small.digest == large.digest == Bag({"a": array}).digest()
    np.testing.assert_array_equal(Bag.load(large).arrays["a"], array)
    np.testing.assert_array_equal(large.sliced("bag", "a")[17:19, 3], array[17:19, 3])
    assert Bag({"a": array.reshape(200, 300)}).digest() != small.digest
    assert Bag({"a": array.view("<i4")}).digest() != small.digest
    assert Bag({"b": array}).digest() != small.digest


def test_an_array_is_in_zarr_by_its_own_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its neighbours do not matter; what lies in zarr is read with zarr alone."""
    monkeypatch.setattr(store_arrays, "SMALL", 1000)
    arrays = {
        "a": np.zeros(900, "u1"),
        "b": np.arange(300, dtype="<f4"),
        "c": np.ones(900, "u1"),
        "d": np.float32(1),
    }
    reader = stored(Bag(arrays), tmp_path / "object")
    members = reader.manifest.entries["bag"]["members"]
    assert {name for name, one in members.items() if "zarr" in one} == {"b"}
    np.testing.assert_array_equal(
        zarr.open_array(tmp_path / "object" / members["b"]["zarr"], mode="r")[...], arrays["b"]
    )


def test_arrays_are_read_without_npuflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones by numpy, large ones as a zarr group, large ones that are mapped by numpy."""
    monkeypatch.setattr(store_arrays, "SMALL", 1000)
    monkeypatch.setattr(store_arrays, "MAPPED", 1000)
    arrays = {
        "a": np.zeros((3, 4), "u1"), "": np.arange(4.0), "b/c": np.arange(400.0), "zarr.json": np.ones(900),
        "l" * 300: np.zeros(2000), "none": np.zeros((0, 3), "<i8"), "one": np.array(7, "<i2"),
    }
    folder = tmp_path / "object"
    bag = Bag.load(stored(Bag(arrays), folder)).arrays
    assert all(np.array_equal(bag[name], array) for name, array in arrays.items())
    small = np.load(folder / "bag.npz")
    assert sorted(small.files) == ["a", "array", "none", "one"]
    assert small["none"].shape == (0, 3) and small["one"] == 7
    large = zarr.open(folder / "bag.zarr", mode="r")
    assert len(list(large)) == 3
    np.testing.assert_array_equal(large["b%2Fc"][...], arrays["b/c"])

    writer = Writer(tmp_path)
    writer.arrays("many", arrays, mapped=True)
    writer.array("single", np.arange(300.0), mapped=True)
    np.testing.assert_array_equal(np.load(tmp_path / "many.npy" / "b%2Fc.npy"), arrays["b/c"])
    np.testing.assert_array_equal(np.load(tmp_path / "single.npy", mmap_mode="r"), np.arange(300.0))


@settings(max_examples=40, deadline=None)
@given(places=st.lists(st.integers(0, 300_000), max_size=5), length=st.integers(0, 300_001))
def test_zeros_take_no_room_on_the_disk(tmp_path_factory: Any, places: list[int], length: int) -> None:
    """The bytes and their digest are the same; how much room they take is the file system's matter."""
    array = np.zeros(length, np.uint8)
    for place in places:
        array[place % max(1, length) :][:1] = 1
    folder = tmp_path_factory.mktemp("bag")
    reader = stored(Bag({"a": array}), folder / "object")
    np.testing.assert_array_equal(Bag.load(reader).arrays["a"], array)
    file = folder / "object" / "bag.npz"
    whole = io.BytesIO()
    store_npz.write({"a": array}, whole)
    assert file.read_bytes() == whole.getvalue()
    if not array.any() and hasattr(os.stat_result, "st_blocks"):
        (folder / "dense").write_bytes(whole.getvalue())
        dense, found = (path.stat().st_blocks for path in (folder / "dense", file))
        assert found <= min(dense, 300), "two pieces of 64 KiB are written at most"


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_npz_file_of_numpy_is_read(tmp_path: Path, save: Any) -> None:
    arrays = {"a": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "b": np.zeros(0, "u1")}
    save(tmp_path / "x.npz", **arrays)
    found = store_npz.read((tmp_path / "x.npz").read_bytes(), arrays)
    assert all(np.array_equal(found[name], array) for name, array in arrays.items())
    save(tmp_path / "y.npz", a=np.array([{}]))
    with pytest.raises(ValueError, match="bject"):
        store_npz.read((tmp_path / "y.npz").read_bytes(), ["a"])


def test_large_npz_files_are_mapped(tmp_path: Path) -> None:
    """Caches of a language model take no memory until they are looked at: large arrays lie where the file has
    them, small ones are copies. What a caller writes into either is its own."""
    arrays = {f"a{'b' * k}": np.full(1 << 20, k, np.float32) for k in range(5)} | {"small": np.arange(7.0)}
    reader = stored(Bag(arrays), tmp_path / "object")
    found = reader.arrays("bag")
    assert {name for name, array in found.items() if mapped_by(array) is not None} == {*arrays} - {"small"}
    assert all(array.ctypes.data % 64 == 0 for array in found.values() if array.size > 7)
    found["a"][:] = 9
    for name, array in arrays.items():
        np.testing.assert_array_equal(reader.arrays("bag")[name], array)
        np.testing.assert_array_equal(np.load(tmp_path / "object" / "bag.npz")[name], array)
    few = stored(Bag({"a": arrays["a"]}), tmp_path / "few").arrays("bag")
    assert mapped_by(few["a"]) is None


def test_an_npz_file_of_more_than_zip_takes_is_one_of_zip64(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for most in (1 << 31, 10):
        monkeypatch.setattr(store_npz, "_MOST", most)
        out = io.BytesIO()
        store_npz.write({"a": np.arange(10.0)}, out)
        made.append(out.getvalue())
        np.testing.assert_array_equal(store_npz.read(out.getvalue(), ["a"])["a"], np.arange(10.0))
    assert made[0] != made[1]


def test_blocks_stream_to_the_digest_of_the_whole(tmp_path: Path) -> None:
    array = np.random.default_rng(0).random((1001, 33), dtype="f4")

    @dataclass(frozen=True)
    class Large(Artifact):
        cuts: tuple[int, ...]

        def save(self, folder: Writer) -> None:
            folder.blocks("a", "<f4", array.shape, np.split(array, self.cuts))

        @classmethod
        def load(cls, folder: Reader) -> Large:
            raise NotImplementedError

    reader = stored(Large((1, 500, 977)), tmp_path / "object")
    np.testing.assert_array_equal(reader.array("a"), array)
    assert Large((2,)).digest() == reader.digest
    assert reader.manifest.entries["a"]["members"][""]["digest"] == digest_array(array)


def test_a_missing_chunk_is_damage_not_zeros(tmp_path: Path) -> None:
    reader = stored(Bag({"a": np.ones((3000, 1000))}), tmp_path / "object")
    chunks = sorted(one for one in (tmp_path / "object").rglob("c/*/*") if one.is_file())
    chunks[1].unlink()
    with pytest.raises(Damaged, match="cannot be read"):
        Bag.load(reader)


def test_an_unlisted_chunk_is_refused(tmp_path: Path) -> None:
    reader = stored(Bag({"a": np.ones((3000, 1000))}), tmp_path / "object")
    files = dict(reader.manifest.files)
    del files[next(name for name in files if "/c/" in name)]
    with pytest.raises(Damaged, match="not listed"):
        Bag.load(Reader(reader.folder, dataclasses.replace(reader.manifest, files=files)))


def test_a_path_is_checked_once_and_again_when_it_changed(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    with writer.stream("data.bin") as sink:
        sink.write(b"one")
        sink.write(b"two")
    reader = Reader(tmp_path, writer.seal("Raw", {}, {}))
    assert reader.path("data.bin").read_bytes() == b"onetwo"
    (tmp_path / "data.bin").write_bytes(b"oneTwo")
    with pytest.raises(Damaged, match="do not match"):
        reader.path("data.bin")


def test_a_manifest_belongs_to_its_object(tmp_path: Path) -> None:
    one, two = stored(Bag({}, 1), tmp_path / "one"), stored(Bag({}, 2), tmp_path / "two")
    shutil.copy(tmp_path / "two" / "manifest.json", tmp_path / "one" / "manifest.json")
    with pytest.raises(Damaged, match="another object"):
        Manifest.decode((tmp_path / "one" / "manifest.json").read_bytes(), one.digest, "here")
    assert two.json("meta") == 2


@pytest.mark.parametrize("name", ["../out", "/abs", "a/../b", ".hidden", "manifest.json", "", "a\\b", "a\nb"])
def test_names_stay_inside_the_object(name: str) -> None:
    with pytest.raises(StoreError):
        Writer(None).bytes(name, b"")


def test_refusals() -> None:
    writer = Writer(None)
    writer.json("a", 1)
    with pytest.raises(StoreError, match="twice"):
        writer.json("a", 2)
    with pytest.raises(StoreError, match="not plain JSON"):
        writer.json("b", object())
    with pytest.raises(StoreError, match="dtype object"):
        writer.array("c", np.array([object()]))
    with pytest.raises(StoreError, match="single-file"):
        writer.seal("X", {}, {"program": "nothing"})


def test_uses_products_and_kind_are_part_of_the_identity() -> None:
    def made(**more: Any) -> str:
        writer = Writer(None)
        writer.bytes("m", b"1")
        return writer.seal(more.get("kind", "A"), more.get("uses", {}), more.get("products", {})).digest

    digests = {made(), made(kind="B"), made(uses={"ops": ("relu",)}), made(products={"program": "m"})}
    assert len(digests) == 4
    assert made(uses={"ops": ("b", "a", "a")}) == made(uses={"ops": ("a", "b")})


@pytest.mark.parametrize("dtype", ["?", "i1", "<u2", ">i4", "u8", "f2", "f4", ">f8", "c8", "c16"])
def test_headers_of_arrays_are_read_as_numpy_reads_them(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it: its way through Python's compiler fails in threads of CPython 3.11."""
    heads = {}
    for shape in ((), (0,), (1,), (3, 4), (2, 0, 5), (123456,)):
        for order, version in (("C", (1, 0)), ("F", (2, 0)), ("C", (3, 0))):
            array, out = np.zeros(shape, dtype, order=order), io.BytesIO()
            np.lib.format.write_array(out, array, version=version)
            heads[out.getvalue()[: out.tell() - array.nbytes]] = array
    monkeypatch.setattr(np.lib.format, "read_magic", None)
    store_npz._parsed_header.cache_clear()
    for head, array in heads.items():
        shape, fortran, found = store_npz._parsed_header(head)
        assert (shape, found) == (array.shape, array.dtype)
        assert fortran == (array.flags.f_contiguous and not array.flags.c_contiguous)
