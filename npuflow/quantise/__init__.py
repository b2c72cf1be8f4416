"""The float graph with thresholds becomes the quantised graph.

Noun: `Candidate`.
Public: `Candidate`, `build`, `Quantize`, `Override`, `weight_type`.
Does not know: samples, search, who chose a range or a code.
"""
