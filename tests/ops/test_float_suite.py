"""Every operator with a float form: programs for a small machine make the reference's patterns, bit for
bit, however the layer is cut; and the reference is as near to float32 as its type allows."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Literal

import numpy as np
import pytest

from npuflow.hw.floats import decoded, rounded
from npuflow.hw.target import Compute, FloatRate, Memory, Numerics, Target
from npuflow.ir.forms import Arithmetic, float_table, has_form
from npuflow.ir.op import OPS
from npuflow.ir.types import float_type
from npuflow.quantise.config import FLOATS, Quantize
from npuflow.run.interpret import interpret
from npuflow.testing.op import check_program, check_text, quantised, samples
from tests.tiers import often, spread

RATES = (FloatRate("float16"), FloatRate("bfloat16"))
NUMERICS = Numerics(float_types=("float16", "bfloat16"), float_chunk=4)
SMALL = Target(
    memory=Memory(local_bytes=16384, local_align=16, burst=16),
    numerics=NUMERICS,
    compute=Compute(float_rates=RATES),
)
ROOMY = replace(SMALL, memory=replace(SMALL.memory, local_bytes=1 << 20))
Mode = Literal["bf16", "fp16"]
STEPS: dict[Mode, float] = {"bf16": 2.0**-8, "fp16": 2.0**-11}
FORMS = [n for n in OPS.names() if any(has_form(sample.op, Arithmetic.FLOATS) for sample in samples(n))]
TABLES = [n for n in FORMS if OPS[n].unary and n not in ("relu", "clip")]
LANES = [n for n in TABLES if any(s.op.lane for s in samples(n))]


@pytest.mark.parametrize(("name", "mode"), often(product([n for n in FORMS if n not in TABLES], STEPS), 3))
def test_programs_make_the_reference_s_patterns(name: str, mode: Mode) -> None:
    for sample in samples(name):
        graph, one = quantised(sample, NUMERICS, Quantize(mode=mode))
        check_program(graph, one.inputs, SMALL, f"{sample.op} in {mode}")
        check_text(sample, NUMERICS, Quantize(mode=mode))


@pytest.mark.parametrize("name", often(TABLES, 3))
def test_tables_make_the_reference_s_patterns(name: str) -> None:
    for sample in list(samples(name))[:1]:
        graph, one = quantised(sample, NUMERICS, Quantize(mode="bf16"))
        check_program(graph, one.inputs, ROOMY, f"{sample.op} in bf16")


@pytest.mark.parametrize(("name", "mode"), spread([*FORMS], [*STEPS]))
def test_results_are_near_the_float_operator_s(name: str, mode: Mode) -> None:
    """Of operands that the type holds: a few steps of the type, of the largest number in sight."""
    for given in samples(name):
        inputs = tuple(
            None if a is None else rounded(a, FLOATS[mode]).astype(np.float32) for a in given.inputs
        )
        sample = replace(given, inputs=inputs)
        graph, one = quantised(sample, NUMERICS, Quantize(mode=mode))
        found = interpret(graph, one.inputs, NUMERICS)
        for want, value in zip(sample.op.clipped(*inputs), graph.outputs, strict=True):
            real = np.isfinite(want)
            largest = max(
                float(np.abs(a[np.isfinite(a)]).max(initial=1)) for a in (want, *one.inputs.values())
            )
            off = float(np.abs(found[value] - want)[real].max(initial=0))
            assert off <= 4 * STEPS[mode] * largest, f"{sample.op}: {off}"


@pytest.mark.parametrize("mode", STEPS)
@pytest.mark.parametrize("name", TABLES)
def test_functions_are_rounded_once(name: str, mode: Mode) -> None:
    sample = next(iter(samples(name)))
    (x,) = (rounded(a, FLOATS[mode]).astype(np.float32) for a in sample.inputs if a is not None)
    graph, one = quantised(replace(sample, inputs=(x,)), NUMERICS, Quantize(mode=mode))
    found = interpret(graph, one.inputs, NUMERICS)[graph.outputs[0]]
    want = rounded(sample.op.f(x.astype(np.float64)), FLOATS[mode])
    np.testing.assert_array_equal(found, want.astype(np.float32))


@pytest.mark.parametrize("mode", STEPS)
@pytest.mark.parametrize("name", LANES)
def test_functions_of_a_lane_have_no_table_and_the_bits_of_one(name: str, mode: Mode) -> None:
    """For every number of the type, in a memory that holds no table; signs of zeros count."""
    every = decoded(np.arange(1 << 16), FLOATS[mode]).astype(np.float32).reshape(256, 256)
    sample = replace(next(s for s in samples(name) if s.op.lane), inputs=(every,))
    graph, one = quantised(sample, NUMERICS, Quantize(mode=mode))
    assert all(float_table(n.op, FLOATS[mode]) == 0 for n in graph.nodes)
    found = interpret(graph, one.inputs, NUMERICS)[graph.outputs[0]]
    with np.errstate(all="ignore"):
        want = rounded(sample.op.f(every.astype(np.float64)), FLOATS[mode]).astype(np.float32)
    np.testing.assert_array_equal(found.view(np.uint32), want.view(np.uint32))
    with np.errstate(all="ignore"):
        check_program(graph, one.inputs, SMALL, f"{sample.op} in {mode}")


def test_values_are_of_the_type() -> None:
    graph, _ = quantised(next(iter(samples("conv"))), NUMERICS, Quantize(mode="fp16"))
    held = [v for v in graph.values.values() if v.quant is not None]
    assert held and all(v.quant == float_type("float16") and v.dtype == "uint16" for v in held)
    (bias,) = [v for v in graph.values.values() if v.const is not None and v.quant is None]
    assert bias.dtype == "float32"
