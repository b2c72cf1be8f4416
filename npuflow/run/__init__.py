"""The reference: a graph run node by node, with state, on samples, and as an ONNX model.

Noun: `Interpreter`.
Public: `Interpreter`, `SampleWalk`, `Steps`, `host_session`.
Does not know: plans, commands, the simulator.
"""
