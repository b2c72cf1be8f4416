"""Tables cut to the numbers between which a function varies: each result of the whole table, in few bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuflow.base.errors import InternalError
from npuflow.forms.float_table import CutTable, cut
from npuflow.hw.floats import decoded, encoded, rounded
from npuflow.ir.forms import float_table
from npuflow.ir.op import OPS
from npuflow.ops._table import TableOp
from npuflow.quantise.config import Quantize
from npuflow.run.interpret import interpret
from npuflow.testing.op import samples
from tests.ops.test_float_suite import FLOATS, NUMERICS, ROOMY, check_program, quantised
from tests.tiers import spread

FUNCTIONS = sorted({s.op for n in OPS.names() for s in samples(n) if isinstance(s.op, TableOp)}, key=str)
# KiB of a table in bfloat16, where one of all numbers has 128
MOST = {
    "sigmoid": 7, "tanh": 3, "gelu": 6, "silu": 7, "erf": 6, "exp": 8, "hardswish": 5, "elu": 3, "log": 64
}


@pytest.mark.parametrize(("source", "target"), spread(["bfloat16", "float16"], ["bfloat16", "float16"]))
def test_a_cut_table_has_every_result(source: str, target: str) -> None:
    every = decoded(np.arange(1 << 16), source)
    assert len(FUNCTIONS) > 30
    for op in FUNCTIONS:
        made = cut(op.f, lambda y: encoded(y, target), source, target)
        with np.errstate(all="ignore"):
            want = encoded(op.f(every), target)
        np.testing.assert_array_equal(made.results(source, target), want, err_msg=str(op))
        again = CutTable.of(made.params())
        np.testing.assert_array_equal(again.results(source, target), want, err_msg=str(op))


@pytest.mark.parametrize("name", MOST)
def test_only_what_varies_is_kept(name: str) -> None:
    op = next(s.op for s in samples(name))
    assert float_table(op, "bfloat16") <= MOST[name] << 10


@pytest.mark.parametrize("mode", ["bf16", "fp16"])
@pytest.mark.parametrize("name", ["sigmoid", "tanh", "gelu", "erf", "log", "sign", "celu"])
def test_reference_and_program_agree_on_every_number(name: str, mode: str) -> None:
    every = decoded(np.arange(1 << 16), FLOATS[mode]).astype(np.float32).reshape(256, 256)
    sample = replace(next(iter(samples(name))), inputs=(every,))
    graph, one = quantised(sample, NUMERICS, Quantize(mode=mode))
    found = interpret(graph, one.inputs, NUMERICS)[graph.outputs[0]]
    with np.errstate(all="ignore"):
        want = rounded(sample.op.f(every.astype(np.float64)), FLOATS[mode]).astype(np.float32)
    np.testing.assert_array_equal(found.view(np.uint32), want.view(np.uint32))
    with np.errstate(all="ignore"):
        check_program(graph, one.inputs, ROOMY, f"{sample.op} in {mode}")


def test_nan_has_one_result() -> None:
    with pytest.raises(InternalError, match="several numbers of NaN"):
        half = "float16"
        cut(lambda x: np.where(np.signbit(x), 1.0, 2.0), lambda y: encoded(y, half), half, half)
