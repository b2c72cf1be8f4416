"""Large models are written tensor by tensor: the bytes are protobuf's own."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from npuflow.onnx import serialised as module
from npuflow.onnx.serialised import serialised


def model(sizes: list[int], texts: list[str], functions: int) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(np.arange(n, dtype=np.float32), f"w{i}") for i, n in enumerate(sizes)]
    port = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, None])
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w0"], ["y"], "add")], texts[0], [port],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)], tensors, doc_string=texts[1],
        value_info=[port],
    )
    own = [
        helper.make_function(
            "npuflow", f"f{i}", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])],
            [helper.make_opsetid("", 18)],
        )
        for i in range(functions)
    ]
    made = helper.make_model(graph, functions=own, producer_name=texts[2], doc_string=texts[3])
    for text in texts:
        made.metadata_props.add(key=f"key {text}", value=text)
    return made


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 9_000), max_size=4), functions=st.integers(0, 2),
    texts=st.lists(st.text(max_size=200), min_size=4, max_size=4),
)
def test_the_bytes_are_those_of_protobuf(sizes: list[int], texts: list[str], functions: int) -> None:
    made = model(sizes, texts, functions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LARGE", 0)
        found = serialised(made)
    assert found == made.SerializeToString(deterministic=True) == serialised(made)


def test_a_model_without_anything() -> None:
    assert serialised(onnx.ModelProto()) == b""


def test_more_than_a_message_holds_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    made = model([9_000], ["a"] * 4, 0)
    monkeypatch.setattr(module, "LARGE", 0)
    monkeypatch.setattr(module, "MOST", made.ByteSize())
    serialised(made)
    monkeypatch.setattr(module, "MOST", made.ByteSize() - 1)
    with pytest.raises(ValueError, match="at most"):
        serialised(made)
