"""Compiled kernels are trusted after saturating operands; the simulator shares no arithmetic;
the exact path needs neither."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuflow.hw.isa import ROUNDINGS
from npuflow.hw.numerics import shift_round
from npuflow.kernels import fast
from npuflow.kernels.compiled import rounded_wide
from npuflow.kernels.products import fast_convolutions, gemm, pairs
from npuflow.sim.machine import SimulatedMachine
from tests.sim.cases import LOCAL, Case, random_case
from tests.sim.programs import both_ways, wrap

ROOT = Path(__file__).resolve().parents[2]
OWN = [
    *sorted((ROOT / "npuflow/sim").glob("*.py")),
    *sorted((ROOT / "npuflow/isa").glob("*.py")),
]


def saturating(a, b):
    """What signed kernels do: neighbouring products are added into 16 bits that do not overflow but stop."""
    k = a.shape[-1] + a.shape[-1] % 2
    wide = np.zeros((*a.shape[:-1], k), np.int64)
    wide[..., : a.shape[-1]] = a
    tall = np.zeros((*b.shape[:-2], k, b.shape[-1]), np.int64)
    tall[..., : b.shape[-2], :] = b
    pairs_ = (
        wide[..., :, ::2, None] * tall[..., None, ::2, :]
        + wide[..., :, 1::2, None] * tall[..., None, 1::2, :]
    )
    return np.clip(pairs_, -(1 << 15), (1 << 15) - 1).sum(-2)


def test_a_saturating_product_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(gemm._Session):
        def __call__(self) -> None:
            a, b, out = self.kept
            out[...] = saturating(a.astype(np.int64) - 128, b.astype(np.int64) - 128)

    assert gemm.fast.__wrapped__() is True
    monkeypatch.setattr(gemm, "_Session", Broken)
    assert gemm.fast.__wrapped__() is False


@pytest.mark.parametrize("alone", [False, True])
def test_a_broken_convolution_is_not_trusted(monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    """One product too large for 16 bits and a sum that stops there, with groups of one channel or of more."""
    honest = pairs.convolution

    def broken(*arguments):
        honest(*arguments)
        if arguments[2][4] == alone:
            acc = arguments[-1][0]
            np.clip(acc, -(1 << 15), (1 << 15) - 1, out=acc)

    assert fast_convolutions.trusted.__wrapped__() is True
    monkeypatch.setattr(pairs, "convolution", broken)
    assert fast_convolutions.trusted.__wrapped__() is False


def test_a_broken_rounding_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fast.enabled.__wrapped__() is True
    monkeypatch.setattr(fast, "rounded", lambda p, shift, half, mode: (p + half) >> shift)
    assert fast.enabled.__wrapped__() is False


def test_without_trust_the_answers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the pairs nor the library's products are trusted: plain numpy and float64 compute them."""
    image = np.random.default_rng(5).integers(0, 256, (2, 16384)).astype(np.uint8)
    for seed in range(12):
        program = wrap(random_case(seed, "CONV"))
        found = []
        for trust in (True, False):
            monkeypatch.setattr(fast_convolutions, "trusted", lambda trust=trust: trust)
            monkeypatch.setattr(gemm, "fast", lambda trust=trust: trust)
            machine = SimulatedMachine(program, 2)
            machine.write("in", image)
            machine.run(0)
            found.append(machine.read("out"))
        np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("acc", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ["int16", "uint16"])
