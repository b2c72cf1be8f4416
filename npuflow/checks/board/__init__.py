"""Golden tensors of a program, and where a board's dumps leave them: layer, tile, command, element, cause."""
