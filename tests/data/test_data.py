"""Data sources and preprocessing."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from npuflow.base.errors import DataError
from npuflow.base.tables import Locator, read
from npuflow.checks.evaluate import label_file
from npuflow.input.data.config import Data, InputSample
from npuflow.input.data.image import decode
from npuflow.input.data.listing import found
from npuflow.input.data.match import steps_for
from npuflow.input.data.steps import DataStep, applied
from npuflow.ir.types import TensorType
from tests.data.sources import loaded, painted, table

IMAGE = TensorType((1, 3, 8, 8))


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return painted(tmp_path)


def test_folder_pattern_and_list_give_the_same(pictures: Path) -> None:
    (pictures / "list.txt").write_text("# comment\np0.png\np1.jpg\np2.webp\np3.png\n")
    ways = [found(table(pictures, s)) for s in (".", "*.{png,jpg,webp}", "list.txt")]
    assert [list(w) for w in ways] == [["p0.png", "p1.jpg", "p2.webp", "p3.png"]] * 3


def test_choice_is_stable_when_files_are_added(pictures: Path) -> None:
    for i in range(40):
        Image.new("RGB", (4, 4)).save(pictures / f"q{i:02}.png")
    before = list(found(table(pictures, "*.*", count=20)))
    for i in range(4):
        Image.new("RGB", (4, 4)).save(pictures / f"r{i}.png")
    after = list(found(table(pictures, "*.*", count=20)))
    assert len(before) == len(after) == 20
    assert len(set(before) - set(after)) <= 4
    assert before != list(found(table(pictures, "*.*", count=20, seed=1)))
    assert list(found(table(pictures, "*.*", count=3, choose="first"))) == ["p0.png", "p1.jpg", "p2.webp"]


def test_pictures_become_what_the_model_wants(pictures: Path) -> None:
    steps = [{"resize": [8, 8]}, {"normalize": {"mean": [1.0, 2.0, 3.0], "std": [2.0, 2.0, 2.0]}}]
    one = loaded(table(pictures, "p0.png", steps=steps))["p0.png"]
    assert one.arrays[""].dtype == np.uint8 and one.arrays[""].shape == (8, 8, 3)
    fed = one.feed({"image": IMAGE})["image"]
    pixels = np.asarray(Image.open(pictures / "p0.png").resize((8, 8), Image.Resampling.BILINEAR), np.float32)
    assert fed.dtype == np.float32
    assert np.array_equal(fed[0], ((pixels - np.float32([1, 2, 3])) / np.float32(2)).transpose(2, 0, 1))


def test_broken_pictures_say_so_and_others_go_on(pictures: Path) -> None:
    (pictures / "p1.jpg").write_bytes((pictures / "p1.jpg").read_bytes()[:60])
    (pictures / "p3.png").write_bytes(b"nothing")
    done = loaded(table(pictures, "."))
    assert [name for name, one in done.items() if one.broken] == ["p1.jpg", "p3.png"]
    assert "p3.png" in done["p3.png"].broken


def test_exif_alpha_grey_and_sixteen_bits(tmp_path: Path) -> None:
    base = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(base).save(tmp_path / "turned.png", exif=exif)
    assert decode(tmp_path / "turned.png").shape == (6, 4, 3)
    clear = np.dstack([base, np.full((4, 6), 0, np.uint8)])
    Image.fromarray(clear).save(tmp_path / "clear.png")
    assert np.array_equal(decode(tmp_path / "clear.png"), base)
    assert decode(tmp_path / "clear.png", "white").min() == 255
    assert decode(tmp_path / "clear.png", "black").max() == 0
    Image.fromarray(base[:, :, 0]).save(tmp_path / "grey.png")
    assert decode(tmp_path / "grey.png", colour=False).shape == (4, 6)
    assert np.array_equal(decode(tmp_path / "grey.png")[:, :, 2], base[:, :, 0])
    deep = np.array([[0, 257, 65535], [1, 2, 3]], np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    values = decode(tmp_path / "deep.png", colour=False)
    assert values.dtype == np.float32
    assert np.allclose(values, deep / 257)


def test_rows_of_npz(tmp_path: Path) -> None:
    a, b = np.arange(24.0, dtype=np.float32).reshape(4, 6), np.arange(4, dtype=np.int64).reshape(4, 1)
    np.savez(tmp_path / "d.npz", a=a, b=b, label=np.array([3, 1, 2, 0]))
    listed = found(table(tmp_path, "d.npz"))
    assert list(listed) == ["d.npz#0", "d.npz#1", "d.npz#2", "d.npz#3"]
    assert [one.label for one in listed.values()] == [3, 1, 2, 0]
    fed = loaded(table(tmp_path, "d.npz"))["d.npz#2"].feed(
        {"a": TensorType((1, 6)), "b": TensorType((1, 1), "int64")}
    )
    assert np.array_equal(fed["a"], a[2:3]) and np.array_equal(fed["b"], b[2:3])
    named = table(tmp_path, "d.npz", arrays={"x": "a"})
    assert np.array_equal(loaded(named)["d.npz#1"].feed({"x": TensorType((1, 6))})["x"], a[1:2])
    np.save(tmp_path / "e.npy", a)
    assert np.array_equal(
        loaded(table(tmp_path, "e.npy"))["e.npy#3"].feed({"x": TensorType((1, 6))})["x"], a[3:]
    )
    np.savez(tmp_path / "f.npz", a=a, c=b[:2])
    with pytest.raises(DataError, match="different numbers of rows"):
        found(table(tmp_path, "f.npz"))
    with pytest.raises(DataError, match='no array "z"'):
        found(table(tmp_path, "d.npz", arrays={"x": "z"}))


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "evil.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (one,) = loaded(table(tmp_path, "evil.npy")).values()
    assert "evil.npy" in one.broken


def test_a_function_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "gen_for_test.py").write_text(
        "import numpy as np\ndef pairs():\n    for i in range(5):\n        yield f's{i}', {'x': np.full(3, "
        "i, np.float32)}\n"
    )
    data = table(tmp_path, "python:gen_for_test:pairs", count=3)
    done = loaded(data)
    assert list(done) == ["s0", "s1", "s2"]
    assert done["s2"].feed({"x": TensorType((1, 3))})["x"].tolist() == [[2.0, 2.0, 2.0]]


def test_a_function_of_the_users_gives_labels(tmp_path: Path) -> None:
    (tmp_path / "labels_for_test.py").write_text(
        "import numpy as np\ndef rows():\n    for i in range(3):\n        yield f'{i}', np.zeros(3), i\n"
        "    yield '3', np.zeros(3), np.arange(2)\n    yield '4', np.zeros(3)\n"
    )
    listed = found(table(tmp_path, "python:labels_for_test:rows"))
    assert [one.label for one in listed.values()] == [0, 1, 2, [0, 1], None]


FAULTY = """
import numpy as np
def late():
    yield "a", np.zeros(3, np.float32)
    raise ValueError("no more disk")
