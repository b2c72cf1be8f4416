"""The .npu file: container, metadata, order and accesses of commands; code generation and packing.

Noun: `Program`.
Public: `Program`, `load_program`, `order_of`, `regions`, `generate`.
Does not know: what a command computes, samples.
"""