@pytest.mark.parametrize("kind", ["pointwise", "windows", "depthwise", "inserted"])
def test_wide_convolutions_by_bytes(kind: str, dtype: str, acc: str) -> None:
    """The fast ways of 16-bit operands: bytes of a tile as it lies, and depthwise
    sums into any accumulator."""
    groups, kernel = 4 if kind == "depthwise" else 1, 3 if kind in ("windows", "depthwise") else 1
    insert = 2 if kind == "inserted" else 1
    for seed in range(6):
        c = Case(np.random.default_rng(seed), "CONV")
        dims = (1, 4, 5, 6)
        c.fields.update(
            x_dims=dims,
            batch=1,
            out_channels=8,
            groups=groups,
            kernel=(kernel, kernel),
            stride=(1, 1),
            dilation=(1, 1),
            insert=(insert, insert),
            origin=(-(kernel // 2),) * 2,
            out_height=5,
            out_width=6,
            w_type="int8",
        )
        c.tensor("x", dims, dtype)
        c.zero("x")
        c.const("w", c.rng.integers(-128, 128, 8 * 4 // groups * kernel * kernel).astype(np.int8))
        c.acc(8 * 5 * 6)
        c.fields["acc_type"], c.fields["acc"] = acc, c.place(8 * 5 * 6 * 8)
        image = np.random.default_rng(seed).integers(0, 256, (2, LOCAL)).astype(np.uint8)
        np.testing.assert_array_equal(*both_ways(wrap(c), image))


@pytest.mark.parametrize("acc", ["int32", "int64"])
@pytest.mark.parametrize(("channels", "groups", "w_zero"), [(300, 1, 0), (300, 1, -20000), (6, 6, -20000)])
def test_sums_beyond_32_bits_are_made_of_parts(channels: int, groups: int, w_zero: int, acc: str) -> None:
    """Outermost codes: weights that fit no 16 bits without their zero point, sums that fit no 32."""
    c, out = Case(np.random.default_rng(channels), "CONV"), 6
    dims = (1, channels, 2, 3)
    c.fields.update(
        x_dims=dims, batch=1, out_channels=out, groups=groups, kernel=(1, 2), stride=(1, 1), dilation=(1, 1),
        insert=(1, 1), origin=(0, -1), out_height=2, out_width=3, w_type="int16", w_zero=w_zero,
    )
    c.tensor("x", dims, "int16")
    c.zero("x")
    c.const("w", c.rng.choice(np.array([-32768, 32767], np.int16), out * channels // groups * 2))
    c.acc(out * 6)
    c.fields["acc_type"], c.fields["acc"] = acc, c.place(out * 6 * 8)
    codes = np.random.default_rng(1).choice(np.array([-32768, 32767], np.int16), (2, LOCAL // 2))
    np.testing.assert_array_equal(*both_ways(wrap(c), codes.view(np.uint8)))


@pytest.mark.parametrize(
    ("opcode", "seed"), [*(("CONV", s) for s in range(30)), *(("SCALEDCONV", s) for s in (3, 17, 104, 216))]
)
def test_random_convolutions_have_compiled_steps(opcode: str, seed: int) -> None:
    """Zeros between rows with strides, samples side by side, unsigned 16-bit codes whose zero point is 0."""
    program = wrap(random_case(seed, opcode))
    image = np.random.default_rng(5).integers(0, 256, (2, LOCAL)).astype(np.uint8)
    np.testing.assert_array_equal(*both_ways(program, image))
    if opcode == "CONV":
        steps = [getattr(s, "func", s) for s in SimulatedMachine(program, 2).steps]
        assert not [s for s in steps if "execute" in getattr(s, "__qualname__", "")]


def test_the_simulator_shares_no_arithmetic() -> None:
    """Nothing of the simulator, the runner or what they read of a program imports the reference:
    numerics, operators, interpreter, graphs. (The section that holds a graph is for other readers.)"""
    numbers = ("npuflow.hw.numerics", "npuflow.ops", "npuflow.ir", "npuflow.rules")
    shared = (*numbers, "npuflow.run.interpret", "npuflow.quantise")
    program = set((ROOT / "npuflow/program").glob("*.py")) - {ROOT / "npuflow/program/graph_section.py"}
    files = [*OWN, ROOT / "npuflow/runner/simulated.py", *sorted(program)]
    wrong = []
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert not node.level
                modules = [node.module or "", *(f"{node.module}.{a.name}" for a in node.names)]
            wrong += [
                f"{path.name}: {m}" for m in modules if any(m == s or m.startswith(s + ".") for s in shared)
            ]
    assert len(files) > 20 and not wrong, wrong


def test_importing_the_simulator_loads_no_reference() -> None:
    """Not by a detour either."""
    code = (
        "import sys, npuflow.runner.simulated, npuflow.kernels.fast, npuflow.sim.hazards, "
        "npuflow.sim.clock\n"
        "shared = ('npuflow.hw.numerics', 'npuflow.ops', 'npuflow.ir', 'npuflow.run.interpret')\n"
        "print([m for m in sys.modules if m.startswith(shared)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120, check=False
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_the_exact_path_compiles_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """NPUFLOW_KERNELS=exact: no numba, no onnxruntime, and the very bytes of the compiled path."""
    code = (
        "import sys, hashlib\n"
        "import numpy as np\n"
        "from tests.sim.cases import MAKERS, random_case\n"
        "from tests.sim.programs import wrap\n"
        "from npuflow.sim.machine import SimulatedMachine\n"
        "image, found = np.random.default_rng(1).integers(0, 256, (2, 16384)).astype(np.uint8), "
        "hashlib.sha256()\n"
        "for opcode in sorted(MAKERS):\n"
        "    for seed in (1, 2):\n"
        "        machine = SimulatedMachine(wrap(random_case(seed, opcode)), 2)\n"
        "        machine.write('in', image)\n"
        "        try: machine.run(0)\n"
        "        except Exception as error: found.update(type(error).__name__.encode()); continue\n"
        "        found.update(machine.read('out').tobytes())\n"
        "print(found.hexdigest(), [m for m in ('numba', 'onnxruntime') if m in sys.modules])"
    )
    exact = {**os.environ, "NPUFLOW_KERNELS": "exact", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=exact, check=False
    )
    assert done.returncode == 0, done.stderr
    monkeypatch.delenv("NPUFLOW_KERNELS", raising=False)
    exec(code, {})                        # here, where what is compiled is there already
    found = [text.split(maxsplit=1) for text in (done.stdout, capsys.readouterr().out)]
    assert found[0][1].strip() == "[]" and "numba" in found[1][1]
    assert found[0][0] == found[1][0]


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NPUFLOW_KERNELS", raising=False)
    assert fast.usable()
    monkeypatch.setenv("NPUFLOW_KERNELS", "exact")
    assert not fast.usable()


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_quotients_round_alike(dtype: str, rounding: str) -> None:
    """Small numbers, so that ties, signs and zero divisors are among the quotients."""
    for seed in range(4):
        c = Case(np.random.default_rng(seed), "DIV")
        c.fields["dims"] = dims = (1, 2, 20, 30)
        for name in "ab":
            c.tensor(name, dims, dtype)
            c.fields[f"{name}_zero"] = seed % 3 - 1
        c.tensor("y", dims, dtype)
        c.fields.update(multiplier=1 + seed, shift=seed - 1, zero=seed, lo=-100, hi=100, rounding=rounding)
        shape = (2, LOCAL // np.dtype(dtype).itemsize)
        image = np.random.default_rng(seed).integers(-5, 6, shape).astype(dtype)
        np.testing.assert_array_equal(*both_ways(wrap(c), image.view(np.uint8)))


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_products_of_one_term(dtype: str) -> None:
    for seed in range(4):
        c = Case(np.random.default_rng(seed), "MATMUL")
        c.fields.update(batch=2, m=7, k=1, n=20)
        for name, dims in (("a", (2, 7, 1)), ("b", (2, 1, 20))):
            c.tensor(name, dims, dtype)
            c.zero(name)
        c.acc(2 * 7 * 20)
        image = np.random.default_rng(seed).integers(0, 256, (2, LOCAL)).astype(np.uint8)
        np.testing.assert_array_equal(*both_ways(wrap(c), image))


@settings(max_examples=400, deadline=None)
@given(
    value=st.integers(-(1 << 59), 1 << 59), multiplier=st.integers(0, (1 << 32) - 1),
    shift=st.integers(30, 62), tie=st.booleans(), mode=st.integers(0, 3),
)
def test_products_of_two_limbs_round_as_integers_do(
    value: int, multiplier: int, shift: int, tie: bool, mode: int
) -> None:
    """Also half way between two results, where one place more or less decides."""
    if tie:
        value, multiplier = (value >> 32 | 1) << 8, 1 << max(shift - 9, 0) % 32
    want = int(shift_round(np.array([value * multiplier], object), shift, ROUNDINGS[mode])[0])
    assert int(rounded_wide(np.int64(value), np.int64(multiplier), shift, mode)) == want