def once():
    raise KeyError("x")
def none():
    return None
def single():
    yield 3
def empty():
    return iter(())
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("late", 'fails after "a".*because ValueError: no more disk .line 5 of faulty_for_test.py'),
        ("once", "fails when it is called.*because KeyError: 'x'"),
        ("none", "must yield pairs.*because it returns NoneType"),
        ("single", "must yield pairs.*because it yields int"),
        ("empty", "yields no samples.*try yield a pair"),
    ],
)
def test_faults_of_a_function_of_the_users_are_theirs(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "faulty_for_test.py").write_text(FAULTY)
    sys.modules.pop("faulty_for_test", None)
    with pytest.raises(DataError) as raised:
        loaded(table(tmp_path, f"python:faulty_for_test:{name}"))
    assert re.search(said, str(raised.value)) and "picture" not in str(raised.value)


def test_a_module_of_the_users_that_fails_is_theirs(tmp_path: Path) -> None:
    (tmp_path / "broken_for_test.py").write_text("1 / 0\n")
    with pytest.raises(DataError, match=r"fails when it is imported.*ZeroDivisionError"):
        found(table(tmp_path, "python:broken_for_test:pairs"))


def test_noise_is_repeatable_and_marked(tmp_path: Path) -> None:
    one, two = (loaded(table(tmp_path, "random", count=2)) for _ in range(2))
    assert all(s.noise is not None for s in one.values())
    a, b = (list(d.values())[1].feed({"x": IMAGE})["x"] for d in (one, two))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, next(iter(one.values())).feed({"x": IMAGE})["x"])


