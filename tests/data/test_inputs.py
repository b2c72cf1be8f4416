"""More data sources and choices, and the judgement of what the model is fed."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import zarr
from PIL import Image

from npuflow import build
from npuflow.base.errors import DataError
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, open_cache
from npuflow.input.data.config import InputSample
from npuflow.input.data.judge import apart, beyond_codes, judged, unlike
from npuflow.input.data.listing import found
from npuflow.input.data.profile import MOST, InputProfile, looked_at, profiled
from npuflow.input.data.read import prepared_pixels
from npuflow.ir.types import Array, QuantType, TensorType
from npuflow.stages.input_check import InputCheck
from tests.data.test_data import loaded, table


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = zarr.open_group(tmp_path / "d.zarr", mode="w")
    a = root.create_array("a", shape=(10, 4), chunks=(3, 2), dtype="float32")
    a[:] = np.arange(40, dtype=np.float32).reshape(10, 4)
    b = root.create_array("ids", shape=(10, 2), chunks=(10, 2), dtype="int64")
    b[:] = np.arange(20).reshape(10, 2)
    label = root.create_array("label", shape=(10,), chunks=(10,), dtype="int64")
    label[:] = np.arange(10) % 3
    return tmp_path


@pytest.mark.parametrize("source", ["d.zarr", "*.zarr", "list.txt"])
def test_a_zarr_group_gives_rows_of_all_its_inputs(store: Path, source: str) -> None:
    (store / "list.txt").write_text("d.zarr\n")
    listed = found(table(store, source))
    assert list(listed) == [f"d.zarr#{i}" for i in range(10)]
    assert [one.label for one in listed.values()] == [i % 3 for i in range(10)]
    fed = loaded(table(store, source))["d.zarr#7"].feed(
        {"a": TensorType((1, 4)), "ids": TensorType((1, 2), "int64")}
    )
    assert fed["a"].tolist() == [[28, 29, 30, 31]] and fed["ids"].tolist() == [[14, 15]]


def test_a_row_of_a_zarr_store_knows_its_own_chunks(store: Path) -> None:
    listed = found(table(store, "d.zarr", arrays={"x": "a"}))
    files = {name: {f.relative_to(store).as_posix() for f in one.files} for name, one in listed.items()}
    assert files["d.zarr#0"] == files["d.zarr#2"] != files["d.zarr#3"]
    assert "d.zarr/a/c/1/0" in files["d.zarr#3"] and "d.zarr/a/c/0/0" not in files["d.zarr#3"]
    assert "d.zarr/zarr.json" in files["d.zarr#3"]
    assert all(f.is_file() for one in listed.values() for f in one.files)


@pytest.mark.parametrize("version", [2, 3])
def test_a_single_zarr_array_and_a_damaged_one(tmp_path: Path, version: int) -> None:
    array = zarr.create_array(
        tmp_path / "x", shape=(5, 3), chunks=(1, 3), dtype="float32", zarr_format=version
    )  # type: ignore[arg-type]
    array[:] = np.arange(15, dtype=np.float32).reshape(5, 3)
    assert loaded(table(tmp_path, "x"))["x#4"].feed({"in": TensorType((1, 3))})["in"].tolist() == [
        [12, 13, 14]
    ]
    (chunk,) = (
        f
        for f in (tmp_path / "x").rglob("*")
        if f.is_file() and f.name in ("4.0", "0") and "4" in f.as_posix()[-5:]
    )
    chunk.write_bytes(b"nonsense")
    done = loaded(table(tmp_path, "x"))
    assert [name for name, one in done.items() if one.broken] == ["x#4"]
    assert '"x"' in done["x#4"].broken


def test_text_beside_numbers_is_left_alone_and_text_alone_is_named(tmp_path: Path) -> None:
    names = np.array(["one", "two"])
    np.savez(tmp_path / "both.npz", x=np.zeros((2, 3), np.float32), names=names)
    assert list(loaded(table(tmp_path, "both.npz"))["both.npz#0"].arrays) == ["x"]
    np.savez(tmp_path / "text.npz", names=names)
    with pytest.raises(DataError, match="holds no array of numbers") as caught:
        found(table(tmp_path, "text.npz"))
    assert "names" in caught.value.because and "text" in caught.value.because
    one = loaded(table(tmp_path, "text.npz", arrays={"x": "names"}))["text.npz#0"]
    with pytest.raises(DataError, match='"x" takes float32, but its array holds text'):
        one.feed({"x": TensorType((1,))})
    assert one.feed({"x": TensorType((), "string")})["x"] == "one"


@pytest.mark.parametrize("kind", ["npz", "npy", "zarr"])
def test_a_damaged_array_file_among_others_is_left_out_by_name(tmp_path: Path, kind: str) -> None:
    for name in "ab":
        if kind == "zarr":
            zarr.create_array(tmp_path / f"{name}.zarr", shape=(2, 3), dtype="float32")[:] = 1
        else:
            (np.savez if kind == "npz" else np.save)(tmp_path / f"{name}.{kind}", np.ones((2, 3), np.float32))
    broken = tmp_path / f"b.{kind}" / "zarr.json" if kind == "zarr" else tmp_path / f"b.{kind}"
    broken.write_bytes(broken.read_bytes()[:60])
    done = loaded(table(tmp_path, f"*.{kind}"))
    assert [name for name, one in done.items() if one.broken] == [f"b.{kind}"]
    assert f'"b.{kind}" is not a readable' in done[f"b.{kind}"].broken and len(done) == 3
    with pytest.raises(DataError, match="is not a readable"):
        # alone it is no sample that could be left out
        found(table(tmp_path, f"b.{kind}"))


def test_nan_is_left_out_by_name_or_an_error_or_kept(tmp_path: Path) -> None:
    values = np.zeros((3, 4), np.float32)
    values[1, 2:] = np.nan, np.inf
    np.savez(tmp_path / "d.npz", x=values)
    done = loaded(table(tmp_path, "d.npz"))
    assert [name for name, one in done.items() if one.broken] == ["d.npz#1"]
    assert '"x" holds 1 NaN and 1 infinities of 4 values' in done["d.npz#1"].broken
    with pytest.raises(DataError, match=r"d\.npz#1. is not finite"):
        loaded(table(tmp_path, "d.npz", nonfinite="error"))
    kept = loaded(table(tmp_path, "d.npz", nonfinite="keep"))["d.npz#1"].feed({"x": TensorType((1, 4))})["x"]
    assert np.isnan(kept[0, 2]) and np.isinf(kept[0, 3])


def _labelled_pictures(folder: Path) -> None:
    """40 cats, 8 dogs, 2 birds, with a list that says so."""
    rows = [(f"{i:02}.png", "cat" if i < 40 else "dog" if i < 48 else "bird") for i in range(50)]
    for name, _ in rows:
        Image.new("L", (2, 2)).save(folder / name)
    (folder / "labels.csv").write_text("".join(f"{name},{kind}\n" for name, kind in rows))


def test_a_balanced_choice(tmp_path: Path) -> None:
    _labelled_pictures(tmp_path)
    data = table(tmp_path, ".", count=15, choose="balanced")
    for made in (
        with_labels(data, tmp_path / "labels.csv"),
        table(tmp_path, "labels.csv", count=15, choose="balanced"),
    ):
        kinds = Counter(one.label for one in found(made).values())
        assert kinds == {"cat": 7, "dog": 6, "bird": 2} or kinds == {"cat": 6, "dog": 7, "bird": 2}
    with pytest.raises(DataError, match="needs labels"):
        found(data)
    assert list(found(with_labels(data, tmp_path / "labels.csv"))) == list(
        found(with_labels(data, tmp_path / "labels.csv"))
    )


def with_labels(data: Any, path: Path) -> Any:
    from dataclasses import replace

    from npuflow.base.tables import Location

    return replace(data, labels=Location(str(path), path.parent))


def test_a_balanced_choice_from_coco_boxes(tmp_path: Path) -> None:
    for i in range(20):
        Image.new("L", (2, 2)).save(tmp_path / f"{i:02}.png")
    images = [{"id": i, "file_name": f"{i:02}.png"} for i in range(20)]
    boxes = [{"image_id": i, "category_id": 1 + (i >= 17), "bbox": [0, 0, 1, 1]} for i in range(20)]
    (tmp_path / "c.json").write_text(json.dumps({"images": images, "annotations": boxes}))
    chosen = found(with_labels(table(tmp_path, "*.png", count=6, choose="balanced"), tmp_path / "c.json"))
    assert Counter(one.label[0][-1] for one in chosen.values()) == {0: 3, 1: 3}


def test_files_inside_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pkgdata" / "images").mkdir(parents=True)
    (tmp_path / "pkgdata" / "__init__.py").write_text("")
    for i in range(3):
        Image.new("RGB", (2, 2)).save(tmp_path / "pkgdata" / "images" / f"{i}.png")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for source in ("pkg:pkgdata/images/*.png", "pkg:pkgdata/images"):
        assert list(found(table(Path("/nowhere"), source))) == ["0.png", "1.png", "2.png"]


def test_an_evaluation_chooses_balanced_too(tmp_path: Path) -> None:
    from npuflow.base.tables import Location
    from npuflow.checks.evaluate import Evaluate, labelled
    from npuflow.input.data.config import Data

    _labelled_pictures(tmp_path)
    where = Location(".", tmp_path)
    made = Evaluate(where, count=6, choose="balanced", labels=Location("labels.csv", tmp_path))
    assert Counter(one.label for one in labelled(made, Data(where)).values()) == {
        "cat": 2,
        "dog": 2,
        "bird": 2,
    }


# --- what the model is fed


def natural(rng: np.random.Generator, size: int = 32, order: tuple[int, ...] = (0, 1, 2)) -> Array:
    """Something like a photograph, reddish: smooth shapes in three correlated
    channels, 0..255, channels first."""
    coarse = rng.normal(size=(4, 4))
    smooth = np.asarray(
        Image.fromarray(coarse.astype(np.float32)).resize((size, size), Image.Resampling.BICUBIC)
    )
    tint = np.array([140, 120, 95])[:, None, None] + rng.normal(0, 8, (3, 1, 1))
    colours = np.clip(tint + 35 * smooth + rng.normal(0, 2, (3, size, size)), 0, 255)
    return colours[list(order)][None].astype(np.float32)


def profile(arrays: list[Array]) -> dict[str, InputProfile]:
    return profiled((f"s{i}", {"x": a}) for i, a in enumerate(arrays))


def said(one: list[Array], other: list[Array] | None = None) -> str:
    return "\n".join(judged(profile(one), profile(other) if other is not None else None))


@pytest.fixture(scope="module")
def photos() -> list[Array]:
    rng = np.random.default_rng(1)
    return [natural(rng) for _ in range(32)]


@pytest.fixture(scope="module")
def others() -> list[Array]:
    rng = np.random.default_rng(2)
    return [natural(rng) for _ in range(32)]


def test_good_data_are_not_judged(photos: list[Array], others: list[Array]) -> None:
    assert said(photos, others) == ""
    assert said([p / 255 for p in photos], [o / 255 for o in others]) == ""


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda a: a / np.float32(255), "another scale in the evaluation, by a factor of about 255"),
        (lambda a: (a - 127) / np.float32(128), "factor of about 128"),
        (lambda a: a - np.float32(120), "is shifted in the evaluation"),
        (lambda a: a[:, ::-1], "other order in the evaluation (RGB against BGR)"),
        (lambda a: np.ascontiguousarray(a.transpose(0, 2, 3, 1)).reshape(a.shape), "channels-last data"),
        (lambda a: np.full_like(a, 3), "evaluation samples have the same value"),
    ],
)
def test_a_wrong_evaluation_is_named(
    photos: list[Array], others: list[Array], spoil: Any, words: str
) -> None:
    assert words in said(photos, [spoil(a) for a in others])


def test_wrong_calibration_is_named(photos: list[Array]) -> None:
    rng = np.random.default_rng(3)
    assert "only 5 calibration samples" in said(photos[:5])
    assert "look like random numbers" in said(
        [rng.normal(size=(1, 3, 32, 32)).astype(np.float32) for _ in range(20)]
    )
    assert "have the same value all over" in said([*photos[:20], np.zeros((1, 3, 32, 32), np.float32)])
    assert "are the same" in said(photos[:1] * 20)
    assert "only 4 of them differ" in said(photos[:4] * 6)
    tokens = [np.arange(8)[None] + i for i in range(20)]
    assert said(tokens, [t + 1 for t in tokens]) == ""
    assert "holds 9000..9026" in said(tokens, [t + 9000 for t in tokens])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a[:, ::-1], "other order in the evaluation"),
        (lambda a: a + 1.5 * a.std(), "shifted in the evaluation"),
        (lambda a: a / 255, "another scale in the evaluation"),
    ],
)
def test_what_no_range_mends_is_said_in_front_of_a_ledger(
    photos: list[Array], others: list[Array], change: Any, words: str
) -> None:
    right, wrong = profile(photos), profile([np.ascontiguousarray(change(a)) for a in others])
    (text,) = apart(right, wrong)
    assert words in text
    assert list(apart(right, profile(others))) == []


def test_large_samples_are_profiled_in_small_numbers() -> None:
    """A cache of a language model beside its tokens; photos are looked at as before."""
    assert looked_at(500, 3 * 224 * 224) == MOST and looked_at(5, 1) == 5
    assert looked_at(500, 3_000_000) == 22 and looked_at(500, 10**9) == 8


def test_the_first_step_of_some_sequences_is_no_fault_of_their_state(photos: list[Array]) -> None:
    """Of samples that are steps, those that begin a sequence have the state's first value all over."""
    steps = [np.float32(i % 8 > 0) * p for i, p in enumerate(photos)]
    feeds = [(str(i), {"x": p, "state": s}) for i, (p, s) in enumerate(zip(photos, steps, strict=True))]
    assert any("same value all over" in text for text in judged(profiled(feeds)))
    assert not list(judged(profiled(feeds), states=["state"]))


