"""ONNX as data: attributes and subgraphs, types, running small models. Format and runtime, no rewriting."""
