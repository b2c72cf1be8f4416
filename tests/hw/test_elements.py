"""The table of element types: what derives from a row, and that a new width costs one row a sign."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from npuflow.base.errors import InternalError
from npuflow.hw.elements import (
    CODED,
    ELEMENTS,
    TABLE,
    Block,
    Element,
    container,
    having,
    packing,
    sparse_packing,
    wide,
)
from npuflow.hw.target import FloatName
from npuflow.kernels.operands import unpacked
from npuflow.program.codegen.consts import pack
from tests.tiers import often

ROOT = Path(__file__).parents[2]


def test_codes_stand_in_programs_and_never_change() -> None:
    first = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "int4", "uint4")
    assert CODED[:12] == (*first, "float16", "bfloat16", "float32")
    assert [ELEMENTS[name].code for name in CODED] == list(range(len(CODED))), (
        "codes are numbered without a gap"
    )
    assert len(ELEMENTS) == len(TABLE)


OF_NUMPY = [row.name for row in TABLE if row.kind == "int" and not row.packed and row.block is None]


@pytest.mark.parametrize("name", OF_NUMPY)
def test_rows_are_numpys_types(name: str) -> None:
    row, info = ELEMENTS[name], np.iinfo(name)
    assert (row.range, row.bytes, row.numpy) == ((info.min, info.max), np.dtype(name).itemsize, name)


def test_roles() -> None:
    assert having("tensor") == ("int8", "uint8", "int16", "uint16")
    assert having("sum") == ("int32", "int64")
    assert set(having("weight")) == {*having("tensor"), "int4", "uint4", "int8_2of4", "int4_2of4"}
    assert (having("float"), having("float_sum")) == (("float16", "bfloat16"), ("float32",))
    assert set(having("block")) == {row.name for row in TABLE if row.block}


def test_the_smallest_type_that_holds_a_width() -> None:
    assert [container(b, True) for b in (2, 8, 9, 16, 17, 33)] == [
        "int8",
        "int8",
        "int16",
        "int16",
        "int32",
        "int64",
    ]
    assert [container(b, False) for b in (4, 12, 32)] == ["uint8", "uint16", "uint32"]
    assert [packing(b, True) for b in (2, 4, 5, 8, 16)] == ["int4", "int4", None, None, None]
    assert [packing(b, False) for b in (3, 8)] == ["uint4", None]
    assert [sparse_packing(b, True, (2, 4)) for b in (3, 4, 5, 8, 9)] == [
        "int4_2of4", "int4_2of4", "int8_2of4", "int8_2of4", None
    ]
    assert sparse_packing(8, False, (2, 4)) is None and sparse_packing(8, True, (4, 8)) is None
    assert [wide(b) for b in (8, 9)] == [False, True]


def test_storage_counts_bits_and_shared_exponents() -> None:
    assert [ELEMENTS[n].storage(5) for n in ("int8", "int16", "int4", "bfloat16")] == [5, 10, 3, 10]
    sparse = [ELEMENTS[f"int{bits}_2of4"].storage(n) for bits in (8, 4) for n in (4, 8, 9)]
    assert sparse == [3, 5, 8, 2, 3, 5]
    mx = Element("mxint8", 8, block=Block(32))
    assert [mx.storage(n) for n in (32, 33, 64)] == [33, 66, 66], "a block is stored whole"
    assert Element("bfp4", 4, block=Block(16)).storage(16) == 9
    sizes = {row.name: (row.block.size, row.block_bytes, row.numpy) for row in TABLE if row.block}
    assert sizes == {
        "bfp16": (8, 9, "uint16"), "bfp16_16": (16, 17, "uint16"), "mx9": (16, 18, "uint32"),
        "mx6": (16, 12, "uint16"), "mxint8": (32, 33, "uint16"), "mxfp8": (32, 33, "uint16"),
        "mxfp8_e5m2": (32, 33, "uint16"), "mxfp4": (32, 17, "uint16"),
        "mxfp6": (32, 25, "uint16"), "mxfp6_e3m2": (32, 25, "uint16"),
    }


@pytest.mark.parametrize("bits", [2, 3, 4, 6, 12])
@pytest.mark.parametrize("signed", [True, False])
def test_what_is_packed_is_read_back(bits: int, signed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Element("odd", bits, signed=signed, packed=True)
    monkeypatch.setitem(ELEMENTS, "odd", row)
    lo, hi = row.range
    codes = np.random.default_rng(bits).integers(lo, hi + 1, (3, 7)).astype(row.numpy)
    raw, (offset,) = pack([(codes, "odd")], [((0, 3), (0, 7))])
    assert offset == 0 and len(raw) == row.storage(21)
    found = unpacked(np.frombuffer(raw, np.uint8), "odd")
    assert found.dtype == row.numpy
    np.testing.assert_array_equal(found[:21], codes.reshape(-1))


@pytest.mark.parametrize("name", [row.name for row in TABLE if row.sparse])
def test_sparse_elements_are_read_back(name: str) -> None:
    row, rng = ELEMENTS[name], np.random.default_rng(3)
    assert row.sparse is not None
    kept, of = row.sparse
    lo, hi = row.range
    codes = rng.integers(lo, hi + 1, (50, of)).astype(row.numpy)
    zeros = np.argsort(rng.random(codes.shape), axis=1)[:, : of - kept]
    np.put_along_axis(codes, zeros, 0, 1)
    codes[7] = 0
    raw, _ = pack([(codes.reshape(5, -1), name)], [((0, 5), (0, 40))])
    assert len(raw) == row.storage(codes.size) < codes.size
    found = unpacked(np.frombuffer(raw, np.uint8), name)
    np.testing.assert_array_equal(found[: codes.size], codes.reshape(-1))
    codes[3] = 1
    with pytest.raises(InternalError, match="are not zero"):
        pack([(codes, name)], [((0, 50), (0, of))])


def test_targets_name_the_floats_of_the_table() -> None:
    assert get_args(FloatName) == (*having("float"), *having("block"))


TWELVE = '''
    Element("int12", 12, 22, ("weight",), packed=True),
    Element("uint12", 12, 23, ("weight",), signed=False, packed=True),
'''
PAGE = (ROOT / "docs/how-to/add-an-opcode.md").read_text()
(TWO,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "int2" in block)
THROUGH = """
import sys, types
rows, bits = sys.argv[1], int(sys.argv[2])
path = sys.argv[3] + "/npuflow/hw/elements.py"
text = open(path).read()
at = text.index(")\\nELEMENTS:")
module = types.ModuleType("npuflow.hw.elements")
module.__file__ = path
import npuflow.hw
sys.modules["npuflow.hw.elements"] = npuflow.hw.elements = module
exec(compile(text[:at] + rows + text[at:], path, "exec"), module.__dict__)

