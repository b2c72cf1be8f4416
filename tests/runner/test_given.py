"""What a runner is given: arrays, types, arguments; what it cannot take is one error."""

from __future__ import annotations

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npuflow
from npuflow.base.errors import DataError, UsageError
from npuflow.ir.types import Array
from tests.runner.programs import feeds, looking_up, same_model, split


def same(a: dict[str, Array], b: dict[str, Array]) -> None:
    assert a.keys() == b.keys()
    for name, array in b.items():
        np.testing.assert_array_equal(a[name], array, err_msg=name)
        assert a[name].dtype == array.dtype


RIGHT = {"x": np.zeros((1, 4), np.float32), "ids": np.array([[1, 2]], np.int32)}


@pytest.mark.parametrize(
    ("name", "given", "code", "message"),
    [
        ("x", "a.png", "NF-RUN-041", "no array of real numbers: str"),
        ("x", Path("a.png"), "NF-RUN-041", "no array of real numbers"),
        ("x", None, "NF-RUN-041", r"NoneType.*array of numbers \(float32\)"),
        ("x", [[1, 2], [3]], "NF-RUN-041", "list.*rows of one length"),
        ("x", np.zeros((1, 4), np.complex64), "NF-RUN-041", "complex.*numpy.real"),
        ("x", np.full((1, 4), "a"), "NF-RUN-041", "ndarray"),
        ("ids", np.array([[1.5, 2]]), "NF-RUN-042", "takes int.., and 1.5 is no such number"),
        ("ids", np.array([[np.nan, 2]]), "NF-RUN-042", "nan is no such number"),
        ("ids", np.array([[1, np.inf]]), "NF-RUN-042", "inf is no such number"),
        ("ids", np.array([[1, 1 << 63]], np.uint64), "NF-RUN-042", "9223372036854775808 is no such"),
    ],
)
@pytest.mark.parametrize("which", ["model", "program"])
def test_what_is_no_array_of_the_inputs_numbers(
    which: str, name: str, given: Any, code: str, message: str
) -> None:
    """Neither is anything dropped in silence, nor does numpy's own error come out."""
    runner = npuflow.Runner(same_model() if which == "model" else looking_up())
    for run in (runner.run, lambda one: runner.submit(one).result(10)):
        with pytest.raises(DataError, match=message) as raised:
            run({**RIGHT, name: given})
        assert raised.value.code == code


@pytest.mark.parametrize("which", ["model", "program"])
def test_numbers_of_another_type_are_taken_where_they_are_the_same(which: str) -> None:
    runner = npuflow.Runner(same_model() if which == "model" else looking_up())
    want = runner.run(RIGHT)
    for ids in (np.array([[1.0, 2.0]]), np.array([[1, 2]], np.int8), [[1, 2]]):
        same(runner.run({"x": np.zeros((1, 4)), "ids": ids}), want)


def test_arguments_that_a_runner_does_not_take(tmp_path: Path) -> None:
    program, (sample,) = split(), feeds(1)
    runner = npuflow.Runner(program)
    for wrong in ([sample["x"]], sample["x"], None):
        for run in (runner.run, runner.steps().run, lambda one: runner.submit(one).result(10)):
            with pytest.raises(UsageError, match="a sample is a mapping"):
                run(wrong)  # type: ignore[arg-type]
    fixed = np.zeros((4, 32), np.float32)
    fixed.flags.writeable = False
    for out, message in ((fixed, "is read-only"), ([0.0], "is no numpy array: list")):
        with pytest.raises(DataError, match=message):
            runner.run(sample, out={"y": out})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match='no tensor "nix" to dump'):
        runner.run(sample, dump=["a", "nix"])
    assert "a" in runner.run(sample, dump="a")
    (tmp_path / "r.toml").write_text('target = "edge-4t"')
    for source, options, code in (
        (tmp_path / "r.toml", {}, "NF-RUN-048"),
        (tmp_path, {}, "NF-RUN-049"),
        (program, {"exact": "fast"}, "NF-RUN-045"),
        (program, {"linger": -1.0}, "NF-RUN-047"),
        (program, {"limit": -1}, "NF-RUN-047"),
    ):
        with pytest.raises(UsageError) as raised:
            npuflow.Runner(source, **options)  # type: ignore[arg-type]
        assert raised.value.code == code
    assert "x float32 [4, 32] -> y" in repr(runner) and "executor" in repr(runner)


def test_nan_is_said_once_where_integers_lose_it_or_refused() -> None:
    """A program of integers takes NaN as an ordinary number: without a word nobody would know."""
    x = feeds(1)[0]["x"].copy()
    x[1, 2:5] = np.nan
    for exact in ("executor", "simulator"):
        runner = npuflow.Runner(split(), exact=exact)
        runner.run(feeds(1)[0])
        with pytest.warns(RuntimeWarning, match='"x" holds NaN in 3 of 128 numbers.*nan="refuse"') as told:
            first = runner.run({"x": x})
        assert told[0].filename == __file__ and len(told) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            same(runner.run({"x": x}), first)
            same(npuflow.Runner(split(), exact=exact, nan="allow").run({"x": x}), first)
    strict = npuflow.Runner(split(), nan="refuse")
    ways = (
        lambda: strict.run({"x": x}),
        lambda: strict.submit({"x": x}).result(10),
        lambda: strict.run_batch({"x": x[None]}),
        lambda: list(strict.stream([{"x": x}])),
    )
    for way in ways:
        with pytest.raises(DataError, match="NaN in 3 of 128") as raised:
            way()
        assert raised.value.code == "NF-DATA-230"
    same(strict.run(feeds(1)[0]), npuflow.Runner(split()).run(feeds(1)[0]))
    with pytest.raises(UsageError, match="'warn', 'refuse', 'allow'"):
        npuflow.Runner(split(), nan="stop")  # type: ignore[arg-type]


def test_nan_of_a_float_model_stays_nan() -> None:
    given = {**RIGHT, "x": np.full((1, 4), np.nan, np.float32)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(npuflow.Runner(same_model()).run(given)["x_out"]).all()
    with pytest.raises(DataError, match="NaN in 4 of 4"):
        npuflow.Runner(same_model(), nan="refuse").run(given)


def test_runners_are_copied_and_pickled(tmp_path: Path) -> None:
    """Into a process that is not forked, into a deep copy of the object that holds one."""
    (sample,) = feeds(1)
    runner = npuflow.Runner(split(), batch=3, exact="simulator", nan="refuse")
    want = runner.submit(sample).result(10)
    for again in (pickle.loads(pickle.dumps(runner)), copy.deepcopy(runner)):
        same(again.run(sample), want)
        same(again.submit(sample).result(10), want)
        assert again.batch == 3 and again.exact == "simulator"
    (tmp_path / "same.onnx").write_bytes(same_model())
    held = npuflow.Runner(tmp_path / "same.onnx")
    same(pickle.loads(pickle.dumps(held)).run(RIGHT), held.run(RIGHT))
    runner.close()
    with pytest.raises(UsageError, match="the runner is closed"):
        pickle.dumps(runner)