@pytest.mark.parametrize(
    ("keep", "align", "size"),
    [("no", "center", None), ("letterbox", "corner", (0, 0)), ("letterbox", "center", (2, 0))],
)
def test_resizing(keep: str, align: str, size: tuple[int, int] | None) -> None:
    picture = np.full((4, 8, 3), 200, np.uint8)
    step = DataStep(resize=(8, 8), keep_ratio=keep, align=align, fill=114.0).plain()  # type: ignore[arg-type]
    done = applied(picture, [step])
    assert done.shape == (8, 8, 3)
    if size is not None:
        top = size[0]
        assert (done[top : top + 4] == 200).all()
        assert (np.delete(done, np.s_[top : top + 4], 0) == 114).all()


def test_short_side_then_crop_and_orders() -> None:
    picture = np.random.default_rng(0).integers(0, 255, (20, 40, 3), dtype=np.uint8)
    done = applied(
        picture,
        [DataStep(resize=(10, 10), keep_ratio="short").plain(), DataStep(center_crop=(10, 10)).plain()],
    )
    assert done.shape == (10, 10, 3)
    assert np.array_equal(applied(picture, [DataStep(channels="bgr").plain()]), picture[:, :, ::-1])
    grey = applied(picture, [DataStep(channels="grey").plain()])
    assert (
        np.abs(
            grey[:, :, 0].astype(int) - np.asarray(Image.fromarray(picture).convert("L")).astype(int)
        ).max()
        <= 1
    )
    assert applied(picture, [DataStep(pad=(1, 2, 3, 4), fill=7.0).plain()]).shape == (24, 46, 3)


def test_a_wrong_layout_is_named() -> None:
    with pytest.raises(DataError, match="does not fit") as caught:
        InputSample({"": np.zeros((8, 8, 3), np.float32)}).feed({"image": IMAGE})
    assert "layout" in caught.value.hint


def test_a_step_is_one_operation() -> None:
    _, faults = read(Data, {"source": "x", "steps": [{"resize": [2, 2], "dtype": "float32"}, {}]}, Locator())
    assert len(faults) == 2


