"""Products of rows of one tensor by the same matrix."""

from __future__ import annotations

import numpy as np
import pytest

from tests.networks.onnx_text import model, normal, ops, rewritten

WEIGHTS = {"w": normal(1, 64, 48, scale=.1), "b": normal(2, 48), "b2": normal(3, 48)}


def steps(count: int, rows: str = "Gather<axis=0>(x, at{k})", bias: str = "b") -> bytes:
    """Of [6, 1, 64] each step's row by the same weights; the first one with another bias."""
    weights = {**WEIGHTS, **{f"at{k}": np.array(k) for k in range(count)}}
    lines = [f"r{k} = {rows.format(k=k)} g{k} = Gemm(r{k}, w, {bias if k else 'b2'}) y{k} = Tanh(g{k})"
             for k in range(count)]
    outputs = ", ".join(f"float[1,48] y{k}" for k in range(count))
    return model(f"float[6,1,64] x => {outputs}", " ".join(lines), weights)


@pytest.mark.parametrize(("count", "products"), [(6, 1), (4, 1), (3, 3)])
def test_rows_of_steps(count: int, products: int) -> None:
    """At least four, which are most of the rows."""
    done = rewritten(steps(count))
    assert ops(done).count("gemm") == products


def test_rows_of_slices() -> None:
    """Parts of the first dimension, in another shape."""
    said = ["shape = Constant<value_ints=[2, 64]>() axes = Constant<value_ints=[0]>()"]
    for k in range(4):
        said += [f"a{k} = Constant<value_ints=[{4 * k}]>() e{k} = Constant<value_ints=[{4 * k + 4}]>()",
                 f"s{k} = Slice(x, a{k}, e{k}, axes) r{k} = Reshape(s{k}, shape) y{k} = MatMul(r{k}, w)"]
    outputs = ", ".join(f"float[2,48] y{k}" for k in range(4))
    done = rewritten(model(f"float[16,32] x => {outputs}", " ".join(said), WEIGHTS))
    assert len([o for o in ops(done) if o in ("gemm", "matmul")]) == 1


def test_a_small_matrix_stays() -> None:
    """It is loaded sooner than the rows are put together."""
    said = " ".join(f"r{k} = Gather<axis=0>(x, at{k}) y{k} = MatMul(r{k}, w)" for k in range(4))
    weights = {"w": normal(1, 6, 5), **{f"at{k}": np.array(k) for k in range(4)}}
    outputs = ", ".join(f"float[1,5] y{k}" for k in range(4))
    done = rewritten(model(f"float[4,1,6] x => {outputs}", said, weights))
    assert len([o for o in ops(done) if o in ("gemm", "matmul")]) == 4


def test_other_matrices_stay() -> None:
    said = " ".join(f"r{k} = Gather<axis=0>(x, at{k}) y{k} = MatMul(r{k}, w{k})" for k in range(4))
    weights = {f"w{k}": normal(k, 64, 48, scale=.1) for k in range(4)}
    weights |= {f"at{k}": np.array(k) for k in range(4)}
    outputs = ", ".join(f"float[1,48] y{k}" for k in range(4))
    done = rewritten(model(f"float[4,1,64] x => {outputs}", said, weights))
    assert len([o for o in ops(done) if o in ("gemm", "matmul")]) == 4