from dataclasses import replace
from npuflow.quantise.config import Activations, Quantize, Weights
from npuflow.testing.quantised import quantize_graph
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from tests.networks.harness import SMALL, check_exact
from tests.networks.small import Builder

target = replace(SMALL, numerics=Numerics(acc_bits=48, weight_bits=(bits, 8), weight_zero_point=True))
b = Builder()
x = b.conv(b.input("x", (1, 3, 9, 7)), 11, 3)
x = b.conv(x, 11, 3, depthwise=True)
x = b.add(OPS["globalaveragepool"](), x)
x = b.add(OPS["reshape"]((1, 11)), x)
y = b.add(OPS["gemm"](transB=1), x, b.const((5, 11), 0.3), b.const((5,), 0.1))
graph = Graph(("x",), (y,), tuple(b.nodes), b.values, b.consts)
ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
for signed in (True, False):
    weights = Weights(bits=bits, symmetric=signed, signed=signed)
    scheme = replace(Quantize(weights, Activations(bits=16 if bits > 8 else 8)), on_refusal="error")
    done = quantize_graph(graph, lambda _: True, ranges, scheme, target.numerics).graph
    for exact_only in (False, True):
        program = check_exact(done, {"x": b.arrays["x"]}, target, exact_only=exact_only)
    products = [c.fields for c in program.decoded[0] if c.opcode in ("CONV", "MATMUL")]
    types_ = [fields.get("w_type", fields.get("b_type")) for fields in products]
    print(*sorted(set(types_)))
"""


@pytest.mark.parametrize(("rows", "bits"), often([(TWO, 2), (TWELVE, 12)], 2), ids=["2 bits", "12 bits"])
def test_a_new_width_is_a_row_a_sign(rows: str, bits: int) -> None:
    """Quantised, planned, packed, encoded and simulated bit for bit, with nothing changed but the table."""
    done = subprocess.run(
        [sys.executable, "-c", THROUGH, rows, str(bits), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
    )
    assert done.stdout.split() == [f"int{bits}", f"uint{bits}"], done.stdout + done.stderr
