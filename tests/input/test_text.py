"""Texts as samples: windows of tokens, what joins them, questions, and what is wrong with files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from npuflow.base.errors import DataError, NpuflowError
from npuflow.base.tables import FilePath, Location, Locator, read
from npuflow.base.tables_toml import Origin
from npuflow.checks.evaluate import Evaluate, labelled
from npuflow.input.data.config import Data, FoundSample
from npuflow.input.data.listing import found
from npuflow.input.data.read import samples
from npuflow.input.data.text import questions
from npuflow.input.text.model import TextModel
from npuflow.input.text.windows import in_chunks, windows
from npuflow.stages.labelled import identities
from tests.checkpoints.texts import code, tokens_of


def test_each_text_is_cut_by_itself_and_what_is_left_is_joined() -> None:
    texts = {"a": range(7), "b": range(10, 12), "c": range(20, 29)}
    held = {one.name: one.tokens for one in windows(texts, 4, ())}
    assert held == {
        "a#00000": (0, 1, 2, 3), "c#00000": (20, 21, 22, 23), "c#00001": (24, 25, 26, 27),
        "rest#00000": (4, 5, 6, 10),
    }
    assert windows(texts, 4, ())[-1].texts == ("a", "b")
    assert windows(texts, 4, ())[0].following() == [1, 2, 3, -1]
    begun = windows(texts, 4, (99,))
    assert begun[0].tokens == (99, 0, 1, 2) and begun[2].tokens == (99, 20, 21, 22)
    assert in_chunks(range(6), 3) == [[0, 1, 2], [3, 4, 5]]


def test_a_longer_text_keeps_its_windows() -> None:
    before = windows({"a": range(9), "b": range(4)}, 4, ())
    after = windows({"a": range(13), "b": range(4)}, 4, ())
    assert [one for one in after if one in before] == [one for one in before if one.name != "rest#00000"]


def test_too_little_text_says_how_much_there_is() -> None:
    with pytest.raises(DataError, match="the texts hold 5 tokens") as fault:
        windows({"a": range(2), "b": range(3)}, 8, ())
    assert "window = 5" in fault.value.hint
    with pytest.raises(DataError, match="a window of 2 tokens holds no text"):
        windows({"a": range(9)}, 2, (1, 2))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "it is no JSON"), ("[]", "it is no object"),
        ('{"choices": ["a", "b"]}', '"context" is no text'),
        ('{"context": "x", "choices": ["a"], "answer": 0}', "no list of two texts or more"),
        ('{"context": "x", "choices": "ab", "answer": 0}', "no list of two texts or more"),
        ('{"context": "x", "choices": ["a", "b"], "answer": 2}', "no place in the 2 choices"),
        ('{"context": "x", "choices": ["a", "b"], "answer": true}', "no place in the 2 choices"),
    ],
)
def test_a_line_that_is_no_question_is_named(line: str, said: str) -> None:
    good = '{"context": "x", "choices": ["a", "b"], "answer": 1}'
    with pytest.raises(DataError, match=r"q.jsonl, line 3 is no question") as fault:
        list(questions("q.jsonl", f"{good}\n\n{line}\n"))
    assert said in fault.value.because


# --- by the tokenizer of a checkpoint


@pytest.fixture
def net(letters: Path) -> TextModel:
    """The tiny Llama whose tokens are characters."""
    return TextModel(FilePath("net", letters / "config.json"), {"chunk": 1, "context": 32})


def table(folder: Path, kind: type[Data] = Data, **keys: object) -> Data:
    made, faults = read(kind, keys, Locator(default=Origin(None, None, folder)))
    if made is None:
        raise faults[0]
    return made


def arrays(listed: dict[str, FoundSample]) -> dict[str, list[int]]:
    held = samples({name: (one.files, one.detail) for name, one in listed.items()})
    return {name: one.arrays["tokens"].ravel().tolist() for name, one in held}


def test_files_become_windows_with_what_follows(tmp_path: Path, net: TextModel) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a.txt").write_text("ABCDEFGHIJ")
    (tmp_path / "t" / "b.md").write_text("KLM")
    (tmp_path / "t" / "c.log").write_text("not taken from a folder")
    held = found(table(tmp_path, text="t", window=4), net)
    wanted = {"a.txt#00000": code("ABCD"), "a.txt#00001": code("EFGH"), "rest#00000": code("IJKL")}
    assert arrays(held) == wanted
    assert held["a.txt#00000"].label == [[t] for t in [*code("BCD"), -1]]
    assert held["rest#00000"].files == (tmp_path / "t" / "a.txt", tmp_path / "t" / "b.md")
    assert arrays(found(table(tmp_path, text="t/*.txt", window=4, count=1, choose="first"), net)) == {
        "a.txt#00000": code("ABCD")
    }
    assert "c.log#00000" in found(table(tmp_path, text="t/c.log", window=4), net)


def test_a_run_of_several_tokens_takes_them_in_chunks(tmp_path: Path, letters: Path) -> None:
    (tmp_path / "a.txt").write_text("ABCDEFGHIJ")
    model = TextModel(FilePath("net", letters / "config.json"), {"chunk": 3, "context": 32})
    held = found(table(tmp_path, text="a.txt", window=6), model)["a.txt#00000"]
    ((_, one),) = samples({"x": (held.files, held.detail)})
    assert one.arrays["tokens"].shape == (2, 3) and one.arrays["tokens"].dtype == np.int64
    assert held.label == [code("BCD"), [*code("EF"), -1]]
    with pytest.raises(DataError, match="not made of whole chunks") as fault:
        found(table(tmp_path, text="a.txt", window=4), model)
    assert "window = 3" in fault.value.hint and fault.value.where.key == "data.text"


def test_files_that_are_in_no_window_are_watched_too(tmp_path: Path, net: TextModel) -> None:
    """A build that has nothing to do looks at the files of its samples alone."""
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("ABCDEFGH")
    held = found(table(tmp_path, text="*.txt", window=4, count=1, choose="first"), net)
    assert {file.name for file in held["a.txt#00000"].files} == {"a.txt", "b.txt", "c.txt"}


def test_equal_windows_are_one_sample_wherever_they_are(tmp_path: Path, net: TextModel) -> None:
    (tmp_path / "a.txt").write_text("ABCDABCDEFGH")
    listed = found(table(tmp_path, text="a.txt", window=4), net)
    known = dict(identities((name, one.files, one.detail) for name, one in listed.items()))
    assert known["a.txt#00000"] == known["a.txt#00001"] != known["a.txt#00002"]


def test_questions_become_a_sample_for_each_choice(tmp_path: Path, net: TextModel) -> None:
    rows = [
        {"context": "AB", "choices": ["C", "DE"], "answer": 1},
        {"context": "FG", "choices": ["H", "I", "JKL"], "answer": 0},
    ]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = Data(Location("x", tmp_path))
    held = labelled(table(tmp_path, Evaluate, text="q.jsonl", metric="choice"), data, net)
    assert arrays(held) == {
        "q.jsonl#00001.0": code("ABC"), "q.jsonl#00001.1": code("ABDE"),
        "q.jsonl#00002.0": code("FGH"), "q.jsonl#00002.1": code("FGI"), "q.jsonl#00002.2": code("FGJKL"),
    }
    label = held["q.jsonl#00001.1"].label
    assert [step["next"] for step in label] == [[-1], code("D"), code("E"), [-1]]
    assert {(one["question"], one["choice"], one["answer"], one["characters"]) for one in label} == {
        ("q.jsonl#00001", 1, 1, 2)
    }
    few = labelled(table(tmp_path, Evaluate, text="q.jsonl", count=1), data, net)
    assert list(few) == ["q.jsonl#00001.0", "q.jsonl#00001.1"]


def test_the_texts_that_npuflow_brings_are_two(net: TextModel, tmp_path: Path) -> None:
    """They are not the same: a network is not judged by what it was calibrated with."""
    mine = arrays(found(table(tmp_path, text="builtin", window=32), net))
    data = Data(Location("builtin", tmp_path))
    theirs = arrays(labelled(table(tmp_path, Evaluate, text="builtin", window=32), data, net))
    assert len(mine) > 100 and len(theirs) > 50
    assert not {tuple(one) for one in mine.values()} & {tuple(one) for one in theirs.values()}


def test_a_window_is_as_long_as_the_cache_where_none_is_stated(tmp_path: Path, letters: Path) -> None:
    (tmp_path / "a.txt").write_text("A" * 600)
    for dims, size in (({}, 128), ({"context": 48}, 48), ({"chunk": 5, "context": 48}, 45)):
        model = TextModel(FilePath("net", letters / "config.json"), dims)
        held = found(table(tmp_path, text="a.txt"), model)
        assert {len(one) for one in arrays(held).values()} == {size}


@pytest.mark.parametrize(
    ("name", "content", "keys", "said"),
    [
        ("a.txt", b"", {}, r'"a.txt" is empty'),
        ("a.txt", b" \n", {}, r'"a.txt" is empty'),
        ("a.txt", b"caf\xe9", {}, r'"a.txt" is no text in UTF-8'),
        ("b.txt", b"A", {"text": "a*.txt"}, r'no text at "a\*.txt"'),
        ("b.txt", b"A", {"text": "nowhere.txt"}, r'no text at "nowhere.txt"'),
        ("b.log", b"A", {"text": "."}, r'no text at "."'),
        ("a.txt", b"A" * 99, {"window": 33}, "does not fit the cache"),
        ("a.txt", b"A" * 9, {}, "the texts hold 9 tokens"),
        ("q.jsonl", b"\n\n{}", {"text": "q.jsonl"}, "q.jsonl, line 3 is no question"),
        ("q.jsonl", json.dumps({"context": "A" * 40, "choices": ["B", "C"], "answer": 0}).encode(),
         {"text": "q.jsonl"}, "takes 41 tokens"),
        ("q.jsonl", json.dumps({"context": "A", "choices": ["B", ""], "answer": 0}).encode(),
         {"text": "q.jsonl"}, "asks nothing"),
    ],
)
def test_what_is_wrong_with_texts_is_one_error(
    name: str, content: bytes, keys: dict[str, object], said: str, tmp_path: Path, net: TextModel
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=said) as fault:
        found(table(tmp_path, **{"text": "a.txt", **keys}), net)
    assert fault.value.where.key == "data.text" and fault.value.code.startswith("NF-DATA-")


def test_texts_and_questions_do_not_mix(tmp_path: Path, net: TextModel) -> None:
    (tmp_path / "a.txt").write_text("ABCD")
    (tmp_path / "q.jsonl").write_text('{"context": "A", "choices": ["B", "C"], "answer": 0}')
    with pytest.raises(DataError, match="samples of different kinds"):
        found(table(tmp_path, text="*", window=2), net)


def test_other_models_have_no_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"")
    (tmp_path / "a.txt").write_text("ABCD")
    with pytest.raises(DataError, match=r'"net.onnx" has no tokenizer'):
        found(table(tmp_path, text="a.txt"), TextModel(FilePath("net.onnx", tmp_path / "net.onnx")))


def test_tokens_that_the_network_does_not_know_are_named(tmp_path: Path, letters: Path) -> None:
    (tmp_path / "a.txt").write_text("AB")
    held = json.loads((letters / "tokenizer.json").read_text())
    held["model"]["vocab"]["B"] = 700
    (letters / "tokenizer.json").write_text(json.dumps(held))
    with pytest.raises(DataError, match="the token 700"):
        found(table(tmp_path, text="a.txt"), TextModel(FilePath("net", letters / "config.json")))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"text": "a.txt", "source": "b.npz"}, "samples come from files or from texts"),
        ({"source": "b.npz", "window": 8}, "no text to cut"),
        ({"text": "a.txt", "labels": "l.csv"}, "texts become tokens"),
        ({"text": "a.txt", "choose": "balanced"}, "texts have no classes"),
        ({}, '"source" is missing'),
    ],
)
def test_keys_that_contradict_texts(keys: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(NpuflowError, match=said):
        table(tmp_path, **keys)


def test_tokens_of_the_helper_are_those_of_the_checkpoint(letters: Path) -> None:
    assert tokens_of(letters, "HI, YOU") == code("HI, YOU")
