"""Values that never leave local memory are compared too: all of them, box by box,
and a fault in one is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from npuflow.base.errors import BuildError, ModelError
from npuflow.checks.agreement import compare, require_equal
from npuflow.hw.encode import decode, encode
from npuflow.hw.target import Memory
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.program.taps import Tap
from npuflow.quantise.config import Quantize
from npuflow.runner.simulated import ProgramRunner
from npuflow.search.plan import plan_network
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import SMALL, build, local, machine
from tests.networks.small import mixed
from tests.quantise.test_recipe_combinations import network
from tests.tiers import often

CORES = replace(SMALL, compute=replace(SMALL.compute, cores=2))
# local memory for several strips of a group; for one; two cores
TARGETS = {
    "strips": local(SMALL, 12288),
    "whole": replace(SMALL, memory=Memory()),
    "cores": local(CORES, 24576),
}


@cache
def fashion(name: str) -> tuple[Graph, Program, Array]:
    """The example network, quantised and grouped at level 3."""
    target = TARGETS[name]
    graph, ranges, images, _ = network()
    graph = quantize_graph(graph, lambda _: True, ranges, Quantize(), target.numerics).graph
    return graph, build(graph, target, plan_network(graph, machine(target), target.numerics, 3)), images


def integers(graph: Graph) -> set[str]:
    return {o for n in graph.nodes for o in n.outputs if o and graph.values[o].quant is not None}


def only_local(program: Program) -> set[str]:
    return set(program.taps.values) - set(program.meta["values"])


@pytest.mark.parametrize(
    ("name", "kernels"),
    often([("strips", "auto"), ("cores", "auto"), ("whole", "auto"), ("strips", "exact")], 4),
)
def test_every_integer_tensor_is_compared(name: str, kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUFLOW_KERNELS", kernels)
    graph, program, images = fashion(name)
    feeds = [{graph.inputs[0]: x} for x in images[:2]]
    checks = {c.value: c for c in compare(graph, program, SMALL.numerics, feeds)}
    assert integers(graph) <= set(checks) and len(only_local(program)) >= 3
    assert not [c for c in checks.values() if c.different]
    for value, check in checks.items():
        assert check.elements + check.unseen == 2 * np.prod(graph.type(value).shape)
        assert check.elements and not check.unseen, value


@pytest.mark.slow
def test_without_taps_only_external_memory_is_compared_and_the_rest_is_counted() -> None:
    graph, program, images = fashion("strips")
    old = Program.from_bytes(replace(program, tap_bytes=b"").to_bytes())
    checks = compare(graph, old, SMALL.numerics, [{graph.inputs[0]: images[0]}])
    require_equal(checks, old)
    missing = {c.value: c.unseen for c in checks if c.unseen}
    assert missing == {v: np.prod(graph.type(v).shape) for v in only_local(program)}
    assert {c.value for c in checks if c.elements} & set(missing) == set()


@pytest.mark.parametrize("name", often(TARGETS, 4))
def test_a_corrupted_constant_inside_a_group_is_named(name: str) -> None:
    """A command of a fused tensor gets another zero point: that tensor is the first
    to differ, at its node."""
    graph, program, images = fashion(name)
    found = 0
    for value in sorted(only_local(program)):
        core, tap = next(
            (c, t) for c, taps in enumerate(program.taps.cores) for t in taps if t.value == value
        )
        broken = corrupted(program, core, tap)
        if broken is None:
            continue
        checks = compare(graph, broken, SMALL.numerics, [{graph.inputs[0]: images[0]}])
        with pytest.raises(BuildError) as caught:
            require_equal(checks, broken)
        assert caught.value.where is not None and caught.value.where.value == value
        assert caught.value.where.node == program.meta["nodes"][program.taps.values[value].node]["name"]
        first = next(c for c in checks if c.different)
        assert first.value == value and 0 < first.different <= np.prod(tap.extent)
        found += 1
        if found == 2:
            return
    pytest.fail("too few commands with a zero point")


def corrupted(program: Program, core: int, tap: Tap) -> Program | None:
    """The program with another zero point in a tap's command, if it has one."""
    words = program.commands[core].copy()
    command = decode(words[tap.command], core=core)
    if "zero" not in command.fields:
        return None
    fields = {**command.fields, "zero": command.number("zero") + 3}
    words[tap.command] = encode(
        command.opcode, fields, queue=command.queue, core=core, node=command.node, wait=command.wait
    )
    return replace(program, commands=tuple(words if c == core else w for c, w in enumerate(program.commands)))


