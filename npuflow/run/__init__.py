"""Networks run: the driver of all runners, the reference, floats, state, and ONNX models.

Noun: `Interpreter`.
Public: `Interpreter`, `FloatRun`, `RunPart`, `driven`, `Steps`, `host_session`.
Does not know: plans, commands, the simulator.
"""