def test_label_files(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("file,classes,group\na.png,3|5,x\nb.png,2,y\n")
    assert label_file(tmp_path / "l.csv") == {"file": "classes", "a.png": [3, 5], "b.png": 2}
    (tmp_path / "c.json").write_text(
        '{"images": [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "b.png"}],'
        '"annotations": [{"image_id": 1, "category_id": 7, "bbox": [1, 2, 3, 4]}]}'
    )
    assert label_file(tmp_path / "c.json") == {"a.png": [[1.0, 2.0, 3.0, 4.0, 0]], "b.png": []}


def test_a_fixed_batch_has_the_sample_in_every_place() -> None:
    kind = {"x": TensorType((4, 1, 3, 2))}
    one = np.arange(6, dtype=np.float32).reshape(1, 3, 2)
    fed = InputSample({"x": one}).feed(kind)["x"]
    assert fed.shape == (4, 1, 3, 2) and all(np.array_equal(place, one) for place in fed)
    with pytest.raises(DataError, match="does not fit"):
        InputSample({"x": np.zeros((2, 1, 3, 2), np.float32)}).feed(kind)


@pytest.mark.parametrize("method", ["nearest", "bilinear", "bicubic", "area", "lanczos"])
def test_every_filter_enlarges_and_shrinks(method: str) -> None:
    """Shrinking by whole factors, `area` is the mean of each block and `nearest` its middle; a
    filter keeps what is constant."""
    picture = np.random.default_rng(1).integers(0, 256, (12, 18, 3), dtype=np.uint8)
    small, large = (
        applied(picture, [DataStep(resize=size, method=method).plain()]) for size in ((4, 6), (30, 40))
    )  # type: ignore[arg-type]
    assert small.shape == (4, 6, 3) and large.shape == (30, 40, 3) and small.dtype == large.dtype == np.uint8
    blocks = picture.reshape(4, 3, 6, 3, 3)
    if method == "area":
        assert np.abs(small - blocks.mean((1, 3))).max() <= 1.01      # Pillow rounds after each direction
    elif method == "nearest":
        assert np.array_equal(small, blocks[:, 1, :, 1])
    else:
        assert (
            np.abs(small - blocks.mean((1, 3))).mean()
            < 25
            < np.abs(blocks[:, 1, :, 1] - blocks.mean((1, 3))).mean()
        )
    flat = applied(np.full((12, 18), 0.3, np.float32), [DataStep(resize=(5, 7), method=method).plain()])  # type: ignore[arg-type]
    assert flat.dtype == np.float32 and np.allclose(flat, 0.3, atol=1e-6)


def test_steps_for_one_input_leave_the_others_alone(tmp_path: Path) -> None:
    pictures, ids = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3), np.array([[1, 2], [3, 4]])
    np.savez(tmp_path / "d.npz", image=pictures, ids=ids)
    steps = [
        {"input": "image", "resize": [2, 2], "method": "area"},
        {"input": "image", "normalize": {"scale": 0.5, "mean": [1.0], "std": [2.0]}},
        {"input": "image", "layout": "nchw"},
        {"input": "ids", "dtype": "int32"},
    ]
    fed = loaded(table(tmp_path, "d.npz", steps=steps))["d.npz#1"].feed(
        {"image": TensorType((1, 3, 2, 2)), "ids": TensorType((1, 2), "int32")}
    )
    small = np.rint(pictures[1].reshape(2, 2, 2, 2, 3).mean((1, 3)))
    assert np.abs(fed["image"][0].transpose(1, 2, 0) - (small / 2 - 1) / 2).max() <= 0.25
    assert fed["ids"].dtype == np.int32 and fed["ids"].tolist() == [[3, 4]]
    Image.fromarray(pictures[1]).save(tmp_path / "p.png")
    one = loaded(table(tmp_path, "p.png", steps=steps))["p.png"].feed({"image": TensorType((1, 3, 2, 2))})
    assert np.array_equal(one["image"], fed["image"])


def test_files_that_are_one_sample_each(tmp_path: Path) -> None:
    for i in range(3):
        np.savez(tmp_path / f"{i}.npz", a=np.full((2, 3), i, np.float32), b=np.float32(i))
    data = table(tmp_path, "*.npz", rows=False)
    assert list(found(data)) == ["0.npz", "1.npz", "2.npz"]
    fed = loaded(data)["2.npz"].feed({"a": TensorType((2, 3)), "b": TensorType(())})
    assert fed["a"].tolist() == [[2.0] * 3] * 2 and fed["b"] == 2.0


