"""ONNX as data: attributes, types, graphs as ONNX models, small models run.

Noun: `ModelProto`.
Public: `export_model`, `opened`, `session`, `value_info`, `CannotRunError`.
Does not know: rewriting, quantisation.
"""
