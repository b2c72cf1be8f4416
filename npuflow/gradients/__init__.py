"""Graphs of real numbers in PyTorch, with gradients; needs the extra torch.

Noun: `RealNetwork`.
Public: `RealNetwork`, `Quantizer`, `distillation_loss`.
Does not know: recipes, programs.
"""
