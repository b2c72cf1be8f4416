"""Every operator's form in PyTorch against its own reference, on the published suite's samples; gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from npuflow.gradients.fake_quantization import FakeQuantize, FakeQuantizeChannels, rounded  # noqa: E402
from npuflow.gradients.operators import FORMS, NumericFunction, computed, has_form  # noqa: E402
from npuflow.ir.graph import Graph, constant  # noqa: E402
from npuflow.ir.op import OPS, Node, OpSample  # noqa: E402
from npuflow.ir.types import TensorType, Value  # noqa: E402

HERE = sorted({*FORMS, "slice", "gather", "pad", "split", "expand", "depthtospace", "selu", "tan"})


def placed(sample: OpSample) -> tuple[Graph, Node]:
    """The sample as a graph of one node."""
    values: dict[str, Value] = {}
    consts: dict[str, Any] = {}
    names = []
    for i, array in enumerate(sample.inputs):
        names.append("" if array is None else f"x{i}")
        if array is None:
            continue
        values[f"x{i}"] = Value(f"x{i}", TensorType(array.shape, array.dtype.name))
        if i in sample.constant:
            values[f"x{i}"], made = constant(f"x{i}", array)
            consts.update(made)
    kinds = sample.op.infer(*(values[n].type if n else None for n in names))
    outputs = tuple(f"y{i}" for i in range(len(kinds)))
    values.update({o: Value(o, kind) for o, kind in zip(outputs, kinds, strict=True)})
    node = Node(sample.op, tuple(names), outputs)
    fed = tuple(n for i, n in enumerate(names) if n and i not in sample.constant)
    return Graph(fed, outputs, (node,), values, consts), node


@pytest.mark.parametrize("name", HERE)
def test_forms_are_the_reference(name: str) -> None:
    if name not in OPS:
        pytest.fail(f"{name} is no operator")
    count = 0
    for sample in OPS[name].samples(np.random.default_rng(0)):
        graph, node = placed(sample)
        site = graph.site(node)
        arrays = [None if a is None else np.asarray(a) for a in sample.inputs]
        if not has_form(site) or any(a is not None and a.dtype != np.float32 for a in arrays):
            continue
        with np.errstate(all="ignore"):
            wanted = sample.op.clipped(*arrays)
        tensors = [None if a is None else torch.from_numpy(a).unsqueeze(0) for a in arrays]
        many = [t if t is None or i in sample.constant else torch.cat([t, t]) for i, t in enumerate(tensors)]
        for made, want in zip(computed(site, many), wanted, strict=True):
            assert made.shape == (2, *want.shape)
            np.testing.assert_allclose(made[1].numpy(), want, rtol=2e-4, atol=2e-5)
        count += 1
    assert count or not list(OPS[name].samples(np.random.default_rng(0)))


def test_functions_without_a_form_have_gradients() -> None:
    x = torch.linspace(-1, 1, 9, requires_grad=True)
    NumericFunction.apply(x, OPS["gelu"]()).sum().backward()
    y = x.detach().requires_grad_()
    torch.nn.functional.gelu(y).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("rounding", ["half_up", "half_even", "half_away", "truncate"])
def test_one_pass_is_the_formula(rounding: Any) -> None:
    """The compiled loops against the plain formula, in values and gradients."""
    torch.manual_seed(0)
    x = (torch.randn(3, 5, 7) * 4).contiguous()
    x[0, 0] = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5]) * 0.5
    gradient = torch.randn(3, 5, 7)
    found = []
    for function, shape in ((FakeQuantize, (1,)), (FakeQuantizeChannels, (1, 1, 1))):
        own = x.transpose(0, 2).clone(memory_format=torch.preserve_format).requires_grad_()
        scale = torch.full(shape, 0.5, requires_grad=True)
        y = function.apply(own, scale, -7, 8, rounding)
        y.backward(gradient.transpose(0, 2))
        found.append((y.detach(), own.grad, scale.grad.reshape(1)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    wanted = rounded(x / 0.5, rounding).clamp(-7, 8) * 0.5
    assert torch.equal(found[0][0], wanted.transpose(0, 2))
