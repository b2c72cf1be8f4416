"""Layers in blocks that share an exponent: whole networks, what stays in bf16, tilings, bytes, cycles."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from npuflow.base.errors import RecipeError
from npuflow.hw.blocks import rounded
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.floats import rounded as nearest
from npuflow.hw.target import Compute, FloatRate, Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.kernels.cycles import terms_of
from npuflow.quantise.config import BLOCKS, Override, Quantize
from npuflow.quantise.wishes import scheme_faults
from npuflow.run.interpret import interpret
from npuflow.testing.quantised import quantize_graph
from tests.networks import random_tilings
from tests.networks.harness import SMALL, check_exact, local, machine
from tests.networks.small import Builder
from tests.quantise.test_floats import network
from tests.tiers import often, spread

RATES = tuple(FloatRate(name) for name in ("bfloat16", *BLOCKS))
NUMERICS = Numerics(float_types=("bfloat16", *BLOCKS), float_chunk=8)
TARGET = replace(SMALL, numerics=NUMERICS, compute=replace(SMALL.compute, float_rates=RATES))
# of the whole network's outputs
DECIBELS = {
    "bfp16": 40, "bfp16_16": 40, "mx9": 45, "mx6": 24, "mxint8": 42,
    "mxfp8": 28, "mxfp8_e5m2": 28, "mxfp6": 26, "mxfp6_e3m2": 24, "mxfp4": 20,
}


@pytest.mark.parametrize("mode", often(BLOCKS, len(BLOCKS)))
def test_a_whole_network_has_the_same_bits_in_every_tiling(mode) -> None:
    graph, arrays, _ = network()
    done = quantize_graph(graph, lambda _: True, {}, Quantize(mode=mode), NUMERICS)
    assert not done.notes
    want = arrays[graph.outputs[0]]
    found = interpret(done.graph, {"x": arrays["x"]}, NUMERICS)[done.graph.outputs[0]]
    assert 10 * np.log10((want**2).sum() / ((found - want) ** 2).sum()) > DECIBELS[mode]
    programs = [check_exact(done.graph, {"x": arrays["x"]}, local(TARGET, size)) for size in (4096, 1 << 16)]
    check_exact(done.graph, {"x": arrays["x"]}, TARGET, exact_only=True)
    counts = [sum(c.opcode == "BCONV" for c in p.decoded[0]) for p in programs]
    assert counts[0] > counts[1] > 0, "the small memory cuts layers into tiles"
    opcodes = {c.opcode for c in programs[1].decoded[0]}
    assert {"BCONV", "BMATMUL", "FCONV"} <= opcodes and "FMATMUL" not in opcodes  # FCONV: the depthwise layer


@pytest.mark.parametrize("seed", often(range(4), 2))
def test_random_tilings_give_the_same_bits(seed: int) -> None:
    graph, arrays, ranges = network()
    mode = random.Random(seed).choice(BLOCKS)
    config = Quantize(mode=mode, overrides=(Override(("add",), type="int"),)[: seed // 2])
    done = quantize_graph(graph, lambda _: True, ranges, config, NUMERICS).graph
    plan = random_tilings.plan(done, machine(TARGET), NUMERICS, random.Random(seed), tries=50)
    check_exact(done, {"x": arrays["x"]}, TARGET, plan)


def deep(count: int, both: bool = True) -> tuple[Graph, dict[str, np.ndarray]]:
    """A product of matrices over `count` terms, and one of two activations."""
    b = Builder()
    x = b.input("x", (2, 5, count))
    y = b.add(OPS["matmul"](), x, b.const((count, 12), 0.2))
    if both:
        y = b.add(OPS["matmul"](), y, b.add(OPS["transpose"]((0, 2, 1)), y))
    return Graph(("x",), (y,), tuple(b.nodes), b.values, b.consts), b.arrays


@pytest.mark.parametrize("mode", BLOCKS)
def test_products_of_activations_are_in_blocks_of_integers(mode) -> None:
    graph, arrays = deep(150)
    done = quantize_graph(graph, lambda _: True, {}, Quantize(mode=mode), NUMERICS).graph
    program = check_exact(done, {"x": arrays["x"]}, local(TARGET, 3072))
    check_exact(done, {"x": arrays["x"]}, local(TARGET, 3072), exact_only=True)
    seen = [c for c in program.decoded[0] if c.opcode in ("BMATMUL", "BPAIRS", "FMATMUL")]
    assert {c.opcode for c in seen} == {"BMATMUL", "BPAIRS" if ELEMENTS[mode].block.both else "FMATMUL"}
    size = ELEMENTS[mode].block.size
    split = [c.fields["k"] for c in seen if c.opcode == "BMATMUL" and c.fields["k"] != 150]
    assert split and all(k % size == 0 or k == 150 % size or (150 - k) % size == 0 for k in split)


@pytest.mark.parametrize(("mode", "per"), [("mx9", 16), ("mx9", 21), ("bfp16", 9), ("mx6", 8), ("mxfp4", 40)])
def test_groups_of_a_block_of_channels_or_more_are_in_blocks(mode: str, per: int) -> None:
    b = Builder()
    x = b.input("x", (1, 3 * per, 4, 5))
    op = OPS["conv"]((3, 2), (1, 1), (1, 1), (1, 0, 1, 1), 3)
    y = b.add(op, x, b.const((6, per, 3, 2), 0.1), b.const((6,), 0.1))
    graph = Graph(("x",), (y,), tuple(b.nodes), b.values, b.consts)
    done = quantize_graph(graph, lambda _: True, {}, Quantize(mode=mode), NUMERICS).graph
    program = check_exact(done, {"x": b.arrays["x"]}, local(TARGET, 1 << 14))
    check_exact(done, {"x": b.arrays["x"]}, local(TARGET, 1 << 14), exact_only=True)
    opcode = "BCONV" if per >= ELEMENTS[mode].block.size else "FCONV"
    assert {c.opcode for c in program.decoded[0]} & {"BCONV", "FCONV"} == {opcode}
    # every group by itself is the same
    weight, bias = (graph.const(i) for i in graph.nodes[0].inputs[1:])
    want, found = [], interpret(done, {"x": b.arrays["x"]}, NUMERICS)[done.outputs[0]]
    for g in range(3):
        c = Builder()
        part = c.input("x", (1, per, 4, 5))
        given = b.arrays["x"][:, g * per : (g + 1) * per]
        made = c.add(replace(op, group=1), part, c.const((2, per, 3, 2), 1.0), c.const((2,), 1.0))
        consts = dict(zip(c.consts, (weight[2 * g : 2 * g + 2], bias[2 * g : 2 * g + 2]), strict=True))
        one = Graph(("x",), (made,), tuple(c.nodes), c.values, consts)
        alone = quantize_graph(one, lambda _: True, {}, Quantize(mode=mode), NUMERICS).graph
        want.append(interpret(alone, {"x": given}, NUMERICS)[alone.outputs[0]])
    if opcode == "BCONV":
        np.testing.assert_array_equal(found, np.concatenate(want, 1))


def pair(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[Graph, dict[str, np.ndarray]]:
    """One product of two inputs."""
    b = Builder()
    made = b.add(OPS["matmul"](), b.input("a", left), b.input("b", right))
    return Graph(("a", "b"), (made,), tuple(b.nodes), b.values, b.consts), b.arrays


@pytest.mark.parametrize(
    ("sides", "mode"),
    spread([
        ((5, 40), (40, 6)), ((2, 3, 7, 50), (2, 3, 50, 9)),
        ((2, 1, 4, 17), (3, 17, 5)), ((3, 20), (2, 20, 4)),
    ], ["mx9", "bfp16", "mxint8"]),
)
def test_a_product_of_activations_is_that_of_what_blocks_hold(sides, mode) -> None:
    """By sums in float64, in memories that split its sums, on several cores, at other batches."""
    graph, arrays = pair(*sides)
    done = quantize_graph(graph, lambda _: True, {}, Quantize(mode=mode), NUMERICS).graph
    given = {k: arrays[k] for k in "ab"}
    for size in (1024, 1 << 16):
        check_exact(done, given, local(TARGET, size))
    check_exact(done, given, replace(TARGET, compute=replace(TARGET.compute, cores=2)))
    a, b = (rounded(nearest(arrays[k], "bfloat16"), mode, axis) for k, axis in (("a", -1), ("b", -2)))
    want, found = nearest(a @ b, "bfloat16"), interpret(done, given, NUMERICS)[done.outputs[0]]
    assert np.abs(found - want).max() <= 2.0**-7 * np.abs(want).max()
    assert (found == want).mean() > 0.9


def test_a_product_of_activations_has_the_rate_of_the_block_type() -> None:
    graph, arrays = pair((8, 64), (64, 16))
    done = quantize_graph(graph, lambda _: True, {}, Quantize(mode="mx9"), NUMERICS).graph
    rates = (FloatRate("bfloat16", 0.125), FloatRate("mx9", 0.5))
    numerics = replace(NUMERICS, float_types=("bfloat16", "mx9"))
    target = replace(TARGET, numerics=numerics, compute=replace(TARGET.compute, float_rates=rates))
    program = check_exact(done, {k: arrays[k] for k in "ab"}, local(target, 1 << 16))
    found = sum(terms_of(c, target).array for c in program.decoded[0] if c.opcode == "BPAIRS")
    assert found == 2 * 8 * 64 * 16 / TARGET.compute.macs


@pytest.mark.parametrize("mode", ["mx9", "mxfp8"])
def test_a_layer_is_the_product_of_what_blocks_hold(mode) -> None:
    """The definition once more, without commands: both sides rounded to blocks, sums in float64."""
    graph, arrays = deep(40, both=False)
    done = quantize_graph(graph, lambda _: True, {}, Quantize(mode=mode), NUMERICS).graph
    x, w = nearest(arrays["x"], "bfloat16"), graph.const(graph.nodes[0].inputs[1])
    assert w is not None
    left = rounded(x, mode, -1) if ELEMENTS[mode].block.both else x
    want = nearest(left @ rounded(w, mode, 0), "bfloat16")
    found = interpret(done, {"x": arrays["x"]}, NUMERICS)[done.outputs[0]]
    assert np.abs(found - want).max() <= 2.0**-7 * np.abs(want).max()
    assert (found == want).mean() > 0.9


def test_weights_are_packed_in_the_program_and_on_the_bus() -> None:
    """64 by 64 weights: 18 bytes for 16 numbers of MX9, 32 in bf16; nothing of both is loaded twice."""
    b = Builder()
    y = b.conv(b.input("x", (1, 64, 4, 4)), 64, 1)
    graph = Graph(("x",), (y,), tuple(b.nodes), b.values, b.consts)
    sizes, moved = {}, {}
    for mode in ("bf16", "mx9", "mx6", "bfp16", "mxfp4"):
        done = quantize_graph(graph, lambda _: True, {}, Quantize(mode=mode), NUMERICS).graph
        program = check_exact(done, {"x": b.arrays["x"]}, local(TARGET, 1 << 17))
        sizes[mode] = len(program.const)
        loads = [c for c in program.decoded[0] if c.opcode == "LOAD" and c.text("space") == "CONST"]
        moved[mode] = sum(int(np.prod(c.vector("dims"))) * c.number("element") for c in loads)
    rest = moved["bf16"] - 64 * 64 * 2
    want = {"bf16": 8192, "mx9": 256 * 18, "mx6": 256 * 12, "bfp16": 512 * 9, "mxfp4": 128 * 17}
    assert {mode: size - rest for mode, size in moved.items()} == want
    assert sizes["mxfp4"] < sizes["mx6"] < sizes["mx9"] == sizes["bfp16"] < sizes["bf16"]


def test_the_array_s_rate_is_that_of_the_block_type() -> None:
    graph, arrays = deep(64, both=False)
    done = quantize_graph(graph, lambda _: True, {}, Quantize(mode="mx9"), NUMERICS).graph
    found = []
    for times in (1.0, 0.25):
        rates = (FloatRate("bfloat16", 0.125), FloatRate("mx9", times))
        numerics = replace(NUMERICS, float_types=("bfloat16", "mx9"))
        target = replace(TARGET, numerics=numerics, compute=replace(TARGET.compute, float_rates=rates))
        program = check_exact(done, {"x": arrays["x"]}, target)
        found.append(sum(terms_of(c, target).array for c in program.decoded[0] if c.opcode == "BMATMUL"))
    assert found[1] == 4 * found[0] == 4 * 2 * 5 * 64 * 12 / TARGET.compute.macs


@pytest.mark.parametrize("mode", ["mx9"])
def test_some_layers_are_in_blocks(mode) -> None:
    graph, arrays, ranges = network()
    convs = [n.name for n in graph.nodes if n.op.onnx == "Conv"]
    config = Quantize(overrides=(Override((convs[2],), type=mode), Override((convs[3],), type="bf16")))
    done = quantize_graph(graph, lambda _: True, ranges, config, NUMERICS).graph
    program = check_exact(done, {"x": arrays["x"]}, TARGET)
    assert {"BCONV", "FCONV", "CONV", "FCAST"} <= {c.opcode for c in program.decoded[0]}


def test_a_block_type_that_the_target_lacks_names_targets_that_have_it() -> None:
    known = {"own": Target(), "one": Target(numerics=NUMERICS, compute=Compute(float_rates=RATES))}
    (fault,) = scheme_faults(Quantize(mode="mx9"), Numerics(), lambda: known)
    assert fault.message == "the target does not compute in mx9; it has integers alone"
    assert fault.hint == "targets with mx9: one" and fault.where.key == "quantize.mode"
    with pytest.raises(RecipeError, match="does not compute in mxfp4"):
        quantize_graph(network()[0], lambda _: True, {}, Quantize(mode="mxfp4"), Numerics())


def test_block_types_need_bfloat16_beside_them() -> None:
    target = Target(numerics=Numerics(float_types=("mx9",)), compute=Compute(float_rates=RATES))
    (fault,) = target.check()
    assert fault.code == "NF-TARGET-065" and "mx9 without bfloat16" in fault.message
