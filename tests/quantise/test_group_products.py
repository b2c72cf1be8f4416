"""Weights in groups with float16 scales: codes, scales and minima in the program as they were stated,
exact from the reference to the program in every tiling, on floats and on int16, and what targets without
them make of them."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuflow.base.errors import ModelError
from npuflow.hw.floats import rounded
from npuflow.hw.grouped import OFFSETS, group_bytes
from npuflow.ir.codes import decode, encode
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.ir.text import from_text, to_text
from npuflow.ir.types import GroupedType
from npuflow.kernels.cycles import terms_of
from npuflow.program.container import require_target
from npuflow.quantise.config import Quantize
from npuflow.run.interpret import interpret
from npuflow.run.qdq import to_qdq
from npuflow.schedule.bounds import bounds_of
from npuflow.testing.quantised import quantize_graph
from npuflow.whole.execute.executor import Executor
from npuflow.whole.export_c.network import network_of
from npuflow.whole.export_c.program import program_of
from tests.networks import random_tilings
from tests.networks.harness import SMALL, build, check_exact, machine
from tests.networks.small import Builder
from tests.quantise.group_networks import (
    FLOATS,
    GROUPS,
    INTEGERS,
    KINDS,
    RATES,
    drawn,
    held,
    network,
    opcodes,
    quantised,
    read_back,
    target_of,
)
from tests.tiers import often, spread

CASES = [(bits, group, offset) for bits in (4, 8) for group in GROUPS for offset in OFFSETS]


@pytest.mark.parametrize(("case", "kind"), spread(CASES, [*KINDS]))
def test_stated_codes_are_in_the_program_and_every_execution_makes_the_same(
    case: tuple[int, int, str], kind: str
) -> None:
    bits, group, offset = case
    codes, groups = drawn(bits + group, 10, 150, group, bits, offset)
    graph, arrays, stated = network(codes, groups)
    done = quantised(graph, arrays, stated, kind)
    assert not done.notes
    numerics, _ = KINDS[kind]
    program = check_exact(done.graph, {"x": arrays["x"]}, target_of(numerics))
    check_exact(done.graph, {"x": arrays["x"]}, target_of(numerics), exact_only=True)
    assert ("GROUPMATMUL" if kind == "int16" else "FGROUPMATMUL") in opcodes(program)
    # as the file has them: codes, scales, zero points, minima
    found, own = held(done.graph)
    np.testing.assert_array_equal(found, codes)
    made = own.groups(found.shape if own.axis == 0 else found.T.shape)
    for name in ("scales", "zeros", "minima"):
        one, other = getattr(made, name), getattr(groups, name)
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_array_equal(one, other)
    assert read_back(program.const, codes, groups)
    want = interpret(done.graph, {"x": arrays["x"]}, numerics, keep=lambda _: True)
    (same,) = Executor(done.graph, numerics).run_many([{"x": arrays["x"]}], keep=lambda _: True)
    for node in done.graph.nodes:
        if node.is_integer:
            np.testing.assert_array_equal(same[node.outputs[0]], want[node.outputs[0]])


@pytest.mark.parametrize(("case", "kind"), spread(list(product(OFFSETS, [False, True])), [*KINDS]))
def test_tiles_of_any_size_give_the_same_bits(case: tuple[str, bool], kind: str) -> None:
    offset, turned = case
    codes, groups = drawn(5, 24, 300, 32, 4, offset, signed=True)
    graph, arrays, stated = network(codes, groups, rows=5, turned=turned, bias=True)
    done = quantised(graph, arrays, stated, kind).graph
    numerics = KINDS[kind][0]
    small = check_exact(done, {"x": arrays["x"]}, target_of(numerics, 3072))
    large = check_exact(done, {"x": arrays["x"]}, target_of(numerics))
    name = "GROUPMATMUL" if kind == "int16" else "FGROUPMATMUL"
    cuts = [sum(c.opcode == name for q in p.decoded for c in q) for p in (small, large)]
    assert cuts[0] > cuts[1] > 0
    for seed in range(3):
        target = target_of(numerics, 1 << 13)
        plan = random_tilings.plan(done, machine(target), numerics, random.Random(seed), tries=50)
        check_exact(done, {"x": arrays["x"]}, target, plan)


@pytest.mark.parametrize("examples", often([12, 40], 2))
def test_shapes_that_are_no_multiples_of_groups(examples: int) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=True)
    @given(
        rows=st.integers(1, 4), terms=st.integers(2, 200), channels=st.integers(1, 12),
        bits=st.sampled_from((4, 8)), group=st.sampled_from(GROUPS), offset=st.sampled_from(OFFSETS),
        signed=st.booleans(),
        kind=st.sampled_from(list(KINDS)), seed=st.integers(0, 1 << 16),
    )
    def exact(rows, terms, channels, bits, group, offset, signed, kind, seed) -> None:
        codes, groups = drawn(seed, channels, terms, group, bits, offset, signed)
        graph, arrays, stated = network(codes, groups, rows)
        done = quantised(graph, arrays, stated, kind)
        np.testing.assert_array_equal(held(done.graph)[0], codes)
        check_exact(done.graph, {"x": arrays["x"]}, target_of(KINDS[kind][0], 1 << 14))

    exact()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("offset", OFFSETS)
def test_results_are_near_the_float_products(kind: str, offset: str) -> None:
    """Floats: a rounding of each weight and of x to the type. Integers: those of x and y to 16 bits alone."""
    codes, groups = drawn(1, 40, 256, 32, 4, offset)
    graph, arrays, stated = network(codes, groups, rows=6)
    done = quantised(graph, arrays, stated, kind).graph
    found = interpret(done, {"x": arrays["x"]}, KINDS[kind][0])[done.outputs[0]]
    want = arrays["x"].astype(np.float64) @ groups.numbers(codes).T
    level = 10 * np.log10(np.square(want).sum() / np.square(found - want).sum())
    assert level > {"bfloat16": 48, "float16": 66, "int16": 80}[kind]


def test_floats_are_products_of_weights_that_were_rounded_once() -> None:
    """FGROUPMATMUL is FMATMUL with the weights as they are rounded to the type of the activations."""
    codes, groups = drawn(2, 9, 100, 64, 8, "minimum")
    graph, arrays, stated = network(codes, groups)
    done = quantised(graph, arrays, stated, "bfloat16").graph
    b = dict(graph.consts)
    (name,) = stated
    b[graph.values[name].const] = rounded(groups.numbers(codes), "bfloat16").T.astype(np.float32)
    plain = quantize_graph(graph.replaced(consts=b), lambda _: True, {}, Quantize(mode="bf16"), FLOATS).graph
    one, other = (interpret(g, {"x": arrays["x"]}, FLOATS)[g.outputs[0]] for g in (done, plain))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_is_written_and_read(kind: str) -> None:
    codes, groups = drawn(3, 6, 70, 32, 4, "minimum")
    graph, arrays, stated = network(codes, groups)
    done = quantised(graph, arrays, stated, kind).graph
    assert to_text(from_text(to_text(done), done.consts)) == to_text(done)
    assert held(from_text(to_text(done), done.consts))[1] == held(done)[1]


@pytest.mark.parametrize("kind", ["bfloat16", "int16"])
def test_a_decoded_row_moves_codes_scales_and_minima_alone(kind: str) -> None:
    codes, groups = drawn(4, 96, 256, 32, 4, "minimum")
    graph, arrays, stated = network(codes, groups, rows=1)
    done = quantised(graph, arrays, stated, kind).graph
    program = build(done, target_of(KINDS[kind][0]))
    moved = [c for q in program.decoded for c in q if c.opcode == "LOAD" and c.text("space") == "CONST"]
    total = sum(int(np.prod(c.vector("dims"))) * c.number("element") for c in moved)
    whole = 96 * 8 * group_bytes(4, 32, "minimum")
    assert whole <= total <= whole + 256


def test_the_array_is_as_fast_on_floats_as_on_plain_ones_and_works_by_groups_on_integers() -> None:
    made = {}
    for kind in ("bfloat16", "int16"):
        codes, groups = drawn(4, 32, 96, 32, 4, "zero")
        graph, arrays, stated = network(codes, groups, rows=8)
        numerics = KINDS[kind][0]
        compute = replace(SMALL.compute, array_rows=64, array_cols=8, float_rates=RATES)
        target = replace(target_of(numerics), compute=compute)
        program = build(quantised(graph, arrays, stated, kind).graph, target)
        commands = [c for q in program.decoded for c in q if c.opcode.endswith("GROUPMATMUL")]
        made[kind] = sum(terms_of(c, target).array + terms_of(c, target).edge for c in commands)
    # floats: 2 blocks of 64 rows at half the speed; integers: 3 groups of 32 rows at a quarter of it
    assert made["bfloat16"] == 2 * 4 * 8 * 2 and made["int16"] == 3 * 4 * 8 * 4


def test_export_to_c_and_to_onnx() -> None:
    codes, groups = drawn(9, 12, 100, 32, 4, "minimum")
    graph, arrays, stated = network(codes, groups)
    done = quantised(graph, arrays, stated, "int16").graph
    with pytest.raises(ModelError, match="GROUPMATMUL has no C kernel"):
        program_of(network_of(done), INTEGERS, "net")
    import onnxruntime as ort

    exported = to_qdq(done)
    session = ort.InferenceSession(exported.model, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": arrays["x"]})
    (want,) = interpret(done, {"x": arrays["x"]}, INTEGERS).values()
    step = done.values[done.nodes[1].outputs[0]].quant.scale[0]
    assert np.abs(found - want).max() <= 1.01 * step


def test_a_weight_of_zeros_and_scales_of_zero() -> None:
    """Codes of a group whose scale is 0 are read as its zero point; they stand for the same numbers."""
    codes, groups = drawn(10, 4, 64, 32, 4, "zero")
    groups.scales[1] = 0
    again = encode(decode(codes, GroupedType.of(groups, 0)), GroupedType.of(groups, 0))
    np.testing.assert_array_equal(again[[0, 2, 3]], codes[[0, 2, 3]])
    np.testing.assert_array_equal(again[1], np.repeat(groups.zeros[1], 32))


def test_sums_that_leave_64_bits_are_refused() -> None:
    codes, groups = drawn(11, 4, 64, 32, 8, "none")
    groups = replace(groups, scales=np.full((4, 80), 60000, np.float16))
    graph, arrays, stated = network(np.repeat(codes, 40, 1), groups)
    done = quantised(graph, arrays, stated, "int16")
    assert [note.reason for note in done.notes if "accumulator" in note.reason]



def test_a_program_without_such_weights_is_that_of_a_target_without_such_products() -> None:
    b = Builder()
    x = b.input("x", (4, 40))
    y = b.add(OPS["matmul"](), x, b.const((40, 24), 0.2))
    graph = Graph(("x",), (y,), tuple(b.nodes), b.values, b.consts)
    done = quantize_graph(graph, lambda _: True, {}, Quantize(mode="bf16"), FLOATS).graph
    plain = replace(FLOATS, group_products=())
    one, other = (build(done, target_of(numerics)) for numerics in (FLOATS, plain))
    assert one.to_bytes() == other.to_bytes()
    for numerics in (FLOATS, plain):
        require_target(one, target_of(numerics), "the machine")
    codes, groups = drawn(3, 6, 70, 32, 4, "minimum")
    graph, arrays, stated = network(codes, groups)
    program = build(quantised(graph, arrays, stated, "bfloat16").graph, target_of(FLOATS))
    require_target(program, target_of(FLOATS), "the machine")
    with pytest.raises(ModelError, match="was not compiled for the machine"):
        require_target(program, target_of(plain), "the machine")


@pytest.mark.parametrize("kind", ["bfloat16", "int16"])
def test_the_lower_bound_counts_the_bytes_of_groups_once(kind: str) -> None:
    codes, groups = drawn(4, 96, 256, 32, 4, "minimum")
    graph, arrays, stated = network(codes, groups, rows=1)
    done, target = quantised(graph, arrays, stated, kind).graph, target_of(KINDS[kind][0])
    bounds = bounds_of(done, machine(target), target.numerics)
    size = 2 * (256 + 96) + 96 * 8 * group_bytes(4, 32, "minimum")
    assert bounds.bytes == size