def test_an_element_seen_twice_with_different_contents_is_a_difference() -> None:
    """Whichever comes last: here a box is also looked at before its command has made
    it, and is right in the end."""
    graph, program, images = fashion("strips")
    table = json.loads(program.tap_bytes)
    early = next(t for t in table["cores"][0] if t[0])
    table["cores"][0].append([0, *early[1:]])
    torn = replace(program, tap_bytes=json.dumps(table).encode())
    found = [c for c in compare(graph, torn, SMALL.numerics, [{graph.inputs[0]: images[0]}]) if c.different]
    assert [c.value for c in found] == [table["values"][early[1]][0]]
    assert found[0].max_abs == 0 and found[0].elements == np.prod(graph.type(found[0].value).shape)


@pytest.mark.slow
def test_taps_are_deterministic_and_change_no_command() -> None:
    small, _ = mixed(SMALL.numerics)
    first, again = (
        generate(small, plan_network(small, machine(SMALL), SMALL.numerics, 3), SMALL) for _ in range(2)
    )
    assert again.to_bytes() == first.to_bytes() and only_local(first)
    graph, program, images = fashion("strips")
    feed = {graph.inputs[0]: images[0]}
    plain, dumped = ProgramRunner(program).run(feed), ProgramRunner(program).run(feed, dump=True)
    assert only_local(program) <= set(dumped) and not only_local(program) & set(plain)
    for name, array in plain.items():
        np.testing.assert_array_equal(array, dumped[name])
    one = sorted(only_local(program))[0]
    np.testing.assert_array_equal(ProgramRunner(program).run(feed, dump=[one])[one], dumped[one])


def test_a_runner_forgets_the_last_batch() -> None:
    graph, program, images = fashion("strips")
    runner = ProgramRunner(program)
    for image in images[:2]:
        found = runner.run({graph.inputs[0]: image}, dump=True)
        assert all(shadow.torn is None for shadow in runner.shadows.values())
        for name, array in ProgramRunner(program).run({graph.inputs[0]: image}, dump=True).items():
            np.testing.assert_array_equal(array, found[name])


WRONG: list[Callable[[Any], object]] = [
    lambda t: t.pop("cores"),
    lambda t: t["cores"].append([]),
    lambda t: t["values"].append(t["values"][0]),
    lambda t: t["values"][0].__setitem__(2, "float32"),
    lambda t: t["values"][0].__setitem__(3, 10_000),
    lambda t: t["values"][0].__setitem__(4, None),
    lambda t: t["cores"][0][0].__setitem__(0, 1 << 30),
    lambda t: t["cores"][0][0].__setitem__(1, -1),
    lambda t: t["cores"][0][0].__setitem__(2, SMALL.memory.local_bytes * 3),
    lambda t: t["cores"][0][0][3].__setitem__(0, [1, 1]),
    lambda t: t["cores"][0][0][3].pop(),
    lambda t: t["cores"][0][0][4].__setitem__(-1, -1),
    lambda t: t["cores"][0][0].pop(),
]


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_taps_are_one_clear_error(fault: Callable[[Any], object]) -> None:
    _, program, _ = fashion("strips")
    table = json.loads(program.tap_bytes)
    fault(table)
    with pytest.raises(ModelError):
        _ = replace(program, tap_bytes=json.dumps(table).encode()).taps


def test_a_damaged_section_is_found() -> None:
    _, program, _ = fashion("strips")
    data = bytearray(program.to_bytes())
    at = data.index(program.tap_bytes)
    data[at + len(program.tap_bytes) // 2] ^= 1
    with pytest.raises(ModelError, match="'taps' is damaged"):
        Program.from_bytes(bytes(data))
