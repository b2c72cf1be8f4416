"""A quantised network as self-contained C99: whole tensors, a static arena, one kernel an opcode."""
