"""Normalisations and reductions spelled in simpler operators: onnxruntime's results, whole on the NPU."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.place.place import place
from tests.networks.onnx_text import TARGET, model, normal, on_npu, ops, refused, rewritten

NORMS = (
    ("float[2,3,8] x => float[2,3,8] y", "y = LayerNormalization(x, s8, b8)"),
    ("float[2,3,8] x => float[2,3,8] y", "y = LayerNormalization<axis=1, epsilon=0.1>(x, s38)"),
    ("float[4,8] x => float[4,8] y, float[4,1] m, float[4,1] d", "y, m, d = LayerNormalization(x, s8, b8)"),
    ("float[1,3,2,5,8] x => float[1,3,2,5,8] y", "y = LayerNormalization(x, s8, b8)"),
    ("float[2,3,4,5] x => float[2,3,4,5] y", "y = InstanceNormalization(x, s3, b3)"),
    ("float[2,3,7] x => float[2,3,7] y", "y = InstanceNormalization<epsilon=0.01>(x, s3, b3)"),
    ("float[1,3,2,4,5] x => float[1,3,2,4,5] y", "y = InstanceNormalization(x, s3, b3)"),
    ("float[2,8,3,5] x => float[2,8,3,5] y", "y = GroupNormalization<num_groups=4>(x, s8, b8)"),
    ("float[2,8,3] x => float[2,8,3] y", "y = GroupNormalization<num_groups=1, epsilon=0.1>(x, s8, b8)"),
    ("float[2,3,4,5] x => float[2,3,4,5] y", "y = MeanVarianceNormalization(x)"),
    ("float[2,3,4,5] x => float[2,3,4,5] y", "y = MeanVarianceNormalization<axes=[1]>(x)"),
    ("float[2,3,6] x => float[2,3,6] y", "y = LpNormalization<p=1, axis=1>(x)"),
    ("float[2,3,6] x => float[2,3,6] y", "y = LpNormalization(x)"),
    ("float[1,7,4,5] x => float[1,7,4,5] y", "y = LRN<size=3>(x)"),
    ("float[1,7,4,5] x => float[1,7,4,5] y", "y = LRN<size=5, alpha=0.5, beta=0.5, bias=2.0>(x)"),
    ("float[2,3,6] x => float[2,3,6] y", "y = LogSoftmax(x)"),
    ("float[2,3,6] x => float[2,3,6] y", "y = LogSoftmax<axis=1>(x)"),
)
WEIGHTS = (
    {f"s{n}": normal(n, n) + 2 for n in (3, 8)}
    | {f"b{n}": normal(n + 50, n) for n in (3, 8)}
    | {"s38": normal(3, 3, 8)}
)


@pytest.mark.parametrize(("signature", "body"), NORMS)
def test_normalisations(signature: str, body: str) -> None:
    done = rewritten(model(signature, body, WEIGHTS, opset=21))
    assert not any(name.startswith("host:") for name in ops(done))
    on_npu(done)


@pytest.mark.parametrize("form", ["L1", "L2", "SumSquare", "LogSum", "LogSumExp", "Min", "Prod"])
@pytest.mark.parametrize(
    ("axes", "keep", "result"), [([1], 1, "2,1,5"), ([0, 2], 0, "3"), ([-1], 0, "2,3"), ([], 1, "1,1,1")]
)
def test_reductions(form: str, axes: list[int], keep: int, result: str) -> None:
    given = f"Reduce{form}<keepdims={keep}>(p, axes)" if axes else f"Reduce{form}<keepdims={keep}>(p)"
    body = f"p = Abs(x) y = {given}" if form == "LogSum" else f"p = Tanh(x) y = {given}"
    done = rewritten(
        model(f"float[2,3,5] x => float[{result}] y", body, {"axes": np.array(axes, np.int64)}, opset=18)
    )
    assert not any(name.startswith("host:") for name in ops(done))
    if axes == [1]:
        on_npu(done)


def test_names_of_the_source_stay() -> None:
    body = "[norm] y = LayerNormalization(x, s8, b8)"
    done = rewritten(model("float[4,8] x => float[4,8] y", body, WEIGHTS, opset=17))
    assert all(node.origin == ("norm",) for node in done.graph.nodes)
    assert done.graph.nodes[-1].outputs == ("y",)
    assert all(o == "y" or o.startswith("y:") for node in done.graph.nodes for o in node.outputs)


def test_what_cannot_be_spelled_says_why() -> None:
    """To whoever looks at the placement too."""
    body = "y = ReduceProd<keepdims=0>(x)"
    done = rewritten(model("float[1,5000] x => float y", body, opset=18))
    assert refused(done, "spell_reduce") == "a product of more than 4096 factors"
    assert place(done.graph, TARGET).places[0].reason == "a product of more than 4096 factors"
