"""The float graph with thresholds becomes the quantised graph.

Noun: `Quantization`.
Public: `quantize_graph`, `Quantize`, `Override`, `weight_type`.
Does not know: samples, search, who chose a range or a code.
"""
