"""Several programs in one file: constants once, the same bits, names, and what cannot be packed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from npuflow.base.errors import ModelError, UsageError
from npuflow.cli._app import application
from npuflow.ort import InferenceSession
from npuflow.program.container import Program, load_program
from npuflow.program.packing.package import Package, load_network, packed
from npuflow.run.interpret import interpret
from npuflow.runner.opening import opened
from tests.networks.harness import SMALL, build, simulate
from tests.networks.small import mixed


@pytest.fixture(scope="module")
def two() -> dict[str, Program]:
    """One network twice, with other weights in the second; the tables of both are equal."""
    graph = mixed(SMALL.numerics)[0]
    consts = {k: a[::-1].copy() if a.ndim == 4 else a for k, a in graph.consts.items()}
    return {"one": build(graph, SMALL), "other": build(replace(graph, consts=consts), SMALL)}


def feed() -> dict[str, np.ndarray]:
    graph = mixed(SMALL.numerics)[0]
    rng = np.random.default_rng(1)
    return {i: rng.normal(size=graph.type(i).shape).astype(np.float32) for i in graph.inputs}


def test_networks_keep_their_bits_and_share_equal_constants(two: dict[str, Program]) -> None:
    package = Package.from_bytes(packed(two).to_bytes())
    sizes = [len(p.const) for p in two.values()]
    assert max(sizes) < len(package.const) < sum(sizes)
    assert package.data_bytes == max(p.meta["data_bytes"] for p in two.values())
    want = interpret(mixed(SMALL.numerics)[0], feed(), SMALL.numerics, keep=lambda _: True)
    for name, program in two.items():
        alone, shared = simulate_any(program, want), simulate_any(package.network(name), want)
        assert alone.keys() == shared.keys() and alone
        for value, array in alone.items():
            np.testing.assert_array_equal(shared[value], array, err_msg=f"{name} {value}")
        for before, after in zip(program.commands, package.network(name).commands, strict=True):
            assert before.shape == after.shape


def simulate_any(program: Program, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the simulator makes of the same input codes."""
    return simulate(replace(program, tap_bytes=b""), values)


def test_the_same_program_twice_takes_the_room_of_one(two: dict[str, Program]) -> None:
    package = packed({"a": two["one"], "b": two["one"]})
    assert len(package.const) <= len(two["one"].const)
    assert (package.network("a").commands[0] == package.network("b").commands[0]).all()


def test_a_file_is_packed_and_run_by_name(two: dict[str, Program], tmp_path: Path) -> None:
    for name, program in two.items():
        program.save(tmp_path / f"{name}.npu")
    files, both = [str(tmp_path / f"{name}.npu") for name in two], tmp_path / "both.npu"
    done = CliRunner().invoke(application(), ["pack", *files, "-o", str(both)])
    assert done.exit_code == 0 and "one, other" in done.output
    for name, program in two.items():
        found = opened(f"{both}#{name}", "simulator")
        want = opened(program, "simulator").run([feed()], False)[0]
        for key, array in found.run([feed()], False)[0].items():
            np.testing.assert_array_equal(array, want[key])
    session = InferenceSession(f"{both}#one")
    assert [port.name for port in session.get_inputs()] == list(feed())
    with pytest.raises(UsageError, match="no network") as caught:
        load_network(f"{both}#onee")
    assert "one, other" in caught.value.because and "one" in caught.value.hint
    with pytest.raises(UsageError, match='"position=3" chooses nothing') as caught:
        load_network(f"{both}#one#position=3")
    assert str(both) in caught.value.hint
    with pytest.raises(UsageError, match="several networks: one, other"):
        opened(both)
    with pytest.raises(ModelError, match="several programs"):
        load_program(both)


def test_what_cannot_share_memory_is_refused(two: dict[str, Program]) -> None:
    target = replace(SMALL, dma=replace(SMALL.dma, setup_cycles=9))
    with pytest.raises(UsageError, match="same target"):
        packed({**two, "third": build(mixed(SMALL.numerics)[0], target)})
    used = sum(len(p.const) for p in two.values()) // 2 + two["one"].meta["data_bytes"]
    narrow = replace(SMALL, memory=replace(SMALL.memory, external_bytes=used))
    graph = mixed(SMALL.numerics)[0]
    consts = {k: a[::-1].copy() if a.ndim == 4 else a for k, a in graph.consts.items()}
    with pytest.raises(UsageError, match="external memory together"):
        packed({"one": build(graph, narrow), "other": build(replace(graph, consts=consts), narrow)})


def test_damage_is_an_error(two: dict[str, Program]) -> None:
    body = bytearray(packed(two).to_bytes())
    body[len(body) // 2] ^= 1
    with pytest.raises(ModelError):
        Package.from_bytes(bytes(body))
