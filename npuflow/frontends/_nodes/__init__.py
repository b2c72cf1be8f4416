"""Operators in ONNX's vocabulary, one by one, into a builder: what all front ends that speak it share."""