def test_a_function_in_a_file_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "recipes").mkdir()
    text = "import numpy as np\ndef some():\n    yield 'a', np.ones(3)\n"
    (tmp_path / "tools/feed_of_a_file.py").write_text(text)
    (one,) = loaded(table(tmp_path / "recipes", "python:../tools/feed_of_a_file.py:some")).values()
    np.testing.assert_array_equal(one.arrays[""], np.ones(3))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("python:../nosuch.py:some", 'no file "../nosuch.py"'),
        ("python:../tools/feed:some", "not the name of a Python module"),
        ("python:feed", "names no function"),
        ("python::some", "names no function"),
    ],
)
def test_functions_that_are_nowhere(tmp_path: Path, source: str, said: str) -> None:
    with pytest.raises(DataError, match=re.escape(said)):
        found(table(tmp_path, source))


def test_a_label_file_that_is_not_there_is_a_fault(pictures: Path) -> None:
    (pictures.parent / "labels.csv").write_text("a.png,1\n")
    with pytest.raises(DataError, match="no label file") as error:
        found(table(pictures.parent, pictures.name, labels=str(pictures.parent / "label.csv")))
    assert error.value.where.key == "data.labels" and "labels.csv" in error.value.hint
    assert found(table(pictures.parent, pictures.name, labels=str(pictures.parent / "labels.csv")))
    with pytest.raises(DataError, match="no label file") as error:
        found(table(pictures.parent, pictures.name, labels=str(pictures.parent / "classes")))
    assert error.value.hint == 'label = "classes" for labels in an array of the samples'


def test_files_of_one_sample_taken_for_rows_are_told(tmp_path: Path) -> None:
    np.save(tmp_path / "0.npy", np.zeros((3, 8, 8), np.float32))
    (first, *_) = loaded(table(tmp_path, "*.npy")).values()
    with pytest.raises(DataError) as error:
        first.feed({"x": TensorType((1, 3, 8, 8))})
    assert "rows = false" in error.value.hint
    (whole,) = loaded(table(tmp_path, "*.npy", rows=False)).values()
    assert whole.feed({"x": TensorType((1, 3, 8, 8))})["x"].shape == (1, 3, 8, 8)


def test_axes_of_stored_arrays_are_put_in_order_and_pictures_left_alone(tmp_path: Path) -> None:
    image = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(3, 2, 4)
    np.save(tmp_path / "rows.npy", image[None])
    steps = [{"transpose": [1, 2, 0]}, {"resize": [2, 4]}]
    (one,) = loaded(table(tmp_path, "rows.npy", steps=steps)).values()
    np.testing.assert_array_equal(one.arrays[""], image.transpose(1, 2, 0))
    Image.fromarray(image.transpose(1, 2, 0)).save(tmp_path / "a.png")
    (picture,) = loaded(table(tmp_path, "a.png", steps=steps)).values()
    np.testing.assert_array_equal(picture.arrays[""], image.transpose(1, 2, 0))
    _, faults = read(DataStep, {"transpose": [0, 2]}, Locator())
    assert "not an order of the axes" in faults[0].message


def test_steps_are_found_by_shape() -> None:
    u8, f4 = np.dtype(np.uint8), np.dtype(np.float32)
    wide, deep = TensorType((1, 8, 6, 3)), TensorType((1, 3, 8, 6))
    assert steps_for((3, 8, 6), u8, deep) == [] == steps_for((8, 6, 3), u8, wide)
    assert steps_for((8, 6), u8, deep) == [{"channels": "rgb"}, {"layout": "nchw"}]
    assert steps_for((9, 9, 3), u8, deep, picture=True) == [{"resize": [8, 6]}]
    assert steps_for((9, 9, 3), f4, deep) is None      # only 8 bits look like a picture
    assert steps_for((8, 6, 16), f4, TensorType((1, 16, 8, 6))) == [{"layout": "nchw"}]
    assert steps_for((16, 8, 6), f4, TensorType((1, 8, 6, 16))) == [{"transpose": [1, 2, 0]}]
    assert steps_for((13, 40), f4, TensorType((1, 1, 13, 10))) is None
