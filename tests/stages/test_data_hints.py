"""What errors of data tell people to try, for the mistakes that they make first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tomli

from npuflow.base.code import whole_digest
from npuflow.base.errors import DataError, NpuflowError
from npuflow.base.foreign import function
from npuflow.base.tables import Locator, read
from npuflow.base.tables_toml import Origin
from npuflow.input.data.config import Data, InputSample
from npuflow.input.data.listing import found
from npuflow.input.data.read import samples
from npuflow.ir.types import TensorType

KIND = TensorType((1, 4), "float32")


def data(folder: Path, source: str) -> Data:
    table, faults = read(Data, {"source": source}, Locator(default=Origin(None, None, folder)))
    assert table is not None and not faults
    return table


def hint(fault: NpuflowError) -> str:
    return fault.hint or ""


def test_files_for_several_inputs_need_a_header(tmp_path: Path) -> None:
    for i, name in enumerate("ab"):
        np.save(tmp_path / f"{name}.npy", np.full((1, 4), i, np.float32))

    def sample(text: str) -> InputSample:
        (tmp_path / "list.txt").write_text(text)
        listed = found(data(tmp_path, "list.txt"))
        ((_, one),) = samples({name: (row.files, row.detail) for name, row in listed.items()})
        return one

    assert {*sample("a b\na.npy b.npy\n").feed({"a": KIND, "b": KIND})} == {"a", "b"}
    with pytest.raises(DataError) as caught:
        sample("a.npy b.npy\n").feed({"a": KIND, "b": KIND})
    assert caught.value.code == "NF-DATA-029"
    assert "a list whose first line names the inputs" in hint(caught.value)


def test_an_input_of_one_number_may_be_a_constant(tmp_path: Path) -> None:
    np.savez(tmp_path / "calib.npz", a=np.zeros((2, 1, 4), np.float32), c=np.zeros((2, 1, 4), np.float32))
    listed = found(data(tmp_path, "calib.npz"))
    one = next(iter(samples({name: (row.files, row.detail) for name, row in listed.items()})))[1]
    for kind, said in ((TensorType(()), True), (KIND, False)):
        with pytest.raises(DataError) as caught:
            one.feed({"a": KIND, "rate": kind})
        assert ("[model] constants = { rate = ... }" in hint(caught.value)) == said


def test_plain_numbers_need_a_type_and_a_shape(tmp_path: Path) -> None:
    (tmp_path / "dump.bin").write_bytes(bytes(32))
    with pytest.raises(DataError) as caught:
        found(data(tmp_path, "dump.bin"))
    assert caught.value.code == "NF-DATA-041" and "[data.raw] dtype" in hint(caught.value)
    (tmp_path / "dump.xyz").write_bytes(bytes(32))
    with pytest.raises(DataError) as caught:
        found(data(tmp_path, "dump.xyz"))
    assert ".png" in hint(caught.value) and "[data.raw]" not in hint(caught.value)


def test_a_function_that_asks_for_its_own_place_is_told_what_to_do(tmp_path: Path) -> None:
    rows = "from pathlib import Path\nFOLDER = Path({})\ndef clips():\n    return sorted(FOLDER.iterdir())\n"
    (tmp_path / "own_place.py").write_text(rows.format("__file__"))
    (tmp_path / "full_path.py").write_text(rows.format(f'"{tmp_path}"'))
    with pytest.raises(NpuflowError) as caught:
        whole_digest(function("own_place", "clips", tmp_path)[0])
    assert caught.value.code == "NF-CODE-002" and "by its full path" in hint(caught.value)
    assert whole_digest(function("full_path", "clips", tmp_path)[0])


@pytest.mark.parametrize("name", ["serving_default_img:0", 'say "x"', "a b", "plain", "x.1"])
def test_a_remedy_is_toml_whatever_the_input_is_called(name: str) -> None:
    text = np.array([["a", "b", "c", "d"]])
    for sample in (InputSample({"p": text, "q": text}), InputSample({name: text})):
        with pytest.raises(NpuflowError) as raised:
            sample.feed({name: KIND})
        remedy = hint(raised.value)
        table = remedy[remedy.index("arrays = ") : remedy.index("}") + 1]
        assert tomli.loads(table) == {"arrays": {name: "..."}}
