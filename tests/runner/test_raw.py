"""Raw mode: packed bytes run on the machine give what the runner gives, and come back as they went."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from typer.testing import CliRunner

from npuflow.base.errors import DataError, ModelError
from npuflow.cli._app import application
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.program.container import Program
from npuflow.quantise.config import Quantize
from npuflow.runner import raw
from npuflow.runner.simulated import ProgramRunner
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import SMALL, build, local
from tests.networks.small import Builder, mixed


@pytest.fixture(scope="module")
def case() -> tuple[Program, dict[str, np.ndarray], dict[str, np.ndarray]]:
    graph, inputs = mixed(SMALL.numerics)
    program = build(graph, local(SMALL, 1 << 14))
    return program, inputs, ProgramRunner(program).run(inputs)


def test_bytes_through_the_machine_are_the_runner(case) -> None:  # type: ignore[no-untyped-def]
    program, inputs, expected = case
    body = raw.pack(program, inputs)
    assert len(body) == sum(s.padded for s in raw.inputs(program))
    assert all(s.padded % SMALL.memory.burst == 0 and s.padded >= s.size for s in raw.inputs(program))
    found = raw.unpack(program, raw.run(program, body))
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_channels_last_is_the_same_tensor(case) -> None:  # type: ignore[no-untyped-def]
    program, inputs, _ = case
    last = {"x": np.moveaxis(inputs["x"], 1, -1)}
    assert raw.pack(program, last, "channels_last") == raw.pack(program, inputs)
    (slot,) = raw.inputs(program)
    back = raw.decoded(slot, raw.encoded(slot, inputs["x"]), layout="channels_last")
    assert back.shape == last["x"].shape
    assert np.abs(back - last["x"]).max() <= slot.quant["scale"][0] * 0.51 + np.abs(last["x"]).max() * 0.5


def test_codes_are_taken_as_they_are(case) -> None:  # type: ignore[no-untyped-def]
    program, inputs, _ = case
    (slot,) = raw.inputs(program)
    codes = raw.decoded(slot, raw.encoded(slot, inputs["x"]), codes=True)
    assert raw.encoded(slot, codes) == raw.encoded(slot, inputs["x"])
    with pytest.raises(DataError, match="takes codes from"):
        raw.encoded(slot, codes.astype(np.int32) + 1000)
    with pytest.raises(DataError, match="has shape"):
        raw.encoded(slot, inputs["x"][..., 1:])
    with pytest.raises(DataError, match="bytes"):
        raw.run(program, b"123")
    with pytest.raises(DataError, match="no data"):
        raw.pack(program, {})


def test_a_program_with_host_parts_is_refused(case) -> None:  # type: ignore[no-untyped-def]
    program, _, _ = case
    steps = [{"kind": "host", "model": 0, "inputs": ["x"], "outputs": ["z"]}, *program.meta["steps"]]
    other = Program(
        program.target_fingerprint, {**program.meta, "steps": steps}, program.commands, program.const, (b"",)
    )
    with pytest.raises(ModelError, match="parts for the host"):
        raw.inputs(other)


def test_the_verb(case, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    program, inputs, expected = case
    program.save(tmp_path / "p.npu")
    np.savez(tmp_path / "in.npz", x=np.concatenate([inputs["x"]] * 2))
    def call(*words: object) -> str:
        result = CliRunner().invoke(application("raw"), ["raw", *map(str, words)])
        assert result.exit_code == 0, result.output
        return result.output

    assert '"way": "input"' in call("slots", tmp_path / "p.npu")
    call("pack", tmp_path / "p.npu", tmp_path / "in.npz", "-o", tmp_path / "in.bin")
    call("run", tmp_path / "p.npu", tmp_path / "in.bin", "-o", tmp_path / "out.bin")
    call("unpack", tmp_path / "p.npu", tmp_path / "out.bin", "-o", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as held:
        for name, array in expected.items():
            np.testing.assert_array_equal(held[name], np.concatenate([array, array]))


def test_a_batch_of_four() -> None:
    """Samples lie one after another in the slot, and each comes out as it would alone."""
    b = Builder()
    x = b.input("x", (4, 3, 9, 8))
    y = b.add(OPS["globalaveragepool"](), b.conv(b.conv(x, 6, 3, 2), 5, 1))
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    graph = Graph(("x",), (y,), tuple(b.nodes), MappingProxyType(b.values), MappingProxyType(b.consts))
    graph = quantize_graph(graph, lambda _: True, ranges, Quantize(), SMALL.numerics).graph
    program = build(graph, SMALL)
    slot, data = raw.inputs(program)[0], b.arrays["x"]
    body = raw.pack(program, {"x": data})
    assert (
        slot.shape == (4, 3, 9, 8)
        and raw.pack(program, {"x": np.moveaxis(data, 1, -1)}, "channels_last") == body
    )
    found = raw.unpack(program, raw.run(program, body))[y]
    np.testing.assert_array_equal(found, ProgramRunner(program).run({"x": data})[y])
    turned = raw.unpack(program, raw.run(program, raw.pack(program, {"x": data[::-1]})))[y]
    np.testing.assert_array_equal(turned[::-1], found)
    with pytest.raises(DataError, match="shape"):
        raw.pack(program, {"x": data[0]})
