"""Compiled kernels of floats: the bits of plain numpy where tiles, panels and chunks end, where sums cancel,
and where nothing is finite; and sums that are settled exactly."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from npuflow.hw.floats import encoded, nearest
from npuflow.kernels.floats import fast_floats, float_panels, float_products, float_sums
from npuflow.sim.machine import SimulatedMachine
from tests.sim.cases import LOCAL, Case
from tests.sim.programs import both_ways, wrap

SIZES = {"matmul": (13, 37, 30), "known": (13, 20, 110), "known, one row": (1, 30, 110)}
KINDS = ("narrow", "wide", "cancelling", "ties", "odd")


def numbers(rng: np.random.Generator, count: int, how: str) -> np.ndarray:
    value = rng.normal(size=count)
    if how == "wide":
        return value * np.exp(rng.normal(0, 12, count))
    if how == "cancelling":
        value[1::2] = -value[: count // 2 * 2 : 2]
        return value * np.where(rng.random(count) < 0.01, 2.0**-40, 1.0)
    if how == "ties":
        return np.where(rng.random(count) < 0.5, 1.0, 2.0 ** -rng.integers(0, 25, count).astype(float))
    if how == "odd":
        value[rng.random(count) < 0.002] = np.inf
        value[rng.random(count) < 0.001] = np.nan
        value[rng.random(count) < 0.1] *= 1e-40
    return value


def case(how: str, kind: str, shape: str) -> tuple[Case, np.ndarray]:
    rng = np.random.default_rng(KINDS.index(how) + 7)
    c = Case(rng, "FMATMUL" if shape in SIZES else "FCONV")
    if shape in SIZES:
        m, k, n = SIZES[shape]
        c.fields.update(batch=1, m=m, k=k, n=n, accumulate=0, chunk=16)
        c.tensor("a", (1, m, k), kind)
        c.tensor("b", (1, k, n), kind)
        if shape != "matmul":
            c.const("b", encoded(numbers(rng, k * n, how), kind))
            c.fields["b_strides"] = (2 * k * n, *((2 * n, 2) if shape == "known" else (2, 2 * k)))
        c.fields.update(acc=c.place(4 * m * n), acc_type="float32")
    else:
        groups, kernel, stride, taps = {
            "pointwise": (1, 1, 1, 1),
            "gathered": (1, 1, 1, 4),
            "window": (1, 3, 2, 1),
            "depthwise": (20, 3, 1, 1),
            "strided": (20, 5, 2, 1),
        }[shape]
        channels, out, size = 20, 20 if groups > 1 else 15, 11
        made = (size - 1) // stride + 1
        c.fields.update(
            x_dims=(1, channels, size, size),
            w_type=kind,
            groups=groups,
            batch=1,
            out_channels=out,
            kernel=(kernel,) * 2,
            stride=(stride,) * 2,
            dilation=(1, 1),
            origin=(-(kernel // 2),) * 2,
            insert=(1, 1),
            out_height=made,
            out_width=made,
            accumulate=0,
            block=2 if taps > 1 else 8,
            taps=taps,
            chunk=25 if groups > 1 else 8,
        )
        c.tensor("x", (1, channels, size, size), kind)
        c.const("w", encoded(numbers(rng, out * channels // groups * kernel * kernel, how), kind))
        c.const("bias", rng.normal(size=out).astype(np.float32))
        c.fields.update(acc=c.place(4 * out * made * made), acc_type="float32")
    image = np.stack([encoded(numbers(rng, LOCAL // 2, how), kind).view(np.uint8) for _ in range(2)])
    return c, image


@pytest.mark.parametrize("shape", ["pointwise", "gathered", "window", "depthwise", "strided", *SIZES])
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_kernels_have_the_bits_of_plain_numpy(kind: str, shape: str) -> None:
    for how in KINDS:
        c, image = case(how, kind, shape)
        assert c.at <= LOCAL
        np.testing.assert_array_equal(*both_ways(wrap(c), image), err_msg=how)


@pytest.mark.parametrize(
    "shape, module", [("window", "float_products"), ("matmul", "float_products"), ("known", "float_panels")]
)
def test_commands_are_bound_to_kernels(shape: str, module: str) -> None:
    c, _ = case("narrow", "bfloat16", shape)
    machine = SimulatedMachine(wrap(c), 2)
    modules = {getattr(getattr(step, "func", step), "__module__", "") for step in machine.steps}
    assert f"npuflow.kernels.floats.{module}" in modules


def test_equal_matrices_are_laid_out_once() -> None:
    c, _ = case("narrow", "bfloat16", "known")
    machines = [SimulatedMachine(wrap(c), batch) for batch in (1, 2)]
    steps = [step for machine in machines for step in machine.steps]
    panels = [step.args[0] for step in steps if getattr(step, "func", None) is float_panels.product]
    assert len(panels) == 2 and panels[0] is panels[1]


@pytest.mark.parametrize("how", KINDS[:4])
def test_sums_are_settled_exactly(how: str) -> None:
    rng = np.random.default_rng(1)
    limbs = np.zeros(float_sums.LIMBS, np.int64)
    for size in (1, 2, 9, 64):
        for _ in range(60):
            terms = encoded(numbers(rng, size, how), "float32").view(np.float32).astype(np.float64)
            terms *= rng.choice([1.0, 2.0**-120, 2.0**60])
            want = nearest(sum(map(Fraction, terms.tolist()), Fraction(0)))
            assert float_sums.nearest(terms, 0, size, limbs) == want
            assert float_sums.digits_of(terms, 0, size, limbs) == want


def test_a_broken_tile_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = float_products.matrices

    def rounded_twice(*arguments):
        honest(*arguments)
        arguments[-3][...] *= np.float32(1 + 2.0**-23)

    assert fast_floats.trusted.__wrapped__() is True
    monkeypatch.setattr(float_products, "matrices", rounded_twice)
    assert fast_floats.trusted.__wrapped__() is False
