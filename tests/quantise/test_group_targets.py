"""What recipes may ask of targets with weights in groups of float16 scales, and what targets without them
make of stated ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.ir.types import GroupedType, QuantType
from npuflow.quantise.config import Override, Quantize, Weights
from npuflow.quantise.grouped import lasting
from npuflow.quantise.wishes import scheme_faults
from npuflow.run.interpret import interpret
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import check_exact
from tests.networks.small import Builder
from tests.quantise.group_networks import (
    FLOATS,
    INTEGERS,
    WIDE,
    drawn,
    held,
    network,
    opcodes,
    quantised,
    target_of,
)

NONE = replace(FLOATS, group_products=())


# --- the recipe's own groups
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize(("symmetric", "offset"), [(True, "zero"), (False, "zero"), (False, "minimum")])
def test_the_recipe_asks_for_groups_beside_floats(
    kind: str, symmetric: bool, offset: Literal["zero", "minimum"],
) -> None:
    b = Builder()
    x = b.input("x", (4, 160))
    y = b.add(OPS["matmul"](), x, b.const((160, 24), 0.2))
    graph = Graph(("x",), (y,), tuple(b.nodes), b.values, b.consts)
    mode = "bf16" if kind == "bfloat16" else "fp16"
    numerics = replace(FLOATS, weight_zero_point=True)
    levels = []
    for bits in (4, 8):
        config = Quantize(Weights(bits=bits, group=32, symmetric=symmetric, offset=offset), mode=mode)
        assert not scheme_faults(config, numerics)
        done = quantize_graph(graph, lambda _: True, {}, config, numerics).graph
        program = check_exact(done, {"x": b.arrays["x"]}, target_of(numerics))
        assert "FGROUPMATMUL" in opcodes(program)
        found = interpret(done, {"x": b.arrays["x"]}, numerics)[done.outputs[0]]
        want = b.arrays[y]
        levels.append(10 * np.log10(np.square(want).sum() / np.square(found - want).sum()))
    assert levels[0] > 17 and levels[1] > 38


def test_a_layer_may_stay_out_or_come_in_alone() -> None:
    b = Builder()
    x = b.input("x", (4, 160))
    y = b.add(OPS["matmul"](), x, b.const((160, 64), 0.2))
    y = b.add(OPS["matmul"](), y, b.const((64, 40), 0.2))
    graph = Graph(("x",), (y,), tuple(b.nodes), b.values, b.consts)
    names = [node.name for node in graph.nodes]
    out = Quantize(Weights(bits=4, group=32), mode="bf16", overrides=(Override((names[0],), weight_group=0),))
    alone = Quantize(mode="bf16", overrides=(Override((names[1],), weight_bits=4, weight_group=32),))
    for config in (out, alone):
        assert not scheme_faults(config, FLOATS)
        done = quantize_graph(graph, lambda _: True, {}, config, FLOATS).graph
        kinds = [v.quant for v in done.values.values() if v.const is not None and v.quant is not None]
        assert [isinstance(kind, GroupedType) for kind in kinds].count(True) == 1 and len(kinds) == 2


@pytest.mark.parametrize(
    ("config", "numerics", "key"),
    [
        (Quantize(Weights(bits=4, group=32), mode="bf16"), NONE, "weights.group"),
        (Quantize(Weights(bits=4, group=48), mode="bf16"), FLOATS, "weights.group"),
        (Quantize(Weights(bits=4, group=32, offset="minimum"), mode="bf16"), FLOATS, "weights.offset"),
        (Quantize(Weights(offset="minimum")), FLOATS, "weights.offset"),
        (Quantize(Weights(bits=4, group=32)), FLOATS, "weights.group"),
    ],
)
def test_groups_that_the_target_lacks_are_one_error(config: Quantize, numerics: Numerics, key: str) -> None:
    faults = scheme_faults(config, numerics)
    assert [fault.where.key for fault in faults] == [f"quantize.{key}"]


# --- targets without such products
def test_integer_multipliers_keep_codes_and_say_how_near_the_scales_are() -> None:
    numerics = Numerics(
        weight_bits=(4, 8), activation_bits=(8, 16), weight_groups=(32,), weight_zero_point=True,
        group_zero_points=True, wide_acc_bits=48, multiplier_bits=31,
    )
    codes, groups = drawn(6, 12, 100, 32, 4, "zero")
    groups = replace(groups, scales=np.abs(groups.scales))
    graph, arrays, stated = network(codes, groups)
    ranges = {name: (float(a.min()), float(a.max())) for name, a in arrays.items()}
    done = quantize_graph(graph, lambda _: True, ranges, WIDE, numerics, stated)
    (value,) = (v for v in done.graph.values.values() if v.quant is not None and v.quant.group)
    np.testing.assert_array_equal(done.graph.const(value.id), codes.T)
    (note,) = done.notes
    assert "codes as stated, scales within 2^-" in note.reason
    assert int(note.reason.split("2^-")[1].split()[0]) >= 15
    check_exact(done.graph, {"x": arrays["x"]}, target_of(numerics))


@pytest.mark.parametrize(
    ("numerics", "config", "what", "hint"),
    [
        (Numerics(), Quantize(), "8 bits with other scales", "a target with products of such groups"),
        (FLOATS, Quantize(), "8 bits with other scales", 'mode = "bf16"'),
        (INTEGERS, Quantize(), "8 bits with other scales", "activations = { bits = 16 }"),
        (NONE, Quantize(mode="bf16"), "bfloat16", "a target with products"),
    ],
)
def test_elsewhere_a_note_has_decibels_and_what_to_try(
    numerics: Numerics, config: Quantize, what: str, hint: str
) -> None:
    codes, groups = drawn(7, 12, 100, 32, 4, "minimum")
    graph, arrays, stated = network(codes, groups)
    ranges = {name: (float(a.min()), float(a.max())) for name, a in arrays.items()}
    done = quantize_graph(graph, lambda _: True, ranges, config, numerics, stated)
    (note,) = done.notes
    assert not note.on_host and what in note.reason and " dB of the stated ones" in note.reason
    assert hint in note.reason


def test_scales_that_float16_has_not_are_rounded_and_said() -> None:
    codes, groups = drawn(8, 12, 100, 32, 4, "zero")
    fine = replace(groups, scales=groups.scales.astype(np.float32) * np.float32(1.0001))
    graph, arrays, stated = network(codes, fine)
    done = quantised(graph, arrays, stated, "bfloat16")
    np.testing.assert_array_equal(held(done.graph)[0], codes)
    (note,) = done.notes
    assert "rounded to float16" in note.reason


def test_a_target_states_products_that_it_has_the_types_of() -> None:
    (fault,) = replace(FLOATS, float_types=("float16",)).check()
    assert fault.field == "group_products"
    (fault,) = replace(INTEGERS, activation_bits=(8,)).check()
    assert fault.field == "group_products"
    assert not [*FLOATS.check(), *INTEGERS.check()]




@pytest.mark.parametrize(
    ("numerics", "kept"),
    [
        (Numerics(), False), (FLOATS, True), (INTEGERS, True), (Numerics(weight_groups=(32,)), True),
        (NONE, False),
    ],
)
def test_codes_that_the_target_has_for_no_activations_are_rounded_anew(
    numerics: Numerics, kept: bool
) -> None:
    _, groups = drawn(12, 4, 64, 32, 4, "zero")
    channels = QuantType(4, True, (0.1, 0.2), (0, 0), 1)
    stated = {"groups": GroupedType.of(groups, 1), "channels": channels}
    assert set(lasting(stated, numerics)) == {"channels", *(["groups"] if kept else [])}
