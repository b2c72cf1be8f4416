"""Running a network: the reference interpreter, steps with state, and the graph as ONNX models."""