def test_a_state_whose_neighbours_have_nothing_in_common_is_no_noise(photos: list[Array]) -> None:
    """A network's own maps, such as the last frames of a convolution, need not be smooth as pictures are."""
    rng = np.random.default_rng(0)
    maps = [rng.normal(size=photos[0].shape).astype(np.float32) for _ in photos]
    feeds = [(str(i), {"x": p, "state": s}) for i, (p, s) in enumerate(zip(photos, maps, strict=True))]
    assert any("look like random numbers" in text for text in judged(profiled(feeds)))
    assert not list(judged(profiled(feeds), profiled(feeds), states=["state"]))


def test_states_that_begin_with_zeros_are_not_judged(photos: list[Array]) -> None:
    """Beside an input that is not; a network's only input is none."""
    nothing = [np.zeros((1, 8), np.float32)] * len(photos)
    feeds = [(str(i), {"x": p, "state": s}) for i, (p, s) in enumerate(zip(photos, nothing, strict=True))]
    assert not list(judged(profiled(feeds), profiled(feeds)))
    ones = [(name, {**feed, "state": feed["state"] + 1}) for name, feed in feeds]
    assert any("same value all over" in line for line in judged(profiled(ones)))
    assert "same value all over" in said([0 * p for p in photos])


def test_channels_normalised_each_on_its_own_in_one_set_are_no_swapped_colours() -> None:
    rng = np.random.default_rng(3)
    mean, std = (
        np.array(v, np.float32).reshape(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    pictures = np.cumsum(rng.normal(0, 12, (2, 24, 1, 3, 32, 32)), -1) + rng.uniform(
        0, 255, (2, 24, 1, 1, 1, 1)
    )
    ours, theirs = np.clip(pictures, 0, 255).astype(np.float32)
    text = said(list((ours / 255 - mean) / std), list((theirs - 127) / 128))
    assert "scaled each on its own" in text and "other order" not in text


def test_swapped_colours_are_seen_beside_a_shift() -> None:
    rng = np.random.default_rng(4)
    warm = np.array((40, 20, 0), np.float32).reshape(3, 1, 1)
    pictures = np.cumsum(rng.normal(0, 4, (2, 24, 1, 3, 32, 32)), -1).astype(np.float32) + 60 + warm
    text = said(list(pictures[0]), list(pictures[1][:, :, ::-1] + 120))
    assert "in the other order" in text and "shifted" in text


@pytest.mark.parametrize("shape", [(1, 3, 8, 6), (1, 8, 6, 3)])
def test_a_picture_has_its_channels_where_the_input_has_them(shape: tuple[int, ...]) -> None:
    """A recipe of stored arrays [H, W, 3] has no layout step; a picture fits the program nevertheless."""
    pixels = np.random.default_rng(0).integers(0, 256, (8, 6, 3), np.uint8)
    mean = {"normalize": {"scale": 1.0, "mean": [1.0, 2.0, 3.0], "std": [2.0]}}
    preparation = {"alpha": "drop", "colour": True, "steps": [mean]}
    fed = prepared_pixels(pixels, preparation, "x", TensorType(shape))
    want = (pixels.astype(np.float32) - np.float32([1, 2, 3])) / 2
    np.testing.assert_array_equal(fed, (want if shape[3] == 3 else want.transpose(2, 0, 1))[None])


def test_a_colour_picture_for_one_channel_says_which_step_helps() -> None:
    picture = InputSample({"": np.zeros((28, 28, 3), np.uint8)}, (), picture=True)
    with pytest.raises(DataError) as caught:
        picture.feed({"x": TensorType((1, 1, 28, 28))})
    assert 'channels = "grey"' in caught.value.hint


def test_an_evaluation_beyond_the_calibrated_range_makes_ranges_worthless() -> None:
    """A wrong normalisation: half the contrast, elsewhere. Colder pictures within the range are no fault."""
    rng = np.random.default_rng(0)
    right = [("a" + str(i), {"x": rng.uniform(-1, 1, (1, 3, 8, 8)).astype(np.float32)}) for i in range(20)]
    dark = [(name, {"x": feed["x"] * np.float32(0.6) - np.float32(0.4)}) for name, feed in right]
    half = [(name, {"x": feed["x"] / 2 + np.float32(0.5)}) for name, feed in right]
    assert (
        list(unlike(profiled(right), profiled(right))) == [] == list(unlike(profiled(right), profiled(dark)))
    )
    (said,) = unlike(profiled(half), profiled(right))
    assert '"x": calibration' in said and "evaluation -" in said


@pytest.mark.parametrize(
    ("scale", "zero", "low", "high", "expected"),
    [
        (1.0, -128, -128, 127, "(code + 128) * 1?"),      # codes of pixels
        (1 / 32, -4, -128, 127, "(code + 4) * 0.03125?"),
        (1.0, -128, 0, 255, ""),                          # the pixels themselves
        (1 / 128, 0, 0, 255, "samples of another scale?"),            # pixels where -1 to 1 is held
        (1 / 128, 0, -1.5, 1.5, ""),                      # outliers, which the model clips
        (1.0, 0, -100, 100, ""),                          # codes and numbers are the same
    ],
)
def test_codes_given_for_numbers_are_seen_by_the_codes_of_the_model(
    scale: float, zero: int, low: float, high: float, expected: str
) -> None:
    rows = [(f"{i}", {"x": np.linspace(low, high, 256, dtype=np.float32)}) for i in range(20)]
    found = list(beyond_codes(profiled(rows), {"x": QuantType(8, True, (scale,), (zero,))}))
    assert len(found) == bool(expected) and all(expected in text for text in found)


def test_a_build_says_that_samples_are_codes_of_the_model(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8] x) => (float[1,8] y)
        <float s = {1}, int8 z = {-128}>
        { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Relu(d) }"""
    onnx.save_model(onnx.parser.parse_model(text), str(tmp_path / "net.onnx"))
    np.savez(tmp_path / "d.npz", x=np.random.default_rng(0).integers(-128, 128, (20, 8)).astype(np.int8))
    recipe = tmp_path / "net.toml"
    recipe.write_text('target = "edge-4t"\n[model]\npath = "net.onnx"\n[data]\nsource = "d.npz"\n')
    done = build(recipe, cache=tmp_path / "cache", out=tmp_path / "out", until="input_check")
    store = open_cache(load(recipe), Settings(cache=tmp_path / "cache"))
    (warning,) = store.load(done.outputs["input_check"], InputCheck).warnings
    assert "the model's own codes hold 0..255" in warning
