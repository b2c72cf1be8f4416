"""C kernels, one opcode a file: what a command on whole tensors becomes in the generated source."""
