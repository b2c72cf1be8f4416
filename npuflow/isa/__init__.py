"""The opcodes, one a file: fields, meaning, bytes read and written, cycles, semantics, compiled kernels."""
