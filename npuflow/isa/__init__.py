"""The opcodes, one a file: fields, meaning, bytes read and written, cycles, semantics, compiled kernel.

Noun: `Opcode`.
Public: one class an opcode, found by scanning.
Does not know: other opcodes, graphs.
"""
