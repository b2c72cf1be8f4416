"""TOSA forms, one opcode a file: the operators that a command on whole tensors becomes."""
