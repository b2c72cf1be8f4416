"""Turns LSTM, GRU and RNN with the batch first into ones with the sequence first.
onnxruntime does not run layout = 1.
"""

from __future__ import annotations

import onnx

RECURRENT = ("LSTM", "GRU", "RNN")
STATES = (5, 6)                           # inputs that are initial states


def sequence_first(node: onnx.NodeProto, prefix: str) -> list[onnx.NodeProto] | None:
    """The node as onnxruntime runs it; None where it is so already."""
    layout = next((a for a in node.attribute if a.name == "layout"), None)
    if node.op_type not in RECURRENT or layout is None or layout.i != 1:
        return None
    new = onnx.NodeProto()
    new.CopyFrom(node)
    kept = [a for a in node.attribute if a.name != "layout"]
    del new.attribute[:]
    new.attribute.extend(kept)
    before: list[onnx.NodeProto] = []
    after: list[onnx.NodeProto] = []
    # [batch, sequence, size], [batch, directions, size]
    for index in (0, *STATES):
        if index < len(node.input) and node.input[index]:
            new.input[index] = f"{prefix}/input{index}"
            before.append(_transposed(node.input[index], new.input[index], [1, 0, 2]))
    for index, name in enumerate(node.output):             # [sequence, directions, batch, size], then states
        if name:
            new.output[index] = f"{prefix}/output{index}"
            after.append(_transposed(new.output[index], name, [1, 0, 2] if index else [2, 0, 1, 3]))
    return [*before, new, *after]


def _transposed(source: str, result: str, order: list[int]) -> onnx.NodeProto:
    return onnx.helper.make_node("Transpose", [source], [result], perm=order)
