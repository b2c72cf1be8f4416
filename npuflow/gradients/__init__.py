"""Graphs of real numbers in PyTorch, with gradients; needs the extra torch."""
